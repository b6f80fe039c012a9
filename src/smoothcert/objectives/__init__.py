"""Training objectives by name; importing a method's file registers it."""

from smoothcert.objectives import consistency, gaussian, macer, smoothadv, smoothmix, stability
from smoothcert.objectives.base import (
    OBJECTIVES,
    Objective,
    Sigma,
    gaussian_noise,
    noise_copies,
    objective_name,
)

__all__ = [
    "OBJECTIVES",
    "Objective",
    "Sigma",
    "consistency",
    "gaussian",
    "gaussian_noise",
    "macer",
    "noise_copies",
    "objective_name",
    "smoothadv",
    "smoothmix",
    "stability",
]
