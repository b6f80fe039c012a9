"""Randomness of a server: streams that callers can neither steer nor predict, and that one input has one of.

The promise about repeated questions rests on this: the votes on an input are a function of the server's secret, the
plan and the point of the grid that the input is, and of nothing that a caller could vary.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError, OutputError, check_count
from smoothcert.files import open_own, read_file

Origin = Literal["operating system", "secret file", "seed"]

_BYTES = 32
_LOOKS, _SECONDS_BETWEEN = 50, 0.02


@dataclass(frozen=True, repr=False)
class Secret:
    """The key that names the streams; it has no text form, so that it isn't logged by mistake."""

    key: bytes
    origin: Origin

    def __repr__(self) -> str:
        """Where it came from, never what it is."""
        return f"Secret(from the {self.origin})"

    @classmethod
    def fresh(cls) -> Secret:
        """From the operating system: another one for every server that is started."""
        return cls(secrets.token_bytes(_BYTES), "operating system")

    @classmethod
    def of_seed(cls, seed: int) -> Secret:
        """Reproducible; with the seed at hand, inputs can be found that it flatters."""
        check_count("seed", seed, least=0)
        return cls(hashlib.sha256(f"smoothcert service, seed {seed}".encode()).digest(), "seed")

    @classmethod
    def in_file(cls, path: Path) -> Secret:
        """The one kept in a file that only its owner may read; a missing file is made."""
        try:
            descriptor = open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return cls(_read(path), "secret file")
        except OSError as error:
            raise OutputError(f"--secret-file {path} can't be made: {error.strerror}") from None
        key = secrets.token_bytes(_BYTES)
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(key.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return cls(key, "secret file")

    @property
    def seed(self) -> int:
        """The seed of the plan, which is as secret as the key it is derived from."""
        return int.from_bytes(self._digest(b"seed")[:8], "big") >> 1

    def index(self, plan_hash: str, point: NDArray[np.floating]) -> int:
        """The number of a point's random streams under a plan: equal points, and those alone, have equal ones.

        256 bits of HMAC-SHA256: without the key the streams of a point can't be told from those of any other.
        """
        exact = np.ascontiguousarray(point, dtype="<f8") + 0.0  # -0 and 0 are one number
        header = json.dumps([plan_hash, list(exact.shape)]).encode()
        return int.from_bytes(self._digest(b"point\n" + header + b"\n" + exact.tobytes()), "big")

    def _digest(self, message: bytes) -> bytes:
        return hmac.digest(self.key, b"smoothcert serve 1\n" + message, "sha256")


def _complete(path: Path) -> bytes:
    """What the file holds; an empty one is being written by another server that was started at the same time."""
    for _ in range(_LOOKS):
        if found := read_file(path, 1024, links=False):
            return found
        time.sleep(_SECONDS_BETWEEN)
    return b""


def _read(path: Path) -> bytes:
    found = path.lstat()
    if found.st_mode & 0o077:
        raise InvalidValueError(
            f"--secret-file {path} can be read by others (mode {found.st_mode & 0o777:o}), who could foresee every "
            f"vote: chmod 600 {path}, or better, remove it and let the server make a new one"
        )
    try:
        key = bytes.fromhex(_complete(path).decode().strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise InvalidValueError(
            f"--secret-file {path} must hold {2 * _BYTES} hexadecimal digits: remove it, and the server makes a new one"
        )
    return key
