"""smoothcert: classifiers whose robustness is proved by randomized smoothing.

>>> from smoothcert import SmoothedClassifier
>>> answers = SmoothedClassifier(model, sigma=0.25).certify(inputs)   # doctest: +SKIP
>>> answers.predicted, answers.radius                                 # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported when first used: torch takes seconds to load, and `smoothcert --help` needs none of it.
_HOMES = {
    "ABSTAIN": "smoothcert.tally",
    "Certification": "smoothcert.smoothing.answers",
    "Certifications": "smoothcert.smoothing.answers",
    "CertifyPlan": "smoothcert.smoothing.plan",
    "Choice": "smoothcert.runs.statement",
    "ConstantChooser": "smoothcert.experimental.levels.choosers",
    "Dataset": "smoothcert.datasets.base",
    "DiagonalGaussian": "smoothcert.perturb.gaussian",
    "DiagonalUniform": "smoothcert.perturb.uniform",
    "Evidence": "smoothcert.smoothing.answers",
    "Execution": "smoothcert.engine.execution",
    "Gaussian": "smoothcert.perturb.gaussian",
    "HoldingClassifier": "smoothcert.smoothing.holding",
    "LevelledClassifier": "smoothcert.experimental.levels.classifier",
    "Numerics": "smoothcert.models.numerics",
    "Prediction": "smoothcert.smoothing.answers",
    "Predictions": "smoothcert.smoothing.answers",
    "Run": "smoothcert.runs.run",
    "SmoothcertError": "smoothcert.errors",
    "SmoothedClassifier": "smoothcert.smoothing.classifier",
    "SmoothingLoss": "smoothcert.objectives.base",
    "StatisticChooser": "smoothcert.experimental.levels.choosers",
    "Uniform": "smoothcert.perturb.uniform",
    "certify_dataset": "smoothcert.evaluation.certification",
    "load_run": "smoothcert.analysis.notebook",
    "plot_curves": "smoothcert.analysis.notebook",
    "quantize": "smoothcert.smoothing.fits.int8",
    "table": "smoothcert.analysis.notebook",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from smoothcert.analysis.notebook import load_run as load_run
    from smoothcert.analysis.notebook import plot_curves as plot_curves
    from smoothcert.analysis.notebook import table as table
    from smoothcert.datasets.base import Dataset as Dataset
    from smoothcert.engine.execution import Execution as Execution
    from smoothcert.errors import SmoothcertError as SmoothcertError
    from smoothcert.evaluation.certification import certify_dataset as certify_dataset
    from smoothcert.experimental.levels.choosers import ConstantChooser as ConstantChooser
    from smoothcert.experimental.levels.choosers import StatisticChooser as StatisticChooser
    from smoothcert.experimental.levels.classifier import LevelledClassifier as LevelledClassifier
    from smoothcert.models.numerics import Numerics as Numerics
    from smoothcert.objectives.base import SmoothingLoss as SmoothingLoss
    from smoothcert.perturb.gaussian import DiagonalGaussian as DiagonalGaussian
    from smoothcert.perturb.gaussian import Gaussian as Gaussian
    from smoothcert.perturb.uniform import DiagonalUniform as DiagonalUniform
    from smoothcert.perturb.uniform import Uniform as Uniform
    from smoothcert.runs.run import Run as Run
    from smoothcert.runs.statement import Choice as Choice
    from smoothcert.smoothing.answers import Certification as Certification
    from smoothcert.smoothing.answers import Certifications as Certifications
    from smoothcert.smoothing.answers import Evidence as Evidence
    from smoothcert.smoothing.answers import Prediction as Prediction
    from smoothcert.smoothing.answers import Predictions as Predictions
    from smoothcert.smoothing.classifier import SmoothedClassifier as SmoothedClassifier
    from smoothcert.smoothing.fits.int8 import quantize as quantize
    from smoothcert.smoothing.holding import HoldingClassifier as HoldingClassifier
    from smoothcert.smoothing.plan import CertifyPlan as CertifyPlan
    from smoothcert.tally import ABSTAIN as ABSTAIN


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
