"""Rules and budgets: how they are written, what they reject, and when rules have a reason."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from smoothcert import CertifyPlan, Gaussian
from smoothcert.errors import InvalidValueError
from smoothcert.smoothing.procedures import stopping_procedure
from smoothcert.smoothing.stopping.base import FixedVotes, parse_stop, parse_stops
from smoothcert.smoothing.stopping.forecasts import RadiusForecast
from smoothcert.smoothing.stopping.rules import Abstain, Decide, Gain, Pilot, RadiusGrid, Total, Wrong
from smoothcert.tally import Phase, Stream, Tally
from tests.smoothing.stopping.states import STREAM, radius_of, told, voting


def test_texts_and_rules_are_each_others_inverse():
    for text, rule in {
        "decide:0.5": Decide(0.5),
        "decide:2": Decide(2.0),
        "decide:0.5@0.001": Decide(0.5, 0.001),
        "grid:0,0.25,0.5": RadiusGrid((0.0, 0.25, 0.5)),
        "gain:1%": Gain(0.01),
        "gain:0.5%@0.1": Gain(0.005, 0.1),
        "abstain": Abstain(),
        "abstain:@0.1": Abstain(0.1),
        "wrong": Wrong(),
        "budget": FixedVotes(),
        "pilot:1%": Pilot(0.01),
        "pilot:2.5%,500": Pilot(0.025, 500),
        "total:5000000": Total(5_000_000),
        "total:5000000,300": Total(5_000_000, 300),
    }.items():
        assert parse_stop(text) == rule
        assert parse_stop(text).text == text


def test_mistakes_are_named():
    for text, named in [
        ("decde:0.5", "'decde'.*'decide'"),
        ("decide", r"\bdecide\b.*''.*decide:0\.5"),
        ("decide:much", r"\bdecide\b.*'much'"),
        ("decide:0", r"\bdecide\b.*\b0\.0"),
        ("decide:nan", r"\bdecide\b.*'nan'"),
        ("decide:0.5@2", r"futility.*\b2\.0"),
        ("grid:", r"\bgrid\b.*''"),
        ("grid:0.5,0.25", r"\bgrid\b.*\b0\.5, 0\.25"),
        ("grid:0,0", r"\bgrid\b.*\b0, 0\b"),
        ("grid:-1,0", r"\bgrid\b.*-1\.0"),
        ("gain:1", r"\bgain\b.*'1'.*gain:1%"),
        ("gain:0%", r"\bgain\b.* 0%"),
        ("gain:100%", r"\bgain\b.* 100%"),
        ("wrong:3", r"\bwrong\b.*'3'"),
        ("abstain:3", r"\babstain\b.*'3'"),
        ("pilot:1%,0", r"\bpilot\b.*\b0\b"),
        ("pilot:1%,1.5", r"\bpilot\b.*'1\.5'.*pilot:1%,500"),
        ("pilot:100%", r"\bpilot\b.*\b100%"),
        ("pilot", r"\bpilot\b.*''.*pilot:1%"),
        ("total:0", r"\btotal\b.*\b0\b"),
        ("total:", r"\btotal\b.*''.*total:50000000"),
        ("budget:5", r"\bbudget\b.*'5'.*\bbudget\b"),
        ("pilt:1%", "'pilt'.*'pilot'"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            parse_stop(text)


def test_rules_go_together_or_not():
    assert parse_stops("budget") == ()
    assert parse_stops(["budget", "wrong", Decide(1.0)]) == (Wrong(), Decide(1.0))
    with pytest.raises(InvalidValueError, match="'decide'"):
        parse_stops(["decide:1", "decide:2"])
    with pytest.raises(InvalidValueError, match=r"'pilot'.*'gain'"):
        parse_stops(["pilot:1%", "gain:1%"])
    with pytest.raises(InvalidValueError, match=r"'pilot'.*'total'"):
        parse_stops(["pilot:1%", "total:1000"])


def test_decide_says_yes_no_or_not_yet():
    assert told(Decide(0.5).reason(voting(1000, 0))) == ("decided", [0.5])
    assert told(Decide(0.5).reason(voting(300, 300))) == ("hopeless", [0.5])
    assert Decide(0.5).reason(voting(45, 20)) is None
    assert told(Decide(3.0, futility=1e-300).reason(voting(0, 60, most_votes=1000))) == ("hopeless", [3])
    assert voting(0, 60, most_votes=1000).best_radius(1e-300) <= radius_of(Tally(STREAM, 0, 1000, (940, 60)))


def test_the_best_radius_leaves_room_for_luck():
    """It is at least what a fair continuation at the upper confidence limit gives, and at most a unanimous one's."""
    now = voting(700, 300, most_votes=10_000)
    upper = float(beta.ppf(0.99, 701, 300))
    fair = radius_of(Tally(STREAM, 0, 10_000, (700 + int(9000 * upper), 10_000 - 700 - int(9000 * upper))))
    unanimous = radius_of(Tally(STREAM, 0, 10_000, (9700, 300)))
    assert fair <= now.best_radius(0.01) < unanimous
    assert now.best_radius(0.01) <= now.best_radius(0.0001)
    assert voting(700, 300, most_votes=1000).best_radius(0.01) == voting(700, 300, most_votes=1000).radius


def test_giving_up_loses_few_that_would_have_made_it():
    """Futility is about 1 %: of inputs that reach r at the full budget, hardly more are given up on the way."""
    rng, budget, given_up, made_it = np.random.default_rng(0), 5000, 0, 0
    for _ in range(400):
        votes = np.cumsum(rng.random(budget) < 0.72)
        looks = [64, 128, 256, 512, 1024, 2048, 4096]
        states = [voting(int(votes[n - 1]), n - int(votes[n - 1]), most_votes=budget) for n in looks]
        early = any(told(Decide(0.5).reason(state))[0] == "hopeless" for state in states)
        makes_it = radius_of(Tally(STREAM, 0, budget, (int(votes[-1]), budget - int(votes[-1])))) >= 0.5
        given_up += early and makes_it
        made_it += makes_it
    assert made_it > 50
    assert given_up <= 0.03 * made_it


def test_when_the_other_rules_have_a_reason():
    rule = RadiusGrid((0.0, 0.5, 1.0))
    assert told(rule.reason(voting(100_000, 0))) == ("decided", [1])
    assert told(rule.reason(voting(30_000, 20_000))) == ("decided", [0, 0.5])
    assert told(rule.reason(voting(2000, 8000))) == ("hopeless", [])
    assert told(RadiusGrid((0.5, 1.0)).reason(voting(5000, 5000))) == ("hopeless", [0.5])
    assert rule.reason(voting(60, 10)) is None
    assert told(Abstain().reason(voting(100, 9000))) == ("hopeless", [])
    assert Abstain().reason(voting(5, 0)) is None
    assert Abstain().reason(voting(900, 100)) is None
    assert told(Wrong().reason(voting(0, 0, label=1))) == ("wrong", [0, 1])
    assert Wrong().reason(voting(0, 0, label=0)) is None
    with pytest.raises(InvalidValueError, match="'wrong'"):
        Wrong().reason(voting(0, 0))


def test_gain_compares_with_the_full_budget():
    now = voting(9000, 1000, most_votes=10_500)
    at_full = radius_of(Tally(STREAM, 0, 10_500, (9450, 1050)))
    assert now.expected_radius() == pytest.approx(at_full, rel=1e-3)
    assert Gain(at_full / now.radius - 1 + 0.001).reason(now) is not None
    assert Gain(0.0001).reason(voting(9000, 1000)) is None
    assert told(Gain(0.01).reason(voting(10, 9000))) == ("hopeless", [])
    assert Gain(0.01).reason(voting(2, 0)) is None, "nothing is certified yet, and much may be"


def test_a_voting_state_counts_what_it_adds_exactly():
    now = voting(10, 7, 3, 0)
    for more in (0, 1, 50, 80):
        continued = now._continued(more, 80, 0.01)
        assert continued.n == 100
        assert continued.counts[0] == 10 + more
        assert all(a >= b for a, b in zip(continued.counts, now.tally.counts, strict=True))
    assert math.isclose(replace(now, most_votes=20).best_radius(0.01), now.radius)


def test_a_total_needs_a_data_set_that_its_pilots_leave_votes_for():
    Total(1101, 1000).check_inputs(1, 100)
    with pytest.raises(InvalidValueError, match=r"\b1100\b.*total:1100,100"):
        Total(1100, 1000).check_inputs(1, 100)
    for budget in (FixedVotes(), Pilot()):
        budget.check_inputs(10**9, 100)
    with pytest.raises(InvalidValueError, match=r"total:5000.*certify_dataset"):
        stopping_procedure([0.0], CertifyPlan(Gaussian(0.5), stop=("total:5000",)))
    with pytest.raises(InvalidValueError, match="total:5000"):
        Total(5000).choose(
            RadiusForecast(lambda _: 0.0), Tally(Stream(0, 0, Phase.PILOT), 0, 1, (1,)), 0, 9, 1
        )
