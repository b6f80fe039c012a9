"""Every registered architecture keeps the same promises."""

import re
from pathlib import Path

import pytest
import torch

import smoothcert.architectures
from smoothcert.architectures import ARCHITECTURES, ModelSpec, initialise
from smoothcert.errors import InvalidValueError

HELPERS = {
    "__init__",
    "base",
    "checkpoints",
    "lookup",
    "normalize",
    "packages",
    "residual",
    "spec",
    "statistics",
    "weights",
}


def test_every_family_file_registers_a_builder():
    files = {path.stem for path in Path(smoothcert.architectures.__file__).parent.glob("*.py")} - HELPERS
    registered = {ARCHITECTURES[name].__module__.rpartition(".")[2] for name in ARCHITECTURES}
    assert registered == files


@pytest.mark.parametrize("name", ARCHITECTURES.names())
class TestEveryArchitecture:
    @pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 17, 23)])
    def test_gives_one_logit_per_class(self, name, shape):
        network = ARCHITECTURES[name](shape, 7).eval()
        logits = network(torch.rand(2, *shape))
        assert logits.shape == (2, 7)
        assert torch.isfinite(logits).all()

    def test_row_does_not_depend_on_its_neighbours_in_eval_mode(self, name):
        network = ARCHITECTURES[name]((3, 32, 32), 5)
        network(torch.rand(4, 3, 32, 32))
        x, y = torch.rand(3, 3, 32, 32), torch.rand(3, 3, 32, 32) * 9
        y[1] = x[1]
        network.eval()
        assert torch.equal(network(x)[1], network(y)[1])
        assert not torch.equal(network(x)[0], network(y)[0])

    def test_memory_format_does_not_change_the_answer(self, name):
        # Untrained, 110 layers make numbers up to 1e8 and lose four digits: float64 has enough.
        network = ARCHITECTURES[name]((3, 32, 32), 5).eval().double()
        x = torch.rand(2, 3, 32, 32, dtype=torch.float64)
        plain = network(x)
        # A view that took the memory's order for the logical one would scramble the features.
        last = network.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
        torch.testing.assert_close(last, plain, rtol=1e-6, atol=1e-8)

    def test_impossible_shapes_and_zero_classes_are_named(self, name):
        for shape in ((28, 28), (1, 3, 28), (1, 28, 3), (0, 28, 28), (1, 1, 28, 28), (1, 28.0, 28)):
            with pytest.raises(InvalidValueError, match=f"{name}.*{re.escape(str(shape))}"):
                ARCHITECTURES[name](shape, 10)
        with pytest.raises(InvalidValueError, match=r"classes.*\b0\b"):
            ARCHITECTURES[name]((3, 32, 32), 0)

    def test_seed_decides_the_weights_and_global_state_is_left_alone(self, name):
        spec = ModelSpec(name, (3, 32, 32), ("a", "b"))
        before = torch.get_rng_state()
        first, same, other = (initialise(spec, seed).state_dict() for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before)
        assert all(torch.equal(first[key], same[key]) for key in first)
        assert not all(torch.equal(first[key], other[key]) for key in first)

    def test_every_parameter_gets_a_gradient(self, name):
        network = ARCHITECTURES[name]((1, 28, 28), 3)
        network(torch.rand(2, 1, 28, 28)).square().sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())
