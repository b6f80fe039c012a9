"""One engine behind all requests: the votes of many callers share passes, and one input has one stream of votes."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.engine.engine import Engine
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import checked_input
from smoothcert.engine.schedule import Draw, Finished, Job, one_draw
from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError, SmoothcertError, check_count
from smoothcert.models.base import Prepared
from smoothcert.perturb.base import Noise
from smoothcert.perturb.grid import on_grid
from smoothcert.service.limits import ClosedError, EngineLimits, Reservation, WaitingInputs
from smoothcert.service.secrets import Secret
from smoothcert.service.voting import Ask, Ending, Kept, Schedule, VoteTask, Voting
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.plan import ANYTIME_BOUND, CertifyPlan
from smoothcert.smoothing.planned_model import noisy_model
from smoothcert.smoothing.stopping.base import StopRule
from smoothcert.tally import Phase, Tally

_TASKS_OUT = 2  # of one input: one is cast while the other is judged
# Of tasks beyond a pass, as a share of the votes before: an ask that ends overshoots by less.
_GROWTH = 0.25
_MOST_PASSES = 8  # of a task: what a newcomer waits for is bounded
_PASSES_READY = 4
_LONGEST_WAIT, _SHORTEST_WAIT = 600, 1  # seconds that a refused caller is told to wait
_AVERAGED_SECONDS, _LEAST_SPAN = 5.0, 0.1  # of the speed: averaged over, and measured at least over


@dataclass(frozen=True)
class Load:
    """What the engine is doing, in numbers."""

    callers: int
    inputs: int
    votes_waiting: int
    votes_cast: int
    votes_per_second: float
    kept: int


@dataclass(frozen=True, eq=False)
class Question:
    """An input that was checked, the number of its streams, and its own plan where the engine's searches for one."""

    index: int
    x: NDArray[Any]
    plan: CertifyPlan | None = None


class VotingEngine:
    """Asks of many callers, answered by one set of workers.

    **Promise.** Let x be an input that is chosen without knowledge of the secret. With probability at least 1−α over
    the votes, *no* answer ever given about x under this secret and plan is wrong, however often, by whomever and with
    whatever deadlines x is asked about: all of them are read off one stream of votes by a bound that holds at every n
    at once. Votes that aren't kept any more are cast again, to the same bits.
    """

    def __init__(
        self,
        classifier: SmoothedClassifier,
        input_shape: tuple[int, ...],
        secret: Secret | None = None,
        limits: EngineLimits | None = None,
        on_votes: Callable[[str, int], None] | None = None,
    ) -> None:
        self.secret = secret or Secret.fresh()
        self.limits = limits or EngineLimits()
        self.classifier = classifier
        self.plan, self.prepared = _complete_plan(classifier, tuple(input_shape), self.secret)
        self.execution = _with_passes_ready(classifier.execution, self.prepared)
        self.statement = _statement(self.plan, classifier, tuple(input_shape))
        self.plan_hash = self.statement["sha256"]
        self._model = noisy_model(self.plan, self.prepared, Engine(self.execution))
        self._on_votes = on_votes
        self._lock = threading.Condition()
        self._schedule = Schedule()
        self._asks: dict[Voting, list[Ask]] = {}
        self._waiting = WaitingInputs(self.limits, self._retry_after)
        self._votings: dict[int, Voting] = {}
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._out: dict[int, list[VoteTask]] = {}
        self._closing = False
        self._speed = _Speed()
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="voting", daemon=True)
        self._thread.start()

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of every input."""
        return self.prepared.input_shape

    def point(self, x: NDArray[Any]) -> tuple[int, NDArray[Any]]:
        """The number of an input's streams, and the input checked; refuses what can't be voted on."""
        array = checked_input(0, x, self.input_shape)
        if not isinstance(self.plan.noise, Noise):
            self.plan.noise.copies(array, self.plan.grid, self.plan.numerics.noise_dtype_name, 0)  # refuses
            return self.secret.index(self.plan_hash, self.plan.point(array)), array
        noise = on_grid(self.plan.noise, self.plan.grid, array.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by the next line
            point = noise.point(array)
        noise.check_exact(point, self.plan.numerics.noise_dtype_name, 0)
        # A search gives each input a grid of its own, which may tell apart two inputs that this one cannot.
        exact = point.steps if self.plan.search is None else np.asarray(array, dtype=np.float64)
        return self.secret.index(self.plan_hash, exact), array

    def reserve(self, caller: str, inputs: int) -> Reservation:
        """Keep places for so many inputs, which count as waiting; :class:`QueueFullError` where there are none."""
        with self._lock:
            self._check_open()
            return self._waiting.reserve(caller, inputs)

    def release(self, reservation: Reservation) -> None:
        """Give back the places that were not used."""
        with self._lock:
            self._waiting.release(reservation)

    def ask_all(
        self,
        caller: str,
        questions: Sequence[Question],
        *,
        votes: int | None = None,
        rule: StopRule | None = None,
        on_change: Callable[[], None] | None = None,
        reservation: Reservation | None = None,
    ) -> list[Ask]:
        """Begin to answer about all of these inputs, or about none, in the places that were kept for them.

        :class:`QueueFullError` where there are none left, :class:`ClosedError` where no question is taken any more.
        """
        wanted = self.plan.n if votes is None else votes
        check_count("votes", wanted)
        if wanted > self.plan.n:
            raise InvalidValueError(
                f"an input gets {self.plan.n} votes at most here, {wanted} were asked for"
            )
        wanted = self.plan.confidence_bound.last_look(wanted)
        with self._lock:
            self._check_open()
            if reservation is not None:
                self._waiting.release(reservation)
            self._waiting.check(caller, len(questions))
            asks = []
            for question in questions:
                voting = self._votings.get(question.index) or self._begun(question)
                ask = Ask(caller, question.x, voting, wanted, rule, on_change)
                asks.append(ask)
                if ask.update():
                    self._keep(voting)
                else:
                    self._asks.setdefault(voting, []).append(ask)
                    self._waiting.by_caller[caller] += 1
                    self._schedule.join(caller, voting)
            self._lock.notify_all()
            return asks

    def end(self, ask: Ask, ending: Ending = "left") -> None:
        """End an ask with what is certified so far; votes that are no longer waited for aren't cast."""
        with self._lock:
            if not ask.done:
                ask.end(ending)
                self._dismiss(ask)

    def copies(self, ask: Ask, count: int) -> NDArray[np.float64]:
        """The first noisy versions of an input that the model is shown to certify it."""
        voting = ask.voting
        return self._model.first_copies(voting.index, ask.x, voting.plan.noise, Phase.ESTIMATION, count)

    def load(self) -> Load:
        """What it is doing now."""
        with self._lock:
            return Load(
                len(self._schedule),
                self._waiting.by_caller.total(),
                self._votes_waiting(),
                self._speed.votes,
                self._speed.per_second,
                len(self._kept),
            )

    @property
    def alive(self) -> bool:
        """Whether asks are taken and answered."""
        return self._thread.is_alive() and not self._closing

    @property
    def broken(self) -> bool:
        """Whether a fault of its own has ended it."""
        return self._broken is not None

    def close(self, grace: float = 0.0) -> None:
        """Take no more asks, continue with those that are held for ``grace`` seconds, then end them as they stand."""
        until = time.monotonic() + grace
        with self._lock:
            self._closing = True
            self._lock.notify_all()
            while self._asks and (left := until - time.monotonic()) > 0 and self._thread.is_alive():
                self._lock.wait(left)
            for ask in [ask for asks in self._asks.values() for ask in asks]:
                ask.end("shutdown")
                self._dismiss(ask)
            self._lock.notify_all()
        self._thread.join()
        self._model.engine.close()

    def _begun(self, question: Question) -> Voting:
        voting = Voting(question.index, question.x, question.plan or self.plan, self.prepared.classes)
        self._votings[question.index] = voting
        kept = self._kept.pop(question.index, None)
        if kept is not None:
            voting.resume(kept)
        return voting

    def _check_open(self) -> None:
        if self._broken is not None or not self._thread.is_alive():
            raise ClosedError("the engine has stopped", _LONGEST_WAIT)
        if self._closing:
            raise ClosedError("the server is being shut down", _SHORTEST_WAIT)

    def _retry_after(self) -> float:
        """When about an eighth of what waits will have been cast: some places, if not yet for all callers."""
        speed = self._speed.per_second
        if not speed:
            return _SHORTEST_WAIT
        return min(_LONGEST_WAIT, max(_SHORTEST_WAIT, math.ceil(self._votes_waiting() / speed / 8)))

    def _votes_waiting(self) -> int:
        return sum(max(0, self._target(voting) - voting.estimation.n) for voting in self._asks)

    def _target(self, voting: Voting) -> int:
        return max((ask.votes for ask in self._asks.get(voting, ())), default=0)

    # The engine's thread.

    def _work(self) -> None:
        try:
            while not self._finished():
                try:
                    for done in self._model.run(_Jobs(self._next_job), self._on_cast):
                        self._counted(done)
                except DependentVotesError:
                    raise  # whatever it has said and would say is void
                except SmoothcertError:
                    self._try_alone()
        except BaseException as error:
            self._fail(error)
            raise

    def _finished(self) -> bool:
        with self._lock:
            return self._closing and not self._asks

    def _next_job(self) -> Job[Tally] | None:
        """The next task as a job; waits while there is none and nothing is under way, None while something is."""
        with self._lock:
            while True:
                granted = self._schedule.next(self._grant)
                if granted is not None:
                    caller, voting, task = granted
                    if self._on_votes is not None:
                        self._on_votes(caller, task.votes)
                    self._out.setdefault(voting.index, []).append(task)
                    return self._job(voting, task)
                if self._out or (self._closing and not self._asks):
                    return None
                # An idle engine measures nothing.
                self._lock.wait()
                self._speed.begin()

    def _job(self, voting: Voting, task: VoteTask) -> Job[Tally]:
        procedure = one_draw(Draw(task.phase, task.votes))
        drawn = {task.phase: task.start}
        return self._model.job(voting.index, voting.x, voting.plan.noise, procedure, drawn)

    def _grant(self, voting: Voting) -> VoteTask | None:
        rows, block = self._model.passes.layout.rows, self._model.passes.layout.block
        # Early votes end most asks: they are looked at before more are handed out.
        if voting.out >= (_TASKS_OUT if voting.issued >= rows else 1):
            return None
        # Alone, an input may have a pass to itself; among others it shares one. Whole passes leave no row empty.
        first = rows if len(self._asks) == 1 else block
        size = max(first, min(voting.issued, rows), int(voting.issued * _GROWTH) // rows * rows)
        return voting.next_task(self._target(voting), min(_MOST_PASSES * rows, size))

    def _on_cast(self, votes: int) -> None:
        with self._lock:
            self._speed.add(votes)

    def _counted(self, done: Finished[Tally]) -> None:
        with self._lock:
            index, tally = done.job.index, done.answer
            tasks = self._out[index]
            tasks.remove(VoteTask(tally.stream.phase, tally.start, tally.stop))
            if not tasks:
                del self._out[index]
            voting = self._votings[index]
            if voting.count(tally, done.seconds):
                for ask in list(self._asks.get(voting, ())):
                    if ask.update():
                        self._dismiss(ask)
                    else:
                        ask.changed()
            self._keep(voting)

    def _dismiss(self, ask: Ask) -> None:
        """Forget an ask that has ended."""
        asks = self._asks.get(ask.voting, [])
        if ask in asks:
            asks.remove(ask)
            self._waiting.leave(ask.caller)
            if not any(each.caller == ask.caller for each in asks):
                self._schedule.leave(ask.caller, ask.voting)
        if not asks:
            self._asks.pop(ask.voting, None)
            self._keep(ask.voting)
        self._lock.notify_all()

    def _keep(self, voting: Voting) -> None:
        """Once a point isn't asked about and none of its votes is under way, keep its tallies and no more."""
        if voting in self._asks or voting.out or voting.index not in self._votings:
            return
        del self._votings[voting.index]
        kept = voting.kept()
        if kept is not None and self.limits.kept:
            self._kept[voting.index] = kept
            while len(self._kept) > self.limits.kept:
                self._kept.popitem(last=False)

    def _try_alone(self) -> None:
        """The model failed on a pass that may have held several inputs: find out which, and let the others go on."""
        with self._lock:
            lost = [(self._votings[index], list(tasks)) for index, tasks in self._out.items()]
        for voting, tasks in lost:
            try:
                for task in tasks:
                    for done in self._model.run([self._job(voting, task)], self._on_cast):
                        self._counted(done)
            except DependentVotesError:
                raise
            except SmoothcertError as error:
                self._refuse(voting, error)

    def _refuse(self, voting: Voting, error: SmoothcertError) -> None:
        # Callers must not learn the number of the input's streams.
        reason = str(error).replace(f"voting on input {voting.index}: ", "").replace(str(voting.index), "…")
        told = ModelError(f"the model can't vote on this input: {reason}")
        with self._lock:
            self._out.pop(voting.index, None)
            voting.forget_tasks()
            for ask in list(self._asks.get(voting, ())):
                ask.end("failed", told)
                self._dismiss(ask)
            self._keep(voting)

    def _fail(self, error: BaseException) -> None:
        """A fault of ours: every ask ends, and no other is taken."""
        with self._lock:
            self._broken = error
            for ask in [ask for asks in self._asks.values() for ask in asks]:
                ask.end("failed", ModelError(f"the engine has stopped: {type(error).__name__}"))
            self._asks.clear()
            self._waiting.by_caller.clear()
            self._lock.notify_all()


class _Jobs:
    """Jobs as they are wanted: after a pause there may be more, so this iterator may go on after it has ended."""

    def __init__(self, following: Callable[[], Job[Tally] | None]) -> None:
        self._following = following

    def __iter__(self) -> Iterator[Job[Tally]]:
        return self

    def __next__(self) -> Job[Tally]:
        if (job := self._following()) is None:
            raise StopIteration
        return job


class _Speed:
    """Votes cast, and how many a second: an exponential average over the time in which there was something to do."""

    def __init__(self) -> None:
        self.votes = 0
        self.per_second = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin to measure after a pause, which is not counted."""
        self._begun, self._since = time.monotonic(), 0

    def add(self, votes: int) -> None:
        """Count votes that were just cast."""
        self.votes += votes
        self._since += votes
        passed = time.monotonic() - self._begun
        if passed > _LEAST_SPAN:
            weight = 1 - math.exp(-passed / _AVERAGED_SECONDS) if self.per_second else 1.0
            self.per_second += weight * (self._since / passed - self.per_second)
            self.begin()


def _with_passes_ready(execution: Execution, prepared: Prepared) -> Execution:
    """Some passes kept ready where several inputs share one: of many small tasks, few rows are then left empty."""
    layout = prepared.numerics.layout()
    if execution.batch is not None or layout.slots == 1:
        return execution
    return replace(execution, batch=_PASSES_READY * layout.rows)


def _complete_plan(
    classifier: SmoothedClassifier, input_shape: tuple[int, ...], secret: Secret
) -> tuple[CertifyPlan, Prepared]:
    """The plan with nothing left open, and the model prepared for it."""
    plan = classifier.plan
    if plan.sigma_levels is not None:
        raise InvalidValueError(
            "a server reads all answers about an input off one stream of votes, and sigma levels need several: "
            "serve the model at one sigma"
        )
    if not plan.confidence_bound.anytime:
        raise InvalidValueError(
            f"the {plan.bound} bound holds for a number of votes fixed in advance, but a server stops when a caller "
            f"leaves or a deadline passes: use bound {ANYTIME_BOUND!r}"
        )
    if plan.stops:
        raise InvalidValueError(
            f"each request says when to stop: leave {', '.join(stop.text for stop in plan.stops)} out"
        )
    plan.check_shape(input_shape)
    plan.warn_if_hopeless()
    prepared = classifier.base.prepare(plan.numerics, input_shape, classifier.execution.main_device)
    return replace(plan, numerics=prepared.numerics, seed=secret.seed).for_shape(input_shape), prepared


def _statement(
    plan: CertifyPlan, classifier: SmoothedClassifier, input_shape: tuple[int, ...]
) -> dict[str, Any]:
    """What is promised about which model, in plain values; its hash names the streams. The seed is not part of it."""
    stated = plan.as_json()
    del stated["seed"]
    base = classifier.base
    model = {"name": base.name, "sha256": base.fingerprint(input_shape), "input_shape": list(input_shape)}
    text = json.dumps({"plan": stated, "model": model}, sort_keys=True, default=str)
    return {"plan": stated, "model": model, "sha256": hashlib.sha256(text.encode()).hexdigest()}
