"""What a chooser is fitted to: the radius that its soft votes would give the whole classifier."""

from __future__ import annotations

import torch
from torch import Tensor

from smoothcert.noise import Noise

LEAST_SHARE = 1e-4
"""Shares of levels are kept so far from 0 and 1: beyond it no affordable number of votes shows a longer reach."""


def expected_radius(shares: Tensor, radii: Tensor) -> Tensor:
    """Σ_k share_k·radius_k: in doubt it is largest at the level that is best on average."""
    return (shares * radii).sum(-1)


def combined_radii(shares: Tensor, radii: Tensor, noise: Noise) -> Tensor:
    """min over levels of max(reach, radius), from each row's shares of levels and its radius at each.

    As :func:`smoothcert.sigma_levels.median.combined_radius` has it, and with a gradient in the shares: where the
    chooser limits the radius, its shares grow clearer.
    """
    levels = shares.shape[-1]
    below = shares.cumsum(-1) - shares
    above = 1 - below - shares
    scale = noise.smallest_sigma * noise.semi_axis

    def reach(share: Tensor) -> Tensor:
        gap: Tensor = noise.soft_gap(share.clamp(LEAST_SHARE, 1 - LEAST_SHARE))
        return scale * gap.clamp(min=0.0)

    up, down = torch.maximum(reach(below), radii), torch.maximum(reach(above), radii)
    found = []
    for home in range(levels):
        bounded = torch.cat((down[..., :home], radii[..., home : home + 1], up[..., home + 1 :]), -1)
        found.append(bounded.amin(-1))
    # The median is the home for which it is largest: any other has the median's own level without a reach.
    return torch.stack(found, -1).amax(-1)
