"""One engine behind all requests: the votes of many callers share passes, and one input has one stream of votes."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DependentVotesError, InvalidValueError, ModelError, SmoothcertError, check_count
from smoothcert.noise import on_grid
from smoothcert.sampling import Draw, Engine, Finished, Job
from smoothcert.sampling.passes import checked_input
from smoothcert.sampling.procedures import one_draw
from smoothcert.service.asks import Ask, ClosedError, Ending
from smoothcert.service.pace import Pace
from smoothcert.service.randomness import Secret
from smoothcert.service.schedule import Schedule
from smoothcert.service.settled import deep, settled, statement_of
from smoothcert.service.voting import Kept, Lease, Voting
from smoothcert.service.waiting_room import EngineLimits, Reservation, WaitingRoom
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier
from smoothcert.smoothing.voting import engine_for
from smoothcert.stopping import StopRule
from smoothcert.tally import Phase, Tally

_LEASES_OUT = 2  # of one input: one is cast while the other is judged
# Of leases beyond a round, as a share of the votes before: an ask that ends overshoots by less.
_GROWTH = 0.25
_MOST_ROUNDS = 8  # of a lease: what a newcomer waits for is bounded
_LONGEST_WAIT, _SHORTEST_WAIT = 600, 1  # seconds that a refused caller is told to wait


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
        if classifier.plan.sigma_levels is not None:
            raise InvalidValueError(
                "a server reads all answers about an input off one stream of votes, and sigma levels need several: "
                "serve the model at one sigma"
            )
        self.secret = secret or Secret.fresh()
        self.limits = limits or EngineLimits()
        self.classifier = classifier
        self.plan, self.prepared = settled(classifier, tuple(input_shape), self.secret)
        self.execution = deep(classifier.execution, self.prepared)
        self.statement = statement_of(self.plan, classifier, tuple(input_shape))
        self.plan_hash = self.statement["sha256"]
        self._engine: Engine = engine_for(self.plan, self.prepared, self.execution)
        self._on_votes = on_votes
        self._lock = threading.Condition()
        self._schedule = Schedule()
        self._asks: dict[Voting, list[Ask]] = {}
        self._room = WaitingRoom(self.limits, self._retry_after)
        self._votings: dict[int, Voting] = {}
        self._kept: OrderedDict[int, Kept] = OrderedDict()
        self._out: dict[int, list[Lease]] = {}
        self._closing = False
        self._pace = Pace()
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
        exact = found.steps if self.plan.search is None else np.asarray(array, dtype=np.float64)
        return self.secret.index(self.plan_hash, exact), array

    def reserve(self, caller: str, inputs: int) -> Reservation:
        """Keep room for so many inputs, which count as waiting; :class:`QueueFullError` where there is none."""
        with self._lock:
            self._check_open()
            return self._room.reserve(caller, inputs)

    def release(self, reservation: Reservation) -> None:
        """Give back what is kept and wasn't used."""
        with self._lock:
            self._room.release(reservation)

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
                self._room.release(reservation)
            self._room.check(caller, len(questions))
            asks = []
            for question in questions:
                voting = self._votings.get(question.index) or self._begun(question)
                ask = Ask(caller, question.x, voting, wanted, rule, on_change)
                asks.append(ask)
                if ask.look():
                    self._keep(voting)
                else:
                    self._asks.setdefault(voting, []).append(ask)
                    self._room.enter(caller)
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
        return self._engine.first_copies(voting.index, ask.x, voting.plan.noise, Phase.ESTIMATION, count)

    def load(self) -> Load:
        """What it is doing now."""
        with self._lock:
            return Load(
                len(self._schedule),
                self._room.held.total(),
                self._votes_waiting(),
                self._pace.votes,
                self._pace.per_second,
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

    def _retry_after(self) -> float:
        """When about an eighth of what waits will have been cast: some room, if not yet for all callers."""
        speed = self._pace.per_second
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
                    for done in self._engine.run(_Jobs(self._next_job), self._on_cast):
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
                self._pace.begin()

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
            self._pace.add(votes)

    def _counted(self, done: Finished[Tally]) -> None:
        with self._lock:
            index, tally = done.job.index, done.answer
            leases = self._out[index]
            leases.remove(Lease(tally.stream.phase, tally.start, tally.stop))
            if not leases:
                del self._out[index]
            voting = self._votings[index]
            if voting.count(tally, done.seconds):
                for ask in list(self._asks.get(voting, ())):
                    if ask.look():
                        self._dismiss(ask)
                    else:
                        ask.changed()
            self._keep(voting)

    def _dismiss(self, ask: Ask) -> None:
        """Forget an ask that has ended."""
        asks = self._asks.get(ask.voting, [])
        if ask in asks:
            asks.remove(ask)
            self._room.leave(ask.caller)
            if not any(other.caller == ask.caller for other in asks):
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
            lost = [(self._votings[index], list(leases)) for index, leases in self._out.items()]
        for voting, leases in lost:
            try:
                for lease in leases:
                    for done in self._engine.run([_job(voting, lease)], self._on_cast):
                        self._counted(done)
            except DependentVotesError:
                raise
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
            self._room.held.clear()
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
    """The message without the number of the input's streams, which callers must not learn."""
    return str(error).replace(f"voting on input {index}: ", "").replace(str(index), "…")
