"""The hot loop: noisy votes of any model, counted in bounded memory, the same whatever the batch or workers."""

from smoothcert.sampling.engine import Engine
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.models import BaseClassifier, Prepared, adapt
from smoothcert.sampling.numerics import Numerics
from smoothcert.sampling.procedures import Draw, Finished, Job, Procedure, one_draw

__all__ = [
    "BaseClassifier",
    "Draw",
    "Engine",
    "Execution",
    "Finished",
    "Job",
    "Numerics",
    "Prepared",
    "Procedure",
    "adapt",
    "one_draw",
]
