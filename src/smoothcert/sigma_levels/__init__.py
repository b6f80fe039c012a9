"""σ levels: one classifier whose σ follows the input, and that remembers nothing.

A chooser is smoothed by its median, and the level it gives is the σ of the classifier that answers. Near an input the
median can only move so far, so a certificate at every level that it can come to is one for the whole.
"""

from smoothcert.sigma_levels.choosers import ConstantChooser, StatisticChooser, chooser_named
from smoothcert.sigma_levels.evidence import LevelEvidence, LevelVotes
from smoothcert.sigma_levels.median import median_level, reaches
from smoothcert.sigma_levels.statement import CHOOSER_BOUND, CHOOSER_PART, SigmaLevels

__all__ = [
    "CHOOSER_BOUND",
    "CHOOSER_PART",
    "ConstantChooser",
    "LevelEvidence",
    "LevelVotes",
    "SigmaLevels",
    "StatisticChooser",
    "chooser_named",
    "median_level",
    "reaches",
]
