"""A client of `smoothcert serve`: a class and its radius in a few lines, and the radius as it grows.

Of Python's own library and NumPy alone: a caller needs neither a model nor anything to install.

>>> client = Client("http://127.0.0.1:8000")          # doctest: +SKIP
>>> client.certify(picture).radius                    # doctest: +SKIP
>>> for state in client.stream(picture): print(state.votes, state.radius)   # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
import io
import json
import queue
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass, field, fields
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.errors import InvalidValueError, SmoothcertError

_NPY = "application/x-npy"
_LONGEST_LINE = 1 << 24


class ServiceError(SmoothcertError):
    """A request that wasn't answered: its ``status`` (0 where there was no connection), and when to ask again."""

    def __init__(self, message: str, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after


@dataclass(frozen=True)
class ServedAnswer:
    """What a server says of one input, at the end or on the way.

    With probability 1−α no answer that it ever gives about the input is wrong: ``predicted`` is the class of every
    point of the noise's grid closer than ``radius``.
    """

    predicted: int
    """The class by number; -1 where nothing is certified."""
    radius: float
    """Inside it nothing can change the class; 0 where nothing is certified."""
    abstained: bool
    """Whether nothing is certified."""
    votes: int
    """Votes that bound the class's probability."""
    label: str | None = None
    """What the model calls the class."""
    candidate: int | None = None
    """The class that is being certified, certain or not."""
    runner_up: int | None = None
    """The class with the most votes beside it."""
    ended: str | None = None
    """Why voting ended; None on the way."""
    everything: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """All that the server said."""

    @property
    def final(self) -> bool:
        """Whether it is the answer, and not a state on the way."""
        return self.ended is not None


class Client:
    """Asks a server. ``patience``: seconds to go on asking where it is too busy, as its Retry-After says."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 330.0, patience: float = 0.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidValueError(f"a server's address is like http://127.0.0.1:8000, got {url!r}")
        key = None if key is None else key.strip()  # a file's last line has an end
        if key is not None and not (key.isascii() and key.isprintable()):
            raise InvalidValueError("an API key has letters, digits, - and _: this one has others")
        self._parts, self._key, self._timeout, self.patience = parts, key, timeout, patience

    def plan(self) -> dict[str, Any]:
        """What the server promises."""
        plan: dict[str, Any] = json.loads(self._ask("GET", "/v1/plan"))
        return plan

    def predict(
        self, x: ArrayLike, *, votes: int | None = None, deadline: float | None = None
    ) -> ServedAnswer | list[ServedAnswer]:
        """The class of one input, or of each of a batch, as soon as it is certain."""
        return self._answers("/v1/predict", x, votes=votes, deadline=deadline)

    def certify(
        self,
        x: ArrayLike,
        *,
        votes: int | None = None,
        radius: float | None = None,
        deadline: float | None = None,
    ) -> ServedAnswer | list[ServedAnswer]:
        """Class and radius of one input, or of each of a batch.

        ``radius``: stop once it is decided whether the radius is at least this.
        """
        return self._answers("/v1/certify", x, votes=votes, radius=radius, deadline=deadline)

    def stream(
        self,
        x: ArrayLike,
        *,
        votes: int | None = None,
        radius: float | None = None,
        deadline: float | None = None,
    ) -> Iterator[ServedAnswer]:
        """Where one input stands, as votes are cast; the last is its answer. Stop when you like: the radius holds."""
        path = _path("/v1/certify/stream", votes=votes, radius=radius, deadline=deadline)
        connection, response = self._send("POST", path, _npy(x))
        try:
            for name, data in _events(response):
                if name == "failed":
                    raise ServiceError(data["error"], 422)
                if name in ("votes", "answer"):
                    yield _answer(data)
                if name == "answer":
                    return
            raise ServiceError("the stream was cut off before its answer; what was told before holds")
        finally:
            connection.close()

    def _answers(self, path: str, x: ArrayLike, **options: Any) -> ServedAnswer | list[ServedAnswer]:
        body = json.loads(self._ask("POST", _path(path, **options), _npy(x)))
        answers = [_answer(result) for result in body["results"]]
        shape = tuple(body["input_shape"])
        return answers[0] if np.shape(x) == shape else answers

    def _ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        connection, response = self._send(method, path, body)
        try:
            return response.read()
        except (OSError, HTTPException) as error:
            raise ServiceError(f"the answer was cut off ({error})") from None
        finally:
            connection.close()

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[HTTPConnection, HTTPResponse]:
        """An answer with status 200; ServiceError for any other."""
        until = time.monotonic() + self.patience
        while True:
            connection, response = self._try(method, path, body)
            if response.status == 200:
                return connection, response
            error = _refusal(response)
            connection.close()
            if error.retry_after is None or time.monotonic() + error.retry_after > until:
                raise error
            time.sleep(error.retry_after)

    def _try(self, method: str, path: str, body: bytes | None) -> tuple[HTTPConnection, HTTPResponse]:
        parts = self._parts
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=self._timeout)
        headers = {} if self._key is None else {"Authorization": f"Bearer {self._key}"}
        if body is not None:
            headers["Content-Type"] = _NPY
        try:
            connection.request(method, parts.path.rstrip("/") + path, body, headers)
            return connection, connection.getresponse()
        except (OSError, HTTPException) as error:
            connection.close()
            raise ServiceError(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}: {error}") from None


class AsyncClient:
    """The same for asyncio: each request waits in a thread of its own."""

    def __init__(
        self, url: str, key: str | None = None, *, timeout: float = 330.0, patience: float = 0.0
    ) -> None:
        self._client = Client(url, key, timeout=timeout, patience=patience)

    async def plan(self) -> dict[str, Any]:
        """What the server promises."""
        return await asyncio.to_thread(self._client.plan)

    async def predict(self, x: ArrayLike, **options: Any) -> ServedAnswer | list[ServedAnswer]:
        """As :meth:`Client.predict`."""
        return await asyncio.to_thread(lambda: self._client.predict(x, **options))

    async def certify(self, x: ArrayLike, **options: Any) -> ServedAnswer | list[ServedAnswer]:
        """As :meth:`Client.certify`."""
        return await asyncio.to_thread(lambda: self._client.certify(x, **options))

    async def stream(self, x: ArrayLike, **options: Any) -> AsyncGenerator[ServedAnswer]:
        """As :meth:`Client.stream`; leaving the loop leaves the server as well, at the next state."""
        states: queue.SimpleQueue[ServedAnswer | BaseException | None] = queue.SimpleQueue()
        left = threading.Event()

        def read() -> None:
            try:
                for state in self._client.stream(x, **options):
                    states.put(state)
                    if left.is_set():
                        return
                states.put(None)
            except BaseException as error:
                states.put(error)

        threading.Thread(target=read, daemon=True).start()
        try:
            while (state := await asyncio.to_thread(states.get)) is not None:
                if isinstance(state, BaseException):
                    raise state
                yield state
        finally:
            left.set()


def _path(path: str, **options: Any) -> str:
    given = {name: value for name, value in options.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _npy(x: ArrayLike) -> bytes:
    detach = getattr(x, "detach", None)  # a torch tensor
    array = np.asarray(x if detach is None else detach().cpu().numpy())
    if array.dtype.kind not in "biuf":
        raise InvalidValueError(f"inputs are arrays of numbers, got {array.dtype}")
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def _answer(data: dict[str, Any]) -> ServedAnswer:
    named = {each.name: data[each.name] for each in fields(ServedAnswer) if each.name in data}
    return ServedAnswer(**named, everything=data)


def _refusal(response: HTTPResponse) -> ServiceError:
    try:
        message = str(json.loads(response.read(1 << 16))["error"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        message = response.reason
    after = response.getheader("Retry-After", "")
    return ServiceError(message, response.status, float(after) if after.isdecimal() else None)


def _events(response: HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    name, data = "", ""
    while True:
        try:
            line = response.readline(_LONGEST_LINE).decode()
        except (OSError, HTTPException) as error:
            raise ServiceError(f"the stream was cut off ({error})") from None
        if not line:
            return
        key, _, value = line.rstrip("\r\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            data = value
        elif not key and not value and name:
            yield name, json.loads(data)
            name = data = ""
