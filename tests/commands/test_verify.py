"""smoothcert verify as people use it: exit codes, words, JSON, and votes that are cast again."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.commands import main
from smoothcert.runs import read_run
from smoothcert.verification.replay import Replay
from tests.verification.runs import certified, copied, edit_plan, edit_record, edit_votes

MODEL = """import numpy as np

def bands(batch):
    first = batch[:, 0]
    return np.where(first > 0, 1, np.where(first < -2, 2, 0)).astype(np.int64)

def elsewhere(batch):
    raise SystemExit("this model must not be loaded")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, data and a run of both, made by the commands."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "model_to_verify.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    np.savez(folder / "points.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    return folder


@pytest.fixture
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    if not (place / "run").exists():
        certify("run", "--n", "500")
    return place


def certify(out: str, *words: str) -> None:
    model = ("model_to_verify:bands", "--outputs", "labels", "--classes", "3", "--dataset", "npz:points.npz")
    main(["certify", *model, "--sigma", "0.5", "--n0", "20", "--seed", "5", "--quiet", "--out", out, *words])


REPLAY = [
    "--model",
    "model_to_verify:bands",
    "--outputs",
    "labels",
    "--classes",
    "3",
    "--dataset",
    "npz:points.npz",
]


def code(*words: str) -> int:
    try:
        main(["verify", *words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_an_honest_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("run") == 0
    shown = capsys.readouterr().out
    assert "run: 12 inputs, verified" in shown
    for words in (
        "Believed",
        "the seed was chosen before the inputs",
        "results SHA-256",
    ):
        assert words in shown
    assert code("run", "--quiet") == 0
    assert capsys.readouterr() == ("", "")


def test_json(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("run", "--format", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["holds"] is True
    assert shown["finished"] is True
    assert (shown["records"], shown["recomputed"], shown["replayed"]) == (12, 12, 0)
    assert shown["problems"] == []


def test_something_that_does_not_follow(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(here / "run", tmp_path / "run")
    victim = next(record for record in read_run(tmp_path / "run").records if not record.abstained)
    edit_record(tmp_path / "run", victim.index, radius=victim.radius * (1 + 1e-9))
    assert code(str(tmp_path / "run")) == 4
    shown = capsys.readouterr().out
    assert "the results don't follow for 1 of them" in shown
    assert f"input {victim.index}: radius" in shown
    assert code(str(tmp_path / "run"), "--format", "json") == 4
    shown = json.loads(capsys.readouterr().out)
    assert shown["holds"] is False
    assert shown["inputs_with_problems"] == [victim.index]
    assert code(str(tmp_path / "run"), "--quiet") == 4
    assert f"input {victim.index}" in capsys.readouterr().out


def test_many_problems_are_cut_short_in_words_and_whole_in_json(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(here / "run", tmp_path / "run")
    edit_plan(tmp_path / "run", seed=6)
    assert code(str(tmp_path / "run")) == 4
    assert "and 4 more" in capsys.readouterr().out
    assert code(str(tmp_path / "run"), "--format", "json") == 4
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 24


def test_the_digest_somebody_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from smoothcert.runs.records import results_digest

    assert code("run", "--digest", results_digest(read_run(here / "run").records)) == 0
    assert code("run", "--digest", "0" * 64) == 4
    assert "expected was 000" in capsys.readouterr().out


@pytest.mark.parametrize("extra", [[], ["--seed", "3"], ["--workers", "1", "--batch", "64"]])
def test_votes_cast_again(here: Path, extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert code("run", "--replay", "4", *REPLAY, *extra) == 0
    shown = capsys.readouterr().out
    assert "the votes of 4 inputs, cast again" in shown
    assert "of the other 8 inputs" in shown


@pytest.mark.parametrize(
    "words",
    [
        ["--n", "500", "--stop", "decide:0.2", "--stop", "wrong"],
        ["--n", "500", "--stop", "pilot:5%,100"],
        ["--bound", "looks", "--n", "1000", "--stop", "gain:5%"],
        ["--n", "500", "--total-votes", "20000"],
        ["--n", "500", "--sigma-search", "ladder"],
        ["--n", "500", "--noise", "uniform"],
    ],
)
def test_votes_cast_again_for_plans_of_other_kinds(
    here: Path, tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    certify(str(tmp_path / "run"), *words)
    assert code(str(tmp_path / "run"), "--replay", "99", *REPLAY) == 0
    assert "the votes of 12 inputs" in capsys.readouterr().out


def test_votes_that_somebody_made_up(here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that follows from its votes, whose votes aren't the model's: only casting them again shows it."""
    copied(here / "run", tmp_path / "run")
    victim = next(record for record in read_run(tmp_path / "run").records if not record.abstained)
    assert victim.estimation is not None
    counts = list(victim.estimation.counts)

    def surer(votes: dict[str, Any]) -> None:
        votes["counts"] = [sum(counts) if c == victim.predicted else 0 for c in range(len(counts))]

    edit_votes(tmp_path / "run", victim.index, "estimation", surer)
    assert code(str(tmp_path / "run")) == 4
    exact = capsys.readouterr().out.split("smaller than the votes support, ")[1].split()[0]
    edit_record(tmp_path / "run", victim.index, radius=float(np.nextafter(float(exact), 0)))
    assert code(str(tmp_path / "run")) == 0
    capsys.readouterr()
    assert code(str(tmp_path / "run"), "--replay", "12", *REPLAY) == 4
    shown = capsys.readouterr().out
    assert (
        f"input {victim.index}: estimation votes 500 for class {victim.predicted}; cast again they are"
        in shown
    )


def test_nobody_can_know_which_votes_will_be_cast_again(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made up all votes but those of a choice known beforehand would pass."""
    copied(here / "run", tmp_path / "run")
    drawn = []
    for seed in (1, 2):
        monkeypatch.setattr("smoothcert.commands.verify.secrets.randbits", lambda _bits, seed=seed: seed)
        with monkeypatch.context() as patch:
            patch.setattr(
                Replay, "check", lambda _self, records, *_: drawn.append([r.index for r in records])
            )
            assert code(str(tmp_path / "run"), "--replay", "4", *REPLAY) == 0
        assert f"drawn by --seed {seed}" in capsys.readouterr().out
    assert len(drawn[0]) == len(drawn[1]) == 4
    assert drawn[0] != drawn[1]


def test_labels_and_base_classes_are_held_against_data_and_model(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(here / "run", tmp_path / "run")
    record = read_run(tmp_path / "run").records[0]
    edit_record(tmp_path / "run", 0, label=(record.label + 1) % 3)
    edit_record(tmp_path / "run", 1, base=2)
    stated = json.loads((tmp_path / "run" / "run.json").read_text())
    stated["data"]["levels"] = 255  # as if the inputs were pictures, for which nothing is lost to rounding
    (tmp_path / "run" / "run.json").write_text(json.dumps(stated))
    assert code(str(tmp_path / "run")) == 0
    capsys.readouterr()
    assert code(str(tmp_path / "run"), "--replay", "12", *REPLAY) == 4
    shown = capsys.readouterr().out
    assert "states inputs of levels 255, those of the data are None" in shown
    assert "input 0: label" in shown
    assert "input 1: base class 2" in shown
    assert "all labels, held against the data: 1 are others" in shown
    assert "Verified" not in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "not a run"),
        (["points.npz"], "not a run"),
        (["run", "--replay", "3"], "--replay needs --model"),
        (["run", "--model", "model_to_verify:bands"], "add --replay"),
        (["run", "--seed", "3"], "add --replay"),
        (["run", "--replay", "0", "--model", "model_to_verify:bands"], "at least 1"),
        (["run", "--replay", "3", "--model", "no_such_module:f"], "can't import"),
        (["run", "--format", "xml"], "xml"),
    ],
)
def test_mistakes_in_what_was_asked(
    here: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(*words) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_another_model_or_other_data(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "another_model.py").write_text(MODEL.replace("< -2", "< -3"))
    words = [word.replace("model_to_verify", "another_model") for word in REPLAY]
    assert code("run", "--replay", "2", *words) == 2
    assert "isn't the model that the run states" in capsys.readouterr().err
    x = np.zeros((12, 3), np.float32)
    np.savez(here / "others.npz", x=x, y=np.zeros(12, np.int64))
    assert code("run", "--replay", "2", *[word.replace("points", "others") for word in REPLAY]) == 2
    assert "doesn't hold the inputs" in capsys.readouterr().err


def test_nothing_that_a_run_names_is_opened(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(here / "run", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    content["origin"] |= {"model": "model_to_verify:elsewhere", "dataset": "npz:/no/such/file.npz"}
    path.write_text(json.dumps(content))
    assert code(str(tmp_path / "run")) == 0
    assert code(str(tmp_path / "run"), "--replay", "2", *REPLAY) == 0


def test_a_training_run_is_none(digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code(str(digits_model)) == 2
    assert "of kind 'train'" in capsys.readouterr().err


def test_digits_from_start_to_end(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    main(["certify", str(digits_model), "--n", "500", "--max", "10", "--skip", "40", "--quiet", "--out", out])
    assert code(out, "--replay", "3", "--model", str(digits_model)) == 0
    shown = capsys.readouterr().out
    assert ": 10 inputs, verified" in shown, "all that were asked for are there"
    assert "10 of the 13 inputs that its data allow were asked for (--max)" in shown
    assert "unfinished" not in shown


@pytest.fixture(scope="module")
def of_digits(digits_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("digits") / "run"
    main(["certify", str(digits_model), "--n", "100", "--max", "6", "--quiet", "--out", str(out)])
    return out


@pytest.mark.parametrize(
    ("part", "fields", "message"),
    [
        ("data", {"name": "imagenet"}, "run.json calls its data 'imagenet', and they are digits"),
        ("origin", {"dataset": "imagenet"}, "run.json calls its data 'imagenet', and they are digits"),
        ("origin", {"dataset": ["imagenet"]}, "and they are digits"),
        ("origin", {"split": "train"}, "run.json states the 'train' split"),
    ],
)
def test_data_under_another_name(
    digits_model: Path,
    of_digits: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    part: str,
    fields: dict[str, Any],
    message: str,
) -> None:
    run = tmp_path / "run"
    copied(of_digits, run)
    stated = json.loads((run / "run.json").read_text())
    stated[part] |= fields
    (run / "run.json").write_text(json.dumps(stated))
    assert code(str(run)) == 0
    assert f"the data are {stated['data']['name']!r}" in " ".join(capsys.readouterr().out.split())
    assert code(str(run), "--replay", "1", "--model", str(digits_model)) == 4
    assert message in " ".join(capsys.readouterr().out.split())


def test_a_name_is_believed_until_the_data_are_there(
    digits_model: Path, of_digits: Path, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code(str(of_digits)) == 0
    assert "that the data are 'digits', 'test' split, as run.json calls them" in capsys.readouterr().out
    assert code(str(of_digits), "--replay", "1", "--model", str(digits_model)) == 0
    shown = capsys.readouterr().out
    assert "as run.json calls them" not in shown
    assert "all labels, held against the data" in shown
    # A path is another elsewhere, and data that were given by one have no name that could be compared.
    shutil.copy("points.npz", "moved.npz")
    assert code("run", "--replay", "1", *[word.replace("points", "moved") for word in REPLAY]) == 0


def test_a_run_without_records_verifies_nothing(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copied(here / "run", tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / "journal.sqlite")) as connection, connection:
        connection.execute("DELETE FROM records")
    for words in ([], ["--replay", "2", *REPLAY]):
        assert code(str(tmp_path / "run"), *words) == 5
        shown = capsys.readouterr().out
        assert "recomputed from the votes" not in shown
        assert "nothing was recomputed" in shown
        assert "cast again with" not in shown
        assert "all labels" not in shown


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["--max", "6"], "6 of the 12 inputs that its data allow were asked for (--max)"),
        (["--shard", "2/3"], "4 of the 12 inputs that its data allow were asked for (--shard 2/3)"),
        (
            ["--max", "6", "--shard", "2/3"],
            "2 of the 12 inputs that its data allow were asked for (--max, --shard 2/3)",
        ),
    ],
)
def test_what_limited_a_run(
    here: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], note: str
) -> None:
    certify(str(tmp_path / "run"), "--n", "100", *words)
    assert code(str(tmp_path / "run")) == 0
    assert note in capsys.readouterr().out


def test_more_inputs_than_can_be_counted(here: Path, tmp_path: Path) -> None:
    run = copied(here / "run", tmp_path / "run")
    stated = json.loads((run / "run.json").read_text())
    stated["data"] |= {"inputs": 10**30, "planned": 10**29}
    (run / "run.json").write_text(json.dumps(stated))
    assert code(str(run)) == 4


def test_it_needs_neither_torch_nor_scipy(tmp_path: Path) -> None:
    run = certified(tmp_path / "run")
    program = (
        f"import sys; from smoothcert.commands import main; main(['verify', {str(run)!r}]); "
        "sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0
