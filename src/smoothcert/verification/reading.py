"""A run's records and side files, read as they are: no default hides what is missing, no link is followed."""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from smoothcert.errors import DataError, RunError
from smoothcert.files import MOST_TEXT, parse_json, read_file, read_lines
from smoothcert.npy import read_npy
from smoothcert.verification.checksums import checksum, is_intact
from smoothcert.verification.noise import NORMS, Noise
from smoothcert.verification.votes import UnreadableError, Votes, integer, number, optional_votes, parse_votes

T = TypeVar("T")

_MOST_NOTED = 99
_MOST_SCALES = 2**23


@dataclass(frozen=True)
class StatedRecord:
    """One input's result as the journal has it."""

    index: int
    label: int
    predicted: int
    abstained: int
    radius: float
    sigma: float
    selection: Votes | None
    estimation: Votes | None
    base: int | None
    volume_radius: float | None
    stopped: str | None

    @property
    def votes(self) -> int:
        """How many it keeps."""
        return sum(votes.n for votes in (self.selection, self.estimation) if votes is not None)

    def digested(self) -> bytes:
        """What the digest of a run's results takes in."""
        fields: list[Any] = [
            self.index,
            self.label,
            self.predicted,
            self.radius.hex(),
            self.sigma.hex(),
            self.selection and self.selection.stated(),
            self.estimation and self.estimation.stated(),
            self.base,
        ]
        if self.volume_radius is not None or self.stopped is not None:
            fields += [self.volume_radius and self.volume_radius.hex(), self.stopped]
        return json.dumps(fields).encode()


def read_noted_records(directory: Path) -> int:
    """How many records the writer noted outside the journal; 0 where it noted nothing readable."""
    try:
        count, digest = read_file(directory / ".lock", _MOST_NOTED, links=False).split()
        noted = int(count)
    except (FileNotFoundError, ValueError):
        return 0
    return noted if digest.decode(errors="replace") == checksum(noted) else 0


def parse_row(row: dict[str, Any]) -> StatedRecord:
    """A row as a record; UnreadableError says what can't be read."""
    stopped = row.get("stopped")
    if stopped is not None and not isinstance(stopped, str):
        raise UnreadableError(f"stopped = {stopped!r}, which is no text")
    return StatedRecord(
        index=integer(row, "index"),
        label=integer(row, "label"),
        predicted=integer(row, "predicted"),
        abstained=integer(row, "abstained"),
        radius=number(row, "radius"),
        sigma=number(row, "sigma"),
        selection=optional_votes(row.get("selection")),
        estimation=optional_votes(row.get("estimation")),
        base=None if row.get("base") is None else integer(row, "base"),
        volume_radius=None if row.get("volume_radius") is None else number(row, "volume_radius"),
        stopped=stopped,
    )


@dataclass(frozen=True)
class StatedSearch:
    """What a search's line says of one input: its σ, and the hash of its scales where it has one for each number."""

    sigma: float
    noise: str | None
    sigmas_sha256: str | None


def read_found(directory: Path) -> dict[int, StatedSearch]:
    """The lines of ``sigma_search.jsonl`` by index, the last of each."""
    return parsed_lines(
        directory / "sigma_search.jsonl",
        lambda fields: StatedSearch(
            number(fields, "sigma"), fields.get("noise"), fields.get("sigmas_sha256")
        ),
    )


def read_pilots(directory: Path) -> dict[int, tuple[Votes, Votes | None]]:
    """Selection and pilot votes by index, where a total was spread."""
    return parsed_lines(
        directory / "pilots.jsonl",
        lambda fields: (parse_votes(fields.get("selection")), optional_votes(fields.get("pilot"))),
    )


def read_allocation(directory: Path) -> dict[str, Any]:
    """``allocation.json``; RunError where it can't be read."""
    path = directory / "allocation.json"
    try:
        fields = parse_json(read_file(path, MOST_TEXT, links=False))
        votes = {int(index): n for index, n in fields["votes"].items()}
        numbers = [fields["total"], fields["spent_before"], *votes.values()]
        if not is_intact(fields):
            raise ValueError("its checksum doesn't match")
    except DataError as error:
        raise RunError(str(error)) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} can't be read ({error}); get the run again") from None
    if any(type(number) is not int for number in numbers):
        raise RunError(f"{path} must hold whole numbers; get the run again")
    return {**fields, "votes": votes}


def read_scales(path: Path, kind: str, stated_sha256: object) -> Noise:
    """Noise with the scales in a .npy file; UnreadableError where it isn't the vector that is stated.

    DataError where it is a link, no plain file, or larger than any vector.
    """
    try:
        content = read_file(path, MOST_TEXT, links=False)
        values = read_npy(io.BytesIO(content), len(content))
        if values.dtype.kind not in "iuf" or not 0 < values.size <= _MOST_SCALES:
            raise ValueError("no array of numbers")
        values = values.astype("<f8")
    except (FileNotFoundError, ValueError) as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error
        raise UnreadableError(f"{path.name} can't be read ({reason})") from None
    digest = hashlib.sha256(repr(tuple(values.shape)).encode())
    digest.update(np.ascontiguousarray(values).tobytes())
    if digest.hexdigest() != stated_sha256:
        raise UnreadableError(
            f"{path.name} isn't the vector that is stated: its SHA-256 is {digest.hexdigest()[:12]}…"
        )
    scales = tuple(values.ravel().tolist())
    if not all(math.isfinite(scale) and scale > 0 for scale in scales):
        raise UnreadableError(f"{path.name} holds scales that aren't positive and finite")
    if kind not in NORMS or not kind.startswith("diagonal-"):
        raise UnreadableError(f"{path.name} is for {kind!r} noise, which has no scale for each dimension")
    return Noise(kind, scales)


def parsed_lines(path: Path, parse: Callable[[dict[str, Any]], T]) -> dict[int, T]:
    """What the lines of a file say by index, the last of each."""
    found = {}
    for fields in _json_lines(path):
        try:
            found[integer(fields, "index")] = parse(fields)
        except UnreadableError:
            continue  # cut off by a kill: the input was asked again
    return found


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects in a file's lines, without what was cut off or damaged."""
    for line in read_lines(path):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(fields, dict) and is_intact(fields):
            yield fields
