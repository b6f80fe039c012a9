"""`smoothcert plot`: every kind from the command line, and options that belong to another kind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert.commands import main

from .test_table import RECORDS, make, refusal

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    "words",
    [
        ["--kind", "accuracy", "--no-band"],
        ["--kind", "envelope"],
        ["--kind", "ablation", "--over", "n"],
        ["--kind", "sigma"],
        ["--kind", "samples"],
        ["--kind", "confidence"],
        ["--kind", "area", "--width", "column"],
        ["--kind", "area", "--dimension", "3"],
    ],
    ids=" ".join,
)
def test_every_kind(tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    records = [replace(record, sigma=0.25 * (1 + record.index)) for record in RECORDS]
    runs = [make(tmp_path / f"n{n}", records, n=n) for n in (100, 1000)]
    main(["plot", *map(str, runs), *words, "--out", str(tmp_path / "picture.svg")])
    assert (tmp_path / "picture.svg").stat().st_size > 1000
    assert capsys.readouterr().err == ""


def test_samples_needs_no_run(tmp_path: Path) -> None:
    main(["plot", "--kind", "samples", "--out", str(tmp_path / "picture.pdf")])
    assert (tmp_path / "picture.pdf").stat().st_size > 1000


def test_a_run_under_way_is_drawn_and_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun = make(tmp_path / "begun", RECORDS[:1])
    main(["plot", str(begun), "--out", str(tmp_path / "picture.png")])
    assert "begun: 1 of the 2 inputs asked for so far" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name at least one run"),
        (["run", "--kind", "ablation"], "--over is missing"),
        (["run", "--over", "n"], "--over belongs to --kind ablation, got --kind accuracy"),
        (["run", "--kind", "envelope", "--band"], "--band belongs to --kind accuracy"),
        (["run", "--dimension", "3"], "--dimension belongs to --kind area"),
        (["run", "--kind", "sigma"], "every input was certified with σ = 0.25"),
        (["run", "empty"], "no input has been certified yet"),
        (["run", "other"], "different norms don't compare"),
    ],
)
def test_refusals(tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    make(tmp_path / "run")
    make(tmp_path / "empty", [])
    make(tmp_path / "other", norm="l1")
    named = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in words]
    out = tmp_path / "picture.png"
    assert message in refusal(capsys, "plot", *named, "--out", out)
    assert not out.exists()
