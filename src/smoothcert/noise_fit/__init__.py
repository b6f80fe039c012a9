"""Non-uniform smoothing: one σ vector for a data set, with the largest mean certified area (Tecot et al.)."""

from smoothcert.noise_fit.blanket import blanket
from smoothcert.noise_fit.features import feature_names
from smoothcert.noise_fit.fit import Fit, Progress, fit_into, read_fit, split_validation, step_sigmas
from smoothcert.noise_fit.groups import group_labels
from smoothcert.noise_fit.ladder import (
    Point,
    finished_fit,
    ladder_points,
    read_ladder,
    starting_constants,
    write_blanket,
)
from smoothcert.noise_fit.plan import FitPlan
from smoothcert.noise_fit.state import SubEpoch

__all__ = [
    "Fit",
    "FitPlan",
    "Point",
    "Progress",
    "SubEpoch",
    "blanket",
    "feature_names",
    "finished_fit",
    "fit_into",
    "group_labels",
    "ladder_points",
    "read_fit",
    "read_ladder",
    "split_validation",
    "starting_constants",
    "step_sigmas",
    "write_blanket",
]
