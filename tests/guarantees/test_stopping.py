"""“Stop when you like: a certificate is wrong no more often than α”; with a bound not made for it, it would be.

Exactly, over every path that votes can take through the looks of a rule.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.bounds.base import BOUNDS
from smoothcert.engine.schedule import Procedure
from smoothcert.models.numerics import Numerics
from smoothcert.smoothing.procedures import (
    allocated_procedure,
    forecast_for,
    piloting_procedure,
    shares_of,
    stopping_procedure,
)
from smoothcert.smoothing.stopping.forecasts import allocate
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.exact import Answers, TooOftenError, assert_rate_within, exact_answers, probability

ALPHA, TRIALS = 0.1, 800
SIGMA, TRUE_RADIUS = 1.0, 0.5
P = float(ndtr(TRUE_RADIUS / SIGMA))  # of two classes the radius is σΦ⁻¹(p)
NUMERICS = Numerics("float32", "eager", 64, 16)
TEMPTING = [
    f"decide:{TRUE_RADIUS * 1.0001}",
    f"decide:{TRUE_RADIUS * 1.0001}@0.000001",
    f"grid:0,0.25,{TRUE_RADIUS * 1.0001},1",
    "gain:5%",
    "pilot:5%,100",
]


def plan(*stop: str, **options: Any) -> CertifyPlan:
    fields: dict[str, Any] = {"n0": 10, "n": 3162, "alpha": ALPHA, "numerics": NUMERICS, "stop": stop}
    return CertifyPlan(Gaussian(SIGMA), **(fields | options))


def voted(procedure: Procedure[Any], index: int, p: tuple[float, ...], rng: np.random.Generator) -> Any:
    """Answer a procedure's draws by chance; its result."""
    drawn: dict[Phase, int] = {}
    try:
        draw = next(procedure)
        while True:
            start = drawn.get(draw.phase, 0)
            drawn[draw.phase] = start + draw.votes
            # Classes are chosen well: a wrong choice has another true radius, and isn't what is tested.
            counts = (
                (draw.votes, *(0,) * (len(p) - 1))
                if draw.phase == Phase.SELECTION
                else rng.multinomial(draw.votes, p)
            )
            tally = Tally(
                Stream(0, index, draw.phase), start, start + draw.votes, tuple(int(c) for c in counts)
            )
            draw = procedure.send(tally)
    except StopIteration as stop:
        return stop.value


def every_answer(stopping: CertifyPlan, p: float) -> tuple[Answers, float]:
    """Every answer about an input whose votes are for its class with probability p."""
    forecast = forecast_for(stopping)
    return exact_answers(
        lambda: stopping_procedure(np.zeros(1), stopping, label=0, forecast=forecast), p, selected=0
    )


def exact_false_rate(stopping: CertifyPlan, p: float = P, true_radius: float = TRUE_RADIUS) -> float:
    return probability(every_answer(stopping, p), lambda answer: answer.radius > true_radius)


SHORT = 316  # votes: ten looks
ANYTIME = [name for name in BOUNDS if BOUNDS[name].anytime]


@pytest.mark.parametrize("rule", TEMPTING)
def test_certificates_hold_under_every_rule(rule):
    found = every_answer(plan(rule, "wrong", n=SHORT), P)
    assert len({answer.estimation.n for _, answer in found[0]}) > 1, "votes must end at different times"
    assert probability(found, lambda answer: answer.radius > TRUE_RADIUS) <= ALPHA


def test_nothing_false_is_certified_of_a_fair_coin():
    found = every_answer(plan("abstain", n=SHORT), 0.5)
    assert len({answer.estimation.n for _, answer in found[0]}) > 1
    assert probability(found, lambda answer: answer.radius > 0) <= ALPHA


@pytest.mark.parametrize("bound", ANYTIME)
def test_certificates_hold_with_every_anytime_bound(bound):
    for p, true_radius in ((P, TRUE_RADIUS), (0.5, 0.0)):
        target = max(true_radius, 1e-9) * 1.0001
        stopping = plan(f"decide:{target}@0.000001", bound=bound, n=178)
        assert exact_false_rate(stopping, p, true_radius) <= ALPHA


@pytest.fixture
def peeking(monkeypatch) -> str:
    """The forbidden short cut: the fixed-n bound, said to be anytime-valid."""
    cheat = replace(BOUNDS["clopper-pearson"], name="peeking", anytime=True)
    monkeypatch.setitem(BOUNDS._members, "peeking", cheat)
    return cheat.name


@pytest.mark.parametrize("rule", [rule for rule in TEMPTING if rule.startswith(("decide", "grid"))])
def test_a_fixed_n_bound_would_not_hold(rule, peeking):
    """The check has teeth."""
    assert exact_false_rate(plan(rule, bound=peeking, n=SHORT)) > 1.5 * ALPHA


def test_giving_up_makes_no_certificate_false():
    """Futility at its wildest: stop at the first look almost always. What is certified is still certified correctly."""
    assert exact_false_rate(plan(f"decide:{TRUE_RADIUS * 1.0001}@0.9", n=SHORT)) <= ALPHA


def certified_by_the_pilot(index: int, rng: np.random.Generator) -> float:
    """What mustn't be done: choose n by votes, then certify those very votes at it."""
    votes = np.cumsum(rng.random(3162) < P)
    bound = BOUNDS["clopper-pearson"]

    def radius(n: int) -> float:
        tally = Tally(Stream(0, index, Phase.ESTIMATION), 0, n, (int(votes[n - 1]), n - int(votes[n - 1])))
        return plan().certificate.radius(bound(tally, 0, ALPHA))

    return max(radius(n) for n in (100, 200, 400, 800, 1600, 3162))


def test_choosing_n_by_the_votes_that_certify_would_not_hold():
    rng = np.random.default_rng(2)
    false = sum(certified_by_the_pilot(index, rng) > TRUE_RADIUS for index in range(TRIALS))
    with pytest.raises(TooOftenError):
        assert_rate_within(false, TRIALS, ALPHA)


@pytest.mark.slow
def test_allocated_certificates_hold():
    """n follows from everybody's pilots and from no vote that certifies."""
    rng = np.random.default_rng(3)
    ps = rng.uniform(0.45, 0.95, TRIALS)
    stopping = plan("total:800000,100")
    piloted = {
        i: voted(piloting_procedure(stopping, 0), i, (float(p), 1 - float(p)), rng) for i, p in enumerate(ps)
    }
    votes = allocate(shares_of(stopping, piloted), 800_000)
    assert len(set(votes.values())) > 5
    false = 0
    for i, p in enumerate(ps):
        procedure = allocated_procedure(np.zeros(1), stopping, piloted[i], 0, votes[i])
        answer = voted(procedure, i, (float(p), 1 - float(p)), rng)
        false += answer.predicted != ABSTAIN and bool(ndtr(answer.radius) > p)
    assert_rate_within(false, TRIALS, ALPHA)


def streaming(bound: str, n: int = 562) -> SmoothedClassifier:
    return SmoothedClassifier(
        HalfSpace(TRUE_RADIUS), sigma=SIGMA, n0=10, n=n, alpha=ALPHA, bound=bound, outputs="labels", classes=2,
        numerics=Numerics("float32", "eager", 16, 16), seed=7,
    )  # fmt: skip


def test_a_stream_shows_the_bounds_of_its_votes_at_every_moment():
    """Bounds that hold at every moment (test_anytime) are all that a caller sees, whenever he leaves."""
    classifier = streaming("mixture-top-two")
    for index in range(3):
        states = list(classifier.certify_stream(np.zeros(2), index=index))
        last = states[-1].certification
        certificate = classifier.plan.certificate
        for state in states:
            assert state.radius == certificate.radius(state.bounds)
        assert (last.estimation.n, last.radius) == (states[-1].votes, states[-1].radius)
        assert [state.votes for state in states] == sorted({state.votes for state in states})
        # The votes at a moment are the first of the same stream: a plan that ends there has the same bounds.
        for state in states[:-1:3]:
            (shorter,) = streaming("mixture-top-two", state.votes).certify_each([(index, np.zeros(2))])
            assert (shorter.bounds, shorter.radius) == (state.bounds, state.radius)
