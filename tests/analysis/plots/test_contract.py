"""Every registered plot draws made-up runs, to the same bytes, in every format and without a warning."""

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
from tests.conftest import BuildOnce
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
def levelled(build_once: BuildOnce) -> Run:
    """A run whose σ follows the input: what there is to draw of it is in its directory."""
    return read_run(build_once("$levelled-plots$", certified))


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


def test_every_plot_says_what_it_is() -> None:
    written = {one.name: one for one in members("smoothcert.analysis.plots", "PLOTS")}
    for name in PLOTS.names():
        kind = PLOTS[name]
        assert kind.name == name
        assert kind.words, name
        assert {"out", "width", *kind.options} <= set(inspect.signature(kind.draw).parameters), name
        assert (written[name].argument("options") or {}) == kind.options, name


@pytest.mark.parametrize("name", PLOTS.names())
class TestEveryPlot:
    def test_the_same_things_make_the_same_bytes_in_every_format(
        self, name: str, things: Callable[[], list[Any]], tmp_path: Path
    ) -> None:
        outs = [tmp_path / f"picture{suffix}" for suffix in (".pdf", ".svg", ".png")]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for out in outs:
                page = drawn(name, things(), out)
                assert drawn(name, things(), out) == page, out.name
            # The width makes another figure, whatever its format: one format is enough.
            assert drawn(name, things(), out, "column") != page
        assert sorted(tmp_path.iterdir()) == sorted(outs)

    def test_what_no_plot_draws(self, name: str, things: Callable[[], list[Any]], tmp_path: Path) -> None:
        out = tmp_path / "picture.png"
        if PLOTS[name].fewest:
            with pytest.raises(InvalidValueError):
                drawn(name, [], out)
        if PLOTS[name].reads == "runs":
            with pytest.raises(RunError, match="made"):
                drawn(name, [made_run(records=())], out)
            with pytest.raises(InvalidValueError, match=r"l2.*l1"):
                drawn(name, [made_run("a"), made_run("b", norm="l1")], out)
        with pytest.raises(InvalidValueError, match="poster"):
            drawn(name, things(), out, "poster")
        with pytest.raises(InvalidValueError, match=r"\.png.*\.gif"):
            drawn(name, things(), out.with_suffix(".gif"))
        assert not list(tmp_path.iterdir())
