"""What every request passes on its way in and every answer on its way out, and the metrics that it is counted in."""

from __future__ import annotations

import collections
import ipaddress
import time
from collections.abc import Callable, Iterator

from fastapi import Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smoothcert.service.engine import Load
from smoothcert.service.secrets import Keys

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics(Collector):
    """Counts requests by path and status, and how long they took; labels are ours, never a caller's words."""

    def __init__(self, load: Callable[[], Load]) -> None:
        self._load, self._registry = load, CollectorRegistry()
        paths, registry = ["path"], self._registry
        self._requests = Counter(
            "smoothcert_requests", "Requests by path and status.", ["path", "status"], registry=registry
        )
        self._seconds = Histogram(
            "smoothcert_request_seconds",
            "Time from a request to its answer.",
            paths,
            registry=registry,
            buckets=_BUCKETS,
        )
        self._answers = Counter(
            "smoothcert_answers", "Inputs answered, by kind of answer.", ["kind"], registry=registry
        )
        registry.register(self)

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def answer(self, kind: str) -> None:
        """An input was answered: certified, abstained, failed, or its caller had left."""
        self._answers.labels(kind).inc()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """What the engine is doing now."""
        load = self._load()
        yield CounterMetricFamily("smoothcert_votes", "Votes cast.", load.votes_cast)
        for name, words, value in (
            ("votes_per_second", "Votes cast a second, while busy.", round(load.votes_per_second, 3)),
            ("inputs_waiting", "Inputs that wait for votes.", load.inputs),
            ("callers_waiting", "Callers that wait.", load.callers),
            ("votes_waiting", "Votes that are asked for, at most.", load.votes_waiting),
            ("points_kept", "Points whose votes are kept.", load.kept),
        ):
            yield GaugeMetricFamily(f"smoothcert_{name}", words, value)

    def text(self) -> bytes:
        """Everything, for /metrics."""
        return generate_latest(self._registry)


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
_CLOSE = {"Connection": "close"}
_OPEN_PATHS = {"/healthz", "/readyz", "/openapi.json", *PAGE}
_KNOWN = {"/v1/predict", "/v1/certify", "/v1/certify/stream", "/v1/plan", "/metrics", *_OPEN_PATHS}


MOST_HEADER_BYTES = 16_384
_HEALTH = {"/healthz", "/readyz"}


def network(address: str) -> str:
    """The caller that an address stands for: in IPv6 its /64, all of which one customer has."""
    try:
        number = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(number, ipaddress.IPv4Address) or number.ipv4_mapped:
        return address
    return f"{ipaddress.IPv6Address(int(number) >> 64 << 64)}/64"


class Gate:
    """Rejects requests by head, host, key or how many are under way; adds headers to answers, and counts them."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, keys: Keys | None, hosts: frozenset[str] | None, most: int
    ) -> None:
        self._app, self._metrics, self._keys, self._hosts = app, metrics, keys, hosts
        self._most, self._under_way = most, collections.Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or hand it on; what is answered gets its headers and is counted."""
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
        caller = ""
        try:
            refused = self._refused(scope)
            if refused is None and scope["path"] not in _HEALTH:
                caller = scope["state"]["caller"]
                self._under_way[caller] += 1
                refused = self._crowded(caller)
            await (refused or self._app)(scope, receive, sending)
        except Exception:
            # With our headers, and counted: the layer outside of this one knows of neither.
            if not status:
                await JSONResponse({"error": "internal error"}, 500)(scope, receive, sending)
            raise
        finally:
            if caller:
                self._under_way[caller] -= 1
                self._under_way += collections.Counter()  # forgets those with none
            self._metrics.request(path, status, time.perf_counter() - began)

    def _crowded(self, caller: str) -> Response | None:
        """A quarter for one caller; where all have more than there is, a share of half of it.

        So callers who come last are answered. Health is outside these limits: monitoring always is.
        """
        own, wait = self._under_way[caller], {"Retry-After": "1"}
        if own > max(1, self._most // 4):
            return JSONResponse({"error": "too many of your requests are under way"}, 429, wait)
        if self._under_way.total() > self._most and own > max(1, self._most // 2 // len(self._under_way)):
            return JSONResponse({"error": "too many requests are under way"}, 503, wait)
        return None

    def _refused(self, scope: Scope) -> Response | None:
        address = len(scope["raw_path"]) + len(scope["query_string"])
        if address + sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER_BYTES:
            return JSONResponse({"error": f"a head of more than {MOST_HEADER_BYTES} bytes"}, 431, _CLOSE)
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            return JSONResponse({"error": "Content-Length and Transfer-Encoding: give one"}, 400, _CLOSE)
        if self._hosts is not None and _host(headers.get(b"host", b"")) not in self._hosts:
            return JSONResponse({"error": "this server isn't known by that name (--allow-host NAME)"}, 421)
        client = scope.get("client")
        scope.setdefault("state", {})["caller"] = f"address {network(client[0])}" if client else "address"
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
