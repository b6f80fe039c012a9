"""The server: uvicorn, with a limit on how long a connection may take to say what it wants."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from smoothcert.errors import InvalidValueError
from smoothcert.service.gate import MOST_HEADER_BYTES, network
from smoothcert.service.service import Service

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
_HEADER_SECONDS = 15.0
_UNREAD_SECONDS = 30.0


class PatientProtocol(H11Protocol):
    """HTTP/1.1 whose patience ends: with a head that isn't sent in time, and with an answer that isn't read.

    Of more connections than ``most`` one ends whose client has not sent all of its request, of the address that has
    most connections: the oldest that waits for a head, else for a body.
    """

    most = 512
    _since, _caller = 0.0, ""
    _closing: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there; its time runs."""
        super().connection_made(transport)
        # Whatever the client's side doesn't take is told to pause_writing.
        transport.set_write_buffer_limits(0)
        self._closing = self.loop.call_later(_HEADER_SECONDS, self._give_up)
        self._since, self._caller = self.loop.time(), network(self.client[0]) if self.client else ""
        if len(self.connections) > self.most:
            self._make_room()

    def _make_room(self) -> None:
        here: list[PatientProtocol] = [each for each in self.connections if isinstance(each, PatientProtocol)]
        crowds = Counter(each._caller for each in here)
        waiting = [
            (-crowds[each._caller], not each._between_requests(), each._since, number)
            for number, each in enumerate(here)
            if each is not self and (each._between_requests() or each.conn.their_state is h11.SEND_BODY)
        ]
        if waiting:
            here[min(waiting)[-1]].transport.abort()
        elif len(here) > 2 * self.most:
            self.transport.abort()

    def pause_writing(self) -> None:
        """The client doesn't read: it may hold its connection for so long, and no longer."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(_UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It has read everything."""
        self._stop_waiting()
        super().resume_writing()

    def handle_events(self) -> None:
        """Something has arrived: the head of a request stops the clock, a part of one starts it."""
        super().handle_events()
        if self._between_requests() and self._closing is None:
            self._closing = self.loop.call_later(_HEADER_SECONDS, self._give_up)
        elif not self._between_requests():
            self._stop_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_clock()
        self._stop_waiting()
        super().connection_lost(exc)

    def _between_requests(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _stop_clock(self) -> None:
        if self._closing is not None:
            self._closing.cancel()
            self._closing = None

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _give_up(self) -> None:
        self._closing = None
        if self._between_requests() and not self.transport.is_closing():
            self.transport.close()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Server(uvicorn.Server):
    """Says where it listens, and on a signal ends in order: what is held is finished, or answered as it stands."""

    def __init__(
        self, config: uvicorn.Config, service: Service, grace: float, on_started: Callable[[str], None] | None
    ) -> None:
        super().__init__(config)
        self._service, self._grace, self._on_started = service, grace, on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started and self._on_started is not None:
            name = self.servers[0].sockets[0].getsockname()
            self._on_started(f"http://{f'[{name[0]}]' if ':' in name[0] else name[0]}:{name[1]}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more questions; continue with those that are held, for so long."""
        ending = asyncio.create_task(asyncio.to_thread(self._service.engine.close, self._grace))
        await super().shutdown(sockets)
        await ending

    async def on_tick(self, counter: int) -> bool:
        """Whether to end, asked ten times a second: an engine that broke answers nothing any more."""
        return await super().on_tick(counter) or self._service.engine.broken

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A first signal ends in order. Another ends at once: whatever was acknowledged is on disk."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """A first signal ends in order, another at once; the process then ends as any other that was done."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def make_server(
    application: FastAPI,
    host: str,
    port: int,
    grace: float = 10.0,
    on_started: Callable[[str], None] | None = None,
) -> Server:
    """A server that listens when it is run; it says nothing of what it is asked."""
    if not 0 <= port <= 65_535:
        raise InvalidValueError(f"a port is a number from 0 to 65535, got {port}")
    service: Service = application.state.service
    config = uvicorn.Config(
        application,
        host=host,
        port=port,
        http=type("Protocol", (PatientProtocol,), {"most": service.limits.connections}),
        ws="none",
        lifespan="on",
        access_log=False,
        log_config=None,  # uvicorn's own closes the handlers of the process, and what they write to
        log_level="error",  # faults of ours, with where in the code; never what was asked
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=max(1, round(grace)) + 2,
        h11_max_incomplete_event_size=MOST_HEADER_BYTES,
    )
    return Server(config, service, grace, on_started)
