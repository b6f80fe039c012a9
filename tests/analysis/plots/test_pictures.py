"""Pictures of inputs, of σ vectors and of features: what they draw, and what they refuse."""

from typing import Any

import numpy as np
import pytest

from smoothcert.analysis.plots import drawing
from smoothcert.analysis.plots.gallery import plot_gallery
from smoothcert.analysis.plots.sigma import plot_features, plot_noise, scaled_globally
from smoothcert.analysis.plots.training import plot_clean_accuracy
from smoothcert.errors import InvalidValueError
from smoothcert.runs.records import Record

pytest.importorskip("matplotlib")

DIGITS = [str(k) for k in range(10)]
LONG = ["airplane", "an extraordinarily long name"]


def some_records(count: int, classes: int = 10) -> list[Record]:
    """Of every three, one abstains and one is wrong."""
    records = []
    for k in range(count):
        label = k % classes
        predicted = (-1, (label + 1) % classes, label)[k % 3]
        records.append(Record(k, label, predicted, 0.0 if predicted < 0 else k / count, 0.25, 0.0))
    return records


def test_a_picture_is_made(tmp_path):
    out = tmp_path / "gallery.png"
    for shape, names in (((1, 8, 8), DIGITS), ((12, 1, 8, 8), LONG), ((3, 3, 6, 8), LONG)):
        pictures = np.random.default_rng(0).random(shape)
        plot_gallery(pictures, some_records(shape[0], len(names)), names, out, "a $title")
        assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.slow
def test_of_many_inputs_a_part_is_shown(tmp_path):
    out = tmp_path / "gallery.svg"
    plot_gallery(np.zeros((500, 2, 2)), some_records(500), DIGITS, out, "many")
    assert out.read_bytes().count(b"<image ") == 144


def test_galleries_that_make_no_picture(tmp_path):
    for pictures, records, names, message in [
        (np.zeros((2, 8)), some_records(2), DIGITS, r"N×H×W.*\(2, 8\)"),
        (np.zeros((2, 4, 8, 8)), some_records(2), DIGITS, r"N×H×W.*\(2, 4, 8, 8\)"),
        (np.full((2, 8, 8), 16.0), some_records(2), DIGITS, r"\b16\.0\b"),
        (np.full((2, 8, 8), np.nan), some_records(2), DIGITS, r"\bnan\b"),
        (np.zeros((2, 8, 8)), some_records(3), DIGITS, r"\b2\b.*\b3\b"),
        (np.zeros((0, 8, 8)), [], DIGITS, r"\b0\b.*\b0\b"),
        (np.zeros((2, 8, 8)), some_records(2), ["0"], r"\b2\b.*class_names.*\b1\b"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            plot_gallery(pictures, records, names, tmp_path / "gallery.png", "title")
        assert not list(tmp_path.iterdir())


def test_one_scale_for_all_channels():
    sigmas = np.array([[[0.1, 0.2]], [[0.2, 0.5]], [[0.3, 0.3]]])
    assert scaled_globally(sigmas) == pytest.approx(np.array([[[0, 0.25]], [[0.25, 1]], [[0.5, 0.5]]]))
    assert (scaled_globally(np.full((1, 2, 2), 0.3)) == 0.5).all()


@pytest.mark.parametrize("shape", [(1, 6, 4), (3, 5, 5), (13,)])
def test_vectors_of_every_shape(tmp_path, shape):
    sigmas = np.random.default_rng(0).uniform(0.1, 5.0, size=shape)
    out = tmp_path / "picture.png"
    contents = []
    for width in ("page", "page", "column") if len(shape) == 1 else ("page", "column"):
        plot_noise([("a", sigmas), ("$b$", 2 * sigmas)], out, width)
        contents.append(out.read_bytes())
    assert contents[0] != contents[-1]
    assert len(set(contents)) == 2  # the same again is the same bytes


def test_the_pixels_are_the_sigmas(tmp_path):
    from matplotlib.image import imread

    sigmas = np.array([[[0.1, 0.5], [0.3, 0.2]]])
    plot_noise([("a", sigmas)], tmp_path / "a.png")
    picture = imread(tmp_path / "a.png")[..., 0]
    height, width = picture.shape
    found = [picture[int(height * y), int(width * x)] for y in (0.25, 0.65) for x in (0.25, 0.75)]
    assert found == pytest.approx([0.0, 1.0, 0.5, 0.25], abs=0.01)


def test_vectors_and_features_that_make_no_picture(tmp_path):
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


@pytest.mark.parametrize("count", [1, pytest.param(60, marks=pytest.mark.slow), 200])
def test_bars(tmp_path, count):
    names = [f"feature ${k} with a name that goes on and on" for k in range(count)]
    plot_features(names, [1.0 + k for k in range(count)], "σ", tmp_path / "bars.png", "column")
    assert (tmp_path / "bars.png").stat().st_size > 1000


def test_every_bar_has_its_name_and_the_axis_its_meaning(tmp_path, monkeypatch):
    drawn: list[Any] = []
    monkeypatch.setattr(drawing, "save_figure", lambda figure, *_: drawn.append(figure))
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
