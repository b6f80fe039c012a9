"""The functions of the top level: radii against SciPy's, figures against counts by hand, runs opened and written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta, norm

import smoothcert
from smoothcert import SmoothedClassifier
from smoothcert.errors import InvalidValueError, ModelError

ROWS = np.array([[1.0, 0.5], [-1.0, 0.25], [0.5, 0.5], [1.0, 0.5]])
LABELS = [1, 0, 0, 1]


def signs(batch: np.ndarray) -> np.ndarray:
    return (batch.sum(1) > 0).astype(int)


def answers(**options: Any) -> smoothcert.Certifications:
    kept = {"sigma": 0.5, "n": 500, "seed": 0, "outputs": "labels", "classes": 2}
    return SmoothedClassifier(signs, **(kept | options)).certify(ROWS)


@pytest.fixture
def run(tmp_path) -> Path:
    answers().save(tmp_path / "toys", LABELS)
    return tmp_path / "toys"


def test_the_radius_of_counts_is_the_papers():
    found = smoothcert.radius([3, 990, 7], 0.5, 0.001, "clopper-pearson", predicted=1)
    expected = 0.5 * norm.ppf(beta.ppf(0.001, 990, 11))
    assert found == pytest.approx(expected, rel=1e-9)
    assert found <= expected * (1 + 1e-12)
    # A choice by the same votes is paid for.
    assert found == smoothcert.radius([3, 990, 7], 0.5, 0.003, "clopper-pearson")
    rows = [[50, 50], [0, 100], [0, 0], [100, 0]]
    found = smoothcert.radius(rows, 1.0, predicted=[0, 1, 1, 1])
    assert found[[0, 2, 3]].tolist() == [0.0, 0.0, 0.0]
    assert found[1] == smoothcert.radius([0, 100], 1.0, predicted=1) > 0
    assert smoothcert.radius([0, 100], 1.0, noise="uniform") > 0


def test_counts_that_are_none_are_refused():
    for arguments, named in [
        (([0.5, 0.5], 1.0), r"0\.5"),
        (([-1, 5], 1.0), "-1"),
        (([5], 1.0), r"\[5\]"),
        (([1, 5], 0.0), r"\b0\.0"),
        (([1, 5], 1.0, 2.0), r"2\.0"),
        (([1, 5], 1.0, 0.1, "macer"), "macer"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            smoothcert.radius(*arguments)


def test_figures_of_runs_and_of_answers_agree(run):
    found, radii = answers(), [0.0, 0.2, 5.0]
    right = found.predicted == LABELS
    expected = [float(np.mean(right & (found.radius >= r))) for r in radii]
    for results, labels in ((found, LABELS), (run, None), (smoothcert.load_run(run), None)):
        assert smoothcert.certified_accuracy(results, radii, labels).tolist() == expected
        assert smoothcert.certified_accuracy(results, labels=labels) == expected[0]
        assert smoothcert.average_certified_radius(results, labels) == pytest.approx(
            float(np.mean(found.radius * right))
        )
    with pytest.raises(InvalidValueError, match="labels="):
        smoothcert.certified_accuracy(found)
    with pytest.raises(InvalidValueError, match="labels"):
        smoothcert.certified_accuracy(run, labels=LABELS)


def test_a_run_of_python_goes_all_the_way(run, tmp_path):
    again = smoothcert.recertify(run, tmp_path / "looser", alpha=0.01)
    assert smoothcert.verify_run(again).exit_code == 0
    assert (again.records.radius > smoothcert.load_run(run).records.radius).all()
    compared = smoothcert.compare(run, again, [0.5])
    assert "looser" in str(compared)
    page = smoothcert.report([run, again], tmp_path / "page")
    assert page == tmp_path / "page" / "index.html"
    assert "looser" in page.read_text(encoding="utf-8")
    card = smoothcert.model_card(run)
    assert card.startswith("## ")
    assert "500" in card
    assert smoothcert.load_run(run).records.digest in card
    with pytest.raises(smoothcert.SmoothcertError, match="nowhere"):
        smoothcert.verify_run(tmp_path / "nowhere")


def test_a_trained_model_is_loaded_by_its_run(tmp_path):
    import torch

    from smoothcert.architectures.spec import ModelSpec, initialise
    from smoothcert.architectures.weights import save_model

    spec = ModelSpec("small-cnn", (1, 28, 28), ("0", "1"))
    module = initialise(spec, 0)
    save_model(module, spec, tmp_path / "net")
    loaded = smoothcert.load_model("net", model_dir=tmp_path, threat_model="L2")
    assert not loaded.training
    x = torch.ones(3, 1, 28, 28)
    assert torch.equal(loaded(x), module.eval()(x))
    with pytest.raises(ModelError, match="Linf"):
        smoothcert.load_model("net", model_dir=tmp_path, threat_model="Linf")


def test_noise_is_fitted_and_runs_are_attacked(tmp_path):
    data = smoothcert.Dataset("toys", np.tile(ROWS, (10, 1)), np.tile([1, 0, 1, 1], 10), ("0", "1"))
    plan = smoothcert.FitPlan(init=0.5, route="votes", sub_epochs=1, validation=8)
    model = SmoothedClassifier(signs, sigma=0.5, outputs="labels", classes=2).base
    fit = smoothcert.fit_noise(model, data, tmp_path / "fit", plan)
    assert fit.noise is not None
    assert fit.noise.sigmas.shape == (2,)
    smoothed = SmoothedClassifier(model, sigma=0.5, n=200, seed=0)
    smoothcert.certify_dataset(smoothed, data.first(4), tmp_path / "run")
    report = smoothcert.attack(
        tmp_path / "run", model, data.first(4), [0.1], smoothcert.AttackPlan(steps=2, copies=8, n=100)
    )
    assert not report.contradictions()


def batches() -> list[tuple[Any, Any]]:
    import torch

    x = torch.tensor(np.tile(ROWS, (8, 1)), dtype=torch.float32)
    y = torch.tensor(np.tile(LABELS, 8))
    return list(zip(x.split(8), y.split(8)))


def linear(weights: float = 0.0) -> Any:
    import torch

    network = torch.nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.fill_(weights)
        network.bias.zero_()
    return network


def test_training_takes_the_callers_loader_optimizer_and_scheduler():
    import torch

    network = linear()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    heard: list[tuple[int, float]] = []
    losses = smoothcert.train(
        network,
        batches(),
        sigma=0.1,
        epochs=3,
        optimizer=optimizer,
        scheduler=scheduler,
        seed=0,
        after_epoch=lambda *of: heard.append(of),
    )
    assert optimizer.param_groups[0]["lr"] == 0.5**4
    assert heard == list(enumerate(losses, start=1))
    assert not network.training
    # By hand: the same steps with the loss itself.
    other = linear()
    criterion = smoothcert.SmoothingLoss(sigma=0.1, seed=0)
    for epoch in range(3):
        for x, y in batches():
            loss = criterion(other, x, y)
            (gradient,) = torch.autograd.grad(loss, [other.weight], retain_graph=True)
            (bias,) = torch.autograd.grad(loss, [other.bias])
            with torch.no_grad():
                other.weight -= 0.5 ** (epoch + 1) * gradient
                other.bias -= 0.5 ** (epoch + 1) * bias
    assert torch.allclose(network.weight, other.weight, atol=1e-6)
    more = smoothcert.train(linear(), batches(), sigma=0.1, epochs=30, method="consistency", lam=1.0)
    assert more[-1] < more[0]


def test_training_that_cannot_go_on_says_why():
    for options, named in [
        ({"epochs": 0}, "epochs.*0"),
        ({"sigma": -1.0}, "-1"),
        ({"method": "gausian"}, "gaussian"),
        ({"ramps": "lamb:3"}, "lamb"),
        ({"scheduler": object()}, "optimizer"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            smoothcert.train(linear(), batches(), **({"sigma": 0.1} | options))
    with pytest.raises(InvalidValueError, match="DataLoader"):
        smoothcert.train(linear(), iter(batches()), sigma=0.1, epochs=2)
    with pytest.raises(smoothcert.SmoothcertError, match=r"nan.*epoch 1"):
        smoothcert.train(linear(float("nan")), batches(), sigma=0.1)
