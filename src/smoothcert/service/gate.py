"""What every request passes on its way in and every answer on its way out."""

from __future__ import annotations

import time

from fastapi import Response
from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smoothcert.service.keys import Keys
from smoothcert.service.metrics import Metrics

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
_KNOWN = {"/v1/predict", "/v1/certify", "/v1/certify/stream", "/v1/plan", "/metrics", *_OPEN_PATHS}


class Gate:
    """What every request passes: host, key, headers of the answer, and the count."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, keys: Keys | None, hosts: frozenset[str] | None
    ) -> None:
        self._app, self._metrics, self._keys, self._hosts = app, metrics, keys, hosts

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
        try:
            refused = self._refused(scope)
            await (refused or self._app)(scope, receive, sending)
        except Exception:
            # With our headers, and counted: the layer outside of this one knows of neither.
            if not status:
                await JSONResponse({"error": "internal error"}, 500)(scope, receive, sending)
            raise
        finally:
            self._metrics.request(path, status, time.perf_counter() - began)

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
