from __future__ import annotations

import sys
from pathlib import Path

import pytest

from smoothcert.analysis.plots import certified_accuracy_steps, plot_certified_accuracy, radius_ceiling
from smoothcert.analysis.plots import curves as curves_module
from smoothcert.bounds import clopper_pearson_lower
from smoothcert.errors import InvalidValueError, MissingExtraError, OutputError, RunError
from smoothcert.rounding import normal_quantile_down
from smoothcert.runs import Record
from tests.analysis.made_runs import FIVE_AND_TWO, made_run

SIGNATURES = {".png": b"\x89PNG\r\n\x1a\n", ".pdf": b"%PDF-", ".svg": b"<?xml"}


@pytest.mark.parametrize("suffix", [*SIGNATURES, ".PNG"])
def test_a_file_of_the_right_kind(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"curve{suffix}"
    plot_certified_accuracy([made_run(), made_run("_other $x$", n=None)], out)
    assert out.read_bytes().startswith(SIGNATURES[suffix.lower()])
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize("name", ["curve.gif", "curve"])
def test_other_kinds_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"\.pdf, \.png, \.svg"):
        plot_certified_accuracy([made_run()], tmp_path / name)


def test_steps_are_at_the_true_jumps() -> None:
    radii, accuracy = certified_accuracy_steps(FIVE_AND_TWO)
    assert radii.tolist() == [0.0, 0.0, 0.2, 0.5, 1.0]
    assert accuracy.tolist() == [5 / 7, 4 / 7, 3 / 7, 1 / 7, 0.0]


def test_many_runs_and_runs_without_a_certificate(tmp_path: Path) -> None:
    nothing = (Record(0, 1, -1, 0.0, 0.25, 0.0),)
    plot_certified_accuracy([made_run(records=nothing, n=None)], tmp_path / "nothing.png")
    plot_certified_accuracy([made_run(f"run {k}") for k in range(40)], tmp_path / "many.png")


def test_ceiling() -> None:
    expected = 0.25 * normal_quantile_down(clopper_pearson_lower(1000, 1000, 0.001))
    assert radius_ceiling(made_run()) == pytest.approx(expected, rel=1e-9)
    assert radius_ceiling(made_run(alpha=None)) is None
    assert radius_ceiling(made_run(bound="of another tool")) is None
    assert radius_ceiling(made_run(records=(Record(0, 1, 1, 0.5, 0.3, 0.0),))) is None


def test_refusals(tmp_path: Path) -> None:
    out = tmp_path / "curve.png"
    with pytest.raises(InvalidValueError):
        plot_certified_accuracy([], out)
    with pytest.raises(InvalidValueError, match=r"l2.*l1"):
        plot_certified_accuracy([made_run("a"), made_run("b", norm="l1")], out)
    with pytest.raises(RunError, match="made"):
        plot_certified_accuracy([made_run(records=())], out)
    with pytest.raises(OutputError, match=r"nowhere/curve\.png"):
        plot_certified_accuracy([made_run()], tmp_path / "nowhere" / "curve.png")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"'smoothcert\[plot\]'"):
        plot_certified_accuracy([made_run()], tmp_path / "curve.png")


@pytest.mark.parametrize("plan", [{"stateful": True}, {"stop": ["total:9000,100"]}])
@pytest.mark.parametrize("band", [None, True])
def test_no_band_where_inputs_depend_on_one_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: dict[str, object], band: bool | None
) -> None:
    drawn: list[tuple[list[bool], str]] = []

    def draw(
        curves: list[curves_module._Drawn], norm: str, out: Path, width: str, words: str, heading: str | None
    ) -> None:
        drawn.append(([curve.band is not None for curve in curves], words))

    dependent = made_run("dependent", **plan)
    plot_certified_accuracy([dependent], tmp_path / "alone.svg", band=band)
    monkeypatch.setattr(curves_module, "_draw", draw)
    plot_certified_accuracy([dependent, made_run()], tmp_path / "both.svg", band=band)
    plot_certified_accuracy([made_run()], tmp_path / "free.svg", band=band)
    assert [bands for bands, _ in drawn] == [[False, True], [True]]
    assert drawn[0][1] != drawn[1][1], "the legend says that a band is missing"
    monkeypatch.undo()
    plot_certified_accuracy([dependent], tmp_path / "without.svg", band=False)
    assert (tmp_path / "alone.svg").read_bytes() == (tmp_path / "without.svg").read_bytes()
