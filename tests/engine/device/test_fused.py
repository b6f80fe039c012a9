"""One kernel for the bits: taken only where it gives the same."""

import pytest
import torch

from smoothcert.engine.philox import bits_on, fused_bits, uniform_bits


def test_the_cpu_draws_step_by_step():
    assert bits_on("cpu", [4], 9) is uniform_bits


def test_what_gives_the_same_bits_is_taken(monkeypatch):
    asked = []

    def same(keys: torch.Tensor, votes: torch.Tensor, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append((keys.shape, votes.shape, dimension))
        assert keys.max() > 2**31
        assert keys.unique().numel() == keys.numel()
        return uniform_bits(keys, votes, dimension)

    monkeypatch.setattr(torch, "compile", lambda function, dynamic: same)
    assert fused_bits("cpu", [4, 3], 9) is same
    assert asked == [((4, 4), (4,), 9), ((3, 4), (3,), 9)]


def other(keys: torch.Tensor, votes: torch.Tensor, dimension: int) -> tuple[torch.Tensor, torch.Tensor]:
    lower, upper = uniform_bits(keys, votes, dimension)
    if len(keys) == 3:
        upper[-1, -1] ^= 1
    return lower, upper


def failing(*_: object) -> tuple[torch.Tensor, torch.Tensor]:
    raise RuntimeError("no compiler")


@pytest.mark.parametrize("made", [other, failing])
def test_another_bit_or_an_error_leaves_what_was(made, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: made)
    with pytest.warns(RuntimeWarning, match="no compiler" if made is failing else "bits"):
        assert fused_bits("cpu", [4, 3], 9) is uniform_bits


@pytest.mark.campaign
def test_the_cpus_compiler_makes_one_that_gives_the_same():
    fused = fused_bits("cpu", [40, 7], 33)
    assert fused is not uniform_bits
    keys = torch.randint(0, 2**32, (40, 4), generator=torch.Generator().manual_seed(0))
    for one, two in zip(
        fused(keys, torch.arange(40), 33), uniform_bits(keys, torch.arange(40), 33), strict=True
    ):
        assert torch.equal(one, two)
