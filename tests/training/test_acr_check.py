"""The ACR during training: real certificates, the same inputs each time, and no trace in the weights."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.runs.epochs import read_epochs
from smoothcert.training import AcrCheck, train, train_into
from smoothcert.training.checkpoint import load_state, save_state
from tests.training.toys import flat, halves, new_model, plan, recipe

CPU = torch.device("cpu")


class AlwaysLeft(nn.Module):
    def forward(self, x):
        return torch.tensor([1.0, 0.0, 0.0]).expand(len(x), 3)


def test_it_is_the_mean_radius_with_wrong_answers_as_zero():
    """All votes for one class: p ≥ α^(1/n), and two of three inputs are answered wrongly."""
    dataset = halves(30)
    found = AcrCheck(1, 30, 1000).measure(AlwaysLeft(), dataset, np.arange(30), plan(), CPU, 1)
    assert found == pytest.approx(0.25 * norm.ppf(0.001 ** (1 / 1000)) / 3, rel=1e-3)


def test_it_is_what_certifying_those_inputs_says():
    dataset, model = halves(60), new_model()
    train(model, dataset, plan())
    chosen = [0, 15, 29, 44, 59]
    found = AcrCheck(1, 5, 200).measure(model, dataset, np.arange(60), plan(), CPU, 1)
    smoothed = SmoothedClassifier(model, sigma=0.25, n=200, seed=0)
    smoothed.settle_for(dataset.levels, dataset.largest)
    answers = smoothed.certify_each(dataset.each(chosen))
    radii = [one.radius * (one.predicted == dataset.labels[one.index]) for one in answers]
    assert found == pytest.approx(np.mean(radii), abs=1e-12)
    assert found > 0.2


def test_training_with_it_ends_with_the_same_weights_and_notes_it_where_it_is_due():
    models = [new_model(), new_model()]
    histories = [
        train(model, halves(), plan(epochs=5), acr_check=check)
        for model, check in zip(models, (None, AcrCheck(2, 4, 100)))
    ]
    assert torch.equal(*map(flat, models))
    assert [one.acr is not None for one in histories[1]] == [False, True, False, True, True]
    for plain, checked in zip(*histories):
        same = dataclasses.replace(checked, acr=None, acr_inputs=None, acr_votes=None, seconds=plain.seconds)
        assert same == plain
        assert "acr" not in plain.as_json()


def stop(metrics):
    if metrics.epoch == 1:
        raise KeyboardInterrupt


def test_a_run_may_go_on_with_another_check_and_each_epoch_says_what_its_acr_rests_on(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "run", recipe(), halves(), listeners=[stop], acr_check=AcrCheck(1, 3, 100))
    history = train_into(tmp_path / "run", recipe(), halves(), acr_check=AcrCheck(7, 1000, 200))
    assert [one.acr is not None for one in history] == [True, True]
    assert [(one.acr_inputs, one.acr_votes) for one in history] == [(3, 100), (50, 200)]
    assert [(one.sigma, one.norm) for one in history] == [(0.25, "l2")] * 2
    assert read_epochs(tmp_path / "run") == history
    assert train_into(tmp_path / "run", recipe(), halves()) == history


def test_a_run_of_an_earlier_version_goes_on(tmp_path):
    """Its epochs state neither inputs and votes nor noise, in the checkpoint too."""
    later = ("acr_inputs", "acr_votes", "sigma", "norm")
    with pytest.raises(KeyboardInterrupt):
        train_into(tmp_path / "run", recipe(), halves(), listeners=[stop], acr_check=AcrCheck(1, 3, 100))
    state = load_state(tmp_path / "run")
    before = tuple(dataclasses.replace(one, **dict.fromkeys(later)) for one in state.history)
    save_state(tmp_path / "run", dataclasses.replace(state, history=before))
    history = train_into(tmp_path / "run", recipe(), halves(), acr_check=AcrCheck(1, 3, 100))
    assert history[0] == before[0]
    assert (history[1].acr_inputs, history[1].sigma) == (3, 0.25)
    straight = train_into(tmp_path / "straight", recipe(), halves())
    assert [one.loss for one in history] == [one.loss for one in straight]


def test_uniform_noise_is_noted_with_its_norm():
    (last,) = train(new_model(), halves(), plan(epochs=1, noise="uniform"), acr_check=AcrCheck(1, 3, 100))
    assert last.norm == "l1"


def test_what_cannot_be_certified_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidValueError, match="--acr-every"):
        train_into(tmp_path / "run", recipe(sigma=0.0), halves(), acr_check=AcrCheck(1))
    assert not (tmp_path / "run").exists()

    class Drawing(nn.Module):
        """Its answers are drawn, at rest too."""

        def __init__(self):
            super().__init__()
            self.network = new_model()

        def forward(self, x):
            return self.network(x) + torch.randn(len(x), 1) * torch.eye(3)[:1]

    with pytest.raises(ModelError):
        train(Drawing(), halves(), plan(), acr_check=AcrCheck(1))


@pytest.mark.parametrize(("field", "value"), [("every", 0), ("inputs", 0), ("votes", -1)])
def test_counts_are_checked(field, value):
    with pytest.raises(InvalidValueError, match=f"acr_{field}.*{value}"):
        AcrCheck(**{"every": 1, field: value})
