"""Stored answers as bytes and back, exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.files import parse_json
from smoothcert.region_memory.statement import MemoryStatement
from smoothcert.regions import BALLS, STRETCHED, CertifiedRegion

KINDS = {norm: (ball.kind, STRETCHED[norm].kind) for norm, ball in BALLS.items()}
"""Which kinds of region a memory of a norm may hold."""

_AXES = np.dtype("<f8")
_DTYPES = ("<f4", "<f8")


@dataclass(frozen=True, eq=False)
class StoredAnswer:
    """(x_i, class_i, region_i); the region's center is x_i. ``facts`` is whatever the caller wants kept beside it."""

    predicted: int
    region: CertifiedRegion
    facts: Mapping[str, Any] = field(default_factory=dict)

    def encode(self) -> bytes:
        """A header of JSON, a newline, the coordinates: as float32 where that loses nothing; then any semi-axes.

        The header's radius is the largest semi-axis: a region lies in the Euclidean ball of that radius.
        """
        center = self.region.center
        with np.errstate(over="ignore", under="ignore"):
            single = center.astype("<f4")
        coordinates = single if np.array_equal(single.astype(np.float64), center) else center.astype("<f8")
        header = {
            "class": int(self.predicted),
            "kind": self.region.kind,
            "radius": self.region.reach.hex(),
            "dtype": coordinates.dtype.str,
            "facts": dict(self.facts),
        }
        try:
            text = json.dumps(header, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidValueError(
                f"facts must be values JSON can hold ({error}), got {self.facts}"
            ) from None
        axes = self.region.axes.astype(_AXES).tobytes() if self.region.kind not in BALLS else b""
        return text.encode() + b"\n" + coordinates.tobytes() + axes


@dataclass(frozen=True)
class Header:
    """What a payload says before its coordinates."""

    predicted: int
    kind: str
    radius: float
    facts: Mapping[str, Any]
    axes: NDArray[np.float64] | None = None


def decode_parts(payload: bytes, statement: MemoryStatement) -> tuple[Header, NDArray[np.float64]]:
    """Header (with the semi-axes, flat, of what isn't a ball) and coordinates (flat).

    ValueError if they are not those of a record of this statement.
    """
    end = payload.index(b"\n")
    fields = parse_json(payload[:end])
    if not isinstance(fields, dict) or not {"class", "kind", "radius", "dtype", "facts"} <= set(fields):
        raise ValueError("its header lacks fields")
    if fields["kind"] not in KINDS[statement.norm] or fields["dtype"] not in _DTYPES:
        raise ValueError(f"a region of kind {fields['kind']!r} in {fields['dtype']!r} can't be read")
    body, axes = payload[end + 1 :], None
    if fields["kind"] not in BALLS:
        size = statement.dimension * _AXES.itemsize
        axes = np.frombuffer(body[-size:], dtype=_AXES).astype(np.float64)
        body = body[:-size]
    coordinates = np.frombuffer(body, dtype=fields["dtype"]).astype(np.float64)
    if coordinates.size != statement.dimension:
        raise ValueError(f"it has {coordinates.size} coordinates, not {statement.dimension}")
    radius = float.fromhex(fields["radius"])
    if axes is not None and not (np.isfinite(axes).all() and axes.min() > 0 and axes.max() == radius):
        raise ValueError("its semi-axes make no sense")
    header = Header(int(fields["class"]), fields["kind"], radius, fields["facts"], axes)
    if header.predicted < 0 or not 0 < header.radius < float("inf") or not np.isfinite(coordinates).all():
        raise ValueError("its class, radius or coordinates make no sense")
    return header, coordinates


def decode(payload: bytes, statement: MemoryStatement) -> StoredAnswer:
    """The inverse of :meth:`StoredAnswer.encode`."""
    header, coordinates = decode_parts(payload, statement)
    center = coordinates.reshape(statement.input_shape)
    region: CertifiedRegion
    if header.axes is None:
        region = BALLS[statement.norm](center, header.radius)
    else:
        region = STRETCHED[statement.norm](center, header.axes.reshape(statement.input_shape))
    return StoredAnswer(header.predicted, region, header.facts)
