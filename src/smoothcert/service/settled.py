"""A classifier made ready to be served: its plan with nothing left open, and what is promised by it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Execution, Prepared
from smoothcert.service.randomness import Secret
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier
from smoothcert.smoothing.plan import ANYTIME_BOUND

_ROUNDS_READY = 4


def deep(execution: Execution, prepared: Prepared) -> Execution:
    """Some rounds kept ready where rounds have slots: of many small leases, few are then left empty."""
    layout = prepared.numerics.layout()
    if execution.batch is not None or layout.slots == 1:
        return execution
    return replace(execution, batch=_ROUNDS_READY * layout.rows)


def settled(
    classifier: SmoothedClassifier, input_shape: tuple[int, ...], secret: Secret
) -> tuple[CertifyPlan, Prepared]:
    """The plan with nothing left open, and the model prepared for it."""
    plan = classifier.plan
    if not plan.confidence_bound.anytime:
        raise InvalidValueError(
            f"the {plan.bound} bound holds for a number of votes fixed beforehand, but a server stops when a caller "
            f"leaves or a deadline passes: use bound {ANYTIME_BOUND!r}"
        )
    if plan.stops:
        raise InvalidValueError(
            f"when to stop is for each request to say: leave {', '.join(stop.text for stop in plan.stops)} out"
        )
    plan.check_shape(input_shape)
    plan.warn_if_hopeless()
    prepared = classifier.base.prepare(plan.numerics, input_shape, classifier.execution.main_device)
    plan = replace(plan, numerics=prepared.numerics, seed=secret.seed).for_shape(input_shape)
    return plan, prepared


def statement_of(
    plan: CertifyPlan, classifier: SmoothedClassifier, input_shape: tuple[int, ...]
) -> dict[str, Any]:
    """What is promised about which model, in plain values; its hash names the streams. The seed isn't part of it."""
    stated = plan.as_json()
    del stated["seed"]
    base = classifier.base
    model = {"name": base.name, "sha256": base.fingerprint(input_shape), "input_shape": list(input_shape)}
    text = json.dumps({"plan": stated, "model": model}, sort_keys=True, default=str)
    return {"plan": stated, "model": model, "sha256": hashlib.sha256(text.encode()).hexdigest()}
