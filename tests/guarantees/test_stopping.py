"""“Stop when you like: a certificate is wrong no more often than α”; with a bound not made for it, it would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.bounds import BOUNDS
from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Numerics, Procedure
from smoothcert.smoothing import Certification, CertifyState, decide, stopping_procedure
from smoothcert.smoothing.adaptive import allocated_procedure, forecast_for, piloting_procedure, shares_of
from smoothcert.stopping import allocate
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally
from tests.guarantees.closed_forms import HalfSpace
from tests.guarantees.coverage import assert_rate_within

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


def answers(stopping: CertifyPlan, p: tuple[float, ...], seed: int = 0) -> Iterator[Certification]:
    rng, forecast = np.random.default_rng(seed), forecast_for(stopping)
    for index in range(TRIALS):
        procedure = stopping_procedure(np.zeros(1), stopping, label=0, forecast=forecast)
        yield voted(procedure, index, p, rng)


def false_ones(found: Iterator[Certification], true_radius: float) -> int:
    return sum(answer.radius > true_radius for answer in found)


def _with_campaigns(names: list[str], every_day: set[str]) -> list[object]:
    """All of them, but those that CI has no minutes for only in a campaign."""
    longer = [pytest.mark.slow, pytest.mark.campaign]
    return [name if name in every_day else pytest.param(name, marks=longer) for name in names]


@pytest.mark.parametrize("rule", _with_campaigns(TEMPTING, {*TEMPTING} - {TEMPTING[1]}))
def test_certificates_hold_under_every_rule(rule: str) -> None:
    found = list(answers(plan(rule, "wrong"), (P, 1 - P)))
    assert len({answer.estimation.n for answer in found}) > 1, "votes must end at different times"
    assert_rate_within(false_ones(iter(found), TRUE_RADIUS), TRIALS, ALPHA)


def test_nothing_false_is_certified_of_a_fair_coin() -> None:
    found = list(answers(plan("abstain"), (0.5, 0.5)))
    assert len({answer.estimation.n for answer in found}) > 1
    assert_rate_within(false_ones(iter(found), 0.0), TRIALS, ALPHA)


@pytest.mark.parametrize(
    "bound",
    _with_campaigns([name for name in BOUNDS if BOUNDS[name].anytime], {"mixture-top-two"}),
)
@pytest.mark.slow
def test_certificates_hold_with_every_anytime_bound(bound: str) -> None:
    for p, true_radius in (((P, 1 - P), TRUE_RADIUS), ((0.5, 0.5), 0.0), ((0.4, 0.4, 0.2), 0.0)):
        target = max(true_radius, 1e-9) * 1.0001
        found = answers(plan(f"decide:{target}@0.000001", bound=bound), p, seed=1)
        assert_rate_within(false_ones(found, true_radius), TRIALS, ALPHA)


@pytest.fixture
def peeking(monkeypatch: pytest.MonkeyPatch) -> str:
    """The forbidden short cut: the fixed-n bound, said to be anytime-valid."""
    cheat = replace(BOUNDS["clopper-pearson"], name="peeking", anytime=True)
    monkeypatch.setitem(BOUNDS._members, "peeking", cheat)
    return cheat.name


@pytest.mark.parametrize(
    "rule",
    _with_campaigns([r for r in TEMPTING if r.startswith(("decide", "grid"))], {"decide:0.50005"}),
)
def test_a_fixed_n_bound_would_not_hold(rule: str, peeking: str) -> None:
    """The check has teeth."""
    found = answers(plan(rule, bound=peeking), (P, 1 - P))
    with pytest.raises(AssertionError, match="more than alpha"):
        assert_rate_within(false_ones(found, TRUE_RADIUS), TRIALS, ALPHA)


def test_giving_up_makes_no_certificate_false() -> None:
    """Futility at its wildest: stop at the first look almost always. What is certified is still certified correctly."""
    found = answers(plan(f"decide:{TRUE_RADIUS * 1.0001}@0.9"), (P, 1 - P))
    assert_rate_within(false_ones(found, TRUE_RADIUS), TRIALS, ALPHA)


def certified_by_the_pilot(index: int, rng: np.random.Generator) -> float:
    """What mustn't be done: choose n by votes, then certify those very votes at it."""
    votes = np.cumsum(rng.random(3162) < P)
    bound = BOUNDS["clopper-pearson"]

    def radius(n: int) -> float:
        tally = Tally(Stream(0, index, Phase.ESTIMATION), 0, n, (int(votes[n - 1]), n - int(votes[n - 1])))
        return plan().certificate.radius(bound(tally, 0, ALPHA))

    return max(radius(n) for n in (100, 200, 400, 800, 1600, 3162))


def test_choosing_n_by_the_votes_that_certify_would_not_hold() -> None:
    rng = np.random.default_rng(2)
    false = sum(certified_by_the_pilot(index, rng) > TRUE_RADIUS for index in range(TRIALS))
    with pytest.raises(AssertionError, match="more than alpha"):
        assert_rate_within(false, TRIALS, ALPHA)


def test_pilot_votes_can_not_certify() -> None:
    selection = Tally(Stream(0, 0, Phase.SELECTION), 0, 10, (10, 0))
    piloted = Tally(Stream(0, 0, Phase.PILOT), 0, 10, (10, 0))
    with pytest.raises(InvalidValueError, match="estimation needs votes of its own stream, got pilot votes"):
        decide(np.zeros(1), plan(), selection, piloted)


def test_allocated_certificates_hold() -> None:
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


def leave_when(impressed: Callable[[CertifyState], bool], bound: str) -> int:
    """How often the last radius a caller saw, who left when he liked, is more than the true margin."""
    false = 0
    classifier = SmoothedClassifier(
        HalfSpace(TRUE_RADIUS), sigma=SIGMA, n0=10, n=562, alpha=ALPHA, bound=bound, outputs="labels", classes=2,
        numerics=Numerics("float32", "eager", 16, 16), seed=7,
    )  # fmt: skip
    for index in range(150):
        last = None
        for state in classifier.certify_stream(np.zeros(2), index=index):
            last = state
            if impressed(state):
                break
        assert last is not None
        false += last.radius > TRUE_RADIUS and last.chosen == 0
    return false


def test_a_caller_may_leave_a_stream_when_he_likes() -> None:
    false = leave_when(lambda state: state.radius > TRUE_RADIUS, "mixture-top-two")
    assert_rate_within(false, 150, ALPHA)


def test_a_caller_who_leaves_a_fixed_n_bound_would_be_fooled(peeking: str) -> None:
    false = leave_when(lambda state: state.radius > TRUE_RADIUS, peeking)
    with pytest.raises(AssertionError, match="more than alpha"):
        assert_rate_within(false, 150, ALPHA)
