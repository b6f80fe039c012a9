"""Every registered plot draws made-up runs, to the same bytes, in every format and without a warning."""

import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.analysis.evidence import radius_ceiling
from smoothcert.analysis.plots import curves as curves_module
from smoothcert.analysis.plots.curves import plot_certified_accuracy
from smoothcert.analysis.plots.kinds import PLOTS
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, MissingExtraError, OutputError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.perturb.hybrid import Masks
from smoothcert.rounding import normal_quantile_down
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.side_files import EpochMetrics
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
def levelled(build_once) -> Run:
    """A run whose σ follows the input: what there is to draw of it is in its directory."""
    return read_run(build_once("$levelled-plots$", certified))


@pytest.fixture(scope="module")
def masked(build_once) -> Run:
    """A run whose certificates are about changed values."""
    return read_run(build_once("$masked-plots$", masked_run))


def masked_run(out: Path) -> None:
    codes = np.random.default_rng(0).integers(0, 2, (6, 5)).astype(np.float32)

    def scores(batch: np.ndarray) -> np.ndarray:
        ones = (batch == 1).sum(1)
        return np.stack([2.5 - ones, ones - 2.5], 1)

    classifier = SmoothedClassifier(scores, noise=Masks(0.5, 2), n=400, n0=20, seed=0, alpha=0.05)
    certify_dataset(classifier, Dataset("codes", codes, (codes.sum(1) > 2).astype(np.int64), ("a", "b")), out)


@pytest.fixture
def things(name, levelled, masked) -> Callable[[], list[Any]]:
    """Makes what a plot draws."""
    special = {"levels": levelled, "changes": masked}
    return (lambda: [special[name]]) if name in special else THINGS[PLOTS[name].reads]


OPTIONS = {"over": "n", "dimension": 64}
"""What plots are told that can't do without."""


def drawn(name: str, things: list[Any], out: Path, width: str = "page") -> bytes:
    kind = PLOTS[name]
    options = {option: OPTIONS[option] for option in kind.options if option in OPTIONS}
    kind.draw(things, out=out, width=width, **options)
    return out.read_bytes()


def test_every_plot_says_what_it_is():
    for name in PLOTS.names():
        kind = PLOTS[name]
        assert kind.name == name
        assert kind.words, name
        assert {"out", "width", *kind.options} <= set(inspect.signature(kind.draw).parameters), name


@pytest.mark.parametrize("name", PLOTS.names())
class TestEveryPlot:
    @pytest.mark.slow
    def test_the_same_things_make_the_same_bytes_in_every_format(self, name, things, tmp_path):
        outs = [tmp_path / f"picture{suffix}" for suffix in (".pdf", ".svg", ".png")]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for out in outs:
                page = drawn(name, things(), out)
                assert drawn(name, things(), out) == page, out.name
            # The width makes another figure, whatever its format: one format is enough.
            assert drawn(name, things(), out, "column") != page
        assert sorted(tmp_path.iterdir()) == sorted(outs)

    def test_what_no_plot_draws(self, name, things, tmp_path):
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


SIGNATURES = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


def test_a_file_of_the_right_kind(tmp_path):
    for suffix in (*SIGNATURES, ".PNG"):
        out = tmp_path / f"curve{suffix}"
        plot_certified_accuracy([made_run(), made_run("_other $x$", n=None)], out)
        assert out.read_bytes().startswith(SIGNATURES[suffix.lower()])
    assert len([*tmp_path.iterdir()]) == 4
    nothing = (Record(0, 1, -1, 0.0, 0.25, 0.0),)
    plot_certified_accuracy([made_run(records=nothing, n=None)], tmp_path / "nothing.png")
    plot_certified_accuracy([made_run(f"run {k}") for k in range(40)], tmp_path / "many.png")


def test_ceiling():
    expected = 0.25 * normal_quantile_down(clopper_pearson_lower(1000, 1000, 0.001))
    assert radius_ceiling(made_run()) == pytest.approx(expected, rel=1e-9)
    assert radius_ceiling(made_run(alpha=None)) is None
    assert radius_ceiling(made_run(bound="of another tool")) is None
    assert radius_ceiling(made_run(records=(Record(0, 1, 1, 0.5, 0.3, 0.0),))) is None


def test_a_file_of_the_right_kind_or_none(tmp_path, monkeypatch):
    with pytest.raises(OutputError, match=r"nowhere/curve\.png"):
        plot_certified_accuracy([made_run()], tmp_path / "nowhere" / "curve.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"'smoothcert\[plot\]'"):
        plot_certified_accuracy([made_run()], tmp_path / "curve.png")


@pytest.mark.parametrize("plan", [{"stateful": True}, {"stop": ["total:9000,100"]}])
@pytest.mark.parametrize("band", [None, True])
def test_no_band_where_inputs_depend_on_one_another(tmp_path, monkeypatch, plan, band):
    drawn: list[tuple[list[bool], str]] = []

    def draw(
        curves: list[curves_module.DrawnCurve], norm: str, out: Path, width: str, words: str, _: Any
    ) -> None:
        drawn.append(([curve.band is not None for curve in curves], words))

    dependent = made_run("dependent", **plan)
    plot_certified_accuracy([dependent], tmp_path / "alone.svg", band=band)
    monkeypatch.setattr(curves_module, "draw_curves", draw)
    plot_certified_accuracy([dependent, made_run()], tmp_path / "both.svg", band=band)
    plot_certified_accuracy([made_run()], tmp_path / "free.svg", band=band)
    assert [bands for bands, _ in drawn] == [[False, True], [True]]
    assert drawn[0][1] != drawn[1][1], "the legend says that a band is missing"
    monkeypatch.undo()
    plot_certified_accuracy([dependent], tmp_path / "without.svg", band=False)
    assert (tmp_path / "alone.svg").read_bytes() == (tmp_path / "without.svg").read_bytes()
