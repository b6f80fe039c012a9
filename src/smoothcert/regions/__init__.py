"""Regions: open sets around an input, with float64 geometry that rounds inward."""

from smoothcert.regions.balls import L1Ball, L2Ball
from smoothcert.regions.base import Region
from smoothcert.regions.ellipsoid import CrossPolytope, Ellipsoid

CertifiedRegion = L2Ball | L1Ball | Ellipsoid | CrossPolytope
"""What a certificate may certify."""

__all__ = ["CertifiedRegion", "CrossPolytope", "Ellipsoid", "L1Ball", "L2Ball", "Region"]
