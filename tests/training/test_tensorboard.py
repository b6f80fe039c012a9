import dataclasses
import sys

import pytest

from smoothcert.errors import MissingExtraError
from smoothcert.training import EpochMetrics
from smoothcert.training.tensorboard import TensorBoard

METRICS = EpochMetrics(1, 0.5, 0.75, "test", 0.01, 2.0)


def events(directory):
    """(epoch, value) of each scalar written."""
    module = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = module.EventAccumulator(str(directory)).Reload()
    return {
        name: [(event.step, event.value) for event in accumulator.Scalars(name)]
        for name in accumulator.Tags()["scalars"]
    }


@pytest.mark.filterwarnings("ignore")  # its own dependencies'
def test_each_epoch_is_on_disk_at_once(tmp_path):
    pytest.importorskip("tensorboard")
    board = TensorBoard(tmp_path)
    board(METRICS)
    assert events(tmp_path)["loss"] == [(1, 0.5)]
    board(dataclasses.replace(METRICS, epoch=2, loss=0.25))
    board.close()
    written = events(tmp_path)
    assert written["loss"] == [(1, 0.5), (2, 0.25)]
    assert written["accuracy"] == [(1, 0.75), (2, 0.75)]
    assert set(written) == {"loss", "accuracy", "learning_rate", "seconds"}


@pytest.mark.filterwarnings("ignore")
def test_nothing_written_makes_no_file(tmp_path):
    pytest.importorskip("tensorboard")
    TensorBoard(tmp_path / "board").close()
    assert not (tmp_path / "board").exists()


def test_without_the_package_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[tensorboard\]"):
        TensorBoard(tmp_path)
