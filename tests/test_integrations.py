"""What other libraries ask for: radii in their norms, from one certificate a point."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.errors import InvalidValueError
from smoothcert.integrations import VeronaVerifier, needed

POINT = np.array([1.0, 0.5, 0.25, 0.25])
MADE: list[Any] = []


def smooth(network: Any, **options: Any) -> SmoothedClassifier:
    MADE.append(network)
    return SmoothedClassifier(
        lambda batch: (batch.sum(1) > 0).astype(int),
        **({"sigma": 0.5, "n": 500, "seed": 0, "outputs": "labels", "classes": 2} | options),
    )


def context(label: int = 1) -> Any:
    return SimpleNamespace(network="net", data_point=SimpleNamespace(id="0", label=label, data=POINT))


def test_a_certificate_answers_every_epsilon_in_its_norm():
    radius = smooth("").certify_one(POINT).evidence.radius_off_grid
    assert radius > 0
    for norm, factor in [("l2", 1.0), ("linf", 2.0), ("l1", 1.0)]:  # 2 = √4, of four numbers
        verifier, asked = VeronaVerifier(smooth, norm), context()
        before = len(MADE)
        assert verifier.verify(asked, 0.999 * radius / factor).result == "UNSAT"
        assert verifier.verify(asked, 1.001 * radius / factor).result == "TIMEOUT"
        assert verifier.verify(asked, radius / factor).result == "TIMEOUT"  # the ball is open
        assert len(MADE) == before + 1
    wrong = VeronaVerifier(smooth).verify(context(label=0), 0.1)
    assert (wrong.result, wrong.obtained_labels, wrong.took > 0) == ("SAT", ["1"], True)


def test_balls_of_one_norm_are_held_by_those_of_another():
    for norm, certified, factor in [
        *(("linf", "l2", math.sqrt(7)), ("linf", "l1", 7.0), ("l2", "l1", math.sqrt(7))),
        *(("l2", "l2", 1.0), ("l1", "l2", 1.0), ("l1", "l1", 1.0)),
    ]:
        found = needed(0.3, norm, certified, 7)
        assert found == pytest.approx(0.3 * factor, rel=1e-12)
        assert found >= 0.3 * factor


def test_what_no_certificate_answers_is_refused():
    with pytest.raises(InvalidValueError, match="'l3'"):
        VeronaVerifier(smooth, "l3")  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"epsilon.*-1"):
        VeronaVerifier(smooth).verify(context(), -1.0)
    with pytest.raises(InvalidValueError, match="hold"):
        VeronaVerifier(lambda network: smooth(network, hold=[0])).verify(context(), 0.1)
    with pytest.raises(InvalidValueError, match="l0"):
        needed(0.1, "linf", "l0", 4)
