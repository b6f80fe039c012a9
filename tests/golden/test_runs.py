"""Run directories that an earlier version made open, verify, resume, merge, recertify and report as they did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("onnxruntime")

from smoothcert import load_run
from tests.golden.make_runs import CERTIFY, FILES, FIT, IMPORT, INCOMPLETE, ROOT, RUNS, TRAIN, command, facts

EXPECTED = json.loads((ROOT / RUNS / "expected.json").read_text(encoding="utf-8"))
COMPLETE = [name for name in CERTIFY if name not in INCOMPLETE]


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # runs state relative paths of models and data


def copied(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(RUNS / name, folder / Path(name).name))


def succeeds(*words: object) -> str:
    code, printed = command(*words)
    assert code == 0, words
    return printed


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_stored_run_opens_and_verifies_as_it_did(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    assert facts(run) == EXPECTED[name]
    if EXPECTED[name]["kind"] != "train":
        opened = load_run(run)
        assert len(opened.records) == EXPECTED[name]["records"]
        assert opened.complete == (name not in INCOMPLETE)


@pytest.mark.parametrize("name", COMPLETE)
def test_the_same_command_finds_a_complete_run_unchanged(name: str, tmp_path: Path) -> None:
    """Its statement, with the hashes of plan, model and data, is the one that this version would write."""
    run = copied(name, tmp_path)
    succeeds("certify", *CERTIFY[name], "--out", run, "--quiet")
    assert facts(run) == EXPECTED[name]


@pytest.mark.parametrize("name", INCOMPLETE)
def test_an_interrupted_run_is_resumed_to_the_pinned_results(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    succeeds("certify", *CERTIFY[name], "--out", run, "--quiet")
    assert facts(run) == EXPECTED[INCOMPLETE[name]]


def test_shards_merge_to_the_pinned_results(tmp_path: Path) -> None:
    shards = [copied(name, tmp_path) for name in ("shard-1", "shard-2")]
    succeeds("merge", *shards, "--out", tmp_path / "merged", "--quiet")
    assert facts(tmp_path / "merged") == EXPECTED["merged"]


def test_recertified_results_are_the_pinned_ones(tmp_path: Path) -> None:
    run = copied("plain", tmp_path)
    succeeds("recertify", run, "--alpha", "0.05", "--out", tmp_path / "again", "--quiet")
    assert facts(tmp_path / "again") == EXPECTED["recertified"]


@pytest.mark.parametrize(
    "name", ["soft", "levels", "held", "stopped", "fitted-noise", "incomplete", "total", "pilot"]
)
def test_runs_of_every_kind_recertify(name: str, tmp_path: Path) -> None:
    run = copied(name, tmp_path)
    succeeds("recertify", run, "--alpha", "0.005", "--out", tmp_path / "again", "--quiet")
    assert facts(tmp_path / "again")["verify"] == 0


@pytest.mark.parametrize("name", ["search", "imported", "trained"])
def test_runs_without_votes_at_one_noise_are_not_recertified(name: str, tmp_path: Path) -> None:
    assert command("recertify", copied(name, tmp_path), "--out", tmp_path / "again")[0] == 2
    assert not (tmp_path / "again").exists()


def test_votes_can_be_cast_again(tmp_path: Path) -> None:
    run = copied("plain", tmp_path)
    model = ["--model", FILES / "digits.onnx", "--dataset", "digits"]
    succeeds("verify", run, "--replay", "2", *model, "--workers", "1", "--quiet")


def test_a_run_passes_through_a_memory_to_the_pinned_answers(tmp_path: Path) -> None:
    run = copied("search", tmp_path)
    succeeds("remember", run, "--memory", tmp_path / "new", "--out", tmp_path / "answers", "--quiet")
    assert facts(tmp_path / "answers") == EXPECTED["remembered"]
    for part in FILES.glob("regions.memory*"):
        shutil.copy(part, tmp_path)
    stored = tmp_path / "regions.memory"
    succeeds("remember", run, "--memory", stored, "--out", tmp_path / "asked-again", "--quiet")
    again = load_run(tmp_path / "asked-again").records
    assert again.predicted.tolist() == load_run(tmp_path / "answers").records.predicted.tolist()


def test_a_log_is_imported_to_the_pinned_results(tmp_path: Path) -> None:
    succeeds("import-log", FILES / "log.tsv", *IMPORT, "--out", tmp_path / "imported")
    assert facts(tmp_path / "imported") == EXPECTED["imported"]


def test_a_log_is_exported_as_it_was(tmp_path: Path) -> None:
    succeeds("export-log", copied("plain", tmp_path), "--out", tmp_path / "log.tsv")
    columns = [
        [line.split("\t")[:-1] for line in path.read_text(encoding="utf-8").splitlines()]
        for path in (tmp_path / "log.tsv", FILES / "log.tsv")
    ]
    assert columns[0] == columns[1]


def test_training_and_fitting_find_their_directories_finished(tmp_path: Path) -> None:
    trained, fit = copied("trained", tmp_path), copied("files/fit", tmp_path)
    weights = (trained / "model.safetensors").read_bytes()
    succeeds("train", *TRAIN, "--out", trained, "--quiet")
    assert (trained / "model.safetensors").read_bytes() == weights
    scales = (fit / "sigmas.npy").read_bytes()
    succeeds("fit-noise", *FIT, "--out", fit, "--quiet")
    assert (fit / "sigmas.npy").read_bytes() == scales


def test_a_trained_model_is_certified(tmp_path: Path) -> None:
    few = ["--max", "2", "--n0", "10", "--n", "50", "--workers", "1", "--quiet"]
    succeeds("certify", copied("trained", tmp_path), *few, "--out", tmp_path / "run")
    assert facts(tmp_path / "run")["verify"] == 0


def test_runs_are_shown_tabulated_and_reported(tmp_path: Path) -> None:
    names = [name for name, known in EXPECTED.items() if known["kind"] != "train"]
    runs = {name: copied(name, tmp_path) for name in names}
    for run in runs.values():
        assert json.loads(succeeds("show", run, "--json"))
    gaussian = [runs[name] for name in ("plain", "soft", "search", "levels", "stopped", "remembered")]
    assert succeeds("table", *gaussian)
    succeeds("report", *gaussian, "--out", tmp_path / "page", "--quiet")
    assert (tmp_path / "page" / "index.html").stat().st_size > 10_000
