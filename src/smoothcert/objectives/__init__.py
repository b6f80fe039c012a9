"""Training objectives by name. Every file of this folder is imported, and so registers its method; plugins follow."""

from importlib import import_module
from pkgutil import iter_modules

from smoothcert.objectives.base import (
    OBJECTIVES,
    Objective,
    Passes,
    Sigma,
    UniformNoise,
    draw_noise,
    kl_divergence,
    noise_copies,
    objective_name,
)
from smoothcert.objectives.plugins import load_plugins

__all__ = [
    "OBJECTIVES",
    "Objective",
    "Passes",
    "Sigma",
    "UniformNoise",
    "draw_noise",
    "kl_divergence",
    "noise_copies",
    "objective_name",
]

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
load_plugins()
