"""Witness: the head once more, in a file of its own beside an SQLite store.

Records and head live in one database and vanish together when its write-ahead file is lost or left behind by a plain
copy: what remains is a valid older memory. The witness tells.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from smoothcert.files import open_own
from smoothcert.platforms import lock
from smoothcert.region_memory.chain import HASH_BYTES, Head
from smoothcert.region_memory.errors import IncompleteMemoryError, StoreError

_CHECK = 8
_SIZE = 8 + HASH_BYTES + _CHECK


class Witness:
    """Only moves forward; its file lock goes with the process."""

    def __init__(self, store: Path) -> None:
        self.path = store.with_name(store.name + ".head")

    def read(self) -> Head | None:
        """The latest head that was acknowledged, None if nothing was written yet."""
        try:
            with os.fdopen(open_own(self.path, os.O_RDONLY), "rb") as file:
                lock(file.fileno(), shared=True)  # another process may be writing its first head
                content = file.read(_SIZE + 1)
            return self._parse(content) if content else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} can't be read: {error.strerror}") from None

    def advance(self, head: Head) -> None:
        """Write ``head`` unless another process has written a later one."""
        try:
            with os.fdopen(open_own(self.path, os.O_RDWR | os.O_CREAT), "rb+", buffering=0) as file:
                lock(file.fileno())
                before = file.read(_SIZE + 1)
                if not before or self._parse(before).count < head.count:
                    body = head.count.to_bytes(8, "big") + head.hash
                    # One write of less than a sector; the database, not this file, is what survives a power cut.
                    os.pwrite(file.fileno(), body + hashlib.sha256(body).digest()[:_CHECK], 0)
        except OSError as error:
            raise StoreError(
                f"{self.path} can't be written: {error.strerror}; ask again afterwards"
            ) from None

    def _parse(self, content: bytes) -> Head:
        body, check = content[:-_CHECK], content[-_CHECK:]
        if len(content) != _SIZE or hashlib.sha256(body).digest()[:_CHECK] != check:
            raise IncompleteMemoryError(
                str(self.path),
                "the witness of the last head is damaged, so missing records can't be ruled out",
            )
        return Head(int.from_bytes(body[:8], "big"), body[8:])
