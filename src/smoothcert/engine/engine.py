"""The engine: procedures ask for votes, passes cast them, and nothing but the plan decides what they are.

Requests are cut into blocks, and blocks make rounds: several to a pass of a small model, from whichever inputs are
waiting, or several passes to a block of a larger one. A finished input's place is refilled at once. Why votes are the
same however they are scheduled: docs/architecture.md.
"""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from functools import partial
from itertools import islice
from typing import Any, Generic, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from smoothcert.bounds.base import VoteKind
from smoothcert.engine.backends.threads import ThreadVoters
from smoothcert.engine.backends.workers import BACKENDS, Cast, Voters
from smoothcert.engine.checking import FIRST_INPUTS, Recast
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes, Voter
from smoothcert.engine.schedule import ActiveInput, Finished, Job, Lanes, Task, blocks_of
from smoothcert.errors import InvalidValueError
from smoothcert.models.base import Prepared
from smoothcert.tally import Tally
from smoothcert.threads import holding_the_lock, in_a_worker, one_openmp_thread, worker_threads

R = TypeVar("R")

_TASKS_AHEAD = 2  # tasks kept ready for each worker, so that none waits for the coordinator
_MOST_OPEN = 64  # models with workers of their own at a time, beside those that vote


class Engine:
    """Runs procedures for many inputs at once and hands out their answers as they come.

    Workers are started for a model when it first votes, and kept for the runs that follow until :meth:`close`. Several
    threads may run procedures at the same time. A thread that holds the lock of models that aren't thread-safe (one of
    them calls another classifier) casts the votes itself: no thread waits for one that waits for it.
    """

    def __init__(self, execution: Execution) -> None:
        execution.check_devices()
        self.execution = execution
        self._lock = threading.RLock()
        self._passes: dict[tuple[int, VoteKind], Passes] = {}
        self._voters: dict[Passes, Voters] = {}
        self._users: dict[Passes, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers. A run after it starts others."""
        with self._lock:
            voters, self._voters, self._passes, self._users = list(self._voters.values()), {}, {}, {}
        for one in voters:
            one.close()

    def passes(self, prepared: Prepared, votes: VoteKind) -> Passes:
        """The passes of a prepared model, the same for as long as its workers are kept."""
        with self._lock:
            key = id(prepared), votes
            if key not in self._passes:
                self._forget_the_oldest()
                self._passes[key] = Passes(prepared, votes, self.execution)
            return self._passes[key]

    def run(
        self, jobs: Iterable[Job[R]], on_votes: Callable[[int], None] | None = None
    ) -> Iterator[Finished[R]]:
        """Answers as they come; inputs are admitted only as fast as the workers need them.

        ``on_votes`` is called with the number of votes each finished task has counted. What is under way when the
        caller stops iterating, or when something fails, is waited for and dropped.
        """
        run = _Run(self, iter(jobs), on_votes)
        with one_openmp_thread(), run:
            yield from run.answers()

    def workers_of(self, passes: Passes) -> Voters:
        """The workers that cast the votes of a model, started when they are first asked for."""
        if holding_the_lock():
            return ThreadVoters(passes)  # which are this thread
        with self._lock:
            if passes in self._voters and not self._users.get(passes) and not self._voters[passes].current():
                self._voters.pop(passes).close()
            if passes not in self._voters:
                self._voters[passes] = BACKENDS[self.execution.backend](passes, self.execution)
            self._users[passes] = self._users.get(passes, 0) + 1
            return self._voters[passes]

    def release(self, passes: Passes, voters: Voters, *, failed: bool) -> None:
        """A run has no more use for a model's workers: they are kept, unless it failed and nothing else uses them."""
        with self._lock:
            if self._voters.get(passes) is not voters:
                return
            self._users[passes] -= 1
            if not failed or self._users[passes]:
                return
            del self._voters[passes]
        voters.close()

    def _forget_the_oldest(self) -> None:
        idle = [key for key, passes in self._passes.items() if not self._users.get(passes)]
        for key in idle[: max(0, len(self._passes) + 1 - _MOST_OPEN)]:
            passes = self._passes.pop(key)
            self._users.pop(passes, None)
            if passes in self._voters:
                self._voters.pop(passes).close()


class _Member:
    """One model in a run: the blocks that wait for it, its workers, and the check beside its votes."""

    def __init__(self, passes: Passes, voters: Voters, execution: Execution) -> None:
        self.passes, self.voters = passes, voters
        layout = passes.layout
        self.lanes = Lanes(layout)
        self.checking = _Checking(passes)
        self.in_flight = 0
        self._width = voters.count * _TASKS_AHEAD
        size = math.prod(passes.prepared.input_shape)
        self._most = execution.rounds_per_task(layout.rows, size, far=voters.far)
        self._ahead = self._most if execution.batch else 1

    @property
    def wanted(self) -> int:
        """Blocks that should be waiting, so that no worker runs out of them."""
        return (self._width - self.in_flight) * self._ahead * self.passes.layout.slots

    def tasks(self) -> Iterator[Task]:
        """What the workers can take now; few votes are shared out among them."""
        rounds = min(self._most, -(-self.lanes.waiting // (self._width * self.passes.layout.slots)))
        while self.in_flight < self._width and self.lanes.waiting:
            self.in_flight += 1
            yield [self.lanes.next_round() for _ in range(rounds) if self.lanes.waiting]


class _Run(Generic[R]):
    """One call of :meth:`Engine.run`: jobs in, answers out."""

    def __init__(
        self, engine: Engine, jobs: Iterator[Job[R]], on_votes: Callable[[int], None] | None
    ) -> None:
        self._engine, self._jobs, self._on_votes = engine, jobs, on_votes
        self._early: deque[Job[R]] = deque()
        self._members: dict[Passes, _Member] = {}
        self._done: queue.SimpleQueue[tuple[_Member, Task, Future[list[Cast]]]] = queue.SimpleQueue()
        self._under_way: set[Future[list[Cast]]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for cast in self._under_way:
            cast.cancel()
        wait(self._under_way)
        for member in self._members.values():
            member.checking.close()
            self._engine.release(member.passes, member.voters, failed=kind not in (None, GeneratorExit))

    def answers(self) -> Iterator[Finished[R]]:
        self._take_early(1)
        if any(voter.passes.checked.opening is None for job in self._early for voter in job.voters):
            self._take_early(FIRST_INPUTS)
        self._open([voter for job in self._early for voter in job.voters])
        while True:
            yield from self._admit()
            for member in self._members.values():
                for task in member.tasks():
                    cast = member.voters.submit(task)
                    self._under_way.add(cast)
                    cast.add_done_callback(partial(self._put, member, task))
            if not self._under_way:
                for member in self._members.values():
                    member.checking.finish()
                return
            yield from self._count(*self._done.get())

    def _take_early(self, count: int) -> None:
        """Have so many jobs at hand. An error that ends them is raised in order; jobs that pause may resume."""
        try:
            self._early.extend(islice(self._jobs, count - len(self._early)))
        except Exception as error:
            self._jobs = _failing(error)

    def _put(self, member: _Member, task: Task, cast: Future[list[Cast]]) -> None:
        self._done.put((member, task, cast))

    def _admit(self) -> Iterator[Finished[R]]:
        """Take jobs while the workers could run out of blocks."""
        members = self._members.values()
        while sum(one.lanes.waiting for one in members) < max([one.wanted for one in members], default=1):
            job = self._early.popleft() if self._early else next(self._jobs, None)
            if job is None:
                return
            self._open(job.voters)
            for voter in job.voters:
                self._members[voter.passes].checking.admit(voter)
            drawn = {(0, phase): votes for phase, votes in job.drawn.items()}
            yield from self._advance(ActiveInput(job, drawn), None)

    def _open(self, voters: Sequence[Voter]) -> None:
        """Check models that haven't voted yet on rows of these inputs, and start their workers."""
        for passes in dict.fromkeys(voter.passes for voter in voters):
            if passes in self._members:
                continue
            if passes.checked.opening is None:
                own = {voter.index: voter for voter in voters if voter.passes is passes}
                in_a_worker(partial(passes.checked.open, list(own.values())))
            self._members[passes] = _Member(passes, self._engine.workers_of(passes), self._engine.execution)

    def _count(self, member: _Member, task: Task, cast: Future[list[Cast]]) -> Iterator[Finished[R]]:
        """Add up what a task has brought; inputs whose draw is complete go on."""
        self._under_way.discard(cast)
        member.in_flight -= 1
        casts = cast.result()
        blocks = blocks_of(task)
        votes = sum(block.votes for block in blocks)
        member.checking.counted(task, [sums for sums, _ in casts], votes)
        if self._on_votes is not None:
            self._on_votes(votes)
        for block, (sums, seconds) in zip(blocks, casts, strict=True):
            active = block.of
            assert active is not None  # the engine's own
            active.seconds += seconds
            active.sums += sums
            active.missing -= block.votes
            if not active.missing:
                yield from self._advance(active, active.tally())

    def _advance(self, active: ActiveInput, tally: Tally | None) -> Iterator[Finished[R]]:
        """Give a procedure the votes it asked for; queue its next draw, or hand out its answer."""
        procedure = active.job.procedure
        try:
            draw = next(procedure) if tally is None else procedure.send(tally)
        except StopIteration as stop:
            yield Finished(active.job, stop.value, active.seconds)
            return
        if not 0 <= draw.voter < len(active.job.voters):
            raise InvalidValueError(f"a draw names voter {draw.voter} of {len(active.job.voters)}")
        active.begin(draw)
        self._members[active.voter.passes].lanes.add(active)


def _failing(error: Exception) -> Iterator[Any]:
    yield from ()
    raise error


class _Checking:
    """The check that goes on beside a model's votes in a run, in a thread of its own; what it finds ends the run."""

    def __init__(self, passes: Passes) -> None:
        self._passes, self._rows = passes, passes.checked
        self._recast = Recast(passes.layout.slots)
        self._admitted = 0
        self._thread = ExitStack()
        self._under_way: Future[None] | None = None

    def close(self) -> None:
        self._thread.close()

    def admit(self, voter: Voter) -> None:
        self._admitted += 1
        self._rows.add(voter)

    def counted(self, task: Task, sums: Sequence[NDArray[np.int64]], votes: int) -> None:
        """Votes that came; they pay for looking at some again."""
        self._recast.add(task, sums)
        due = self._rows.due(votes, self._passes.layout)
        if self._under_way is not None and self._under_way.done():
            self._wait()
        if due and self._under_way is None:
            self._begin()

    def finish(self) -> None:
        """Wait for what is under way; where there were more inputs than the opening check saw, look once more."""
        self._wait()
        if self._admitted > FIRST_INPUTS:
            self._begin()
            self._wait()

    def _begin(self) -> None:
        again = self._recast.chosen()

        def look() -> None:
            with torch.inference_mode():
                self._rows.look()
                if again is not None:
                    again(self._passes)

        self._under_way = self._thread.enter_context(worker_threads(1)).submit(look)

    def _wait(self) -> None:
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()
            self._thread.close()
