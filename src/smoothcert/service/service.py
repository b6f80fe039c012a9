"""The service: requests made questions of the engine, with or without a memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.databases import public_address
from smoothcert.errors import InvalidValueError
from smoothcert.service.answers import plan_json, recalled_json, result_json, standing_json, unasked_json
from smoothcert.service.engine import Question, VotingEngine
from smoothcert.service.gate import Metrics
from smoothcert.service.limits import HeldBytes, Limits, Quota
from smoothcert.service.secrets import Secret
from smoothcert.service.voting import Ask
from smoothcert.smoothing.classifier import SmoothedClassifier
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.planned_model import with_own_plans
from smoothcert.smoothing.stopping.base import StopRule
from smoothcert.smoothing.stopping.rules import Decide, RadiusGrid
from smoothcert.smoothing.stores.base import StoreError

Answered = dict[str, Any]
_EVENTS_APART, _HEARTBEAT = 0.05, 15.0  # seconds: what an eye can follow; what proxies wait


@dataclass(frozen=True)
class Wanted:
    """What a request asks for: at most so many votes, until a radius is decided, so many seconds at most.

    The seconds begin when the request ``arrived``, by the event loop's clock; without that, when the question is asked.
    """

    votes: int | None = None
    radius: float | None = None
    deadline: float | None = None
    copies: int = 0
    arrived: float | None = None

    def rule(self) -> StopRule | None:
        """When to stop before that."""
        return None if self.radius is None else Decide(self.radius)


class Service:
    """A smoothed classifier behind one engine, and a memory if there is one."""

    def __init__(
        self,
        classifier: SmoothedClassifier,
        input_shape: tuple[int, ...],
        *,
        secret: Secret | None = None,
        limits: Limits | None = None,
        memory: str | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.requests = Quota(self.limits.requests_per_minute, "requests")
        self.votes = Quota(self.limits.votes_per_minute, "votes")
        self.reading = Quota(self.limits.reading_per_minute, "milliseconds of reading requests")
        self.bodies = HeldBytes(self.limits.bodies, self.limits.body)
        if classifier.plan.search is not None and memory is None:
            raise InvalidValueError(
                "where each input has its own σ, answers may contradict each other unless they are remembered: give "
                "--memory, or leave --sigma-search out"
            )
        self.memory = (
            None
            if memory is None
            else RegionMemory.open(memory, MemoryStatement.of(classifier, tuple(input_shape)))
        )
        self.engine = VotingEngine(classifier, input_shape, secret, self.limits.engine, self.votes.spend)
        self.metrics = Metrics(self.engine.load)
        names = classifier.class_names
        self.labels = None if names is None else [str(name) for name in names]
        self._memory_address = None if memory is None else public_address(memory)
        self._searching = ThreadPoolExecutor(1, "searching")

    def close(self, grace: float = 0.0) -> None:
        """Finish what is held, for so long; then the memory is closed."""
        self.engine.close(grace)
        self._searching.shutdown(cancel_futures=True)
        if self.memory is not None:
            self.memory.close()

    async def ready(self) -> bool:
        """Whether questions are answered: the engine works, and so does the memory."""
        if not self.engine.alive:
            return False
        try:
            if self.memory is not None:
                await asyncio.to_thread(len, self.memory)
        except StoreError:
            return False
        return True

    def plan(self) -> Answered:
        """What is promised."""
        return plan_json(self.engine, self.labels, self._memory_address)

    async def predict(self, caller: str, inputs: Sequence[NDArray[Any]], wanted: Wanted) -> list[Answered]:
        """The class of each input as soon as it is certain; what is remembered is worth a radius."""
        rule = None if self.memory is not None else RadiusGrid((0.0,))
        votes = wanted.votes or (None if self.memory is not None else min(1000, self.engine.plan.n))
        return await self._answers(caller, inputs, replace(wanted, votes=votes), rule)

    async def certify(self, caller: str, inputs: Sequence[NDArray[Any]], wanted: Wanted) -> list[Answered]:
        """Class and radius of each input."""
        return await self._answers(caller, inputs, wanted, wanted.rule())

    async def stream(
        self, caller: str, x: NDArray[Any], wanted: Wanted
    ) -> AsyncGenerator[tuple[str, Answered]]:
        """Events: where an input stands, whenever that changes; the last is its answer.

        An event without a name says nothing but that the server is there.
        """
        bell = _Bell()
        until = self._until(wanted, bell)
        questions = [Question(*self.engine.point(x))]
        recalled = await self._recalled(questions)
        if recalled[0] is not None:
            yield "answer", recalled[0]
            return
        asks = await self._asks(caller, questions, wanted, wanted.rule(), bell, until)
        if asks is None:
            yield "answer", self._unasked()
            return
        (ask,) = asks
        try:
            if wanted.copies:
                copies = self.engine.copies(ask, wanted.copies)
                masked = copies.astype(object)
                masked[np.isnan(copies)] = None  # JSON has no NaN
                yield "copies", {"inputs": masked.tolist()}
            last = None
            while not ask.done:
                if ask.standing is not last and ask.standing.chosen is not None:
                    last = ask.standing
                    yield "votes", standing_json(last, self.labels)
                    await asyncio.sleep(min(_EVENTS_APART, max(0.0, until - bell.now())))
                if not ask.done and not await bell.wait(min(until, bell.now() + _HEARTBEAT)):
                    if bell.now() >= until:
                        self.engine.end(ask, "deadline")
                    else:
                        yield "", {}
            yield "answer", await self._finished(ask)
        finally:
            self._let_go([ask])

    async def _answers(
        self, caller: str, inputs: Sequence[NDArray[Any]], wanted: Wanted, rule: StopRule | None
    ) -> list[Answered]:
        bell = _Bell()
        until = self._until(wanted, bell)
        questions = [Question(*self.engine.point(x)) for x in inputs]
        answers = await self._recalled(questions)
        open_ = [place for place, answer in enumerate(answers) if answer is None]
        asks = await self._asks(caller, [questions[place] for place in open_], wanted, rule, bell, until)
        if asks is None:
            return [self._unasked() if answer is None else answer for answer in answers]
        try:
            while not all(ask.done for ask in asks):
                if not await bell.wait(until):
                    for ask in asks:
                        self.engine.end(ask, "deadline")
            for place, ask in zip(open_, asks):
                answers[place] = await self._finished(ask)
        finally:
            self._let_go(asks)
        return [answer for answer in answers if answer is not None]

    async def _finished(self, ask: Ask) -> Answered:
        if ask.error is not None:
            self.metrics.answer("failed")
            raise ask.error
        remembered, memory, certification = None, self.memory, ask.certification
        if memory is not None and certification is not None:
            plan = self.engine.plan
            facts = {"alpha": plan.alpha, "votes": ask.standing.votes, "bound": plan.bound}
            remembered = await asyncio.to_thread(memory.offer, ask.x, certification, lambda _: facts)
        answer = result_json(ask, self.labels, remembered)
        self.metrics.answer("abstained" if answer["abstained"] else "certified")
        return answer

    async def _recalled(self, questions: Sequence[Question]) -> list[Answered | None]:
        """What the memory says of each input; None where it says nothing."""
        memory = self.memory
        if memory is None:
            return [None] * len(questions)
        known = await asyncio.to_thread(lambda: [memory.look_up(question.x) for question in questions])
        for _ in filter(None, known):
            self.metrics.answer("remembered")
        plan, classes = self.engine.plan, self.engine.prepared.classes
        return [
            None if answer is None else recalled_json(answer, plan, classes, self.labels) for answer in known
        ]

    async def _asks(
        self,
        caller: str,
        questions: list[Question],
        wanted: Wanted,
        rule: StopRule | None,
        bell: _Bell,
        until: float,
    ) -> list[Ask] | None:
        """The questions, asked; None where the time was up before each had a σ of its own.

        A caller that waits for a search has its place in the queue already: else nothing would bound how many do.
        """
        ask_all = partial(self.engine.ask_all, caller, votes=wanted.votes, rule=rule, on_change=bell.ring)
        if self.engine.plan.search is None or not questions:
            return ask_all(questions)
        reservation = self.engine.reserve(caller, len(questions))
        stopped = threading.Event()
        try:
            async with asyncio.timeout_at(until):
                running = asyncio.get_running_loop()
                plans = await running.run_in_executor(self._searching, self._search, questions, stopped)
            planned = [replace(question, plan=plans[question.index]) for question in questions]
            return ask_all(planned, reservation=reservation)
        except TimeoutError:
            return None
        finally:
            stopped.set()  # a thread can't be interrupted from outside
            self.engine.release(reservation)

    def _unasked(self) -> Answered:
        self.metrics.answer("abstained")
        return unasked_json(self.engine.plan, self.engine.prepared.classes, self.labels)

    def _search(self, questions: Sequence[Question], stopped: threading.Event) -> dict[int, CertifyPlan]:
        engine = self.engine
        different = {question.index: question.x for question in questions}

        def unless_stopped(_: int) -> None:
            if stopped.is_set():
                raise _UnwantedError

        base, prepared = engine.classifier.base, engine.prepared
        inputs = iter(different.items())
        planned = with_own_plans(engine.plan, base, prepared, engine.execution, inputs, unless_stopped)
        return {index: plan for index, _, plan, _ in planned}

    def _until(self, wanted: Wanted, bell: _Bell) -> float:
        seconds = min(self.limits.longest, wanted.deadline or self.limits.deadline)
        return seconds + (bell.now() if wanted.arrived is None else wanted.arrived)

    def _let_go(self, asks: Sequence[Ask]) -> None:
        for ask in asks:
            if not ask.done:
                self.metrics.answer("left")
                self.engine.end(ask)


class _UnwantedError(Exception):
    """Ends a search whose caller has left."""


class _Bell:
    """Rung by the engine's thread, heard in the loop's."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def now(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def ring(self) -> None:
        """Wake what waits; in a closed loop nothing does."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, until: float) -> bool:
        """Whether it was rung before the time was up."""
        try:
            # Not wait_for: in Python 3.11 it swallows a cancellation that meets the bell, as when a client leaves.
            async with asyncio.timeout_at(until):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
