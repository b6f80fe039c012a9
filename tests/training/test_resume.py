"""Interrupted and continued is the same as uninterrupted, to the last bit."""

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.datasets.base import Dataset
from smoothcert.objectives import OBJECTIVES
from smoothcert.objectives.gaussian import Gaussian
from smoothcert.objectives.macer import Macer
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.objectives.smoothmix import SmoothMix
from smoothcert.training import Ramp, train
from smoothcert.training.checkpoint import load_state, save_state
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


@pytest.mark.parametrize("objective", [Gaussian(), SmoothAdv(steps=2, copies=2)])
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
