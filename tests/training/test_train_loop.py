import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.architectures import ModelSpec, initialise
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, ModelError
from smoothcert.objectives import Objective
from smoothcert.training import TrainingDivergedError, TrainPlan, train

CLASSES = ("left", "right", "both")


def halves(size=50):
    """Images bright in the left half, the right half or everywhere."""
    labels = np.arange(size, dtype=np.int64) % 3
    images = np.zeros((size, 1, 8, 8), dtype=np.uint8)
    images[labels != 1, :, :, :4] = 255
    images[labels != 0, :, :, 4:] = 255
    return Dataset("halves", images, labels, CLASSES, 1 / 255)


def new_model(classes=CLASSES, shape=(1, 8, 8)):
    return initialise(ModelSpec("small-cnn", shape, classes), seed=0)


def plan(**changes):
    return dataclasses.replace(TrainPlan(0.25, epochs=4, batch_size=16, lr=0.05), **changes)


def weights_after(model, dataset, chosen):
    train(model, dataset, chosen)
    return torch.cat([tensor.flatten().double() for tensor in model.state_dict().values()])


def test_learns_what_can_be_learnt():
    model = new_model()
    history = train(model, halves(300), plan())
    assert history[-1].accuracy > 0.98
    assert history[-1].loss < 0.1 < history[0].loss
    assert [metrics.epoch for metrics in history] == [1, 2, 3, 4]
    assert all(metrics.seconds > 0 for metrics in history)
    assert not model.training


@pytest.mark.parametrize("architecture", ["small-cnn", "cifar_resnet20"])
def test_same_seed_same_weights(architecture):
    spec = ModelSpec(architecture, (1, 8, 8), CLASSES)
    runs = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        runs.append(weights_after(initialise(spec, 0), halves(), plan(epochs=2)))
    assert torch.equal(*runs)


def test_another_seed_gives_other_weights():
    first, second = (weights_after(new_model(), halves(), plan(seed=seed)) for seed in (0, 1))
    assert not torch.equal(first, second)


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
    model, reference = new_model().double(), new_model().double()
    x, y = torch.from_numpy(dataset.inputs(slice(None))).double(), torch.from_numpy(dataset.labels)
    nn.functional.cross_entropy(reference(x), y).backward()
    expected = [
        parameter - 0.05 * 1.9 * (parameter.grad + 1e-2 * parameter) for parameter in reference.parameters()
    ]
    train(InDouble(model), dataset, TrainPlan(0.0, epochs=1, batch_size=12, lr=0.05, weight_decay=1e-2))
    for parameter, value in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter, value, rtol=1e-10, atol=1e-12)


class InDouble(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.double())


@dataclasses.dataclass(frozen=True)
class Recorder(Objective):
    """Notes which inputs each batch held and what they were given."""

    seen: list = dataclasses.field(default_factory=list)

    def loss(self, model, x, y, sigma, generator):
        self.seen.append((x.flatten().tolist(), y.tolist(), sigma))
        return model(x).sum() * 0 + len(y)


def test_every_epoch_sees_each_input_once_with_its_label_in_another_order():
    values = np.arange(10, dtype=np.float32).reshape(10, 1)
    dataset = Dataset("numbers", values, np.arange(10, dtype=np.int64) % 3, CLASSES)
    recorder = Recorder()
    history = train(nn.Linear(1, 3), dataset, plan(objective=recorder, epochs=2, batch_size=4, sigma=0.5))
    assert [len(labels) for _, labels, _ in recorder.seen] == [4, 4, 2] * 2
    assert all(label == int(x) % 3 for xs, ys, _ in recorder.seen for x, label in zip(xs, ys))
    assert all(sigma == 0.5 for _, _, sigma in recorder.seen)
    epochs = [[x for xs, _, _ in recorder.seen[start : start + 3] for x in xs] for start in (0, 3)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(10))
    assert epochs[0] != epochs[1]
    # Batches of 4, 4 and 2 have losses 4, 4 and 2; the epoch's is the mean over inputs, not over batches.
    assert history[0].loss == pytest.approx((4 * 4 + 4 * 4 + 2 * 2) / 10)


def test_learning_rate_follows_the_schedule():
    history = train(new_model(), halves(), plan(epochs=3, step_epochs=1))
    assert [metrics.learning_rate for metrics in history] == pytest.approx([0.05, 0.005, 0.0005])


def test_progress_is_called_after_every_batch():
    calls = []
    history = train(new_model(), halves(50), plan(epochs=2), progress=lambda *call: calls.append(call))
    assert [call[:4] for call in calls] == [
        (epoch, 2, batch, 4) for epoch in (1, 2) for batch in (1, 2, 3, 4)
    ]
    sizes = np.array([16, 16, 16, 2])
    assert history[0].loss == pytest.approx(np.dot(sizes, [call[4] for call in calls[:4]]) / 50)


@dataclasses.dataclass(frozen=True)
class Diverging(Objective):
    """Becomes NaN in the third batch."""

    calls: list = dataclasses.field(default_factory=list)

    def loss(self, model, x, y, sigma, generator):
        self.calls.append(1)
        return model(x).sum() * (float("nan") if len(self.calls) == 3 else 0.0)


def test_a_loss_that_is_no_number_stops_before_it_reaches_the_weights():
    model = new_model()
    with pytest.raises(
        TrainingDivergedError, match=r"'Diverging' became nan in epoch 2, batch 1 of 2.*0\.05"
    ):
        train(model, halves(32), plan(objective=Diverging()))
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_labels_the_model_has_no_logit_for():
    with pytest.raises(DataError, match="halves has label 2 but the model knows 2 classes"):
        train(new_model(("left", "right")), halves(), plan())


def test_inputs_the_model_cannot_take():
    with pytest.raises(ModelError, match=r"halves, of shape \(1, 8, 8\)"):
        train(new_model(shape=(3, 8, 8)), halves(), plan())


def test_output_that_is_not_logits():
    with pytest.raises(ModelError, match=r"logits of shape \(n, classes\), it gave \(1, 1, 8, 8\)"):
        train(nn.Conv2d(1, 1, 1), halves(), plan())


def test_quickstart_settings_on_digits():
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    labels, classes = digits.target.astype(np.int64), tuple("0123456789")
    training = Dataset("digits", digits.images[:1297, None], labels[:1297], classes, 1 / 16)
    model = new_model(classes)
    train(model, training, TrainPlan(0.25, epochs=10, batch_size=64, lr=0.05, schedule="cosine"))
    x = torch.tensor(digits.images[1297:, None] / 16, dtype=torch.float32)
    with torch.no_grad():
        noisy = model(x + 0.25 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))).argmax(1)
    assert (noisy.numpy() == labels[1297:]).mean() > 0.85
