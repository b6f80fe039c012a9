"""What may vary in a σ vector, and where it starts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.noise_fit import group_labels
from smoothcert.noise_fit.scales import GroupScales, LowRankScales, starting_vector


def test_groups_of_images() -> None:
    assert group_labels("pixel", (2, 2)).tolist() == [[0, 1], [2, 3]]
    assert group_labels("channel", (3, 2, 2)).reshape(3, -1).tolist() == [[c] * 4 for c in range(3)]
    assert group_labels("rows", (2, 2, 3))[1].tolist() == [[2, 2, 2], [3, 3, 3]]
    # 3×5 in squares of two: the last row and column of patches are cut short.
    assert group_labels("patch:2", (2, 3, 5)).tolist() == [
        [[0, 0, 1, 1, 2], [0, 0, 1, 1, 2], [3, 3, 4, 4, 5]],
        [[6, 6, 7, 7, 8], [6, 6, 7, 7, 8], [9, 9, 10, 10, 11]],
    ]


def test_groups_of_ones_own(tmp_path: Path) -> None:
    assert group_labels("7,7,-1,3", (4,)).tolist() == [2, 2, 0, 1]
    np.save(tmp_path / "g.npy", np.array([[5, 5], [5, 9]]))
    assert group_labels(str(tmp_path / "g.npy"), (2, 2)).tolist() == [[0, 0], [0, 1]]
    (tmp_path / "g.json").write_text(json.dumps([1, 0, 1]))
    assert group_labels(str(tmp_path / "g.json"), (3,)).tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("spec", "shape", "named"),
    [
        ("channel", (4,), r"'channel'.*\(4,\)"),
        ("patch:0", (1, 4, 4), r"\b4\b.*'patch:0'"),
        ("patch:x", (1, 4, 4), r"\b4\b.*'patch:x'"),
        ("0,1", (3,), r"'0,1'.*\b2\b.*\b3\b"),
        ("pixels", (3,), "pixel, channel.*'pixels'"),
    ],
)
def test_groups_that_make_no_sense(spec: str, shape: tuple[int, ...], named: str) -> None:
    with pytest.raises(InvalidValueError, match=f"groups.*{named}"):
        group_labels(spec, shape)


def test_files_that_hold_no_labels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"groups.*missing\.npy"):
        group_labels(str(tmp_path / "missing.npy"), (2,))
    np.save(tmp_path / "f.npy", np.array([0.5, 1.0]))
    with pytest.raises(InvalidValueError, match=r"f\.npy.*float64"):
        group_labels(str(tmp_path / "f.npy"), (2,))


def test_a_group_shares_its_factor_and_sums_its_gradients() -> None:
    scales = GroupScales(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0]))
    (theta,) = scales.parameters()
    assert scales.sigmas([theta]).tolist() == [0.1, 0.2, 0.3]
    theta[0] = np.log(2.0)
    assert scales.sigmas([theta]) == pytest.approx([0.2, 0.2, 0.6])
    theta.requires_grad_()
    weights = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    (gradient,) = torch.autograd.grad((weights * scales.log_factors([theta])).sum(), theta)
    assert gradient.tolist() == [101.0, 10.0]


def test_low_rank_starts_constant_and_stays_of_its_rank() -> None:
    scales = LowRankScales(np.full((2, 6, 5), 0.3), 2, seed=0)
    u, v = scales.parameters()
    assert (scales.sigmas([u, v]) == 0.3).all()
    u.requires_grad_()
    v.requires_grad_()
    (gradient,) = torch.autograd.grad(scales.log_factors([u, v]).sum(), v)
    assert (gradient != 0).any()
    moved = torch.randn(v.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for channel in np.log(scales.sigmas([u.detach(), moved]) / 0.3):
        assert np.linalg.matrix_rank(channel, tol=1e-9) == 2


def test_scales_that_make_no_sense() -> None:
    with pytest.raises(InvalidValueError, match=r"rank.*\(4,\).*--groups"):
        LowRankScales(np.ones(4), 1, 0)
    with pytest.raises(InvalidValueError, match=r"rank.*\b3\b.*\b4\b"):
        LowRankScales(np.ones((1, 3, 4)), 4, 0)
    with pytest.raises(InvalidValueError, match=r"init.*-1"):
        starting_vector((2,), -1.0, None)
    with pytest.raises(InvalidValueError, match=r"\(1,\).*--scale"):
        starting_vector((2,), 1.0, np.array([1.0, 0.0]))
    assert starting_vector((2,), 0.5, np.array([4.0, 10.0])).tolist() == [2.0, 5.0]
