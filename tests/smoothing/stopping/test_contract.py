"""Every registered stop rule and budget keeps the same promises."""

import dataclasses
import re
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtri

from smoothcert import CertifyPlan, Gaussian, SmoothedClassifier
from smoothcert.bounds.base import BOUNDS
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.errors import InvalidValueError
from smoothcert.smoothing.stopping.base import (
    BUDGETS,
    STOP_RULES,
    Budget,
    StopRule,
    WrittenRule,
    budget_among,
    parse_stop,
    parse_stops,
    stop_rules,
)
from smoothcert.smoothing.stopping.forecasts import RadiusForecast
from smoothcert.smoothing.stopping.rules import Wrong
from smoothcert.tally import Phase, Stream, Tally
from tests.smoothing.stopping.states import voting

COUNTS = [
    *((1, 0), (0, 1), (1,), (5,), (0, 3, 3), (3, 3, 3)),
    *((64, 64), (500, 0), (900, 100), (100, 900), (10**6, 0)),
]


def stated(name: str) -> type[WrittenRule]:
    return STOP_RULES[name] if name in STOP_RULES else BUDGETS[name]


def rule(name: str) -> StopRule:
    return STOP_RULES[name].parse(STOP_RULES[name].example.partition(":")[2])


def budget(name: str) -> Budget:
    return BUDGETS[name].parse(BUDGETS[name].example.partition(":")[2])


def thirds(batch: np.ndarray) -> np.ndarray:
    """Three classes by the first coordinate, in bands of various breadth."""
    return np.digitize(batch[:, 0], [-0.4, 0.9])


def test_no_name_is_both():
    assert not set(BUDGETS) & set(STOP_RULES)
    assert not any(hasattr(BUDGETS[name], "reason") for name in BUDGETS)


@pytest.mark.parametrize("name", [*STOP_RULES.names(), *BUDGETS.names()])
class TestEveryText:
    def test_says_how_it_is_written_and_is_written_back(self, name):
        assert stated(name).name == name
        assert stated(name).example.partition(":")[0] == name
        assert stated(name).words
        assert stated(name).goal in ("decision", "mean radius", "any")
        made = parse_stop(stated(name).example)
        assert type(made) is stated(name)
        assert made.text == stated(name).example
        assert parse_stop(f" {made.text} ") == made == dataclasses.replace(made)
        assert hash(made) == hash(parse_stop(made.text))

    def test_nonsense_and_doubles_are_named(self, name):
        for nonsense in ("much", "-5", "nan", "1,2,x", "@"):
            with pytest.raises(InvalidValueError) as caught:
                parse_stop(f"{name}:{nonsense}")
            assert name in str(caught.value)
        example = stated(name).example
        if parse_stops([example]):
            with pytest.raises(InvalidValueError, match=f"'{name}'"):
                parse_stops([example, example])


@pytest.mark.parametrize("name", STOP_RULES.names())
class TestEveryRule:
    def test_no_tally_is_too_odd_and_reasons_are_a_word_and_details(self, name):
        for counts in COUNTS:
            for most, label in product((sum(counts), sum(counts) + 1, 10**6), (0, 1)):
                reason = rule(name).reason(voting(*counts, most_votes=most, label=label))
                assert reason is None or re.fullmatch(r"[a-z]+: \S.*", reason), (counts, most, label)

    def test_only_one_that_sees_no_estimation_votes_goes_with_a_fixed_number_of_them(self, name):
        plan = CertifyPlan(Gaussian(0.5), stop=(rule(name),))
        sees = rule(name).sees == "estimation"
        assert plan.sequential == BOUNDS[plan.bound].anytime == sees
        if sees:
            with pytest.raises(InvalidValueError):
                CertifyPlan(Gaussian(0.5), stop=(rule(name),), bound="clopper-pearson")
            assert rule(name).reason(voting(3, 3, label=0)) == rule(name).reason(voting(3, 3, label=1))

    def test_what_is_certified_is_what_the_votes_seen_prove(self, name):
        """A rule ends the voting; it has no part in the answer."""
        plan = CertifyPlan(Gaussian(1.0), n=20_000, n0=20, stop=(rule(name),), seed=1)
        classifier = SmoothedClassifier(thirds, plan, outputs="labels", classes=3)
        inputs = np.linspace(-2.0, 2.0, 15)[:, None]
        ended = 0
        for answer, x in zip(classifier.certify(inputs, labels=np.ones(len(inputs), dtype=np.int64)), inputs):
            assert answer.estimation.n <= plan.n
            ended += answer.estimation.n < plan.n
            assert re.fullmatch(r"[a-z]+: \S.*", answer.stopped) or answer.stopped == "budget"
            if answer.estimation.n:
                found = plan.confidence_bound(answer.estimation, answer.candidate, plan.alpha)
                assert answer.radius <= plan.noise.certificate.radius(found)
            else:
                assert answer.abstained, x
        assert ended, "it never stops"


@pytest.mark.parametrize("name", BUDGETS.names())
class TestEveryBudget:
    def test_a_plan_tells_rules_from_its_budget_and_states_both_in_order(self, name):
        text = budget(name).text
        for stop in ((text, "wrong"), ("wrong", text)):
            plan = CertifyPlan(Gaussian(0.5), n=1000, stop=stop)
            assert plan.stop_rules == (Wrong(),) == stop_rules(plan.stops)
            assert plan.budget == budget(name) == budget_among(plan.stops)
            assert plan.as_json()["stop"] == [each for each in stop if each != "budget"]
            assert parse_stops(plan.as_json()["stop"]) == plan.stops
            assert not plan.sequential
            assert plan.bound == "top-two", "n is settled before the votes: the fixed-n bound holds"

    def test_what_an_input_can_get_is_what_plans_allow(self, name):
        """Who shares votes, or gives some inputs fewer, looks at pilots first."""
        one = budget(name)
        plan = CertifyPlan(Gaussian(0.5), n=1000, stop=(one,))
        assert plan.most_votes == one.most_votes(1000) >= 1000
        assert plan.allows_votes(plan.most_votes)
        assert not plan.allows_votes(plan.most_votes + 1)
        assert plan.allows_votes(500) == (one.pilot_votes > 0)
        assert one.spreads == (one.shared_votes is not None)
        assert one.pilot_votes > 0 or not one.spreads
        one.check_inputs(1, 100)

    def test_a_pilot_chooses_a_number_of_votes_there_is(self, name):
        one = budget(name)
        if not one.pilot_votes or one.spreads:
            return
        forecast = RadiusForecast(lambda votes: _radius(votes.counts[0], votes.n))
        for share in (0.0, 0.5, 0.9, 1.0):
            k = round(share * one.pilot_votes)
            pilot = Tally(Stream(0, 0, Phase.PILOT), 0, one.pilot_votes, (k, one.pilot_votes - k))
            for n in (1, 50, 1000):
                chosen = one.choose(forecast, pilot, 0, n, 64)
                assert 1 <= chosen <= one.most_votes(n)
                assert chosen == one.choose(forecast, pilot, 0, n, 64)


def _radius(count: int, n: int) -> float:
    lower = clopper_pearson_lower(count, n, 0.001)
    return max(0.0, float(ndtri(lower))) if lower > 0.5 else 0.0
