"""Training objectives by name. Every file of this folder registers a method; none imports torch before it is used."""

from smoothcert.objectives.base import (
    OBJECTIVES,
    BatchNoise,
    Objective,
    Sigma,
    SmoothingLoss,
    StepCost,
    draw_noise,
    kl_divergence,
    noise_copies,
    objective_name,
)

__all__ = [
    "OBJECTIVES",
    "BatchNoise",
    "Objective",
    "Passes",
    "Sigma",
    "SmoothingLoss",
    "StepCost",
    "draw_noise",
    "kl_divergence",
    "noise_copies",
    "objective_name",
]

Passes = StepCost  # the name that plugins were written against
