"""Plots: what runs certified, drawn as PNG, SVG or PDF at column or page width."""

from smoothcert.analysis.ceiling import radius_ceiling
from smoothcert.analysis.plots.ablation import plot_ablation
from smoothcert.analysis.plots.area import plot_area
from smoothcert.analysis.plots.clean_accuracy import plot_clean_accuracy
from smoothcert.analysis.plots.confidence import plot_confidence
from smoothcert.analysis.plots.curves import plot_certified_accuracy, plot_envelope, plot_seed_groups
from smoothcert.analysis.plots.features import plot_features
from smoothcert.analysis.plots.gallery import plot_gallery
from smoothcert.analysis.plots.kinds import PLOTS, PlotKind
from smoothcert.analysis.plots.levels import plot_levels
from smoothcert.analysis.plots.noise import plot_noise
from smoothcert.analysis.plots.samples import plot_samples
from smoothcert.analysis.plots.sigma import plot_sigma
from smoothcert.analysis.plots.steps import certified_accuracy_steps, envelope_steps
from smoothcert.analysis.plots.training import plot_training

__all__ = [
    "PLOTS",
    "PlotKind",
    "certified_accuracy_steps",
    "envelope_steps",
    "plot_ablation",
    "plot_area",
    "plot_certified_accuracy",
    "plot_clean_accuracy",
    "plot_confidence",
    "plot_envelope",
    "plot_features",
    "plot_gallery",
    "plot_levels",
    "plot_noise",
    "plot_samples",
    "plot_seed_groups",
    "plot_sigma",
    "plot_training",
    "radius_ceiling",
]
