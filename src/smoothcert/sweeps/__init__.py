"""Sweeps: methods × σ × seeds, each trained and certified in a folder of its own, so that any part can be resumed."""

from smoothcert.sweeps.cells import Cell, Trial, group_by_seed, plan_cells, settings_without_effect
from smoothcert.sweeps.parallel import run_cells

__all__ = ["Cell", "Trial", "group_by_seed", "plan_cells", "run_cells", "settings_without_effect"]
