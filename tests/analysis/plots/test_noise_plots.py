"""Pictures of fits: the numbers they draw, and what they refuse."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.analysis import figures
from smoothcert.analysis.plots import plot_clean_accuracy, plot_features, plot_noise
from smoothcert.analysis.plots.noise import scaled_globally
from smoothcert.errors import InvalidValueError

pytest.importorskip("matplotlib")


@dataclass(frozen=True)
class Point:
    sub_epoch: int
    area: float
    accuracy: float
    kept: bool


POINTS = [
    Point(0, -5.0, 0.9, False),
    Point(1, -4.0, 0.9, True),
    Point(2, -3.0, 0.7, False),
    Point(3, 1.0, 0.8, True),
]


def test_one_scale_for_all_channels() -> None:
    sigmas = np.array([[[0.1, 0.2]], [[0.2, 0.5]], [[0.3, 0.3]]])
    assert scaled_globally(sigmas) == pytest.approx(np.array([[[0, 0.25]], [[0.25, 1]], [[0.5, 0.5]]]))
    assert (scaled_globally(np.full((1, 2, 2), 0.3)) == 0.5).all()


@pytest.mark.parametrize("shape", [(1, 6, 4), (3, 5, 5), (6, 4), (13,), (2, 3, 3)])
def test_vectors_of_every_shape(tmp_path: Path, shape: tuple[int, ...]) -> None:
    sigmas = np.random.default_rng(0).uniform(0.1, 5.0, size=shape)
    out = tmp_path / "picture.png"
    contents = []
    for width in ("page", "page", "column"):
        plot_noise([("a", sigmas), ("$b$", 2 * sigmas)], out, width)
        contents.append(out.read_bytes())
    assert contents[0] == contents[1] != contents[2]


def test_the_pixels_are_the_sigmas(tmp_path: Path) -> None:
    from matplotlib.image import imread

    sigmas = np.array([[[0.1, 0.5], [0.3, 0.2]]])
    plot_noise([("a", sigmas)], tmp_path / "a.png")
    picture = imread(tmp_path / "a.png")[..., 0]
    height, width = picture.shape
    found = [picture[int(height * y), int(width * x)] for y in (0.25, 0.65) for x in (0.25, 0.75)]
    assert found == pytest.approx([0.0, 1.0, 0.5, 0.25], abs=0.01)


def test_refusals(tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    with pytest.raises(InvalidValueError, match=r"\b24\b.*\b0\b"):
        plot_noise([], out)
    with pytest.raises(InvalidValueError, match="poster"):
        plot_noise([("a", np.ones(3))], out, "poster")
    with pytest.raises(InvalidValueError, match="nothing-certified"):
        plot_clean_accuracy([("nothing-certified", [])], out)
    with pytest.raises(InvalidValueError, match=r"\b7\b.*\b0\b"):
        plot_clean_accuracy([], out)
    with pytest.raises(InvalidValueError, match=r"\b1\b.*\b0\b"):
        plot_features(["a"], [], "σ", out)
    assert not out.exists()


def test_ladders_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "picture.svg"
    plot_clean_accuracy([("a", POINTS), ("b", POINTS[1:])], out)
    assert out.stat().st_size > 1000


@pytest.mark.parametrize("count", [1, 60, 200])
def test_bars(tmp_path: Path, count: int) -> None:
    names = [f"feature ${k} with a name that goes on and on" for k in range(count)]
    plot_features(names, [1.0 + k for k in range(count)], "σ", tmp_path / "bars.png", "column")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_every_bar_has_its_name_and_the_axis_its_meaning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    monkeypatch.setattr(figures, "save_figure", lambda figure, *_: drawn.append(figure))
    long, meaning = (
        "a name that nobody would want to read twice",
        "a meaning far longer than the axis is wide " * 2,
    )
    plot_features(["cost in $", "area_$x", long], [1.0, 2.0, 3.0], meaning.strip(), tmp_path / "bars.png")
    (figure,) = drawn
    figure.canvas.draw()  # what a draw would put there, not what was asked for
    (axes,) = figure.axes
    shown = axes.get_yticklabels()
    assert [label.get_text() for label in shown] == ["cost in $", "area_$x", f"{long[:31]}…"]
    assert not any(label.get_parse_math() for label in shown)
    assert axes.xaxis.label.get_window_extent().x1 <= figure.bbox.x1
