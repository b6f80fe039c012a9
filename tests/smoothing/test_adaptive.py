"""Stopping early through the engine: same answers however it is scheduled, honest records, odd cases, refusals."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from smoothcert import ABSTAIN, CertifyPlan, Execution, Gaussian, SmoothedClassifier
from smoothcert.analysis.facts import votes_used
from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.bounds.base import BOUNDS
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError
from smoothcert.evaluation.certification import Progress, certify_dataset
from smoothcert.models.numerics import Numerics
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import read_run
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.plan import TooFewVotesWarning
from smoothcert.smoothing.procedures import CertifyState
from smoothcert.tally import Phase
from tests.smoothing.stopping.states import told

NUMERICS = Numerics("float32", "eager", 64, 64)
RULES = ["decide:0.3", "grid:0,0.25,0.5", "gain:5%", "abstain", "pilot:5%,200"]


def half_space(batch: np.ndarray) -> np.ndarray:
    """Class 1 right of zero."""
    return (batch[:, 0] > 0).astype(np.int64)


def smoothed(*stop: str, model: Any = half_space, **options: Any) -> SmoothedClassifier:
    defaults: dict[str, Any] = {
        "sigma": 0.5,
        "n": 3000,
        "n0": 20,
        "outputs": "labels",
        "classes": 3,
        "seed": 0,
    }
    return SmoothedClassifier(model, stop=stop, **(defaults | options))


INPUTS = [(i, np.array([x, 0.0])) for i, x in enumerate(np.linspace(-1.0, 1.0, 12))]


def facts(answers: list[Certification]) -> list[tuple[Any, ...]]:
    ordered = sorted(answers, key=lambda a: a.index)
    return [(a.index, a.predicted, a.radius, a.estimation, a.stopped) for a in ordered]


@pytest.mark.parametrize("rule", RULES)
def test_the_same_answers_whatever_the_schedule(rule):
    expected = facts(list(smoothed(rule, "wrong", n=1000).certify_each(INPUTS, labels=lambda i: i % 2)))
    assert len({fact[3].n for fact in expected}) > 1, "votes must differ, or nothing was tested"
    for execution, inputs in (
        (Execution(workers=2), INPUTS[::-1]),
        (Execution(workers=3, batch=500), INPUTS),
        (Execution(workers=1, batch=7), INPUTS[3:] + INPUTS[:3]),
    ):
        classifier = smoothed(rule, "wrong", n=1000, execution=execution)
        assert facts(list(classifier.certify_each(inputs, labels=lambda i: i % 2))) == expected
    alone = [smoothed(rule, "wrong", n=1000).certify([x], i, [i % 2])[0] for i, x in INPUTS]
    assert facts(alone) == expected


def test_voting_ends_when_the_question_is_answered():
    clear, middling, edge = smoothed("decide:0.4").certify([[1.5, 0], [0.52, 0], [0.0, 0]])
    assert told(clear.stopped) == ("decided", [0.4])
    assert told(edge.stopped) == ("hopeless", [0.4])
    assert max(clear.estimation.n, edge.estimation.n) < 300 < middling.estimation.n < 3000
    assert clear.radius >= 0.4
    (undecided,) = smoothed("decide:0.4@1e-9", n=100).certify([[0.8, 0]])
    assert (undecided.stopped, undecided.estimation.n) == ("budget", 100)


def test_rules_change_nothing_where_there_are_none_and_a_plan_states_them():
    plain, budget = smoothed(), smoothed("budget")
    assert plain.plan == budget.plan
    assert "stop" not in plain.plan.as_json()
    assert plain.plan.bound == "top-two"
    answer = budget.certify([[0.5, 0.0]])[0]
    assert (answer.stopped, answer.estimation.n) == (None, 3000)
    plan = CertifyPlan(Gaussian(0.5), stop=("decide:0.5", "wrong"))
    assert plan.as_json()["stop"] == ["decide:0.5", "wrong"]
    assert plan.bound == "mixture-top-two"
    assert CertifyPlan(Gaussian(0.5), stop=("wrong",)).bound == "top-two"
    assert CertifyPlan(Gaussian(0.5), stop=("pilot:1%",)).bound == "top-two"
    assert plan == CertifyPlan(Gaussian(0.5), stop=["decide:0.5", "wrong"])
    assert hash(plan)


def test_bounds_that_do_not_hold_for_a_rule_are_refused():
    """A fixed-n bound where votes end the voting, and one that cannot be evaluated at a pilot's n."""
    fixed = [name for name in BOUNDS if not BOUNDS[name].anytime]
    for rule, bound in product(("decide:0.5", "grid:0,1", "gain:1%", "abstain"), fixed):
        with pytest.raises(InvalidValueError, match=rf"\b{bound}\b.*{rule}.*mixture-top-two"):
            CertifyPlan(Gaussian(0.5), bound, stop=(rule,))
    for bound in ("looks", "hoeffding"):
        with pytest.raises(InvalidValueError, match=f"pilot:1%.*{bound}.*top-two.*clopper-pearson"):
            CertifyPlan(Gaussian(0.5), bound, n=1000, stop=("pilot:1%",))


def test_a_wrong_class_gets_no_votes_and_an_honest_record():
    right, wrong = smoothed("wrong").certify([[0.5, 0.0], [0.5, 0.1]], labels=[1, 2])
    assert (right.predicted, right.estimation.n, right.stopped) == (1, 3000, "budget")
    assert (wrong.predicted, wrong.radius, wrong.region) == (ABSTAIN, 0.0, None)
    assert (wrong.estimation.n, wrong.candidate, told(wrong.stopped)) == (0, 1, ("wrong", [1, 2]))
    assert wrong.estimation.stream.phase == Phase.ESTIMATION

    def scores(batch: np.ndarray) -> np.ndarray:
        return np.stack([-4 * batch[:, 0], 4 * batch[:, 0]], 1)

    classifier = smoothed("wrong", model=scores, outputs="scores", classes=None, bound="bernstein")
    right, wrong = classifier.certify([[0.5, 0.0], [0.5, 0.1]], labels=[1, 0])
    assert right.radius > 0
    assert wrong.estimation.n == 0
    assert wrong.estimation.sums == (0, 0)


def test_labels_are_asked_for_before_any_vote():
    with pytest.raises(InvalidValueError, match="'wrong'"):
        smoothed("wrong").certify(np.array([0.5, 0.0]))
    with pytest.raises(InvalidValueError, match=r"labels.*\b1\b.*\b2\b"):
        smoothed("wrong").certify(np.array([0.5, 0.0]), labels=[1, 2])
    with pytest.raises(InvalidValueError, match=r"\b1\b.*\b2\b.*index="):
        smoothed("wrong").certify([[0.5, 0.0], [0.5, 0.0]], labels=[1, 2])
    with pytest.raises(InvalidValueError, match=r"total:100000.*certify_dataset"):
        smoothed("total:100000").certify(np.array([0.5, 0.0]), labels=1)


def test_pilot_votes_are_of_another_stream_and_thrown_away():
    classifier = smoothed("pilot:5%,200")
    (answer,) = classifier.certify([[0.5, 0.0]], index=4)
    assert told(answer.stopped) == ("pilot", [answer.estimation.n])
    assert answer.estimation.stream.phase == Phase.ESTIMATION
    assert answer.estimation.start == 0
    whole = smoothed(n=answer.estimation.n).certify([[0.5, 0.0]], index=4)[0]
    assert whole.estimation == answer.estimation, (
        "the certificate rests on the votes that n alone would have drawn"
    )
    assert whole.radius == answer.radius


def stream(*stop: str, x: float = 0.5, **options: Any) -> list[CertifyState]:
    options = {"bound": "mixture-top-two"} | options
    return list(smoothed(*stop, **options).certify_stream(np.array([x, 0.0]), index=3, label=1))


@pytest.mark.parametrize("stop", [(), ("decide:0.3",), ("gain:5%", "wrong")])
def test_a_stream_ends_with_certifys_answer(stop):
    states = stream(*stop)
    answer = states[-1].certification
    assert all(state.certification is None for state in states[:-1])
    expected = smoothed(*stop, bound="mixture-top-two").certify([[0.5, 0.0]], 3, [1])[0]
    assert (answer.radius, answer.estimation.counts) == (expected.radius, expected.estimation.counts)
    assert [s.votes for s in states] == sorted(s.votes for s in states)
    assert states[-1].radius == answer.radius
    assert all(s.chosen == 1 for s in states)


def test_streams_may_be_left_and_refuse_what_would_not_hold():
    for state in smoothed(bound="looks", n=1000).certify_stream(np.array([1.0, 0.0])):
        if state.radius > 0.3:
            break
    assert state.certification is None
    assert state.votes < 1000
    assert state.bounds.lower > state.bounds.upper
    with pytest.raises(InvalidValueError, match=r"certify_stream.*top-two.*bound='mixture-top-two'"):
        smoothed().certify_stream(np.array([0.5, 0.0]))
    with pytest.raises(InvalidValueError, match=r"certify_stream.*\(2, 2\)"):
        smoothed(bound="mixture").certify_stream(np.zeros((2, 2)))
    with pytest.raises(InvalidValueError, match=r"certify_stream.*pilot:1%"):
        smoothed("pilot:1%", bound="mixture").certify_stream(np.zeros(2))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.filterwarnings("ignore::smoothcert.smoothing.plan.TooFewVotesWarning")
def test_no_plan_is_too_odd(rule):
    odd = [{"n": 1}, {"n": 63}, {"n": 64}, {"n": 65}, {"alpha": 1e-200}, {"alpha": 0.999}, {"n0": 1}]
    for options in odd:
        for answer in smoothed(rule, **options).certify([[9.0, 0.0], [0.0, 0.0], [-9.0, 0.0]]):
            assert answer.stopped, options
            assert 1 <= answer.estimation.n <= options.get("n", 3000), options
            assert (answer.radius > 0) == (answer.predicted != ABSTAIN), options


def test_no_certificate_is_lost_to_stopping_and_ties_abstain():
    """A unanimous vote that the budget could certify is certified by every rule but those that ask for more."""
    for rule in RULES:
        (answer,) = smoothed(rule, n=200).certify([[9.0, 0.0]])
        assert answer.predicted == 1
        if rule != "decide:0.3":
            assert answer.radius > 0.3

    def coin(batch: np.ndarray) -> np.ndarray:
        return (batch[:, 1] > 0).astype(np.int64)

    for rule in RULES:
        (answer,) = smoothed(rule, model=coin).certify([[0.0, 0.0]])
        assert answer.abstained, "a fair coin has no class"
    with pytest.warns(TooFewVotesWarning, match=r"\b10\b.*0\.001.*mixture-top-two.*\b13\b"):
        smoothed("decide:0.5", n=10).certify(np.array([1.0, 0.0]))


def made_up(size: int = 24) -> Dataset:
    x = np.random.default_rng(0).normal(size=(size, 2))
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("left", "right"))


class KilledError(Exception):
    """What a kill looks like to the run."""


def interrupted_after(count: int) -> Progress:
    """Die after so many votes have been counted."""
    seen = [0]

    def votes(more: int) -> None:
        seen[0] += more
        if seen[0] >= count:
            raise KilledError

    return Progress(votes=votes)


@pytest.mark.parametrize("stop", ["gain:5%", "grid:0,0.5", "pilot:5%,200", "total:12000,200", "wrong"])
def test_a_run_that_was_interrupted_anywhere_ends_with_the_same_bits(stop, tmp_path):
    data = made_up(12)
    whole = certify_dataset(smoothed(stop, execution=Execution(workers=2)), data, tmp_path / "whole")
    assert len(whole.records) == 12
    for after in (100, 2000, 5000):
        classifier = smoothed(stop, execution=Execution(workers=1 + after % 3))
        try:
            certify_dataset(classifier, data, tmp_path / "broken", progress=interrupted_after(after))
        except KilledError:
            continue
    ended = certify_dataset(smoothed(stop), data, tmp_path / "broken")
    assert results_digest(ended.records) == results_digest(whole.records)
    if stop.startswith("total"):
        files = [(tmp_path / name / "allocation.json").read_text() for name in ("whole", "broken")]
        assert files[0] == files[1]


def test_an_allocation_is_on_disk_before_any_certifying_vote(tmp_path):
    seen: list[bool] = []  # for every row that the model was shown, whether the file was there

    def watching(batch: np.ndarray) -> np.ndarray:
        seen.extend([(tmp_path / "run" / "allocation.json").exists()] * len(batch))
        return half_space(batch)

    certify_dataset(smoothed("total:24000,200", model=watching), made_up(), tmp_path / "run")
    begun = seen.index(True)
    assert all(seen[begun:])
    assert begun >= 24 * (20 + 200), "classes and pilots come first"
    assert len(seen) - begun >= 24_000 - 24 * 220 - 5000
    assert len(read_run(tmp_path / "run").records) == 24


def test_a_total_beats_the_same_number_spread_evenly(tmp_path):
    data = made_up(60)
    labels = np.where(np.arange(60) % 4, data.labels, 1 - data.labels)
    flipped = Dataset("made-up", data.stored, labels, data.classes)
    even = certify_dataset(smoothed(n=1980), flipped, tmp_path / "even")
    spread = certify_dataset(smoothed("total:120000,200"), flipped, tmp_path / "spread")
    assert votes_used(spread).total <= 120_000 == 60 * (1980 + 20)
    assert average_certified_radius(spread.records) > 1.005 * average_certified_radius(even.records)
