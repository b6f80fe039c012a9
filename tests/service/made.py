"""Engines of small models for the tests of the service."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from typing import Any

import numpy as np

from smoothcert import SmoothedClassifier
from smoothcert.engine.execution import Execution
from smoothcert.models.numerics import Numerics
from smoothcert.service.engine import Question, VotingEngine
from smoothcert.service.limits import EngineLimits
from smoothcert.service.secrets import Secret
from smoothcert.service.voting import Ask

SHAPE = (2,)
NUMERICS = Numerics("float32", "eager", 64, 16)


class Edge:
    """Class 0 where the first coordinate is below ``at``, else 1; NaN beyond 100; may be held up or counted."""

    def __init__(self, at: float = 0.5) -> None:
        self.at = at
        self.open = threading.Event()
        self.open.set()
        self.rows = 0

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        self.open.wait(30)
        self.rows += len(batch)
        scores = np.stack([self.at - batch[:, 0], batch[:, 0] - self.at], axis=1)
        scores[batch[:, 1] > 100] = np.nan
        return scores


def smoothed(model: Any = None, **fields: Any) -> SmoothedClassifier:
    plan = {"bound": "mixture-two-class", "n": 2048, "n0": 16, "sigma": 1.0, "numerics": NUMERICS} | fields
    return SmoothedClassifier(
        model or Edge(), outputs="scores", classes=2, execution=Execution(workers=1), **plan
    )


@contextmanager
def running(
    model: Any = None, limits: EngineLimits | None = None, secret: Secret | None = None, **fields: Any
) -> Iterator[VotingEngine]:
    engine = VotingEngine(smoothed(model, **fields), SHAPE, secret or Secret.of_seed(0), limits)
    try:
        yield engine
    finally:
        engine.close()


def asked(engine: VotingEngine, caller: str, x: np.ndarray, **wanted: Any) -> Ask:
    (ask,) = engine.ask_all(caller, [Question(*engine.point(x))], **wanted)
    return ask


def service(classifier: SmoothedClassifier, seed: int = 0, **settings: Any) -> Any:
    """A service whose votes are the same in every run of the tests: few pilot votes name the wrong class at times."""
    from smoothcert.service.service import Service

    return Service(classifier, SHAPE, secret=Secret.of_seed(seed), **settings)


class Live:
    """A server in a thread of this process, at a port of its own."""

    def __init__(self, service: Any, keys: Any = None, hosts: frozenset[str] | None = None) -> None:
        from smoothcert.service.application import make_application
        from smoothcert.service.server import make_server

        self.service = service
        self.url = ""
        started = threading.Event()

        def told(url: str) -> None:
            self.url = url
            started.set()

        self.server = make_server(make_application(service, keys, hosts), "127.0.0.1", 0, 1.0, told)
        self._thread = threading.Thread(target=self.server.run, daemon=True)
        self._thread.start()
        assert started.wait(30)
        self.port = int(self.url.rpartition(":")[2])

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()

    def ask(
        self, method: str, path: str, body: bytes | None = None, source: str = "127.0.0.1", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer to an address."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30, source_address=(source, 0))
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, named)
            response = connection.getresponse()
            return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
        """An answer to JSON, parsed."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, told, found = self.ask(
            "POST", path, content, **({"content_type": "application/json"} | headers)
        )
        return status, told, json.loads(found) if found else None


@contextmanager
def live(
    model: Any = None,
    keys: Any = None,
    hosts: frozenset[str] | None = None,
    limits: Any = None,
    **fields: Any,
) -> Iterator[Live]:
    memory = fields.pop("memory", None)
    server = Live(service(smoothed(model, **fields), limits=limits, memory=memory), keys, hosts)
    try:
        yield server
    finally:
        server.stop()
