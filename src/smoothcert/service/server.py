"""The server: uvicorn, with a limit on how long a connection may take to say what it wants."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from smoothcert.errors import InvalidValueError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_HEADER_BYTES = 16_384
_HEADER_SECONDS = 15.0


class PatientProtocol(H11Protocol):
    """HTTP/1.1 whose patience ends: a connection that hasn't sent a request's head in time is closed."""

    _closing: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there; its time runs."""
        super().connection_made(transport)
        self._closing = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def handle_events(self) -> None:
        """Something has arrived."""
        super().handle_events()
        if self.cycle is not None and self._closing is not None:  # a request's head is complete
            self._closing.cancel()
            self._closing = None

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        if self._closing is not None:
            self._closing.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None and not self.transport.is_closing():
            self.transport.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def make_server(application: FastAPI, host: str, port: int, connections: int, grace: float) -> uvicorn.Server:
    """A server that listens when it is run; it says nothing of what it is asked."""
    if not 0 <= port <= 65_535:
        raise InvalidValueError(f"a port is a number from 0 to 65535, got {port}")
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        access_log=False,
        log_level="warning",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=connections,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=max(1, round(grace)),
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
    return uvicorn.Server(config)
