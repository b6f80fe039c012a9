"""A chooser among σ levels, fitted: votes at every level say what each is worth, a small network learns where."""

from smoothcert.level_fit.fit import Progress, fit_levels_into
from smoothcert.level_fit.plan import LevelFitPlan
from smoothcert.level_fit.report import LevelReport
from smoothcert.level_fit.votes import label_radii

__all__ = ["LevelFitPlan", "LevelReport", "Progress", "fit_levels_into", "label_radii"]
