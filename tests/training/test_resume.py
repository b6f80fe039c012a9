"""Interrupted and continued is the same as uninterrupted, to the last bit; checkpoints and event files."""

import dataclasses
import errno
import pickle
import sys

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.datasets.base import Dataset
from smoothcert.errors import MissingExtraError, OutputError, RunError
from smoothcert.objectives import OBJECTIVES
from smoothcert.objectives.gaussian import GaussianAugmentation
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.side_files import EpochMetrics
from smoothcert.training.loop import State, train
from smoothcert.training.plan import Ramp
from smoothcert.training.runs import TensorBoard, load_state, save_state
from tests.training.toys import flat, halves, new_model, plan


def three_epochs_both_ways(make_model, chosen, directory, dataset=None):
    """Weights and history after 3 epochs at once, and after 1, a stop, and 2 more in a fresh model."""
    dataset = dataset or halves(20)
    straight = make_model()
    history = train(straight, dataset, chosen)

    def save_and_stop(state):
        save_state(directory, state)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(make_model(), dataset, chosen, after_epoch=save_and_stop)
    torch.rand(7)  # another process has another global stream
    resumed = make_model()
    with torch.no_grad():
        for parameter in resumed.parameters():
            parameter.zero_()  # what counts is in the file
    state = load_state(directory)
    assert len(state.history) == 1
    continued = train(resumed, dataset, chosen, state=state)
    return (straight, history), (resumed, continued)


def check_same(straight, resumed):
    (model, history), (other, continued) = straight, resumed
    assert torch.equal(flat(model), flat(other))
    assert [(m.epoch, m.loss, m.accuracy, m.learning_rate) for m in history] == [
        (m.epoch, m.loss, m.accuracy, m.learning_rate) for m in continued
    ]
    assert not other.training


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_every_objective(name, tmp_path):
    check_same(*three_epochs_both_ways(new_model, plan(objective=OBJECTIVES[name](), epochs=3), tmp_path))


@pytest.mark.parametrize(
    "changes",
    [
        {"flip": True, "shift": 2},
        {"schedule": "cosine"},
        {"milestones": (1, 2)},
        {"nesterov": False},
        {"decoupled_decay": True},
        {"optimizer": "adam"},
        {"optimizer": "adam", "decoupled_decay": True},
        {"optimizer": "adadelta", "lr": 1.0},
        {"optimizer": "adadelta", "decoupled_decay": True},
        {"precision": "bfloat16"},
        {"shards": 3},
        {"holdout": 4},
        {"ramps": (Ramp("lr", 3), Ramp("sigma", 2))},
        {"objective": Macer(copies=2), "ramps": (Ramp("lam", 0, after=2),)},
        {"objective": SmoothAdv(attack="ddn", steps=2, copies=2), "ramps": (Ramp("epsilon", 3),)},
        {"objective": SmoothAdv(attack="gradient-free", steps=2, copies=2)},
        {
            "objective": SmoothMix(one_step=True, one_step_norm=1.0, copies=2),
            "ramps": (Ramp("one_step_norm", 3),),
        },
    ],
    ids=lambda changes: "-".join(
        f"{name}={value}" if name == "optimizer" else name for name, value in changes.items()
    ),
)
def test_every_part_of_a_plan(changes, tmp_path):
    check_same(*three_epochs_both_ways(new_model, plan(epochs=3, **changes), tmp_path))


@pytest.mark.parametrize("objective", [GaussianAugmentation(), SmoothAdv(steps=2, copies=2)])
def test_batch_norm(objective, tmp_path):
    chosen = plan(objective=objective, epochs=3)
    results = three_epochs_both_ways(lambda: new_model(architecture="cifar_resnet20"), chosen, tmp_path)
    check_same(*results)
    tracked = [v for k, v in results[1][0].state_dict().items() if k.endswith("num_batches_tracked")]
    assert tracked
    assert all(count > 0 for count in tracked)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_model_that_draws_for_itself(shards, tmp_path):
    def dropout_model():
        return nn.Sequential(nn.Dropout(0.5), new_model())

    check_same(*three_epochs_both_ways(dropout_model, plan(epochs=3, shards=shards), tmp_path))


def test_everything_at_once(tmp_path):
    def make():
        return nn.Sequential(nn.Dropout(0.2), new_model(shape=(3, 8, 8), architecture="cifar_resnet20"))

    chosen = plan(
        objective=SmoothMix(steps=2, copies=2),
        ramps=(Ramp("eta", 3), Ramp("lr", 2)),
        schedule="cosine",
        precision="bfloat16",
        flip=True,
        shift=1,
        shards=2,
        holdout=3,
        epochs=3,
    )
    check_same(*three_epochs_both_ways(make, chosen, tmp_path, halves(20, channels=3)))


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adadelta"])
def test_without_the_momentum_it_would_not_be_the_same(optimizer):
    """The comparison above has teeth: forgetting the optimizer's state shows."""
    chosen, states = plan(epochs=2, optimizer=optimizer), []
    straight, resumed = new_model(), new_model()
    train(straight, halves(20), chosen, after_epoch=states.append)
    state = states[0]
    state.tensors["optimizer"]["state"].clear()
    train(resumed, halves(20), chosen, state=state)
    assert not torch.equal(flat(straight), flat(resumed))


def test_a_finished_state_takes_no_step():
    states = []
    history = train(new_model(), halves(), plan(epochs=2), after_epoch=states.append)
    model, steps = new_model(), []
    again = train(
        model, halves(), plan(epochs=2), state=states[-1], progress=lambda *call: steps.append(call)
    )
    assert steps == []
    assert again == history
    assert not model.training


def test_other_data_of_the_same_size_would_show():
    labels = np.roll(halves(20).labels, 1)
    other = Dataset("other", halves(20).stored, labels, halves().classes, 1 / 255)
    models = [new_model(), new_model()]
    for model, dataset in zip(models, (halves(20), other)):
        train(model, dataset, plan(epochs=1))
    assert not torch.equal(*map(flat, models))


FILE_NAME = RunFiles.checkpoint.name

METRICS = EpochMetrics(1, 0.5, 0.75, "holdout", 0.01, 3.25)


def state(value=1.0):
    return State(
        (METRICS,), {"model": {"w": torch.full((300,), value)}, "optimizer": {"step": 7}, "scaler": {}}
    )


def test_what_is_saved_is_loaded_and_replaced(tmp_path):
    assert load_state(tmp_path) is None
    save_state(tmp_path, state())
    loaded = load_state(tmp_path)
    assert loaded.history == (METRICS,)
    assert torch.equal(loaded.tensors["model"]["w"], torch.ones(300))
    assert loaded.tensors["optimizer"] == {"step": 7}
    assert set(loaded.tensors) == {"model", "optimizer", "scaler"}
    save_state(tmp_path, state(1.0))
    save_state(tmp_path, state(2.0))
    assert load_state(tmp_path).tensors["model"]["w"][0] == 2
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


class Payload:
    def __reduce__(self):
        return print, ("owned",)


def test_a_damaged_file_is_named_and_kept(tmp_path, capsys):
    save_state(tmp_path, state())
    path = tmp_path / FILE_NAME
    good = path.read_bytes()
    for damaged in (b"", good[: len(good) // 2], good[:-1], b"garbage" * 100, pickle.dumps(Payload())):
        path.write_bytes(damaged)
        with pytest.raises(RunError) as caught:
            load_state(tmp_path)
        assert str(path) in str(caught.value)
        assert path.read_bytes() == damaged
    for content in (
        {}, {"history": [{"epok": 1}]}, {"history": 3}, [1, 2], {"history": [], "extra": Payload()},
    ):  # fmt: skip
        torch.save(content, path)
        with pytest.raises(RunError, match=FILE_NAME):
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
def test_nothing_written_makes_no_file_and_the_extra_is_named(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    TensorBoard(tmp_path / "board").close()
    assert not (tmp_path / "board").exists()
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[tensorboard\]"):
        TensorBoard(tmp_path)
