"""Every mistake a user is likely to make: a message that names it and the remedy, exit code 2, nothing lost."""

import os
import pickle
import resource
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert.cli import main
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import read_run

from .output import names, refusal


def npz(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    np.savez(path, x=x, y=y)
    return path


GOOD_X, GOOD_Y = np.zeros((4, 1, 8, 8), dtype=np.float32), np.arange(4)


def test_options(digits_model, tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    for options, named in [
        (["--sigma", "0"], ["sigma", "0.0"]),
        (["--sigma", "-0.5"], ["sigma", "-0.5"]),
        (["--sigma", "nan"], ["sigma", "nan"]),
        (["--alpha", "0"], ["alpha", "0.0"]),
        (["--alpha", "1"], ["alpha", "1.0"]),
        *(([f"--{name}", "0"], [name, 0]) for name in ("n0", "n", "max", "skip", "workers", "batch")),
        (["--device", "abacus"], ["'abacus'", "--device"]),
        (["--dataset", "digit"], ["'digit'", "'digits'"]),
        (["--dataset", "nothing.npz"], ["nothing.npz"]),
        (["--dataset", "mnist"], ["mnist", "--data-dir"]),
    ]:
        assert names(refusal(capsys, "certify", digits_model, *options, "--out", "run"), *named)
        assert not list(tmp_path.iterdir())


def test_data(digits_model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for x, y, named in [
        (np.where(np.arange(4)[:, None, None, None] == 2, np.nan, GOOD_X), GOOD_Y, ["'x'", "nan", 2]),
        (np.where(np.arange(4)[:, None, None, None] == 2, np.inf, GOOD_X), GOOD_Y, ["'x'", "inf", 2]),
        (GOOD_X[:, :, :7], GOOD_Y, [(1, 1, 7, 8)]),
        (GOOD_X.astype("U1"), GOOD_Y, ["'x'", "<U1"]),
        (GOOD_X[:0], GOOD_Y[:0], ["empty"]),
        (GOOD_X, GOOD_Y + 7, [11, 10]),
        (GOOD_X, GOOD_Y - 1, ["'y'", -1]),
        (GOOD_X, GOOD_Y[:3], [4, 3]),
        (GOOD_X, GOOD_Y + 0.5, ["'y'", 0.5]),
    ]:
        data = npz(Path("data.npz"), x, y)
        message = refusal(capsys, "certify", digits_model, "--dataset", data, "--n", "50", "--out", "run")
        assert names(message, "data.npz", *named)
        assert not Path("run").exists()


def test_truncated_files(digits_model, tmp_path, capsys):
    data, model = (
        npz(tmp_path / "data.npz", GOOD_X, GOOD_Y),
        shutil.copytree(digits_model, tmp_path / "model"),
    )
    for path, words in ((data, [digits_model, "--dataset", data]), (model / "model.safetensors", [model])):
        path.write_bytes(path.read_bytes()[:-100])
        assert path.name in refusal(capsys, "certify", *words, "--out", tmp_path / "run")


def test_models(tmp_path, capsys):
    for name in ("nowhere", "nowhere.onnx", "no_such_module:predict", "json:predict"):
        words = ["certify", name, "--dataset", "digits", "--sigma", "1", "--out", tmp_path / "run"]
        assert names(refusal(capsys, *words), name)
        assert not (tmp_path / "run").exists()
    words = ["certify", "json:dumps", "--out", tmp_path / "run"]
    assert "--sigma" in refusal(capsys, *words, "--dataset", "digits")
    assert "--dataset" in refusal(capsys, *words, "--sigma", "1")


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("owned",)


@pytest.mark.parametrize(("name", "named"), [("model.pth", "--trust-pickle"), ("model.pkl", "model.pkl")])
def test_a_file_that_would_run_code_is_refused(name, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.save({"arch": "lenet", "state_dict": {}, "extra": Payload()}, "model.pth")
    Path("model.pkl").write_bytes(pickle.dumps(Payload()))
    words = ["certify", name, "--dataset", "digits", "--sigma", "1", "--out", "run"]
    assert names(refusal(capsys, *words), name, named)
    assert {path.name for path in tmp_path.iterdir()} == {"model.pth", "model.pkl"}


def test_resuming_with_another_plan_says_what_differs(digits_model, tmp_path, capsys):
    words = ["certify", str(digits_model), "--max", "2", "--quiet", "--out", str(tmp_path / "run")]
    main([*words, "--n", "100"])
    assert names(refusal(capsys, *words, "--n", "200"), "plan.n", 100, 200)
    assert len(read_run(tmp_path / "run").records) == 2


def test_runs_that_are_none(tmp_path, capsys):
    assert str(tmp_path / "nowhere") in refusal(capsys, "table", tmp_path / "nowhere")
    assert "table --help" in refusal(capsys, "table")
    assert "plot --help" in refusal(capsys, "plot", "--out", tmp_path / "x.png")
    assert "run.json" in refusal(capsys, "run", "export", tmp_path)


def test_a_corrupt_journal_is_refused_by_readers_and_filled_in_by_certify(digits_model, tmp_path, capsys):
    words = ["certify", str(digits_model), "--n", "100", "--max", "12", "--quiet"]
    words += ["--out", str(tmp_path / "run")]
    main(words)
    journal = tmp_path / "run" / "journal.sqlite"
    whole = results_digest(read_run(tmp_path / "run").records)
    damaged = journal.read_bytes()[:-5000]
    journal.write_bytes(damaged)
    assert str(journal) in refusal(capsys, "table", tmp_path / "run")
    assert journal.read_bytes() == damaged
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main(words)
    assert "journal.sqlite.damaged" in capsys.readouterr().err
    assert results_digest(read_run(tmp_path / "run").records) == whole
    assert journal.with_name("journal.sqlite.damaged").read_bytes() == damaged


@pytest.mark.slow
def test_unwritable_places(digits_run, certify_digits, tmp_path, capsys):
    (tmp_path / "file").touch()
    inside, nowhere = tmp_path / "file" / "run", tmp_path / "no" / "x.png"
    train = ["train", "digits", "--sigma", "1", "--epochs", "1"]
    for words in (certify_digits, train):
        assert str(inside) in refusal(capsys, *words, "--out", inside)
    assert str(nowhere) in refusal(capsys, "plot", digits_run, "--out", nowhere)
    assert ".png" in refusal(capsys, "plot", digits_run, "--out", tmp_path / "x.bmp")


def test_a_full_disk_stops_clearly_and_the_same_command_goes_on(digits_model, tmp_path, capsys):
    """A limit on file size stands for a full disk: writes fail, the journal stays whole."""
    out = tmp_path / "run"
    words = ["certify", str(digits_model), "--n", "100", "--max", "60", "--quiet", "--out", str(out)]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limits[1]))  # Python ignores SIGXFSZ
    try:
        message = refusal(capsys, *words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(out / "journal.sqlite") in message
    assert len(read_run(out).records) < 60
    main(words)
    assert len(read_run(out).records) == 60


@pytest.mark.filterwarnings("always")
def test_hopeless_n_is_announced(digits_model, tmp_path, capsys):
    for words in (["predict"], ["certify", "--out", str(tmp_path / "run")]):
        main([words[0], str(digits_model), "--n", "10", "--max", "1", "--seed", "0", *words[1:]])
        assert names(capsys.readouterr().err, 10, 0.001, 11)


@pytest.fixture
def begun(digits_model, tmp_path) -> Path:
    """A training as it is before its end: no weights, and what it goes on from."""
    folder = tmp_path / "begun"
    shutil.copytree(digits_model, folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.json").unlink()
    return folder


def test_a_training_that_is_not_finished(begun, digits_run, digits_model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (
        ["certify", begun, "--out", "run"],
        ["diagnose", begun],
        ["predict", begun],
        ["train", "digits", "--sigma", "0.25", "--out", "run", "--from", begun],
    ):
        assert names(refusal(capsys, *words), begun, "model.safetensors")
        assert not Path("run").exists()
    # Weights that were lost, and a run in place of a model.
    shutil.copy(digits_model / "model.json", begun)
    assert "model.safetensors" in refusal(capsys, "attack", "--lines", begun)
    assert str(digits_run) in refusal(capsys, "attack", "--lines", digits_run)


def test_a_descriptor_is_no_name(monkeypatch, capsys):
    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error", 3)

    monkeypatch.setattr("smoothcert.cli.show.read_run", failing)
    message = refusal(capsys, "show", "run")
    assert "3" not in message
    assert "Input/output error" in message
