"""API keys: 256 random bits each, of which only hashes are kept."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from smoothcert.errors import DataError
from smoothcert.files import append_line, read_file
from smoothcert.hints import command

_PREFIX = "smoothcert_"
_LINE = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63}) +sha256:([0-9a-f]{64})")
_LARGEST = 1 << 22


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
        """The keys of a file with a line ``NAME sha256:HASH`` each; lines that begin with # say nothing."""
        try:
            lines = read_file(path, _LARGEST).decode("ascii", errors="replace").splitlines()
        except FileNotFoundError:
            raise DataError(f"--api-keys {path}: no such file; `{_made_by(path)}` makes it") from None
        found: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise DataError(f"--api-keys {path}, line {number}: expected NAME sha256:HASH")
            found[match[2]] = match[1]
        if not found:
            raise DataError(f"--api-keys {path} holds no key: `{_made_by(path)}` makes one")
        return cls(found)


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
    return command("serve-key", "NAME", api_keys=path)


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
