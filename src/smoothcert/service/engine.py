"""One engine behind all requests: the votes of many callers share passes, and one input has one stream of votes."""

from __future__ import annotations

import hashlib
import json
import math
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, ModelError, SmoothcertError, check_count
from smoothcert.noise import on_grid
from smoothcert.sampling import Draw, Engine, Execution, Finished, Job, Prepared
from smoothcert.sampling.passes import checked_input
from smoothcert.sampling.procedures import one_draw
from smoothcert.service.asks import Ask, ClosedError, Ending, QueueFullError
from smoothcert.service.randomness import Secret
from smoothcert.service.schedule import Schedule
from smoothcert.service.voting import Kept, Lease, Voting, exact_point
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier
from smoothcert.smoothing.plan import ANYTIME_BOUND
from smoothcert.smoothing.voting import engine_for
from smoothcert.stopping import StopRule
from smoothcert.tally import Phase, Tally

_LEASES_OUT = 2  # of one input: one is cast while the other is judged
_GROWTH = (
    0.25  # of leases beyond a round, as a share of the votes before: an ask that ends overshoots by less
)
_MOST_ROUNDS = 8  # of a lease: what a newcomer waits for is bounded
_ROUNDS_READY = 4
_SMOOTHING = 5.0  # seconds over which the speed is averaged
_LONGEST_WAIT, _SHORTEST_WAIT = 600, 1  # seconds that a refused caller is told to wait


@dataclass(frozen=True)
class EngineLimits:
    """What is held at once. Everything a caller can make grow is bounded by one of these."""

    queue: int = 1024
    """Inputs that may wait, of all callers together."""
    per_caller: int = 256
    """Inputs that one caller may have waiting."""
    kept: int = 65_536
    """Points whose votes are kept after their last question."""

    def __post_init__(self) -> None:
        check_count("queue", self.queue)
        check_count("per_caller", self.per_caller)
        check_count("kept", self.kept, least=0)


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


@dataclass(eq=False)
class Reservation:
    """Room that is kept for a caller's inputs."""

    caller: str
    inputs: int


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
        if classifier.plan.sigma_levels is not None:
            raise InvalidValueError(
                "a server reads all answers about an input off one stream of votes, and sigma levels need several: "
                "serve the model at one sigma"
            )
        self.secret = secret or Secret.fresh()
        self.limits = limits or EngineLimits()
        self.classifier = classifier
        self.plan, self.prepared = _settled(classifier, tuple(input_shape), self.secret)
        self.execution = _deep(classifier.execution, self.prepared)
        self.statement = statement_of(self.plan, classifier, tuple(input_shape))
        self.plan_hash = self.statement["sha256"]
        self._engine: Engine = engine_for(self.plan, self.prepared, self.execution)
        self._on_votes = on_votes
        self._lock = threading.Condition()
        self._schedule = Schedule()
        self._asks: dict[Voting, list[Ask]] = {}
        self._held: Counter[str] = Counter()
        self._votings: dict[int, Voting] = {}
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._out: dict[int, list[Lease]] = {}
        self._closing = False
        self._cast = 0
        self._speed, self._measured = 0.0, time.monotonic()
        self._since = 0
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
        noise = on_grid(self.plan.noise, self.plan.grid, array.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by the next line
            found = noise.point(array)
        noise.check_exact(found, self.plan.numerics.noise_dtype_name, 0)
        # Each input's own noise has a grid of its own: two inputs that one grid can't tell apart, another can.
        exact = found.steps if self.plan.search is None else exact_point(array)
        return self.secret.index(self.plan_hash, exact), array

    def ask(
        self,
        caller: str,
        x: NDArray[Any],
        *,
        votes: int | None = None,
        rule: StopRule | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> Ask:
        """Begin to answer about one input; see :meth:`ask_all`."""
        return self.ask_all(caller, [Question(*self.point(x))], votes=votes, rule=rule, on_change=on_change)[
            0
        ]

    def reserve(self, caller: str, inputs: int) -> Reservation:
        """Keep room for so many inputs, which count as waiting; :class:`QueueFullError` where there is none."""
        with self._lock:
            self._check_open()
            self._check_room(caller, inputs)
            self._held[caller] += inputs
            return Reservation(caller, inputs)

    def release(self, reservation: Reservation) -> None:
        """Give back what is kept and wasn't used."""
        with self._lock:
            self._give_back(reservation.caller, reservation.inputs)
            reservation.inputs = 0

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
        """Begin to answer about all of these inputs, or about none, in the room that was kept for them.

        :class:`QueueFullError` where there is no room for them, :class:`ClosedError` where none is taken any more.
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
                self._give_back(reservation.caller, reservation.inputs)
                reservation.inputs = 0
            self._check_room(caller, len(questions))
            asks = [self._taken(caller, question, wanted, rule, on_change) for question in questions]
            self._lock.notify_all()
            return asks

    def _taken(
        self,
        caller: str,
        question: Question,
        votes: int,
        rule: StopRule | None,
        on_change: Callable[[], None] | None,
    ) -> Ask:
        voting = self._votings.get(question.index)
        if voting is None:
            voting = self._begun(question)
        ask = Ask(caller, question.x, voting, votes, rule, on_change)
        if ask.look():
            self._keep(voting)
        else:
            self._asks.setdefault(voting, []).append(ask)
            self._held[caller] += 1
            self._schedule.join(caller, voting)
        return ask

    def end(self, ask: Ask, ending: Ending = "left") -> None:
        """End an ask with what is certified so far; votes that nobody waits for any more aren't cast."""
        with self._lock:
            if not ask.done:
                ask.end(ending)
                self._dismiss(ask)

    def copies(self, ask: Ask, count: int) -> NDArray[np.float64]:
        """The first noisy versions of an input that the model is shown to certify it."""
        voting = ask.voting
        return self._engine.first_copies(voting.index, ask.x, voting.plan.noise, Phase.ESTIMATION, count)

    def load(self) -> Load:
        """What it is doing now."""
        with self._lock:
            return Load(
                len(self._schedule),
                self._held.total(),
                self._votes_waiting(),
                self._cast,
                self._speed,
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
        """Take no more asks, go on with those that are held for ``grace`` seconds, then end them as they stand."""
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

    def _check_room(self, caller: str, more: int) -> None:
        limits, held = self.limits, self._held.total()
        if more > min(limits.queue, limits.per_caller):
            raise InvalidValueError(
                f"{more} inputs at once are more than the {min(limits.queue, limits.per_caller)} that may wait: ask "
                "about fewer at a time"
            )
        if held + more > limits.queue:
            raise QueueFullError(f"{held} inputs are waiting of {limits.queue} that may", self._retry_after())
        if self._held[caller] + more > limits.per_caller:
            raise QueueFullError(
                f"{self._held[caller]} of your inputs are waiting of {limits.per_caller} that may",
                self._retry_after(),
            )

    def _retry_after(self) -> float:
        """When about an eighth of what waits will have been cast: room for somebody, if not yet for all."""
        if not self._speed:
            return _SHORTEST_WAIT
        return min(_LONGEST_WAIT, max(_SHORTEST_WAIT, math.ceil(self._votes_waiting() / self._speed / 8)))

    def _votes_waiting(self) -> int:
        return sum(max(0, self._target(voting) - voting.estimation.n) for voting in self._asks)

    def _target(self, voting: Voting) -> int:
        return max((ask.votes for ask in self._asks.get(voting, ())), default=0)

    # The engine's thread.

    def _work(self) -> None:
        try:
            while not self._finished():
                try:
                    for done in self._engine.run(_Jobs(self._next_job), self._on_cast):
                        self._counted(done)
                except SmoothcertError:
                    self._try_alone()
        except BaseException as error:
            self._fail(error)
            raise

    def _finished(self) -> bool:
        with self._lock:
            return self._closing and not self._asks

    def _next_job(self) -> Job[Tally] | None:
        """The next lease as a job; waits while there is none and nothing is under way, None while something is."""
        with self._lock:
            while True:
                granted = self._schedule.next(self._grant)
                if granted is not None:
                    caller, voting, lease = granted
                    if self._on_votes is not None:
                        self._on_votes(caller, lease.votes)
                    self._out.setdefault(voting.index, []).append(lease)
                    return _job(voting, lease)
                if self._out or (self._closing and not self._asks):
                    return None
                # An idle engine measures nothing.
                self._lock.wait()
                self._measured, self._since = time.monotonic(), 0

    def _grant(self, voting: Voting) -> Lease | None:
        rows, block = self._engine.passes.layout.rows, self._engine.passes.layout.block
        # Early votes end most asks: they are looked at before more are handed out.
        if voting.out >= (_LEASES_OUT if voting.issued >= rows else 1):
            return None
        # Alone, an input may have a pass to itself; among others it shares one. Whole rounds fill every slot.
        first = rows if len(self._asks) == 1 else block
        size = max(first, min(voting.issued, rows), int(voting.issued * _GROWTH) // rows * rows)
        return voting.lease(self._target(voting), min(_MOST_ROUNDS * rows, size))

    def _on_cast(self, votes: int) -> None:
        with self._lock:
            self._cast += votes
            self._since += votes
            now = time.monotonic()
            passed = now - self._measured
            if passed > 0.1:
                weight = 1 - math.exp(-passed / _SMOOTHING) if self._speed else 1.0
                self._speed += weight * (self._since / passed - self._speed)
                self._measured, self._since = now, 0

    def _counted(self, done: Finished[Tally]) -> None:
        with self._lock:
            index, tally = done.job.index, done.answer
            self._returned(index, Lease(tally.stream.phase, tally.start, tally.stop))
            voting = self._votings[index]
            if voting.count(tally, done.seconds):
                for ask in list(self._asks.get(voting, ())):
                    if ask.look():
                        self._dismiss(ask)
                    else:
                        ask.changed()
            self._keep(voting)

    def _returned(self, index: int, lease: Lease) -> None:
        leases = self._out[index]
        leases.remove(lease)
        if not leases:
            del self._out[index]

    def _dismiss(self, ask: Ask) -> None:
        """Forget an ask that has ended."""
        asks = self._asks.get(ask.voting, [])
        if ask in asks:
            asks.remove(ask)
            self._give_back(ask.caller, 1)
            if not any(other.caller == ask.caller for other in asks):
                self._schedule.leave(ask.caller, ask.voting)
        if not asks:
            self._asks.pop(ask.voting, None)
            self._keep(ask.voting)
        self._lock.notify_all()

    def _give_back(self, caller: str, inputs: int) -> None:
        self._held[caller] -= inputs
        if self._held[caller] <= 0:
            del self._held[caller]

    def _keep(self, voting: Voting) -> None:
        """Once nobody asks about a point and none of its votes is under way, keep its tallies and no more."""
        if voting in self._asks or voting.out or voting.index not in self._votings:
            return
        del self._votings[voting.index]
        kept = voting.kept()
        if kept is not None and self.limits.kept:
            self._kept[voting.index] = kept
            while len(self._kept) > self.limits.kept:
                self._kept.popitem(last=False)

    def _try_alone(self) -> None:
        """The model failed on a pass that may have held several inputs: find out on whose, and let the others go on."""
        with self._lock:
            lost = [(self._votings[index], list(leases)) for index, leases in self._out.items()]
        for voting, leases in lost:
            try:
                for lease in leases:
                    for done in self._engine.run([_job(voting, lease)], self._on_cast):
                        self._counted(done)
            except SmoothcertError as error:
                self._refuse(voting, error)

    def _refuse(self, voting: Voting, error: SmoothcertError) -> None:
        told = ModelError(f"the model can't vote on this input: {_without_numbers(error, voting.index)}")
        with self._lock:
            self._out.pop(voting.index, None)
            voting.forget_leases()
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
            self._held.clear()
            self._lock.notify_all()


class _Jobs:
    """Jobs as they are wanted: after a pause there may be more, which no list could say."""

    def __init__(self, following: Callable[[], Job[Tally] | None]) -> None:
        self._following = following

    def __iter__(self) -> Iterator[Job[Tally]]:
        return self

    def __next__(self) -> Job[Tally]:
        job = self._following()
        if job is None:
            raise StopIteration
        return job


def _job(voting: Voting, lease: Lease) -> Job[Tally]:
    drawn = {lease.phase: lease.start}
    return Job(voting.index, voting.x, voting.plan.noise, one_draw(Draw(lease.phase, lease.votes)), drawn)


def _without_numbers(error: SmoothcertError, index: int) -> str:
    """The message without the number of the input's streams, which is nobody's business."""
    return str(error).replace(f"voting on input {index}: ", "").replace(str(index), "…")


def _deep(execution: Execution, prepared: Prepared) -> Execution:
    """Some rounds kept ready where rounds have slots: of many small leases, few are then left empty."""
    layout = prepared.numerics.layout()
    if execution.batch is not None or layout.slots == 1:
        return execution
    return replace(execution, batch=_ROUNDS_READY * layout.rows)


def _settled(
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
