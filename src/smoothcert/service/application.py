"""The HTTP side: paths, limits, keys and headers; what is answered is the service's."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import smoothcert
from smoothcert.errors import DataError, InvalidValueError, ModelError, SmoothcertError
from smoothcert.region_memory import IncompleteMemoryError, StoreError
from smoothcert.service.asks import ClosedError, RefusedError
from smoothcert.service.bodies import (
    JSON,
    NPY,
    PICTURES,
    TooLargeError,
    UnknownTypeError,
    check_names,
    read_body,
)
from smoothcert.service.keys import Keys
from smoothcert.service.schemas import Copies, Deadline, Options, Plan, Problem, Radius, Results, Votes
from smoothcert.service.service import Answered, Service, Wanted

T = TypeVar("T")

HEADERS = {
    b"content-security-policy": b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"cache-control": b"no-store",
}
PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_OPEN_PATHS = {"/healthz", "/readyz", "/openapi.json", *PAGE}
_HEARTBEAT = 15.0
_KNOWN = {"/v1/predict", "/v1/certify", "/v1/certify/stream", "/v1/plan", "/metrics", *_OPEN_PATHS}

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


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    words = {
        400: "Cut off.",
        401: "No key, or nobody's.",
        408: "Too slow in arriving.",
        413: "Larger than a request may be.",
        415: "A body of a kind that isn't read.",
        421: "Asked for by another host's name.",
        422: "What was asked makes no sense here; the error says why.",
        429: "Too much at the moment; Retry-After says when to ask again.",
        503: "Being shut down, or without its memory.",
    }
    return {status: {"model": Problem, "description": words[status]} for status in statuses}


_ASKING = _problems(400, 401, 408, 413, 415, 421, 422, 429, 503)
_PARSED_AT_ONCE = 2  # bodies: more would only wait for the interpreter, with all they were parsed to


def _body_description(shape: tuple[int, ...], *names: str) -> dict[str, Any]:
    nested: dict[str, Any] = {"type": "number"}
    for size in reversed(shape):
        nested = {"type": "array", "items": nested, "minItems": size, "maxItems": size}
    known = Options.model_json_schema()["properties"]
    options = {name: known[name] for name in names}
    given = {"type": "array", "items": nested, "minItems": 1}
    schema = {
        "type": "object",
        "properties": {"inputs": given, **options},
        "required": ["inputs"],
        "additionalProperties": False,
    }
    binary = {"schema": {"type": "string", "format": "binary"}}
    content: dict[str, Any] = {JSON: {"schema": schema}}
    content |= dict.fromkeys((*NPY, *(PICTURES if len(shape) == 3 else ())), binary)
    return {"requestBody": {"required": True, "content": content}}


def make_application(
    service: Service,
    keys: Keys | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """The application. ``hosts`` are the names it may be asked for by; None: any.

    Without keys a caller is an address, and names of other hosts are refused: a page of somebody else's can't have a
    browser on this machine ask in its stead by calling this machine by a name of its own.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
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
    shape = service.engine.input_shape
    parsing = asyncio.Semaphore(_PARSED_AT_ONCE)

    async def asked(request: Request, **query: float | None) -> tuple[str, list[Any], Wanted]:
        """Who asks, about which inputs, and for what."""
        caller = request.state.caller
        service.requests.check(caller)
        service.requests.spend(caller, 1)
        service.votes.check(caller)
        check_names((name for name, _ in request.query_params.multi_items()), tuple(query))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        limits = service.limits
        with service.bodies.taking(caller) as take:
            content = await _body(request, service, take)
            async with parsing:
                inputs, told = await run_in_threadpool(
                    read_body, content, kind, shape, limits.inputs, limits.pixels, tuple(query)
                )
        twice = sorted(set(told) & {name for name, value in query.items() if value is not None})
        if twice:
            raise InvalidValueError(f"{twice[0]} is given twice: in the address and in the body")
        try:
            options = Options.model_validate({**query, **told})
        except ValidationError as error:
            raise InvalidValueError(_first_error(error.errors())) from None
        wanted = Wanted(options.votes, options.radius, options.deadline, options.copies or 0)
        if wanted.deadline is not None and wanted.deadline > limits.longest:
            raise InvalidValueError(
                f"a deadline may be {limits.longest:g} seconds away at most, got {wanted.deadline:g}"
            )
        return caller, inputs, wanted

    Answering = Callable[[str, list[Any], Wanted], Awaitable[list[Answered]]]

    async def answer(request: Request, found: tuple[str, list[Any], Wanted], how: Answering) -> Any:
        results = await _unless_gone(request, how(*found))
        if results is None:
            return Response(status_code=499)
        engine = service.engine
        return {
            "results": results,
            "alpha": engine.plan.alpha,
            "plan": engine.plan_hash,
            "input_shape": list(engine.input_shape),
        }

    @application.post(
        "/v1/predict",
        response_model=Results,
        responses=_ASKING,
        openapi_extra=_body_description(shape, "votes", "deadline"),
    )
    async def predict(
        request: Request,
        votes: Annotated[Votes | None, Query()] = None,
        deadline: Annotated[Deadline | None, Query()] = None,
    ) -> Any:
        """The class of each input as soon as it is certain, or none."""
        return await answer(request, await asked(request, votes=votes, deadline=deadline), service.predict)

    @application.post(
        "/v1/certify",
        response_model=Results,
        responses=_ASKING,
        openapi_extra=_body_description(shape, "votes", "radius", "deadline"),
    )
    async def certify(
        request: Request,
        votes: Annotated[Votes | None, Query()] = None,
        radius: Annotated[Radius | None, Query()] = None,
        deadline: Annotated[Deadline | None, Query()] = None,
    ) -> Any:
        """The class of each input and the radius inside which nothing can change it."""
        found = await asked(request, votes=votes, radius=radius, deadline=deadline)
        return await answer(request, found, service.certify)

    events: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "Events."}
    }

    @application.post(
        "/v1/certify/stream",
        response_class=StreamingResponse,
        responses={**_ASKING, **events},
        openapi_extra=_body_description(shape, "votes", "radius", "deadline", "copies"),
    )
    async def stream(
        request: Request,
        votes: Annotated[Votes | None, Query()] = None,
        radius: Annotated[Radius | None, Query()] = None,
        deadline: Annotated[Deadline | None, Query()] = None,
        copies: Annotated[Copies | None, Query()] = None,
    ) -> Any:
        """One input: where it stands as `votes` events, then the final `answer`; or `failed`, with the reason."""
        caller, inputs, wanted = await asked(
            request, votes=votes, radius=radius, deadline=deadline, copies=copies
        )
        if len(inputs) != 1:
            raise InvalidValueError(f"a stream is about one input, got {len(inputs)}")
        found = service.stream(caller, inputs[0], wanted)
        try:
            first = await _unless_gone(request, _next(found))  # a refusal has a status of its own
        except BaseException:
            await found.aclose()
            raise
        if first is None:
            await found.aclose()
            return Response(status_code=499)
        # A proxy that gathers an answer before it passes it on would show the radius only when it has grown.
        return StreamingResponse(
            _events(first, found), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )

    @application.get("/v1/plan", response_model=Plan, responses=_problems(401, 421))
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
        return PlainTextResponse(
            service.metrics.text(service.engine.load()), media_type="text/plain; version=0.0.4"
        )

    for path, (name, kind) in PAGE.items():
        application.add_api_route(path, _file(name, kind), include_in_schema=False, methods=["GET"])

    @application.exception_handler(SmoothcertError)
    async def told(_: Request, error: Exception) -> Response:
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

    application.add_middleware(_Gate, service=service, keys=keys, hosts=hosts)
    return application


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = (files("smoothcert.service") / "page" / name).read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind)

    return send


def _told(error: Exception) -> tuple[int, str]:
    """An error's status, and what a caller is told of it: nothing of where the memory is, or of faults of ours."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    if isinstance(error, StoreError):
        return status, "the answers' memory can't be used at the moment"
    return status, "internal error" if status == 500 else str(error)


async def _body(request: Request, service: Service, take: Callable[[int], None]) -> bytes:
    """The body, read within its limits of size and time, and within what all bodies together may take."""
    limits = service.limits
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


async def _events(
    first: tuple[str, Answered], rest: AsyncGenerator[tuple[str, Answered]]
) -> AsyncIterator[str]:
    """Server-sent events; a comment now and then shows the line that it is alive."""
    following: asyncio.Future[tuple[str, Answered]] | None = None
    try:
        yield _event(*first)
        while True:
            following = following or asyncio.ensure_future(_next(rest))
            done, _ = await asyncio.wait({following}, timeout=_HEARTBEAT)
            if not done:
                yield ": still here\n\n"
                continue
            try:
                event = following.result()
            except StopAsyncIteration:
                return
            except SmoothcertError as error:
                yield _event("failed", {"error": _told(error)[1]})
                return
            following = None
            yield _event(*event)
    finally:
        if following is not None and not following.done():
            following.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await following
        await rest.aclose()


async def _next(events: AsyncGenerator[tuple[str, Answered]]) -> tuple[str, Answered]:
    return await anext(events)


def _event(name: str, data: Answered) -> str:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"


def _first_error(errors: Any) -> str:
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    return f"{where}: {first['msg']}"


class _Gate:
    """What every request passes: host, key, headers of the answer, and the count."""

    def __init__(
        self, app: ASGIApp, service: Service, keys: Keys | None, hosts: frozenset[str] | None
    ) -> None:
        self._app, self._service, self._keys, self._hosts = app, service, keys, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS.items()]
            await send(message)

        path = scope["path"] if scope["path"] in _KNOWN else "other"
        try:
            refused = self._refused(scope)
            await (refused or self._app)(scope, receive, sending)
        except Exception:
            # With our headers, and counted: the layer outside of this one knows of neither.
            if not status:
                await JSONResponse({"error": "internal error"}, 500)(scope, receive, sending)
            raise
        finally:
            self._service.metrics.request(path, status, time.perf_counter() - began)

    def _refused(self, scope: Scope) -> Response | None:
        headers = dict(scope["headers"])
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            return JSONResponse({"error": "this server isn't known by that name (--allow-host NAME)"}, 421)
        client = scope.get("client")
        scope.setdefault("state", {})["caller"] = f"address {client[0]}" if client else "address"
        if self._keys is None or scope["path"] in _OPEN_PATHS:
            return None
        caller = self._keys.caller(_key(headers))
        if caller is None:
            return JSONResponse(
                {"error": "a key is needed: Authorization: Bearer KEY"},
                401,
                {"WWW-Authenticate": "Bearer"},
            )
        scope["state"]["caller"] = f"key {caller}"
        return None


def _key(headers: dict[bytes, bytes]) -> str:
    scheme, _, key = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else headers.get(b"x-api-key", b"").decode("latin-1")


def _host(header: bytes) -> str:
    """The name without its port."""
    text = header.decode("latin-1").lower()
    return text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]
