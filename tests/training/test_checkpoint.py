import errno
import pickle

import pytest
import torch

from smoothcert.errors import OutputError, RunError
from smoothcert.runs.layout import RunFiles
from smoothcert.training import EpochMetrics, State
from smoothcert.training.checkpoint import load_state, save_state

FILE_NAME = RunFiles.checkpoint.name

METRICS = EpochMetrics(1, 0.5, 0.75, "holdout", 0.01, 3.25)


def state(value=1.0):
    return State(
        (METRICS,), {"model": {"w": torch.full((300,), value)}, "optimizer": {"step": 7}, "scaler": {}}
    )


def test_what_is_saved_is_loaded(tmp_path):
    save_state(tmp_path, state())
    loaded = load_state(tmp_path)
    assert loaded.history == (METRICS,)
    assert torch.equal(loaded.tensors["model"]["w"], torch.ones(300))
    assert loaded.tensors["optimizer"] == {"step": 7}
    assert set(loaded.tensors) == {"model", "optimizer", "scaler"}


def test_nothing_saved_is_nothing(tmp_path):
    assert load_state(tmp_path) is None


def test_a_second_replaces_the_first_and_leaves_nothing_beside_it(tmp_path):
    save_state(tmp_path, state(1.0))
    save_state(tmp_path, state(2.0))
    assert load_state(tmp_path).tensors["model"]["w"][0] == 2
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


class Payload:
    def __reduce__(self):
        return print, ("owned",)


def damages(good):
    yield b""
    yield good[: len(good) // 2]
    yield good[:-1]
    yield b"garbage" * 100
    yield pickle.dumps(Payload())


@pytest.mark.parametrize("which", range(5))
def test_a_damaged_file_is_named_and_kept(which, tmp_path, capsys):
    save_state(tmp_path, state())
    path = tmp_path / FILE_NAME
    damaged = list(damages(path.read_bytes()))[which]
    path.write_bytes(damaged)
    with pytest.raises(RunError) as caught:
        load_state(tmp_path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == damaged
    assert "owned" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [{}, {"history": [{"epok": 1}]}, {"history": 3}, [1, 2]])
def test_a_file_of_another_version_is_refused_too(content, tmp_path):
    torch.save(content, tmp_path / FILE_NAME)
    with pytest.raises(RunError, match=FILE_NAME):
        load_state(tmp_path)


def test_a_file_that_would_run_code_does_not(tmp_path, capsys):
    torch.save({"history": [], "extra": Payload()}, tmp_path / FILE_NAME)
    with pytest.raises(RunError):
        load_state(tmp_path)
    assert "owned" not in capsys.readouterr().out


@pytest.mark.parametrize("moment", ["os.fsync", "pathlib.Path.replace"])
def test_a_full_disk_keeps_the_file_before(moment, tmp_path, monkeypatch):
    save_state(tmp_path, state(1.0))

    def full(*_):
        raise OSError(errno.ENOSPC, "ENOSPC")

    with monkeypatch.context() as disk:
        disk.setattr(moment, full)
        with pytest.raises(OutputError, match=f"{FILE_NAME}.*ENOSPC"):
            save_state(tmp_path, state(2.0))
    assert load_state(tmp_path).tensors["model"]["w"][0] == 1
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
