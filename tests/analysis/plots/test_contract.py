"""Every registered plot draws made-up runs, to the same bytes, at either width and without a warning."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.analysis.plots import PLOTS
from smoothcert.commands.written_knobs import members
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs import Run, read_run
from smoothcert.runs.epochs import EpochMetrics
from tests.levelled_runs import certified

from ..made_runs import FIVE_AND_TWO, made_run

pytest.importorskip("matplotlib")

VARYING = tuple(replace(record, sigma=0.1 * (1 + record.index)) for record in FIVE_AND_TWO)


@dataclass(frozen=True)
class Rung:
    sub_epoch: int
    area: float
    accuracy: float
    kept: bool = True


def runs() -> list[Any]:
    """Two runs of one method that differ in n, each with a σ for each input."""
    made = [made_run(f"$n{n}$", VARYING, n=n) for n in (100, 1000)]
    return [replace(run, manifest=run.manifest.stating(origin={"method": "a"})) for run in made]


THINGS: dict[str, Callable[[], list[Any]]] = {
    "runs": runs,
    "ladders": lambda: [("one", [Rung(0, -3.0, 0.9), Rung(1, 1.0, 0.8)])],
    "scales": lambda: [
        ("one", np.linspace(0.1, 1.0, 64).reshape(1, 8, 8)),
        ("other", np.full((1, 8, 8), 0.3)),
    ],
    "trainings": lambda: [
        (name, [EpochMetrics(k, 1 / k, 0.2 * k, "test", 0.01, 1.0, acr=0.1 * k) for k in (1, 2, 3)])
        for name in ("$one$", "other")
    ],
}


@pytest.fixture(scope="module")
def levelled(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose σ follows the input: what there is to draw of it is in its directory."""
    return read_run(certified(tmp_path_factory.mktemp("levelled") / "$run$"))


@pytest.fixture
def things(name: str, levelled: Run) -> Callable[[], list[Any]]:
    """Makes what a plot draws."""
    return (lambda: [levelled]) if name == "levels" else THINGS[PLOTS[name].reads]


OPTIONS = {"over": "n", "dimension": 64}
"""What plots are told that can't do without."""


def drawn(name: str, things: list[Any], out: Path, width: str = "page") -> bytes:
    kind = PLOTS[name]
    options = {option: OPTIONS[option] for option in kind.options if option in OPTIONS}
    kind.draw(things, out=out, width=width, **options)
    return out.read_bytes()


@pytest.mark.parametrize("name", PLOTS.names())
class TestEveryPlot:
    def test_says_what_it_is(self, name: str) -> None:
        kind = PLOTS[name]
        assert kind.name == name
        assert kind.words
        parameters = set(inspect.signature(kind.draw).parameters)
        assert {"out", "width", *kind.options} <= parameters
        (written,) = (one for one in members("smoothcert.analysis.plots", "PLOTS") if one.name == name)
        assert (written.argument("options") or {}) == kind.options

    @pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
    def test_the_same_things_make_the_same_bytes_at_either_width(
        self, name: str, suffix: str, things: Callable[[], list[Any]], tmp_path: Path
    ) -> None:
        out = tmp_path / f"picture{suffix}"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            contents = [drawn(name, things(), out, width) for width in ("page", "page", "column")]
        assert contents[0] == contents[1] != contents[2]
        assert [path.name for path in tmp_path.iterdir()] == [out.name]

    def test_what_no_plot_draws(self, name: str, things: Callable[[], list[Any]], tmp_path: Path) -> None:
        out = tmp_path / "picture.png"
        if PLOTS[name].fewest:
            with pytest.raises(InvalidValueError, match=r"at least one|got 0"):
                drawn(name, [], out)
        if PLOTS[name].reads == "runs":
            with pytest.raises(RunError, match="no input has been certified yet"):
                drawn(name, [made_run(records=())], out)
            with pytest.raises(InvalidValueError, match=r"a \(l2\), b \(l1\)"):
                drawn(name, [made_run("a"), made_run("b", norm="l1")], out)
        with pytest.raises(InvalidValueError, match="unknown width"):
            drawn(name, things(), out, "poster")
        with pytest.raises(InvalidValueError, match="pictures are written as"):
            drawn(name, things(), out.with_suffix(".gif"))
        assert not list(tmp_path.iterdir())
