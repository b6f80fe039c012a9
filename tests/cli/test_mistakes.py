"""Mistakes in a command: each is told with what was probably meant, and with a remedy that wasn't tried already."""

import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest
from cyclopts import CoercionError

from smoothcert.bounds.base import BOUNDS
from smoothcert.cli import main
from smoothcert.cli.help_pages import in_words
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run, read_run
from tests.guarantees.hostile import toy_run

from .output import refusal


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    return " ".join(refusal(capsys, *words).replace("│", " ").split())


def guesses(text: str) -> list[str]:
    """The choices that a message names twice: once among all of them, and once as the guess."""
    named = Counter(re.findall(r'"([^"]+)"', text))
    return [choice for choice, times in named.items() if times == 2]


def test_every_choice_is_guessed(capsys):
    for name in ("cloper", "clopper", "pearson", "hoefding", "Bernstein"):
        (guess,) = guesses(told(capsys, "certify", "model", "--bound", name, "--out", "run"))
        assert guess in BOUNDS
        assert set(name.lower()) <= set(guess)
    with pytest.raises(SystemExit):
        main(["certify", "model", "--bound", "cloper", "--out", "run", "--log-format", "json"])
    error, _ = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert guesses(error["message"]) == ["clopper-pearson"]
    for words, meant in [
        (["plot", "run", "--kind", "acc", "--out", "a.png"], ["accuracy"]),
        (["table", "run", "--layout", "train"], ["training"]),
        (["run", "export", "run", "--format", "parq"], ["parquet"]),
        (["certify", "model", "--bound", "xyz", "--out", "run"], []),
    ]:
        assert guesses(told(capsys, *words)) == meant
    words = ["certify", "model", "--out", "run", "--sigma-search"]
    assert "'ladder'" in told(capsys, *words, "lad")
    text = told(capsys, *words, "ladder:top=1")
    assert all(name in text for name in ("ladder", "'top'", "grid"))


def test_a_knob_of_another_method_or_of_nobody(capsys, tmp_path):
    train = ["train", "digits", "--sigma", "0.5", "--out", "model"]
    sweep = ["sweep", "digits", "--sigmas", "0.5", "--out", str(tmp_path), "--methods"]
    others = ["'eta'", "consistency", "smoothmix"]
    for words, named in [
        ([*train, "--eta", "1"], ["gaussian", *others]),
        (
            [*train, "--objective", "macer", "--eta", "1"],
            ["macer", *others, "lam", "gamma", "beta", "copies"],
        ),
        ([*sweep, "gaussian:eta=1"], ["gaussian", *others]),
        ([*sweep, "gaussian:bogus=1"], ["gaussian", "'bogus'"]),
    ]:
        text = told(capsys, *words)
        assert all(name in text for name in named)
        assert not text.endswith(":")


def test_fewer_inputs_than_a_fit_keeps_apart(capsys, digits_model, tmp_path):
    words = ["--init", "0.25", "--max", "200", "--out", str(tmp_path / "fit")]
    text = told(capsys, "fit", "noise", str(digits_model), *words)
    assert all(part in text for part in (" 200 ", " 256", "--validation 50"))
    assert text.startswith("smoothcert: "), "nothing is announced that can't be"
    assert not (tmp_path / "fit").exists()


@pytest.mark.parametrize(
    ("pilot", "n", "warned"),
    [
        ("pilot:1%", 500, True),
        ("pilot:1%", 2000, True),
        ("pilot:1%", 20000, False),
        ("pilot:5%,100", 2000, False),
    ],
)
def test_a_pilot_that_costs_more_than_it_saves(capsys, digits_model, tmp_path, pilot, n, warned):
    words = ["certify", str(digits_model), "--n", str(n), "--max", "1", "--out", str(tmp_path / "run")]
    main([*words, "--stop", pilot, "--log-format", "json"])
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    warnings = [event["message"] for event in events if event["event"] == "warning"]
    assert bool(warnings) == warned
    for message in warnings:
        assert pilot in message
        assert str(n) in message
        votes = max(int(number) for number in re.findall(r"\d+", message))  # expected of an input
        assert votes > max(n, 1000), "more than without a pilot, and than the pilot alone"


HEADER, ROWS = (
    "idx\tlabel\tpredict\tradius\tcorrect\ttime",
    ["0\t1\t1\t0.5\t1\t0:00:01", "1\t2\t2\t0.25\t1\t0:00:01"],
)


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_logs_whose_lines_end_otherwise(tmp_path, end, capsys):
    log = tmp_path / "log.tsv"
    log.write_bytes("".join(line + end for line in [HEADER, *ROWS]).encode())
    main(["run", "import", str(log), "--sigma", "0.5", "--out", str(tmp_path / "run")])
    assert len(read_run(tmp_path / "run").records) == 2
    capsys.readouterr()
    log.write_bytes("".join(line + end for line in ROWS).encode())
    text = told(capsys, "run", "import", str(log), "--sigma", "0.5", "--out", str(tmp_path / "other"))
    assert str(log) in text
    assert HEADER.replace("\t", " ") in text
    assert "\\r" not in text


def paper_refusal(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str | None) -> str:
    plan = {"noise": "gaussian", "sigma": 0.25, "norm": "l2"}
    for place, label in (("a", 1), ("b", 2)):
        data = {"planned": [0]} | ({} if name is None else {"name": name})
        create_run(
            tmp_path / place, Manifest.of("import", plan, {}, data), [Record(0, label, 1, 0.5, 0.25, 1.0)]
        )
    return told(capsys, "table", str(tmp_path / "a"), str(tmp_path / "b"), "--layout", "paper")


def test_no_advice_that_was_taken_already(capsys, tmp_path):
    text = paper_refusal(capsys, tmp_path / "named", "mnist")
    assert "--dataset" not in text
    assert "mnist" in text
    assert "--dataset" in paper_refusal(capsys, tmp_path / "nameless", None)


def test_compare_prints_few_digits_and_points_to_volumes(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first = toy_run(Path("a run"), 40)

    def compared(name: str, **plan: object) -> str:
        toy_run(Path(name), 40, **plan)
        main(["compare", str(first), name, "--radii", "0.25"])
        return " ".join(capsys.readouterr().out.split())

    text = compared("b", sigma=0.30476919941058963)
    assert "0.304769 " in text
    assert "--kind area" not in text
    assert "0.500000001 " in compared("c", sigma=0.5 + 1e-9)
    (command,) = re.findall(r"`(smoothcert [^`]*)`", compared("d", noise="diagonal-gaussian", dimension=4))
    assert shlex.split(command)[1:] == ["plot", "a run", "d", "--kind", "area", "--out", "area.png"]


def test_the_parser_s_other_messages_are_its_own():
    message = "as it is"
    assert in_words(CoercionError(msg=message)) == message
