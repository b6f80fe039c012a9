"""What other libraries ask of a certified classifier: VERONA's verifier interface."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from smoothcert.errors import InvalidValueError, check_not_negative
from smoothcert.registry import check_name
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.classifier import SmoothedClassifier


@dataclass(frozen=True)
class VeronaResult:
    """The outcome of one verification, with the fields and texts of VERONA's ``CompleteVerificationData``."""

    result: Literal["UNSAT", "SAT", "TIMEOUT"]
    """UNSAT: the label is certified for all changes up to epsilon. SAT: another class is certified at the point itself.
    TIMEOUT: the votes decide neither."""
    took: float
    """Worker seconds of the votes."""
    certification: Certification
    """What the outcome rests on; each outcome holds with probability 1−α over its votes."""
    counter_example: str | None = None
    """None: votes show no point that another class is given."""
    obtained_labels: list[str] | None = None
    """The certified class; -1 where the votes decide none."""
    err: str = ""
    """Empty: errors are raised."""
    stdout: str = ""
    """Empty: nothing is printed."""


class VeronaVerifier:
    """Certifies the points of a VERONA experiment: ``verify(context, epsilon)`` as its verifiers have it.

    ``smooth`` makes a classifier of a context's network, such as ``lambda network:
    SmoothedClassifier(network.load_pytorch_model(), sigma=0.25)``. ``norm`` is that of epsilon: ``linf`` for VERONA's
    boxes, or ``l2``, ``l1``. A point is certified once, and its certificate answers every epsilon. Results are about
    the smoothed classifier, not about the network.
    """

    def __init__(
        self, smooth: Callable[[Any], SmoothedClassifier], norm: Literal["linf", "l2", "l1"] = "linf"
    ) -> None:
        check_name("norm", norm, ["linf", "l2", "l1"])
        self.smooth, self.norm = smooth, norm
        self.name = f"smoothcert [{norm}]"
        self._network: tuple[Any, SmoothedClassifier] | None = None
        self._point: tuple[Any, Certification] | None = None

    def verify(self, verification_context: Any, epsilon: float) -> VeronaResult:
        """Whether no change of the point up to ``epsilon`` alters its label."""
        check_not_negative("epsilon", epsilon)
        network, point = verification_context.network, verification_context.data_point
        if self._network is None or self._network[0] is not network:
            self._network, self._point = (network, self.smooth(network)), None
        if self._point is None or self._point[0] is not point:
            self._point = point, self._network[1].certify_one(np.asarray(point.data))
        found = self._point[1]
        if found.held is not None:
            raise InvalidValueError(
                "hold leaves columns without a certificate, and epsilon changes all: leave hold out"
            )
        # Around the point itself, for changes by any numbers: on the noise's grid and off it.
        radius = found.evidence.radius_off_grid
        outcome: Literal["UNSAT", "SAT", "TIMEOUT"] = "TIMEOUT"
        if not found.abstained and found.predicted != int(point.label):
            outcome = "SAT"
        elif not found.abstained and needed(epsilon, self.norm, found.norm, np.size(point.data)) < radius:
            outcome = "UNSAT"
        return VeronaResult(outcome, found.seconds, found, obtained_labels=[str(found.predicted)])


def needed(epsilon: float, norm: str, certified: str, dimension: int) -> float:
    """The radius in the certificate's norm of a ball that holds all changes up to ``epsilon``, rounded up."""
    power = {"linf": 0.0, "l2": 0.5, "l1": 1.0}
    if certified not in power:
        raise InvalidValueError(f"certificates must be in l2 or l1 to answer epsilon, got {certified}")
    # ‖x‖₂ ≤ √d ‖x‖∞, ‖x‖₁ ≤ √d ‖x‖₂; in the other direction norms do not grow.
    factor = dimension ** max(0.0, power[certified] - power[norm])
    return epsilon if factor == 1 else math.nextafter(epsilon * math.nextafter(factor, math.inf), math.inf)
