"""Training objectives by name. Every file of this folder is imported, and so registers its method; plugins follow."""

from smoothcert.objectives.base import (
    OBJECTIVES,
    BatchNoise,
    Objective,
    Passes,
    Sigma,
    draw_noise,
    kl_divergence,
    noise_copies,
    objective_name,
)
from smoothcert.objectives.losses import SmoothingLoss
from smoothcert.objectives.plugins import load_plugins

__all__ = [
    "OBJECTIVES",
    "BatchNoise",
    "Objective",
    "Passes",
    "Sigma",
    "SmoothingLoss",
    "draw_noise",
    "kl_divergence",
    "noise_copies",
    "objective_name",
]

OBJECTIVES.load()
load_plugins()
