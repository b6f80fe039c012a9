"""Autocast: 16 bits where torch finds them suited, as a part of the plan."""

import numpy as np
import pytest
import torch
from torch import nn

from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.plan import CertifyPlan

SHAPE = (1, 8, 8)


def network() -> nn.Module:
    torch.manual_seed(0)
    parts = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
    return nn.Sequential(*parts).eval()


@pytest.mark.parametrize("route", ["eager", "channels-last", "folded", "auto"])
def test_operations_are_cast_and_weights_are_not(route):
    prepared = adapt(network(), "hard").prepare(Numerics("autocast-bfloat16", route), SHAPE)
    rows = torch.rand((prepared.numerics.layout().chunk, *SHAPE))
    with torch.inference_mode():
        found = prepared.outputs(rows)
        assert found.dtype == torch.bfloat16
        if route == "eager":
            with torch.autocast("cpu", torch.bfloat16):
                assert torch.equal(found, network()(rows))
            assert not torch.equal(found.float(), network()(rows))
        assert torch.allclose(found.float(), network()(rows), atol=0.1)


@pytest.mark.parametrize("generator", ["sfc64", "philox"])
def test_votes_are_the_same_for_any_batch_and_state_their_type(generator):
    plan = CertifyPlan(
        Gaussian(0.5), n=500, seed=0, numerics=Numerics("autocast-bfloat16", generator=generator)
    )
    x = np.random.default_rng(0).random(SHAPE)
    tallies = []
    for execution in (Execution(workers=1, batch=1), Execution(workers=2), Execution("cpu", 1, 10_000)):
        smoothed = SmoothedClassifier(network(), plan, execution=execution)
        tallies.append(smoothed.certify(x).estimation)
        assert smoothed.prepare(SHAPE).as_json()["dtype"] == "autocast-bfloat16"
    assert tallies[0] == tallies[1] == tallies[2]


def test_gradients_of_searches_are_the_networks_own():
    assert Numerics("autocast-float16").torch_dtype() == torch.float32
    assert Numerics("autocast-float16").coarsest_dtype() == torch.float16
    assert Numerics("autocast-bfloat16").noise_dtype() == torch.float32


def test_what_torch_does_not_evaluate_has_no_autocast():
    base = adapt(lambda batch: batch.reshape(len(batch), -1)[:, :2], "hard")
    with pytest.raises(ModelError, match=r"autocast-bfloat16.*--dtype"):
        base.prepare(Numerics("autocast-bfloat16"), SHAPE)
    with pytest.raises(ModelError, match=r"'onnxruntime'.*float32"):
        adapt(network(), "hard").prepare(Numerics("autocast-bfloat16", "onnxruntime"), SHAPE)
    with pytest.raises(InvalidValueError, match=r"dtype.*'autocast'"):
        Numerics("autocast")
