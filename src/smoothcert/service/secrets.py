"""Secrets: the one that a server's votes follow from, and the API keys of its callers, of which only hashes are kept.

The promise about repeated questions rests on the first: the votes on an input are a function of the server's secret,
the plan and the point of the grid that the input is, and of nothing that a caller could vary.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError, OutputError, check_count
from smoothcert.files import append_line, open_own, read_file
from smoothcert.plain_text import command

Origin = Literal["operating system", "secret file", "seed"]

_BYTES = 32
_READINGS, _SECONDS_BETWEEN = 50, 0.02
_PREFIX = "smoothcert_"
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}) +sha256:([0-9a-f]{64})")
_LARGEST_FILE = 1 << 22


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
        """Reproducible; who knows the seed can find inputs that it flatters."""
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


def _read(path: Path) -> bytes:
    mode = path.lstat().st_mode
    if mode & 0o077:
        raise InvalidValueError(
            f"--secret-file {path} can be read by others (mode {mode & 0o777:o}), who could foresee every "
            f"vote: chmod 600 {path}, or better, remove it and let the server make a new one"
        )
    for _ in range(_READINGS):
        if content := read_file(path, 1024, links=False):
            break
        time.sleep(
            _SECONDS_BETWEEN
        )  # an empty one is being written by another server that was started as well
    try:
        key = bytes.fromhex(content.decode().strip())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise InvalidValueError(
            f"--secret-file {path} must hold {2 * _BYTES} hexadecimal digits: remove it, and the server makes a new one"
        )
    return key


@dataclass(frozen=True, repr=False)
class Keys:
    """Names of callers by the hash of their key.

    A plain hash is enough: a key is 256 bits of the operating system's randomness, too many to try out.
    """

    callers: dict[str, str]

    def caller(self, key: str) -> str | None:
        """Whose key it is; None for an unknown one. The look-up is by hash: its time says nothing about any key."""
        return self.callers.get(_hash(key))

    @classmethod
    def read(cls, path: Path) -> Keys:
        """The keys of a file with a line ``NAME sha256:HASH`` each; lines that begin with # are ignored."""
        try:
            lines = read_file(path, _LARGEST_FILE).decode("ascii", errors="replace").splitlines()
        except FileNotFoundError:
            raise DataError(f"--api-keys {path}: no such file; `{_made_by(path)}` makes it") from None
        callers: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise DataError(f"--api-keys {path}, line {number}: expected NAME sha256:HASH")
            callers[match[2]] = match[1]
        if not callers:
            raise DataError(f"--api-keys {path} holds no key: `{_made_by(path)}` makes one")
        return cls(callers)


def new_key(path: Path, name: str) -> str:
    """A new key for a caller, whose hash is added to the file; the key itself is nowhere but in the answer."""
    key = _PREFIX + secrets.token_urlsafe(32)
    line = f"{name} sha256:{_hash(key)}"
    if _LINE.fullmatch(line) is None:
        raise DataError(f"a caller's name has letters, digits, dots, - and _ (64 at most), got {name!r}")
    append_line(path, line)
    path.chmod(0o600)
    return key


def _made_by(path: Path) -> str:
    return command("serve key", "NAME", api_keys=path)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
