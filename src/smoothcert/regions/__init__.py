"""Regions: open sets around an input, with float64 geometry that rounds inward."""

from smoothcert.regions.balls import L1Ball, L2Ball
from smoothcert.regions.ellipsoid import CrossPolytope, Ellipsoid

CertifiedRegion = L2Ball | L1Ball | Ellipsoid | CrossPolytope
"""What a certificate may certify."""

BALLS: dict[str, type[L2Ball] | type[L1Ball]] = {"l2": L2Ball, "l1": L1Ball}
"""Balls by norm."""
STRETCHED: dict[str, type[Ellipsoid] | type[CrossPolytope]] = {"l2": Ellipsoid, "l1": CrossPolytope}
"""Regions with a semi-axis for each coordinate, by norm."""

__all__ = [
    "BALLS",
    "STRETCHED",
    "CertifiedRegion",
    "CrossPolytope",
    "Ellipsoid",
    "L1Ball",
    "L2Ball",
]
