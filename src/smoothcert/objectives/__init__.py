"""Training objectives by name; importing a method's file registers it."""

from smoothcert.objectives import gaussian
from smoothcert.objectives.base import OBJECTIVES, Objective, Sigma, gaussian_noise, objective_name

__all__ = ["OBJECTIVES", "Objective", "Sigma", "gaussian", "gaussian_noise", "objective_name"]
