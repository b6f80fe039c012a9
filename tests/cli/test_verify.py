"""smoothcert verify as people use it: exit codes, words, JSON, and votes that are cast again."""

import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert.cli import main
from smoothcert.replay import Replay
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import read_run
from tests.verification.runs import certified, copied, edit_plan, edit_record, edit_votes, figures

MODEL = """import numpy as np

def bands(batch):
    first = batch[:, 0]
    return np.where(first > 0, 1, np.where(first < -2, 2, 0)).astype(np.int64)

def elsewhere(batch):
    raise SystemExit("this model must not be loaded")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model, data and a run of both, made by the commands."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "model_to_verify.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(12, 3)).astype(np.float32)
    np.savez(folder / "points.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    return folder


@pytest.fixture
def here(place, monkeypatch) -> Path:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "200")
    if not (place / "run").exists():
        certify("run", "--n", "500")
    return place


def certify(out: str, *words: str) -> None:
    model = ["certify", "model_to_verify:bands", *LABELS]
    main([*model, "--sigma", "0.5", "--n0", "20", "--seed", "5", "--quiet", "--out", out, *words])


LABELS = ["--model-returns", "labels", "--classes", "3", "--dataset", "npz:points.npz"]
REPLAY = ["--model", "model_to_verify:bands", *LABELS]


def code(*words: str) -> int:
    try:
        main(["verify", *words])
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def report(capsys: pytest.CaptureFixture[str], *words: str | Path, exit_code: int = 0) -> dict[str, Any]:
    """What verify says in JSON, with this exit code."""
    capsys.readouterr()
    assert code(*map(str, words), "--json") == exit_code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_an_honest_run_and_the_digest_somebody_told(here, capsys):
    found = report(capsys, "run")
    assert found["holds"] is True
    assert found["finished"] is True
    assert (found["records"], found["recomputed"], found["replayed"]) == (12, 12, 0)
    assert found["problems"] == []
    assert any("seed" in sentence for sentence in found["believed"])
    assert code("run") == 0
    shown = capsys.readouterr().out
    assert shown.startswith("run: 12 ")
    assert all(sentence in shown for sentence in (*found["verified"], *found["believed"]))
    assert found["results_sha256"] in shown
    assert code("run", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert code("run", "--digest", results_digest(read_run(here / "run").records)) == 0
    assert code("run", "--digest", "0" * 64) == 4
    assert "0" * 64 in capsys.readouterr().out


def test_something_that_does_not_follow(here, tmp_path, capsys):
    copied(here / "run", tmp_path / "run")
    victim = next(record for record in read_run(tmp_path / "run").records if not record.abstained)
    edit_record(tmp_path / "run", victim.index, radius=victim.radius * (1 + 1e-9))
    found = report(capsys, tmp_path / "run", exit_code=4)
    assert found["holds"] is False
    assert found["inputs_with_problems"] == [victim.index]
    (problem,) = found["problems"]
    stated, exact = figures(problem["message"])
    assert stated == victim.radius * (1 + 1e-9)
    assert victim.radius <= exact < stated
    for words in ([], ["--quiet"]):
        assert code(str(tmp_path / "run"), *words) == 4
        assert f"{victim.index}: {problem['message']}" in capsys.readouterr().out


def test_many_problems_are_cut_short_in_words_and_whole_in_json(here, tmp_path, capsys):
    copied(here / "run", tmp_path / "run")
    edit_plan(tmp_path / "run", seed=6)
    problems = [problem["message"] for problem in report(capsys, tmp_path / "run", exit_code=4)["problems"]]
    assert len(problems) == 24
    assert code(str(tmp_path / "run")) == 4
    shown = capsys.readouterr().out
    assert sum(shown.count(message) for message in set(problems)) == 20
    assert re.search(r" 4 .*--json", shown)


@pytest.mark.parametrize("extra", [[], ["--seed", "3", "--workers", "1", "--batch", "64"]])
def test_votes_cast_again(here, extra, capsys):
    found = report(capsys, "run", "--replay", "4", *REPLAY, *extra)
    assert found["replayed"] == 4
    assert any(" 4 " in sentence for sentence in found["verified"])
    assert any(" 8 " in sentence for sentence in found["believed"])


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
def test_votes_cast_again_for_plans_of_other_kinds(here, tmp_path, words, capsys):
    certify(str(tmp_path / "run"), *words)
    assert report(capsys, tmp_path / "run", "--replay", "99", *REPLAY)["replayed"] == 12


def test_votes_that_somebody_made_up(here, tmp_path, capsys):
    """A run that follows from its votes, whose votes aren't the model's: only casting them again shows it."""
    copied(here / "run", tmp_path / "run")
    victim = next(record for record in read_run(tmp_path / "run").records if not record.abstained)
    assert victim.estimation is not None
    counts = list(victim.estimation.counts)

    def surer(votes: dict[str, Any]) -> None:
        votes["counts"] = [sum(counts) if c == victim.predicted else 0 for c in range(len(counts))]

    edit_votes(tmp_path / "run", victim.index, "estimation", surer)
    (problem,) = report(capsys, tmp_path / "run", exit_code=4)["problems"]
    stated, exact = figures(problem["message"])
    assert stated == victim.radius < exact
    edit_record(tmp_path / "run", victim.index, radius=float(np.nextafter(exact, 0)))
    assert code(str(tmp_path / "run")) == 0
    (problem,) = report(capsys, tmp_path / "run", "--replay", "12", *REPLAY, exit_code=4)["problems"]
    assert problem["index"] == victim.index
    cast = [int(number) for number in re.findall(r"\d+", problem["message"])]
    assert cast[:2] == [500, victim.predicted], "stated: all for one class"
    assert set(counts) - {0} <= set(cast[2:]), "cast again: as the model votes"


def test_nobody_can_know_which_votes_will_be_cast_again(here, tmp_path, capsys, monkeypatch):
    """Whoever made up all votes but those of a choice known beforehand would pass."""
    copied(here / "run", tmp_path / "run")
    drawn = []
    for seed in (1, 2):
        monkeypatch.setattr("smoothcert.cli.verify.secrets.randbits", lambda _bits, seed=seed: seed)
        with monkeypatch.context() as patch:
            patch.setattr(
                Replay, "check", lambda _self, records, *_: drawn.append([r.index for r in records])
            )
            assert code(str(tmp_path / "run"), "--replay", "4", *REPLAY) == 0
        assert f"--seed {seed}" in capsys.readouterr().out
    assert len(drawn[0]) == len(drawn[1]) == 4
    assert drawn[0] != drawn[1]


def test_labels_and_base_classes_are_held_against_data_and_model(here, tmp_path, capsys):
    copied(here / "run", tmp_path / "run")
    record = read_run(tmp_path / "run").records[0]
    edit_record(tmp_path / "run", 0, label=(record.label + 1) % 3)
    edit_record(tmp_path / "run", 1, base=2)
    stated = json.loads((tmp_path / "run" / "run.json").read_text())
    stated["data"]["levels"] = 255  # as if the inputs were pictures, for which nothing is lost to rounding
    (tmp_path / "run" / "run.json").write_text(json.dumps(stated))
    (first, *_) = report(capsys, tmp_path / "run")["verified"]
    replay = (str(tmp_path / "run"), "--replay", "12", *REPLAY)
    found = report(capsys, *replay, exit_code=4)
    problems = {problem["index"]: problem["message"] for problem in found["problems"]}
    assert problems.keys() == {None, 0, 1}
    assert re.search(r"levels 255\b.*\bNone$", problems[None])
    assert re.search(rf"label {(record.label + 1) % 3}\b.*\b{record.label}$", problems[0])
    assert re.search(r"base .*2\b", problems[1])
    assert any(re.search(r"labels\D+1\b", sentence) for sentence in found["verified"])
    # What was checked has another heading where something doesn't follow.
    headings = []
    for words, exit_code in ((replay[:1], 0), (replay, 4)):
        assert code(*words) == exit_code
        headings.append(capsys.readouterr().out.partition(f"\n  - {first}\n")[0].splitlines()[-1])
    assert headings[0] != headings[1]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["nowhere"], "nowhere"),
        (["points.npz"], r"points\.npz .*run import"),
        (["run", "--replay", "3"], "--replay .*--model"),
        (["run", "--model", "model_to_verify:bands"], "--model .*--replay"),
        (["run", "--seed", "3"], "--seed .*--replay"),
        (["run", "--replay", "0", "--model", "model_to_verify:bands"], "--replay .* 0$"),
        (["run", "--replay", "3", "--model", "no_such_module:f"], "no_such_module"),
        (["run", "--formt", "xml"], "--formt"),
    ],
)
def test_mistakes_in_what_was_asked(here, words, named, capsys):
    assert code(*words) == 2
    assert re.search(named, " ".join(capsys.readouterr().err.split()))


def test_another_model_or_other_data(here, capsys):
    (here / "another_model.py").write_text(MODEL.replace("< -2", "< -3"))
    words = [word.replace("model_to_verify", "another_model") for word in REPLAY]
    assert code("run", "--replay", "2", *words) == 2
    stated = json.loads((here / "run" / "run.json").read_text())
    assert stated["model"]["sha256"][:12] in capsys.readouterr().err
    x = np.zeros((12, 3), np.float32)
    np.savez(here / "others.npz", x=x, y=np.zeros(12, np.int64))
    assert code("run", "--replay", "2", *[word.replace("points", "others") for word in REPLAY]) == 2
    errors = capsys.readouterr().err
    assert all(part in errors for part in ("npz:others.npz", stated["data"]["sha256"][:12], "--dataset"))


def test_nothing_that_a_run_names_is_opened(here, tmp_path, capsys):
    copied(here / "run", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    content["origin"] |= {"model": "model_to_verify:elsewhere", "dataset": "npz:/no/such/file.npz"}
    path.write_text(json.dumps(content))
    assert code(str(tmp_path / "run")) == 0
    assert code(str(tmp_path / "run"), "--replay", "2", *REPLAY) == 0


def test_data_are_read_where_the_run_states_them_if_allowed(here, tmp_path, capsys):
    without = [*REPLAY[:-2], "--replay", "2"]
    assert REPLAY[-2:] == ["--dataset", "npz:points.npz"]
    assert code("run", *without) == 2
    assert "--stated-data" in capsys.readouterr().err
    assert report(capsys, "run", *without, "--stated-data")["replayed"] == 2
    assert code("run", "--stated-data") == 2
    copied(here / "run", tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    content = json.loads(path.read_text())
    for stated in (None, 3):
        path.write_text(json.dumps(content | {"origin": {"dataset": stated}}))
        assert code(str(tmp_path / "run"), *without, "--stated-data") == 2
        assert "--dataset" in capsys.readouterr().err


def test_an_edited_statement_is_a_problem_and_its_votes_are_not_cast_again(here, tmp_path, capsys):
    for field, value in [("sigma", 1.0), ("alpha", 0.01), ("n", 400), ("seed", 6), ("bound", "hoeffding")]:
        shutil.copytree(here / "run", tmp_path / field)
        path = tmp_path / field / "run.json"
        content = json.loads(path.read_text())
        content["plan"][field] = value
        path.write_text(json.dumps(content))
        for words in ([], ["--replay", "2", *REPLAY]):
            found = report(capsys, tmp_path / field, *words, exit_code=4)
            assert "run.json" in found["problems"][0]["message"]
            assert found["replayed"] == 0


def test_a_training_run_is_none(digits_model, capsys):
    assert code(str(digits_model)) == 2
    errors = capsys.readouterr().err
    assert all(part in errors for part in (str(digits_model), "'train'"))


def test_digits_from_start_to_end(digits_model, tmp_path, capsys):
    out = str(tmp_path / "run")
    main(
        ["certify", str(digits_model), "--n", "100", "--max", "10", "--every", "40", "--quiet", "--out", out]
    )
    found = report(capsys, out, "--replay", "3", "--model", str(digits_model))
    assert (found["records"], found["expected"], found["replayed"]) == (10, 10, 3)
    assert found["finished"] is True, "all that were asked for are there"
    assert any(re.search(r"10\D+13\b.*--max", note) for note in found["notes"])


@pytest.fixture(scope="module")
def of_digits(digits_model, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("digits") / "run"
    main(["certify", str(digits_model), "--n", "100", "--max", "6", "--quiet", "--out", str(out)])
    return out


@pytest.mark.parametrize(
    ("part", "fields", "named"),
    [
        ("data", {"name": "imagenet"}, "'imagenet'.*digits"),
        ("origin", {"dataset": "imagenet"}, "'imagenet'.*digits"),
        ("origin", {"dataset": ["imagenet"]}, r"\['imagenet'\].*digits"),
        ("origin", {"split": "train"}, "'train'.*'test'"),
    ],
)
def test_data_under_another_name(digits_model, of_digits, tmp_path, capsys, part, fields, named):
    run = tmp_path / "run"
    copied(of_digits, run)
    stated = json.loads((run / "run.json").read_text())
    stated[part] |= fields
    (run / "run.json").write_text(json.dumps(stated))
    believed = report(capsys, run)["believed"]
    assert any(repr(stated["data"]["name"]) in sentence for sentence in believed)
    found = report(capsys, run, "--replay", "1", "--model", str(digits_model), exit_code=4)
    (problem,) = found["problems"]
    assert problem["index"] is None
    assert re.search(f"run.json .*{named}", problem["message"])


def test_a_name_is_believed_until_the_data_are_there(digits_model, of_digits, here, capsys):
    believed = report(capsys, of_digits)["believed"]
    assert any(re.search("'digits'.*'test'.*run.json", sentence) for sentence in believed)
    assert any("labels" in sentence for sentence in believed)
    found = report(capsys, of_digits, "--replay", "1", "--model", str(digits_model))
    assert not any("'digits'" in sentence or "labels" in sentence for sentence in found["believed"])
    assert any("labels" in sentence for sentence in found["verified"])
    # A path is another elsewhere, and data that were given by one have no name that could be compared.
    shutil.copy("points.npz", "moved.npz")
    assert code("run", "--replay", "1", *[word.replace("points", "moved") for word in REPLAY]) == 0


def test_a_run_without_records_verifies_nothing(here, tmp_path, capsys):
    copied(here / "run", tmp_path / "run")
    with closing(sqlite3.connect(tmp_path / "run" / "journal.sqlite")) as connection, connection:
        connection.execute("DELETE FROM records")
    for words in ([], ["--replay", "2", *REPLAY]):
        found = report(capsys, tmp_path / "run", *words, exit_code=5)
        assert (found["records"], found["recomputed"], found["replayed"]) == (0, 0, 0)
        (sentence,) = found["verified"]
        assert "run.json" in sentence


@pytest.mark.parametrize(
    ("words", "limits"),
    [
        (["--max", "6"], r"^6\D+12\D.*\(--max\)"),
        (["--shard", "2/3"], r"^4\D+12\D.*\(--shard 2/3\)"),
        (["--max", "6", "--shard", "2/3"], r"^2\D+12\D.*\(--max, --shard 2/3\)"),
    ],
)
def test_what_limited_a_run(here, tmp_path, capsys, words, limits):
    certify(str(tmp_path / "run"), "--n", "100", *words)
    (note,) = report(capsys, tmp_path / "run")["notes"]
    assert re.search(limits, note)


def test_more_inputs_than_can_be_counted(here, tmp_path):
    run = copied(here / "run", tmp_path / "run")
    stated = json.loads((run / "run.json").read_text())
    stated["data"] |= {"inputs": 10**30, "planned": 10**29}
    (run / "run.json").write_text(json.dumps(stated))
    assert code(str(run)) == 4


@pytest.mark.system
def test_it_needs_neither_torch_nor_scipy(tmp_path):
    run = certified(tmp_path / "run")
    program = (
        f"import sys; from smoothcert.cli import main; main(['verify', {str(run)!r}]); "
        "sys.exit('torch' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120).returncode == 0
