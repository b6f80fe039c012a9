"""The HTTP side: paths, and what they take and give; what is answered is the service's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

import smoothcert
from smoothcert.errors import InvalidValueError, SmoothcertError
from smoothcert.service.asks import RefusedError
from smoothcert.service.bodies import JSON, NPY, PICTURES, check_names, read_body
from smoothcert.service.gate import PAGE, Gate
from smoothcert.service.keys import Keys
from smoothcert.service.schemas import Copies, Deadline, Options, Plan, Problem, Radius, Results, Votes
from smoothcert.service.service import Answered, Service, Wanted
from smoothcert.service.transport import body_of, events_of, next_event, told, unless_gone


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    words = {
        400: "Cut off.",
        401: "No key, or an unknown one.",
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
Asked = tuple[str, list[Any], Wanted]
"""Who asks, about which inputs, and for what."""
Answering = Callable[[str, list[Any], Wanted], Awaitable[list[Answered]]]

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


class _Asking:
    """Requests as questions to a service: read within its limits, answered unless the caller has left."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._parsing = asyncio.Semaphore(_PARSED_AT_ONCE)

    async def read(self, request: Request, **query: float | None) -> Asked:
        """Who asks, about which inputs, and for what."""
        service, limits, caller = self.service, self.service.limits, request.state.caller
        service.requests.check(caller)
        service.requests.spend(caller, 1)
        service.votes.check(caller)
        check_names((name for name, _ in request.query_params.multi_items()), tuple(query))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        shape = service.engine.input_shape
        with service.bodies.taking(caller) as take:
            content = await body_of(request, limits, take)
            async with self._parsing:
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

    async def answer(self, request: Request, found: Asked, how: Answering) -> Any:
        """The results of all inputs, with what they promise."""
        results = await unless_gone(request, how(*found))
        if results is None:
            return Response(status_code=499)
        engine = self.service.engine
        return {
            "results": results,
            "alpha": engine.plan.alpha,
            "plan": engine.plan_hash,
            "input_shape": list(engine.input_shape),
        }

    async def stream(self, request: Request, found: Asked) -> Response:
        """The events of one input."""
        caller, inputs, wanted = found
        if len(inputs) != 1:
            raise InvalidValueError(f"a stream is about one input, got {len(inputs)}")
        events = self.service.stream(caller, inputs[0], wanted)
        try:
            first = await unless_gone(request, next_event(events))  # a refusal has a status of its own
        except BaseException:
            await events.aclose()
            raise
        if first is None:
            await events.aclose()
            return Response(status_code=499)
        # A proxy that gathers an answer before it passes it on would show the radius only when it has grown.
        return StreamingResponse(
            events_of(first, events), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )


def make_application(
    service: Service,
    keys: Keys | None = None,
    hosts: frozenset[str] | None = None,
) -> FastAPI:
    """The application. ``hosts`` are the names it may be asked for by; None: any.

    Without keys a caller is an address, and names of other hosts are refused: a page of another site can't have a
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
    _add_questions(application, service)
    _add_state(application, service)
    for path, (name, kind) in PAGE.items():
        application.add_api_route(path, _file(name, kind), include_in_schema=False, methods=["GET"])
    _add_errors(application)
    application.add_middleware(Gate, metrics=service.metrics, keys=keys, hosts=hosts)
    return application


def _add_questions(application: FastAPI, service: Service) -> None:
    asking, shape = _Asking(service), service.engine.input_shape

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
        found = await asking.read(request, votes=votes, deadline=deadline)
        return await asking.answer(request, found, service.predict)

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
        found = await asking.read(request, votes=votes, radius=radius, deadline=deadline)
        return await asking.answer(request, found, service.certify)

    @application.post(
        "/v1/certify/stream",
        response_class=StreamingResponse,
        responses=_ASKING | {200: {"content": {"text/event-stream": {}}, "description": "Events."}},
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
        found = await asking.read(request, votes=votes, radius=radius, deadline=deadline, copies=copies)
        return await asking.stream(request, found)


def _add_state(application: FastAPI, service: Service) -> None:
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


def _add_errors(application: FastAPI) -> None:
    @application.exception_handler(SmoothcertError)
    async def known(_: Request, error: Exception) -> Response:
        status, text = told(error)
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


def _file(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = (files("smoothcert.service") / "page" / name).read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind)

    return send


def _first_error(errors: Any) -> str:
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part not in ("query", "body"))
    return f"{where}: {first['msg']}"
