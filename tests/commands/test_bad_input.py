"""Every mistake a user is likely to make: a message that names it and the remedy, exit code 2, nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert.commands import main
from smoothcert.runs import read_run
from smoothcert.runs.records import results_digest


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """The message of a refused command, on one line."""
    with pytest.raises(SystemExit) as caught:
        main([str(word) for word in words])
    shown = capsys.readouterr().err
    assert caught.value.code == 2
    assert "Traceback" not in shown
    return " ".join(shown.split())


def npz(path: Path, x: np.ndarray, y: np.ndarray) -> Path:
    np.savez(path, x=x, y=y)
    return path


GOOD_X, GOOD_Y = np.zeros((4, 1, 8, 8), dtype=np.float32), np.arange(4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sigma", "0"], "sigma must be positive and finite, got 0.0"),
        (["--sigma", "-0.5"], "sigma must be positive and finite, got -0.5"),
        (["--sigma", "nan"], "sigma must be positive and finite, got nan"),
        (["--alpha", "0"], "alpha must lie strictly between 0 and 1, got 0.0"),
        (["--alpha", "1"], "alpha must lie strictly between 0 and 1, got 1.0"),
        (["--n0", "0"], "n0 must be an integer of at least 1, got 0"),
        (["--n", "0"], "n must be an integer of at least 1, got 0"),
        (["--max", "0"], "max must be an integer of at least 1, got 0"),
        (["--skip", "0"], "skip must be an integer of at least 1, got 0"),
        (["--workers", "0"], "workers must be an integer of at least 1"),
        (["--batch", "0"], "batch must be an integer of at least 1"),
        (["--device", "abacus"], "device 'abacus' can't be used"),
        (["--dataset", "digit"], "Did you mean 'digits'"),
        (["--dataset", "nothing.npz"], "nothing.npz"),
        (["--dataset", "mnist"], "--data-dir"),
    ],
)
def test_options(
    options: list[str],
    message: str,
    digits_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)
    assert message in refusal(capsys, "certify", digits_model, *options, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.where(np.arange(4)[:, None, None, None] == 2, np.nan, GOOD_X), GOOD_Y, "nan"),
        (np.where(np.arange(4)[:, None, None, None] == 2, np.inf, GOOD_X), GOOD_Y, "inf"),
        (GOOD_X[:, :, :7], GOOD_Y, "1, 7, 8)"),
        (GOOD_X.astype("U1"), GOOD_Y, "numbers"),
        (GOOD_X[:0], GOOD_Y[:0], "empty"),
        (GOOD_X, GOOD_Y + 7, "11 classes"),
        (GOOD_X, GOOD_Y - 1, "-1"),
        (GOOD_X, GOOD_Y[:3], "4 inputs in 'x' and 3 labels"),
        (GOOD_X, GOOD_Y + 0.5, "0.5"),
    ],
)
def test_data(
    x: np.ndarray,
    y: np.ndarray,
    message: str,
    digits_model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = npz(tmp_path / "data.npz", x, y)
    shown = refusal(
        capsys, "certify", digits_model, "--dataset", data, "--n", "50", "--out", tmp_path / "run"
    )
    assert message in shown
    assert not (tmp_path / "run").exists()


def test_truncated_files(digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = npz(tmp_path / "data.npz", GOOD_X, GOOD_Y)
    data.write_bytes(data.read_bytes()[:-100])
    assert "data.npz" in refusal(
        capsys, "certify", digits_model, "--dataset", data, "--out", tmp_path / "run"
    )
    model = tmp_path / "model"
    model.mkdir()
    for file in digits_model.iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "model.safetensors" in refusal(capsys, "certify", model, "--out", tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "doesn't exist"),
        ("nowhere.onnx", "can't be read"),
        ("model.pkl", "pickles run code"),
        ("no_such_module:predict", "can't import no_such_module"),
        ("json:predict", "module json has no predict"),
    ],
)
def test_models(name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = refusal(capsys, "certify", name, "--dataset", "digits", "--sigma", "1", "--out", tmp_path / "run")
    assert message in shown


class Payload:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo owned",)


def test_a_checkpoint_that_would_run_code_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.pth"
    torch.save({"arch": "lenet", "state_dict": {}, "extra": Payload()}, path)
    shown = refusal(capsys, "certify", path, "--dataset", "digits", "--sigma", "1", "--out", tmp_path / "run")
    assert "--trust-pickle" in shown
    assert "owned" not in shown


def test_a_model_without_noise_or_data_of_its_own_asks_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--sigma is missing" in refusal(
        capsys, "certify", "json:dumps", "--dataset", "digits", "--out", tmp_path
    )
    assert "--dataset is missing" in refusal(
        capsys, "certify", "json:dumps", "--sigma", "1", "--out", tmp_path
    )


def test_resuming_with_another_plan_says_what_differs(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["certify", str(digits_model), "--max", "2", "--quiet", "--out", str(tmp_path / "run")]
    main([*words, "--n", "100"])
    shown = refusal(capsys, *words, "--n", "200")
    assert "plan.n: the run has 100, now 200" in shown
    assert len(read_run(tmp_path / "run").records) == 2


def test_runs_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such directory" in refusal(capsys, "table", tmp_path / "nowhere")
    assert "name at least one run" in refusal(capsys, "table")
    assert "name at least one run" in refusal(capsys, "plot", "--out", tmp_path / "x.png")
    assert "has no run.json" in refusal(capsys, "export-log", tmp_path)


def test_a_corrupt_journal_is_refused_by_readers_and_filled_in_by_certify(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "certify",
        str(digits_model),
        "--n",
        "100",
        "--max",
        "40",
        "--quiet",
        "--out",
        str(tmp_path / "run"),
    ]
    main(words)
    journal = tmp_path / "run" / "journal.sqlite"
    whole = results_digest(read_run(tmp_path / "run").records)
    damaged = journal.read_bytes()[:-5000]
    journal.write_bytes(damaged)
    assert "journal is damaged" in refusal(capsys, "table", tmp_path / "run")
    assert journal.read_bytes() == damaged
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main(words)
    assert "what is missing is made again" in " ".join(capsys.readouterr().err.split())
    assert results_digest(read_run(tmp_path / "run").records) == whole
    assert journal.with_name("journal.sqlite.damaged").read_bytes() == damaged


def test_unwritable_places(digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    words = ["certify", str(digits_model), "--n", "100", "--max", "2"]
    assert "can't be made" in refusal(capsys, *words, "--out", tmp_path / "file" / "run")
    shown = refusal(
        capsys, "train", "digits", "--sigma", "1", "--epochs", "1", "--out", tmp_path / "file" / "run"
    )
    assert "can't be made" in shown
    main([*words, "--quiet", "--out", str(tmp_path / "run")])
    assert "can't be written" in refusal(capsys, "plot", tmp_path / "run", "--out", tmp_path / "no" / "x.png")
    assert ".png" in refusal(capsys, "plot", tmp_path / "run", "--out", tmp_path / "x.bmp")


def test_a_full_disk_stops_clearly_and_the_same_command_goes_on(digits_model: Path, tmp_path: Path) -> None:
    """A limit on file size stands for a full disk: writes fail, the journal stays whole."""
    out = tmp_path / "run"
    program = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); import torch; "
        "from smoothcert.commands import main; limit = int(sys.argv[1]); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)); main(sys.argv[2:])"
    )
    words = ["certify", str(digits_model), "--n", "100", "--max", "60", "--quiet", "--out", str(out)]
    run = subprocess.run([sys.executable, "-c", program, "60000", *words], capture_output=True, text=True)
    assert run.returncode == 2
    assert "free some space and give the same command again" in " ".join(run.stderr.split())
    assert "Traceback" not in run.stderr
    before = len(read_run(out).records)
    assert before < 60
    main(words)
    assert len(read_run(out).records) == 60


@pytest.mark.filterwarnings("always")
def test_hopeless_n_is_announced(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["predict", str(digits_model), "--n", "10", "--max", "1"])
    assert "smallest n that could is 11" in " ".join(capsys.readouterr().err.split())
    main(["certify", str(digits_model), "--n", "10", "--max", "1", "--out", str(tmp_path / "run")])
    assert "smallest n that could is 11" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def begun(digits_model: Path, tmp_path: Path) -> Path:
    """A training as it is before its end: no weights, and what it goes on from."""
    folder = tmp_path / "begun"
    shutil.copytree(digits_model, folder)
    (folder / "model.safetensors").unlink()
    (folder / "model.json").unlink()
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ["certify", "--out", "run"],
        ["diagnose"],
        ["predict"],
        ["train", "digits", "--sigma", "0.25", "--out", "run", "--from"],
    ],
)
def test_a_training_that_is_not_finished(
    begun: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*command, begun] if "--from" in command else [command[0], begun, *command[1:]]
    message = refusal(capsys, *words)
    assert "is a training that isn't finished" in message
    assert "give its train command again" in message


def test_weights_that_were_lost(begun: Path, digits_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(digits_model / "model.json", begun)
    message = refusal(capsys, "diagnose", begun)
    assert "is a training whose model.safetensors is missing; give its train command again" in message


def test_a_certified_run_is_no_model(
    digits_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "certified"
    main(["certify", str(digits_model), "--n", "100", "--max", "2", "--quiet", "--out", str(run)])
    capsys.readouterr()
    assert "is a certified run and no model: name the model itself" in refusal(capsys, "diagnose", run)


def test_a_descriptor_is_no_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(*_: object) -> None:
        raise OSError(5, "Input/output error", 3)

    monkeypatch.setattr("smoothcert.runs.read_run", failing)
    message = refusal(capsys, "show", "run")
    assert "3" not in message
    assert "input or output: Input/output error" in message
