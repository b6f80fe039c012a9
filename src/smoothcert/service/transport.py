"""Between HTTP and the service: bodies within limits, events, callers who leave, errors as callers are told of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from smoothcert.errors import DataError, InvalidValueError, ModelError, SmoothcertError
from smoothcert.region_memory import IncompleteMemoryError, StoreError
from smoothcert.service.asks import ClosedError, RefusedError
from smoothcert.service.bodies import TooLargeError, UnknownTypeError
from smoothcert.service.limits import Limits
from smoothcert.service.service import Answered

T = TypeVar("T")

_HEARTBEAT = 15.0

_STATUS: list[tuple[type[Exception], int]] = [
    (TooLargeError, 413),
    (UnknownTypeError, 415),
    (ClosedError, 503),
    (RefusedError, 429),
    (IncompleteMemoryError, 503),
    (StoreError, 503),
    (DataError, 422),
    (InvalidValueError, 422),
    (ModelError, 422),
]


def told(error: Exception) -> tuple[int, str]:
    """An error's status, and what a caller is told of it: nothing of where the memory is, or of faults of ours."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if isinstance(error, StoreError):
        return status, "the answers' memory can't be used at the moment"
    return status, "internal error" if status == 500 else str(error)


async def body_of(request: Request, limits: Limits, take: Callable[[int], None]) -> bytes:
    """The body, read within its limits of size and time, and within what all bodies together may take."""
    claimed = request.headers.get("content-length", "")
    if claimed.isdecimal() and int(claimed) > limits.body:
        raise TooLargeError(f"a body of {claimed[:20]} bytes, where {limits.body} are the most")
    parts = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for part in request.stream():
                if len(parts) + len(part) > limits.body:
                    raise TooLargeError(f"a body of more than {limits.body} bytes")
                take(len(part))
                parts += part
    except TimeoutError:
        raise HTTPException(
            408, f"the body took longer than {limits.body_seconds:g} s", {"Connection": "close"}
        ) from None
    except ClientDisconnect:
        raise HTTPException(400, "the body was cut off") from None
    return bytes(parts)


async def unless_gone(request: Request, work: Awaitable[T]) -> T | None:
    """What the work finds; None if the client left before, and the work was dropped."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, leaving):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def events_of(
    first: tuple[str, Answered], rest: AsyncGenerator[tuple[str, Answered]]
) -> AsyncIterator[str]:
    """Server-sent events; a comment now and then shows the line that it is alive."""
    following: asyncio.Future[tuple[str, Answered]] | None = None
    try:
        yield _event(*first)
        while True:
            following = following or asyncio.ensure_future(next_event(rest))
            done, _ = await asyncio.wait({following}, timeout=_HEARTBEAT)
            if not done:
                yield ": still here\n\n"
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            except SmoothcertError as error:
                yield _event("failed", {"error": told(error)[1]})
                return
            following = None
            yield _event(*event)
    finally:
        if following is not None and not following.done():
            following.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await following
        await rest.aclose()


async def next_event(events: AsyncGenerator[tuple[str, Answered]]) -> tuple[str, Answered]:
    """As a coroutine, which a task can be made of."""
    return await anext(events)


def _event(name: str, data: Answered) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
