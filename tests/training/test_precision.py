import pytest
import torch
from torch import nn

from smoothcert.errors import InvalidValueError
from smoothcert.objectives import OBJECTIVES
from smoothcert.training import train
from smoothcert.training.precision import WithPrecision
from tests.training.toys import flat, halves, new_model, plan

CPU = torch.device("cpu")


class Spy(nn.Module):
    """Notes the type that its layer computes in."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 3)
        self.types = []

    def forward(self, x):
        logits = self.layer(x.flatten(1))
        self.types.append(logits.dtype)
        return logits


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_passes_run_in_the_type_and_logits_come_back_in_float32(precision):
    spy = Spy()
    x = torch.rand(4, 1, 8, 8, requires_grad=True)
    logits = WithPrecision(spy, precision, CPU)(x)
    assert spy.types == [getattr(torch, precision)]
    assert logits.dtype == torch.float32
    logits.square().sum().backward()
    for leaf in (x, *spy.parameters()):
        assert leaf.grad.dtype == torch.float32
        assert leaf.grad.abs().sum() > 0


def test_float32_is_the_network_itself():
    model, x = new_model(), torch.rand(4, 1, 8, 8)
    assert torch.equal(WithPrecision(model, "float32", CPU)(x), model(x))


@pytest.mark.parametrize("name", OBJECTIVES.names())
def test_every_objective_trains_in_bfloat16(name):
    models = []
    for precision in ("float32", "bfloat16"):
        model = new_model()
        (metrics,) = train(
            model, halves(16), plan(objective=OBJECTIVES[name](), epochs=1, precision=precision)
        )
        assert metrics.loss > 0
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
        models.append(flat(model))
    full, half = models
    assert not torch.equal(full, half)
    assert (full - half).norm() < 0.02 * full.norm()


def test_float16_on_a_processor_is_refused():
    with pytest.raises(InvalidValueError, match=r"float16.*\bcpu\b.*bfloat16.*float32"):
        train(new_model(), halves(), plan(precision="float16"))
