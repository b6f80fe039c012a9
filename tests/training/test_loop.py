"""The loop, and the ACR that it may note: real certificates, and no trace in the weights."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError, ModelError
from smoothcert.objectives import Objective
from smoothcert.objectives.macer import Macer
from smoothcert.runs.side_files import read_epochs
from smoothcert.training.loop import VALIDATION_INPUTS, TrainingDivergedError, train
from smoothcert.training.plan import Ramp, TrainPlan
from smoothcert.training.runs import load_state, save_state, train_into
from smoothcert.training.steps import AcrCheck
from tests.training.toys import (
    CLASSES,
    Diverging,
    InDouble,
    Recorder,
    flat,
    halves,
    new_model,
    numbers,
    plan,
    recipe,
)


def weights_after(model, dataset, chosen):
    train(model, dataset, chosen)
    return flat(model)


def test_learns_what_can_be_learnt():
    model = new_model()
    history = train(model, halves(300), plan())
    assert history[-1].accuracy > 0.98
    assert history[-1].loss < 0.1 < history[0].loss
    assert [metrics.epoch for metrics in history] == [1, 2, 3, 4]
    assert all(metrics.seconds > 0 for metrics in history)
    assert not model.training


@pytest.mark.parametrize("architecture", ["small-cnn", "cifar_resnet20"])
def test_same_seed_same_weights_and_another_gives_others(architecture):
    spec = ModelSpec(architecture, (1, 8, 8), CLASSES)
    runs = []
    for disturbance, seed in ((1, 0), (2, 0), (2, 1)):
        torch.manual_seed(disturbance)
        runs.append(weights_after(initialise(spec, 0), halves(), plan(epochs=2, seed=seed)))
    assert torch.equal(*runs[:2])
    assert not torch.equal(*runs[1:])


def test_a_model_with_randomness_of_its_own_is_deterministic_and_global_state_untouched():
    def dropout_model():
        return nn.Sequential(nn.Dropout(0.5), new_model())

    before = torch.get_rng_state()
    runs = [weights_after(dropout_model(), halves(), plan(epochs=2)) for _ in range(2)]
    assert torch.equal(*runs)
    assert torch.equal(torch.get_rng_state(), before)


def test_one_step_is_nesterov_sgd_written_out():
    """One full batch, no noise: the first Nesterov step is θ − lr·(1 + momentum)·(gradient + decay·θ)."""
    dataset = halves(12)
    model, reference = InDouble(new_model()), new_model().double()
    x, y = torch.from_numpy(dataset.inputs(slice(None))).double(), torch.from_numpy(dataset.labels)
    nn.functional.cross_entropy(reference(x), y).backward()
    expected = [
        parameter - 0.05 * 1.9 * (parameter.grad + 1e-2 * parameter) for parameter in reference.parameters()
    ]
    train(model, dataset, TrainPlan(0.0, epochs=1, batch_size=12, lr=0.05, weight_decay=1e-2))
    for parameter, value in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter, value, rtol=1e-10, atol=1e-12)


def test_every_epoch_sees_each_input_once_with_its_label_in_another_order():
    recorder = Recorder()
    history = train(nn.Linear(1, 3), numbers(10), plan(objective=recorder, epochs=2, batch_size=4, sigma=0.5))
    assert [len(labels) for _, labels, _ in recorder.seen] == [4, 4, 2] * 2
    assert all(label == int(x) % 3 for xs, ys, _ in recorder.seen for x, label in zip(xs, ys))
    assert all(noise.sigma == 0.5 for _, _, noise in recorder.seen)
    epochs = [[x for xs, _, _ in recorder.seen[start : start + 3] for x in xs] for start in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert epochs[0] != epochs[1]
    # Batches of 4, 4 and 2 have losses 4, 4 and 2; the epoch's is the mean over inputs, not over batches.
    assert history[0].loss == pytest.approx((4 * 4 + 4 * 4 + 2 * 2) / 10)


def test_learning_rate_and_knobs_follow_the_schedule():
    history = train(new_model(), halves(), plan(epochs=3, step_epochs=1))
    assert [metrics.learning_rate for metrics in history] == pytest.approx([0.05, 0.005, 0.0005])
    sigmas, hinges = [], []

    @dataclasses.dataclass(frozen=True)
    class Watched(Macer):
        def loss(self, model, x, y, noise, generator):
            sigmas.append(noise.sigma)
            hinges.append(self.lam)
            return super().loss(model, x, y, noise, generator)

    ramps = (Ramp("lam", 0, after=2), Ramp("sigma", 2))
    train(new_model(), halves(2), plan(objective=Watched(copies=2, lam=6.0), ramps=ramps, batch_size=4))
    assert hinges == [0.0, 0.0, 6.0, 6.0]
    assert sigmas == pytest.approx([0.125, 0.25, 0.25, 0.25])


def test_progress_is_called_after_every_batch():
    calls = []
    history = train(new_model(), halves(50), plan(epochs=2), progress=lambda *call: calls.append(call))
    assert [call[:4] for call in calls] == [
        (epoch, 2, batch, 4) for epoch in (1, 2) for batch in (1, 2, 3, 4)
    ]
    sizes = np.array([16, 16, 16, 2])
    assert history[0].loss == pytest.approx(np.dot(sizes, [call[4] for call in calls[:4]]) / 50)


def test_a_loss_that_is_no_number_stops_before_it_reaches_the_weights():
    model = new_model()
    with pytest.raises(TrainingDivergedError, match=r"'Diverging'.*\bnan\b.*\b2\b.*\b1\b.*\b2\b.*0\.05"):
        train(model, halves(32), plan(objective=Diverging()))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())

    class Endless(Objective):
        """Infinite."""

        def loss(self, model, x, y, noise, generator):
            return model(x).sum() * 0 + float("inf")

    with pytest.raises(TrainingDivergedError, match=r"'Endless'.*\binf\b.*\b1\b.*\b1\b.*\b4\b"):
        train(new_model(), halves(), plan(objective=Endless()))


def test_weights_that_the_last_step_spoilt_are_not_saved():
    """The loss is finite, its gradient isn't, and no later batch would tell."""

    class Pole(Objective):
        """√0."""

        def loss(self, model, x, y, noise, generator):
            return (model(x).sum() * 0).sqrt()

    states = []
    with pytest.raises(TrainingDivergedError, match=r"'Pole'.*\b1\b.*0\.05"):
        train(new_model(), halves(16), plan(objective=Pole()), after_epoch=states.append)
    assert states == []


def test_what_a_model_cannot_take_or_give_is_refused():
    with pytest.raises(DataError, match=r"halves.*\b2\b.*\b2\b.*\b3\b"):
        train(new_model(("left", "right")), halves(), plan())
    with pytest.raises(ModelError, match=r"halves.*\(1, 8, 8\)"):
        train(new_model(shape=(3, 8, 8)), halves(), plan())
    with pytest.raises(ModelError, match=r"\(1, 1, 8, 8\)"):
        train(nn.Conv2d(1, 1, 1), halves(), plan())
    with pytest.raises(InvalidValueError, match=r"holdout.*\b50\b.*\b50\b"):
        train(new_model(), halves(50), plan(holdout=50))


def test_after_each_epoch_its_state_is_handed_out_to_go_on_from():
    states = []
    history = train(new_model(), halves(), plan(epochs=3), after_epoch=states.append)
    assert [len(state.history) for state in states] == [1, 2, 3]
    assert states[-1].history == history
    # Each is of its own time: going on doesn't change what was handed out.
    weights = [state.tensors["model"]["1.fc2.bias"] for state in states]
    assert not torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[1], weights[2])
    ends = [new_model(), new_model()]
    for model in ends:
        train(model, halves(), plan(epochs=3), state=states[0])
    assert torch.equal(*map(flat, ends))


def test_the_holdout_is_never_trained_on():
    recorder = Recorder()
    history = train(
        nn.Linear(1, 3), numbers(20), plan(objective=recorder, holdout=5, epochs=3), test_set=numbers(7)
    )
    seen = [sorted(xs) for xs, _, _ in recorder.seen]
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == 15
    assert {metrics.validated_on for metrics in history} == {"holdout"}


class Says(nn.Module):
    """Always right about one kind of data: numbers up to a limit are labelled rightly, others never."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.weight, self.rows = limit, nn.Parameter(torch.zeros(1)), []

    def forward(self, x):
        if not self.training:
            self.rows.append(len(x))
        label = torch.where(x[:, 0] < self.limit, x[:, 0].long() % 3, (x[:, 0].long() + 1) % 3)
        return nn.functional.one_hot(label, 3) + 0 * self.weight


def test_validation_is_on_the_holdout_or_the_test_set_or_training_inputs():
    for holdout, test_size, kind in (
        (4, 40, "holdout"),
        (0, 40, "test"),
        (4, None, "holdout"),
        (0, None, "train"),
    ):
        model, test_set = Says(limit=10), None if test_size is None else numbers(test_size)
        (metrics,) = train(model, numbers(10), plan(sigma=0.0, epochs=1, holdout=holdout), test_set=test_set)
        assert metrics.validated_on == kind
        assert metrics.accuracy == {"holdout": 1.0, "test": 0.25, "train": 1.0}[kind]
        validated = {"holdout": holdout, "test": test_size, "train": 10 - holdout}[kind]
        assert sum(model.rows[1:]) == validated  # the first row is the look whether model and data fit
    model = Says(limit=10_000)
    train(model, numbers(3), plan(sigma=0.0, epochs=1, batch_size=300), test_set=numbers(5000))
    assert VALIDATION_INPUTS == 1000
    assert model.rows[1:] == [300, 300, 300, 100]


def test_validation_adds_the_noise_of_the_plan_drawn_anew():
    class Sees(nn.Linear):
        seen: list = []  # noqa: RUF012

        def forward(self, x):
            self.seen.append(x.detach().clone())
            return super().forward(x)

    zeros = Dataset("zeros", np.zeros((400, 9), np.float32), np.zeros(400, np.int64), CLASSES)
    ramps = (Ramp("sigma", 2),)
    train(Sees(9, 3), zeros, plan(sigma=2.0, epochs=2, batch_size=400, ramps=ramps))
    _, *seen = Sees.seen  # the first is the look whether model and data fit
    assert [x.std().item() for x in seen] == pytest.approx([1.0, 2.0, 2.0, 2.0], rel=0.05)
    draws = [tuple(x.flatten()[:20].tolist()) for x in seen]
    assert len(set(draws)) == 4


@pytest.mark.parametrize("architecture", ["small-cnn", "cifar_resnet20"])
def test_validation_never_changes_the_weights(architecture):
    def after(test_set):
        model = new_model(architecture=architecture)
        train(model, halves(), plan(epochs=2), test_set=test_set)
        return flat(model)

    assert torch.equal(after(None), after(halves(9)))


def test_digits_are_learnt_in_seconds(digits_model):
    model, _ = load_model(digits_model)
    digits = load("digits", "test")
    x = torch.from_numpy(digits.inputs(slice(0, len(digits)))).float()
    with torch.no_grad():
        noisy = model(x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))).argmax(1)
    assert (noisy.numpy() == digits.labels).mean() > 0.85


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


def test_uniform_noise_is_noted_with_its_norm_and_counts_are_checked():
    (last,) = train(new_model(), halves(), plan(epochs=1, noise="uniform"), acr_check=AcrCheck(1, 3, 100))
    assert last.norm == "l1"
    for field, value in (("every", 0), ("inputs", 0), ("votes", -1)):
        with pytest.raises(InvalidValueError, match=f"acr_{field}.*{value}"):
            AcrCheck(**{"every": 1, field: value})


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
