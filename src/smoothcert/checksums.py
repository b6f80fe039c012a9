"""Checksums against damage: a flipped bit is noticed when it is read. Who means to deceive can compute them, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

BYTES = 16
_NAME = "checksum"


def checksum(value: object) -> str:
    """Of plain values, whatever the order of their keys and the spaces between them."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=BYTES).hexdigest()


def sealed(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a JSON object with a checksum of them all."""
    return {**fields, _NAME: checksum(fields)}


def unsealed(fields: Any) -> dict[str, Any]:
    """The fields without their checksum; ValueError where it doesn't match. Earlier versions wrote none."""
    if not isinstance(fields, dict):
        raise ValueError("it is no object")
    stated = {name: value for name, value in fields.items() if name != _NAME}
    if _NAME in fields and fields[_NAME] != checksum(stated):
        raise ValueError("its checksum doesn't match: it was edited or damaged")
    return stated


def is_sealed(fields: Any) -> bool:
    """Whether there is a checksum at all."""
    return isinstance(fields, dict) and _NAME in fields


_ZIP_END, _ZIP_END_SIZE = b"PK\x05\x06", 22
_ZIP_COMMENT = b"smoothcert blake2b "


def sealed_zip(content: bytes) -> bytes:
    """A zip file, which must have no comment, with its checksum as the comment: any reader of zips takes it."""
    comment = _ZIP_COMMENT + blake2b(content, digest_size=BYTES).hexdigest().encode()
    return content[:-2] + len(comment).to_bytes(2, "little") + comment


def check_zip(content: bytes) -> None:
    """ValueError where a zip file isn't what :func:`sealed_zip` made. Earlier versions' have no comment at all."""
    size = len(_ZIP_COMMENT) + 2 * BYTES
    plain = content[: -size - 2] + b"\0\0"
    if content[-size:].startswith(_ZIP_COMMENT):
        intact = sealed_zip(plain) == content
    else:
        intact = content[-_ZIP_END_SIZE:].startswith(_ZIP_END) and content.endswith(b"\0\0")
    if not intact:
        raise ValueError("its checksum doesn't match")
