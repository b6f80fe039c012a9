"""The HTTP side: paths, what they take within which limits, what they answer, and errors as callers see them."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

import smoothcert
from smoothcert.errors import DataError, InvalidValueError, ModelError, SmoothcertError
from smoothcert.service.answers import (
    CertifyOptions,
    PlanModel,
    PredictOptions,
    ProblemModel,
    ResultsModel,
    StreamOptions,
)
from smoothcert.service.bodies import (
    JSON,
    NPY,
    PICTURES,
    UnknownTypeError,
    check_names,
    read_body,
)
from smoothcert.service.gate import PAGE, Gate
from smoothcert.service.limits import ClosedError, FairSlots, Limits, QueueFullError, RefusedError
from smoothcert.service.pictures import PictureDecoder, TooLargeError
from smoothcert.service.secrets import Keys
from smoothcert.service.service import Answered, Service, Wanted
from smoothcert.smoothing.stores.base import IncompleteMemoryError, StoreError

T = TypeVar("T")
Asked = tuple[str, list[Any], Wanted]
"""The caller, its inputs, and what it asks for."""
Event = tuple[str, Answered]

_READ_AT_ONCE = 2  # pictures, and other bodies: more would only wait for a processor, with all that they take
_START_MILLISECONDS = 500  # of a process that decodes pictures, and more

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
_PROBLEMS = {
    400: "Cut off.",
    401: "No key, or an unknown one.",
    408: "Too slow in arriving.",
    413: "Larger than a request may be.",
    415: "A body of a kind that isn't read.",
    421: "Asked for by another host's name.",
    431: "A head larger than a request may have.",
    422: "What was asked makes no sense here; the error says why.",
    429: "Too much at the moment; Retry-After says when to ask again.",
    503: "Being shut down, or without its memory.",
}


def make_application(
    service: Service,
    keys: Keys | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """The application. ``hosts`` are the names it may be asked for by; None: any.

    Without keys a caller is an address, and names of other hosts are refused: a page of another site can't have a
    browser on this machine ask in its stead by calling this machine by a name of its own.
    """

    reader = _Reader(service)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await reader.close()
        await asyncio.to_thread(service.close)

    application = FastAPI(
        title="smoothcert",
        version=smoothcert.__version__,
        description="Certified predictions: a class, and the radius inside which it can't be changed.",
        docs_url=None,  # their scripts would come from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # it would redirect to whatever name a caller gave the host
        lifespan=lifespan,
    )
    application.state.service = service
    _add_questions(application, service, reader)
    _add_state(application, service)
    for path, (name, kind) in PAGE.items():
        application.add_api_route(path, _file(name, kind), include_in_schema=False, methods=["GET"])
    _add_errors(application)
    application.add_middleware(
        Gate, metrics=service.metrics, keys=keys, hosts=hosts, most=service.limits.connections
    )
    return application


class _Reader:
    """Makes inputs of bodies: callers alternate, and what it costs is counted against their quota.

    Pictures, which may take seconds, and all other bodies do not wait for each other.
    """

    def __init__(self, service: Service) -> None:
        self._service, self._shape = service, service.engine.input_shape
        self._columns = getattr(service.engine.plan.noise, "columns", None)
        left = service.reading.left
        self._pictures, self._others = FairSlots(_READ_AT_ONCE, left), FairSlots(_READ_AT_ONCE, left)
        self._decoders = [PictureDecoder(service.limits.picture_seconds) for _ in range(_READ_AT_ONCE)]

    async def close(self) -> None:
        """End the processes."""
        for decoder in self._decoders:
            await decoder.close()

    async def read(
        self, caller: str, content: bytes, kind: str, names: Sequence[str]
    ) -> tuple[list[Any], dict[str, Any]]:
        """The inputs of a body, and what it says beside them."""
        async with (self._pictures if kind in PICTURES else self._others).taken(caller):
            began = time.monotonic()
            try:
                return await self._inputs(caller, content, kind, names)
            finally:
                self._service.reading.spend(caller, math.ceil(1000 * (time.monotonic() - began)))

    async def _inputs(
        self, caller: str, content: bytes, kind: str, names: Sequence[str]
    ) -> tuple[list[Any], dict[str, Any]]:
        limits = self._service.limits
        if kind not in PICTURES:
            return await run_in_threadpool(
                read_body, content, kind, self._shape, limits.inputs, names, self._columns
            )
        decoder = self._decoders.pop()
        try:
            return [await decoder.decode(content, self._shape, limits.pixels)], {}
        except (
            asyncio.CancelledError
        ):  # the caller left: its process is ended, and the next picture needs another
            self._service.reading.spend(caller, _START_MILLISECONDS)
            raise
        finally:
            self._decoders.append(decoder)


def _add_questions(application: FastAPI, service: Service, reader: _Reader) -> None:
    problems, shape = _problems(*_PROBLEMS), service.engine.input_shape

    async def asked(request: Request, query: PredictOptions) -> Asked:
        """The question in a request, read within the service's limits."""
        arrived, limits, caller = asyncio.get_running_loop().time(), service.limits, request.state.caller
        names = tuple(type(query).model_fields)
        service.requests.check(caller)
        service.requests.spend(caller, 1)
        service.votes.check(caller)
        service.reading.check(caller)
        check_names((name for name, _ in request.query_params.multi_items()), names)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        with service.bodies.taking(caller) as take:
            content = await _body(request, limits, take)
            try:
                async with asyncio.timeout_at(arrived + (query.deadline or limits.deadline)):
                    inputs, told = await reader.read(caller, content, kind, names)
            except TimeoutError:
                raise QueueFullError("other requests are being read", 1) from None
        options = query.model_dump(exclude_none=True)
        if twice := sorted(set(told) & set(options)):
            raise InvalidValueError(f"{twice[0]} is given twice: in the address and in the body")
        try:
            options |= type(query).model_validate(told, strict=True).model_dump(exclude_none=True)
        except ValidationError as error:
            raise InvalidValueError(_first_error(error.errors())) from None
        wanted = Wanted(**options, arrived=arrived)
        if wanted.deadline is not None and wanted.deadline > limits.longest:
            raise InvalidValueError(
                f"a deadline may be {limits.longest:g} seconds away at most, got {wanted.deadline:g}"
            )
        return caller, inputs, wanted

    async def answer(request: Request, results: Awaitable[list[Answered]]) -> Any:
        answers = await _unless_gone(request, results)
        if answers is None:
            return Response(status_code=499)
        engine = service.engine
        facts = {
            "alpha": engine.plan.alpha,
            "plan": engine.plan_hash,
            "input_shape": list(engine.input_shape),
        }
        return {"results": answers} | facts

    @application.post(
        "/v1/predict",
        response_model=ResultsModel,
        responses=problems,
        openapi_extra=_body_description(shape, PredictOptions),
    )
    async def predict(request: Request, query: Annotated[PredictOptions, Query()]) -> Any:
        """The class of each input as soon as it is certain, or none."""
        return await answer(request, service.predict(*await asked(request, query)))

    @application.post(
        "/v1/certify",
        response_model=ResultsModel,
        responses=problems,
        openapi_extra=_body_description(shape, CertifyOptions),
    )
    async def certify(request: Request, query: Annotated[CertifyOptions, Query()]) -> Any:
        """The class of each input and the radius inside which nothing can change it."""
        return await answer(request, service.certify(*await asked(request, query)))

    @application.post(
        "/v1/certify/stream",
        response_class=StreamingResponse,
        responses=problems | {200: {"content": {"text/event-stream": {}}, "description": "Events."}},
        openapi_extra=_body_description(shape, StreamOptions),
    )
    async def stream(request: Request, query: Annotated[StreamOptions, Query()]) -> Any:
        """One input: where it stands as `votes` events, then the final `answer`; or `failed`, with the reason."""
        caller, inputs, wanted = await asked(request, query)
        if len(inputs) != 1:
            raise InvalidValueError(f"a stream is about one input, got {len(inputs)}")
        events = service.stream(caller, inputs[0], wanted)
        try:
            first = await _unless_gone(request, _next_event(events))  # a refusal has a status of its own
        except BaseException:
            await events.aclose()
            raise
        if first is None:
            await events.aclose()
            return Response(status_code=499)
        # A proxy that gathers an answer before it passes it on would show the radius only when it has grown.
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(_event_texts(first, events), media_type="text/event-stream", headers=headers)


def _add_state(application: FastAPI, service: Service) -> None:
    @application.get("/v1/plan", response_model=PlanModel, responses=_problems(401, 421))
    async def plan() -> Any:
        """What is promised, in words and as data, with its hash."""
        return service.plan()

    @application.get("/healthz", response_class=PlainTextResponse, responses=_problems(421))
    async def healthz() -> str:
        """Whether the process is there."""
        return "ok\n"

    @application.get("/readyz", response_class=PlainTextResponse, responses=_problems(421, 503))
    async def readyz() -> Any:
        """Whether it takes questions."""
        ready = await service.ready()
        return PlainTextResponse("ready\n" if ready else "not ready\n", 200 if ready else 503)

    @application.get("/metrics", response_class=PlainTextResponse, responses=_problems(401, 421))
    async def metrics() -> Any:
        """Counters and gauges for Prometheus."""
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4")


def _add_errors(application: FastAPI) -> None:
    @application.exception_handler(SmoothcertError)
    async def known(_: Request, error: Exception) -> Response:
        status, text = _told(error)
        headers = {"Retry-After": str(round(error.retry_after))} if isinstance(error, RefusedError) else None
        return JSONResponse({"error": text}, status, headers)

    @application.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return JSONResponse({"error": _first_error(error.errors())}, 422)

    @application.exception_handler(HTTPException)
    async def other(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


def _told(error: Exception) -> tuple[int, str]:
    """An error's status, and what a caller is told of it: nothing of where the memory is, or of faults of ours."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if isinstance(error, StoreError):
        return status, "the answers' memory can't be used at the moment"
    return status, "internal error" if status == 500 else str(error)


def _first_error(errors: Any) -> str:
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    return f"{where}: {first['msg']}"


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": ProblemModel, "description": _PROBLEMS[status]} for status in statuses}


def _body_description(shape: tuple[int, ...], options: type[PredictOptions]) -> dict[str, Any]:
    nested: dict[str, Any] = {"type": "number"}
    for size in reversed(shape):
        nested = {"type": "array", "items": nested, "minItems": size, "maxItems": size}
    inputs = {"type": "array", "items": nested, "minItems": 1}
    schema = {
        "type": "object",
        "properties": {"inputs": inputs, **options.model_json_schema()["properties"]},
        "required": ["inputs"],
        "additionalProperties": False,
    }
    binary = {"schema": {"type": "string", "format": "binary"}}
    content: dict[str, Any] = {JSON: {"schema": schema}}
    content |= dict.fromkeys((*NPY, *(PICTURES if len(shape) == 3 else ())), binary)
    return {"requestBody": {"required": True, "content": content}}


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = (files("smoothcert.service") / "page" / name).read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind)

    return send


# Bodies, callers who leave, and events.


async def _body(request: Request, limits: Limits, take: Callable[[int], None]) -> bytes:
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


async def _unless_gone(request: Request, work: Awaitable[T]) -> T | None:
    """What the work returns; None if the client left before, and the work was dropped."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, leaving):
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def _next_event(events: AsyncGenerator[Event]) -> Event:
    """As a coroutine, which a task can be made of."""
    return await anext(events)


async def _event_texts(first: Event, rest: AsyncGenerator[Event]) -> AsyncIterator[str]:
    """Server-sent events; one without a name is a comment that keeps the connection alive."""
    try:
        yield _event_text(*first)
        async for name, data in rest:
            yield _event_text(name, data) if name else ": still here\n\n"
    except SmoothcertError as error:
        yield _event_text("failed", {"error": _told(error)[1]})
    finally:
        await rest.aclose()


def _event_text(name: str, data: Answered) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
