"""smoothcert: classifiers whose robustness is proved by randomized smoothing.

>>> from smoothcert import SmoothedClassifier
>>> answer = SmoothedClassifier(model, sigma=0.25).certify(x)   # doctest: +SKIP
>>> answer.predicted, answer.radius                             # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Names are imported when first used: torch takes seconds to load, and `smoothcert --help` needs none of it.
_HOMES = {
    "ABSTAIN": "smoothcert.tally",
    "Certification": "smoothcert.smoothing",
    "Certifications": "smoothcert.smoothing",
    "CertifyPlan": "smoothcert.smoothing",
    "Choice": "smoothcert.evaluation",
    "ConstantChooser": "smoothcert.sigma_levels",
    "Dataset": "smoothcert.datasets.base",
    "DiagonalGaussian": "smoothcert.noise",
    "DiagonalUniform": "smoothcert.noise",
    "Execution": "smoothcert.sampling",
    "Gaussian": "smoothcert.noise",
    "HoldingClassifier": "smoothcert.smoothing.holding",
    "LevelledClassifier": "smoothcert.smoothing.levelled",
    "Numerics": "smoothcert.sampling",
    "Prediction": "smoothcert.smoothing",
    "Run": "smoothcert.runs",
    "SmoothcertError": "smoothcert.errors",
    "SmoothedClassifier": "smoothcert.smoothing",
    "SmoothingLoss": "smoothcert.objectives",
    "StatisticChooser": "smoothcert.sigma_levels",
    "Uniform": "smoothcert.noise",
    "certify_dataset": "smoothcert.evaluation",
    "load_run": "smoothcert.analysis.notebook",
    "plot_curves": "smoothcert.analysis.notebook",
    "table": "smoothcert.analysis.notebook",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from smoothcert.analysis.notebook import load_run as load_run
    from smoothcert.analysis.notebook import plot_curves as plot_curves
    from smoothcert.analysis.notebook import table as table
    from smoothcert.datasets.base import Dataset as Dataset
    from smoothcert.errors import SmoothcertError as SmoothcertError
    from smoothcert.evaluation import Choice as Choice
    from smoothcert.evaluation import certify_dataset as certify_dataset
    from smoothcert.noise import DiagonalGaussian as DiagonalGaussian
    from smoothcert.noise import DiagonalUniform as DiagonalUniform
    from smoothcert.noise import Gaussian as Gaussian
    from smoothcert.noise import Uniform as Uniform
    from smoothcert.objectives import SmoothingLoss as SmoothingLoss
    from smoothcert.runs import Run as Run
    from smoothcert.sampling import Execution as Execution
    from smoothcert.sampling import Numerics as Numerics
    from smoothcert.sigma_levels import ConstantChooser as ConstantChooser
    from smoothcert.sigma_levels import StatisticChooser as StatisticChooser
    from smoothcert.smoothing import Certification as Certification
    from smoothcert.smoothing import Certifications as Certifications
    from smoothcert.smoothing import CertifyPlan as CertifyPlan
    from smoothcert.smoothing import Prediction as Prediction
    from smoothcert.smoothing import SmoothedClassifier as SmoothedClassifier
    from smoothcert.smoothing.holding import HoldingClassifier as HoldingClassifier
    from smoothcert.smoothing.levelled import LevelledClassifier as LevelledClassifier
    from smoothcert.tally import ABSTAIN as ABSTAIN


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
