"""smoothcert: classifiers whose robustness is proved by randomized smoothing.

>>> from smoothcert import SmoothedClassifier
>>> answers = SmoothedClassifier(model, sigma=0.25).certify(inputs)   # doctest: +SKIP
>>> answers.predicted, answers.radius                                 # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "1.0.0"

# Names are imported when first used: torch takes seconds to load, and `smoothcert --help` needs none of it.
_HOMES = {
    "ABSTAIN": "smoothcert.tally",
    "AttackPlan": "smoothcert.empirical.results",
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
    "FitPlan": "smoothcert.smoothing.fits.plan",
    "Gaussian": "smoothcert.perturb.gaussian",
    "HoldingClassifier": "smoothcert.smoothing.holding",
    "Hybrid": "smoothcert.perturb.hybrid",
    "LevelledClassifier": "smoothcert.experimental.levels.classifier",
    "MaskedChoice": "smoothcert.masked.choice",
    "MaskedEstimator": "smoothcert.masked.fit",
    "Masks": "smoothcert.perturb.hybrid",
    "Numerics": "smoothcert.models.numerics",
    "Prediction": "smoothcert.smoothing.answers",
    "Predictions": "smoothcert.smoothing.answers",
    "Run": "smoothcert.runs.run",
    "SmoothcertError": "smoothcert.errors",
    "SmoothedClassifier": "smoothcert.smoothing.classifier",
    "SmoothedEstimator": "smoothcert.estimator",
    "SmoothingLoss": "smoothcert.objectives.base",
    "StatisticChooser": "smoothcert.experimental.levels.choosers",
    "Uniform": "smoothcert.perturb.uniform",
    "attack": "smoothcert.functions",
    "average_certified_radius": "smoothcert.functions",
    "certified_accuracy": "smoothcert.functions",
    "certify_dataset": "smoothcert.evaluation.certification",
    "choose_masked": "smoothcert.masked.choice",
    "compare": "smoothcert.functions",
    "fit_masked": "smoothcert.masked.fit",
    "fit_noise": "smoothcert.functions",
    "load_dataset": "smoothcert.functions",
    "load_model": "smoothcert.functions",
    "load_run": "smoothcert.functions",
    "model_card": "smoothcert.functions",
    "plot_curves": "smoothcert.functions",
    "quantize": "smoothcert.smoothing.fits.int8",
    "radius": "smoothcert.functions",
    "recertify": "smoothcert.functions",
    "report": "smoothcert.functions",
    "table": "smoothcert.functions",
    "train": "smoothcert.functions",
    "verify_run": "smoothcert.functions",
}

# scikit-learn is optional: a star import does without it.
__all__ = ["__version__", *sorted(_HOMES.keys() - {"SmoothedEstimator"})]

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset as Dataset
    from smoothcert.empirical.results import AttackPlan as AttackPlan
    from smoothcert.engine.execution import Execution as Execution
    from smoothcert.errors import SmoothcertError as SmoothcertError
    from smoothcert.estimator import SmoothedEstimator as SmoothedEstimator
    from smoothcert.evaluation.certification import certify_dataset as certify_dataset
    from smoothcert.experimental.levels.choosers import ConstantChooser as ConstantChooser
    from smoothcert.experimental.levels.choosers import StatisticChooser as StatisticChooser
    from smoothcert.experimental.levels.classifier import LevelledClassifier as LevelledClassifier
    from smoothcert.functions import attack as attack
    from smoothcert.functions import average_certified_radius as average_certified_radius
    from smoothcert.functions import certified_accuracy as certified_accuracy
    from smoothcert.functions import compare as compare
    from smoothcert.functions import fit_noise as fit_noise
    from smoothcert.functions import load_dataset as load_dataset
    from smoothcert.functions import load_model as load_model
    from smoothcert.functions import load_run as load_run
    from smoothcert.functions import model_card as model_card
    from smoothcert.functions import plot_curves as plot_curves
    from smoothcert.functions import radius as radius
    from smoothcert.functions import recertify as recertify
    from smoothcert.functions import report as report
    from smoothcert.functions import table as table
    from smoothcert.functions import train as train
    from smoothcert.functions import verify_run as verify_run
    from smoothcert.masked.choice import MaskedChoice as MaskedChoice
    from smoothcert.masked.choice import choose_masked as choose_masked
    from smoothcert.masked.fit import MaskedEstimator as MaskedEstimator
    from smoothcert.masked.fit import fit_masked as fit_masked
    from smoothcert.models.numerics import Numerics as Numerics
    from smoothcert.objectives.base import SmoothingLoss as SmoothingLoss
    from smoothcert.perturb.gaussian import DiagonalGaussian as DiagonalGaussian
    from smoothcert.perturb.gaussian import Gaussian as Gaussian
    from smoothcert.perturb.hybrid import Hybrid as Hybrid
    from smoothcert.perturb.hybrid import Masks as Masks
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
    from smoothcert.smoothing.fits.plan import FitPlan as FitPlan
    from smoothcert.smoothing.holding import HoldingClassifier as HoldingClassifier
    from smoothcert.smoothing.plan import CertifyPlan as CertifyPlan
    from smoothcert.tally import ABSTAIN as ABSTAIN


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
