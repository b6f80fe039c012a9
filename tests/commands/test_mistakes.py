"""Mistakes in a command: each is told with what was probably meant, and with a remedy that wasn't tried already."""

from __future__ import annotations

from pathlib import Path

import pytest
from cyclopts import CoercionError

from smoothcert.bounds import BOUNDS
from smoothcert.commands import main
from smoothcert.commands.mistakes import in_words
from smoothcert.registry import closest
from smoothcert.runs import Manifest, Record, create_run
from tests.guarantees.hostile import refusal, toy_run


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return " ".join(refusal(capsys, *words).replace("│", " ").split())


@pytest.mark.parametrize("name", ["cloper", "clopper", "pearson", "hoefding", "Bernstein"])
def test_a_bound_is_guessed(capsys: pytest.CaptureFixture[str], name: str) -> None:
    text = told(capsys, "certify", "model", "--bound", name, "--out", "run")
    (guess,) = [bound for bound in BOUNDS if f'Did you mean "{bound}"?' in text]
    assert set(name.lower()) - {"x"} <= set(guess)
    assert text.count("Did you mean") == 1


def test_nothing_is_guessed_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Did you mean" not in told(capsys, "certify", "model", "--bound", "xyz", "--out", "run")


def test_a_log_for_machines_has_the_guess(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["certify", "model", "--bound", "cloper", "--out", "run", "--log-format", "json"])
    assert "Did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["plot", "run", "--kind", "acc", "--out", "a.png"], "accuracy"),
        (["table", "run", "--layout", "train"], "training"),
        (["certify", "m", "--sigma-search", "lad", "--out", "r"], "ladder"),
        (["export-log", "run", "--format", "parq"], "parquet"),
    ],
)
def test_every_choice_is_guessed(capsys: pytest.CaptureFixture[str], words: list[str], meant: str) -> None:
    assert f"Did you mean '{meant}'?" in told(capsys, *words).replace('"', "'")


def test_parts_of_names() -> None:
    assert closest("cloper", list(BOUNDS)) == ["clopper-pearson"]
    assert closest("two-clas", list(BOUNDS))[0] == "two-class"
    assert closest("zzz", list(BOUNDS)) == []


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--eta", "1"], ["gaussian has no knob 'eta'", "belongs to consistency or smoothmix"]),
        (
            ["--objective", "macer", "--eta", "1"],
            ["macer has no knob 'eta'", "smoothmix", "it has lam, gamma"],
        ),
    ],
)
def test_a_knob_of_another_method(
    capsys: pytest.CaptureFixture[str], words: list[str], parts: list[str]
) -> None:
    text = told(capsys, "train", "digits", "--sigma", "0.5", *words, "--out", "model")
    assert all(part in text for part in parts)


def test_a_knob_of_nobody(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sweep = ["sweep", "digits", "--sigmas", "0.5", "--out", str(tmp_path)]
    assert "unknown knob of gaussian 'bogus'" in (
        text := told(capsys, *sweep, "--methods", "gaussian:bogus=1")
    )
    assert not text.endswith("Known:")
    assert "belongs to consistency or smoothmix" in told(capsys, *sweep, "--methods", "gaussian:eta=1")


def test_a_knob_of_another_search(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "certify", "model", "--sigma-search", "ladder:top=1", "--out", "run")
    assert "unknown knob of sigma search ladder 'top', which belongs to grid" in text


def test_fewer_inputs_than_a_fit_keeps_apart(
    capsys: pytest.CaptureFixture[str], digits_model: Path, tmp_path: Path
) -> None:
    words = ["fit-noise", str(digits_model), "--init", "0.25", "--max", "200", "--out", str(tmp_path / "fit")]
    text = told(capsys, *words)
    assert "200 inputs" in text
    assert "--validation 50" in text
    assert "of them kept apart" not in text  # nothing is announced that can't be
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize(("n", "warned"), [("500", True), ("2000", True), ("20000", False)])
def test_a_pilot_that_costs_more_than_it_saves(
    capsys: pytest.CaptureFixture[str], digits_model: Path, tmp_path: Path, n: str, warned: bool
) -> None:
    words = ["certify", str(digits_model), "--n", n, "--max", "1", "--out", str(tmp_path / "run")]
    main([*words, "--stop", "pilot:1%"])
    text = " ".join(capsys.readouterr().err.split())
    assert (f"pilot:1% costs more than it saves at n = {n}" in text) == warned
    if warned:
        assert int(text.partition("gets about ")[2].split()[0]) >= int(n)


def test_a_small_pilot_is_fine(
    capsys: pytest.CaptureFixture[str], digits_model: Path, tmp_path: Path
) -> None:
    words = ["certify", str(digits_model), "--n", "2000", "--max", "1", "--out", str(tmp_path / "run")]
    main([*words, "--stop", "pilot:5%,100"])
    assert "costs more" not in capsys.readouterr().err


HEADER, ROWS = (
    "idx\tlabel\tpredict\tradius\tcorrect\ttime",
    ["0\t1\t1\t0.5\t1\t0:00:01", "1\t2\t2\t0.25\t1\t0:00:01"],
)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_logs_whose_lines_end_otherwise(tmp_path: Path, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.tsv"
    log.write_bytes("".join(line + end for line in [HEADER, *ROWS]).encode())
    main(["import-log", str(log), "--sigma", "0.5", "--out", str(tmp_path / "run")])
    assert "2 inputs imported" in capsys.readouterr().err
    log.write_bytes("".join(line + end for line in ROWS).encode())
    text = told(capsys, "import-log", str(log), "--sigma", "0.5", "--out", str(tmp_path / "other"))
    assert "line 1 holds numbers" in text
    assert "the header is missing; put the line idx label predict radius correct time" in text
    assert "\\r" not in text


def paper_refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str | None) -> str:
    plan = {"noise": "gaussian", "sigma": 0.25, "norm": "l2"}
    for place, label in (("a", 1), ("b", 2)):
        data = {"planned": [0]} | ({} if name is None else {"name": name})
        create_run(
            tmp_path / place, Manifest.of("import", plan, {}, data), [Record(0, label, 1, 0.5, 0.25, 1.0)]
        )
    return told(capsys, "table", str(tmp_path / "a"), str(tmp_path / "b"), "--layout", "paper")


def test_no_advice_that_was_taken_already(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = paper_refusal(capsys, tmp_path, "mnist")
    assert "--dataset" not in text
    assert "both are called mnist" in text


def test_advice_that_wasnt(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "import logs with --dataset NAME" in paper_refusal(capsys, tmp_path, None)


def test_compare_prints_few_digits_and_points_to_volumes(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = toy_run(Path("a run"), 40)
    toy_run(Path("b"), 40, sigma=0.30476919941058963)
    main(["compare", str(first), "b", "--radii", "0.25"])
    text = " ".join(capsys.readouterr().out.split())
    assert "sigma 0.5 and 0.304769" in text
    assert "0.30476919" not in text
    assert "stretched" not in text
    toy_run(Path("c"), 40, sigma=0.5 + 1e-9)
    main(["compare", str(first), "c", "--radii", "0.25"])
    assert "sigma 0.5 and 0.500000001" in " ".join(capsys.readouterr().out.split())
    toy_run(Path("d"), 40, noise="diagonal-gaussian", dimension=4)
    main(["compare", str(first), "d", "--radii", "0.25"])
    text = " ".join(capsys.readouterr().out.split())
    assert "regions of d are stretched" in text
    assert "`smoothcert plot 'a run' d --kind area --out area.png`" in text


def test_the_parser_s_other_messages_are_its_own() -> None:
    assert in_words(CoercionError(msg="as it is")) == "as it is"
