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
    "DiagonalGaussian": "smoothcert.noise",
    "DiagonalUniform": "smoothcert.noise",
    "Execution": "smoothcert.sampling",
    "Gaussian": "smoothcert.noise",
    "Prediction": "smoothcert.smoothing",
    "SmoothcertError": "smoothcert.errors",
    "SmoothedClassifier": "smoothcert.smoothing",
    "SmoothingLoss": "smoothcert.objectives",
    "Uniform": "smoothcert.noise",
    "load_run": "smoothcert.analysis.notebook",
    "plot_curves": "smoothcert.analysis.notebook",
    "table": "smoothcert.analysis.notebook",
}

__all__ = ["__version__", *sorted(_HOMES)]

if TYPE_CHECKING:
    from smoothcert.analysis.notebook import load_run as load_run
    from smoothcert.analysis.notebook import plot_curves as plot_curves
    from smoothcert.analysis.notebook import table as table
    from smoothcert.errors import SmoothcertError as SmoothcertError
    from smoothcert.noise import DiagonalGaussian as DiagonalGaussian
    from smoothcert.noise import DiagonalUniform as DiagonalUniform
    from smoothcert.noise import Gaussian as Gaussian
    from smoothcert.noise import Uniform as Uniform
    from smoothcert.objectives import SmoothingLoss as SmoothingLoss
    from smoothcert.sampling import Execution as Execution
    from smoothcert.smoothing import Certification as Certification
    from smoothcert.smoothing import Certifications as Certifications
    from smoothcert.smoothing import CertifyPlan as CertifyPlan
    from smoothcert.smoothing import Prediction as Prediction
    from smoothcert.smoothing import SmoothedClassifier as SmoothedClassifier
    from smoothcert.tally import ABSTAIN as ABSTAIN


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'smoothcert' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
