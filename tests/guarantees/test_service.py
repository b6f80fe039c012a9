"""“No answer ever given about an input is wrong, but with probability α”: held against callers who shop for answers."""

import itertools
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from smoothcert.engine.schedule import Finished, Job
from smoothcert.models.numerics import Layout, Numerics
from smoothcert.service import engine as service_engine
from smoothcert.service.engine import VotingEngine
from smoothcert.service.limits import EngineLimits
from smoothcert.service.secrets import Secret
from smoothcert.smoothing.stopping.rules import Decide
from smoothcert.tally import Phase, Stream, Tally
from tests.guarantees.exact import TooOftenError, assert_rate_within
from tests.service.made import SHAPE, Edge, asked, smoothed

ALPHA, POINTS = 0.2, 30
# Eight votes without exception, one stream in 28, claim .43: a true radius just below is what a shopper is after.
TRUE_RADIUS = 0.41
P = float(ndtr(TRUE_RADIUS))
BLOCK, MOST = 8, 256
NUMERICS = Numerics("float32", "eager", BLOCK, BLOCK)
TEMPTING = Decide(TRUE_RADIUS * 1.001, futility=1e-6)


class Coins:
    """The sampling engine's part, played by coins: the v-th vote of a stream is always the same."""

    def __init__(self, *_: Any) -> None:
        self.passes = SimpleNamespace(layout=Layout(BLOCK, BLOCK))
        self.engine = SimpleNamespace(close=lambda: None)

    def job(self, index: int, x: Any, noise: Any, procedure: Any, drawn: Any) -> Job[Tally]:
        return Job((SimpleNamespace(index=index),), procedure, drawn)

    def run(self, jobs: Iterable[Job[Tally]], on_votes: Any = None) -> Iterator[Finished[Tally]]:
        for job in jobs:
            draw = next(job.procedure)
            start = job.drawn.get(draw.phase, 0)
            stop = start + draw.votes
            first = int(self._votes(job.index, draw.phase)[start:stop].sum())
            if draw.phase == Phase.SELECTION:  # the right class: a wrong one has another true radius
                first = draw.votes
            tally = Tally(Stream(self.seed, job.index, draw.phase), start, stop, (first, draw.votes - first))
            yield Finished(job, tally, 0.0)

    def _votes(self, index: int, phase: Phase) -> np.ndarray:
        bits = np.random.SFC64((index + int(phase)) % 2**64)
        return np.random.Generator(bits).random(MOST) < P


@pytest.fixture(autouse=True)
def coins(monkeypatch) -> None:
    def made(plan: Any, *_: Any) -> Coins:
        found = Coins()
        found.seed = plan.known_seed
        return found

    monkeypatch.setattr(service_engine, "noisy_model", made)


def claims_too_much(engine: VotingEngine, place: int, questions: int) -> bool:
    """Whether one of many answers about an input does: to other callers, with other targets and numbers of votes."""
    x = np.array([0.0, place / 255])
    for number in range(questions):
        votes, rule = (8, 32, 8, MOST)[number % 4], (TEMPTING, None, None)[number % 3]
        ask = asked(engine, f"caller {number % 5}", x, votes=votes, rule=rule)
        assert ask.wait(60)
        if ask.standing.radius > TRUE_RADIUS:
            return True
    return False


def false_answers(kept: int, questions: int) -> int:
    model = smoothed(Edge(TRUE_RADIUS), n=MOST, alpha=ALPHA, bound="mixture", numerics=NUMERICS)
    engine = VotingEngine(model, SHAPE, Secret.of_seed(5), EngineLimits(kept=kept))
    try:
        return sum(claims_too_much(engine, place, questions) for place in range(POINTS))
    finally:
        engine.close()


@pytest.mark.parametrize(("kept", "questions"), [(1000, 40), (0, 20)])
def test_the_best_of_many_answers_about_an_input_is_no_more_often_wrong_than_one(kept, questions):
    """Whether its votes are kept, or cast again every time."""
    assert_rate_within(false_answers(kept, questions), POINTS, ALPHA)


def test_with_fresh_votes_for_every_question_it_would_be(monkeypatch):
    """The check has teeth: were an input asked about again given a stream of its own, the better could be chosen."""
    asked, stream = itertools.count(), Secret.index
    monkeypatch.setattr(Secret, "index", lambda self, plan, x: stream(self, f"{plan} {next(asked)}", x))
    found = false_answers(1000, 100)
    with pytest.raises(TooOftenError):
        assert_rate_within(found, POINTS, ALPHA)
