"""Analysis: figures, tables and pictures of runs, computed from their records alone."""

from smoothcert.analysis.metrics import (
    RunSummary,
    abstention_rate,
    average_certified_radius,
    certified_accuracy,
    guaranteed_fraction,
    smoothed_accuracy,
    summarise,
)
from smoothcert.analysis.plots import plot_certified_accuracy
from smoothcert.analysis.plots.gallery import plot_gallery
from smoothcert.analysis.tables import TABLE_FORMATS, default_radii, parse_radii, render_table

__all__ = [
    "TABLE_FORMATS",
    "RunSummary",
    "abstention_rate",
    "average_certified_radius",
    "certified_accuracy",
    "default_radii",
    "guaranteed_fraction",
    "parse_radii",
    "plot_certified_accuracy",
    "plot_gallery",
    "render_table",
    "smoothed_accuracy",
    "summarise",
]
