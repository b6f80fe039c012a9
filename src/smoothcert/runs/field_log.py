"""The field's certification logs: tab-separated ``idx label predict radius correct time``, read and written."""

from __future__ import annotations

import gzip
import hashlib
import io
import math
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

import smoothcert
from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import DataError, check_count, check_positive, check_probability
from smoothcert.files import read_file
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES
from smoothcert.rounding import decimal_down
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import FARTHEST, MOST_CLASSES, MOST_INPUTS, Record
from smoothcert.runs.statement import DataStatement
from smoothcert.tally import ABSTAIN

_REQUIRED = ("idx", "label", "predict", "radius", "correct")
_GZIP_START = b"\x1f\x8b"

_SHOWN_OF_A_LINE = 80

MOST_BYTES = 2**27
MOST_LINES = 2_000_000
"""What a log may have, unpacked: ImageNet's training set has 1.3 million inputs."""
_MOST_COLUMNS = 256
_LONGEST_SECONDS = 1e15
_LONGEST_FIELD = 64  # no number is longer, and patterns are matched in time that grows with the square

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_CLOCK = re.compile(r"(?:([0-9]+) days?, )?([0-9]+):([0-5][0-9]):([0-5][0-9](?:\.[0-9]*)?)")


@dataclass(frozen=True)
class FieldLog:
    """A log that was read. ``dropped_tail`` is the last line if its writer was stopped in the middle of it.

    ``printed`` is how its radii are printed, which takes no part in what it says.
    """

    records: list[Record]
    dropped_tail: str | None = None
    printed: Printed | None = field(default=None, compare=False)


class _LineError(ValueError):
    """What is wrong with a line and what to do about it; the reader adds file and number."""


def read_field_log(path: Path, sigma: float) -> FieldLog:
    """Read a log, plain or gzipped, finished or cut off; ``sigma`` is the noise it was certified with.

    Columns go by their names. ``time`` may be missing (0 seconds then). A column named ``sigma`` is each
    input's own σ and takes precedence over the argument; all other columns are ignored, ``min_sigma`` as well:
    it is the least entry of a σ vector and no σ the radius could be recomputed from. Anything else that isn't
    as it should be is a DataError, because a line skipped in silence would change every figure.
    """
    sigma = check_positive("sigma", sigma)
    text = _text(path)
    if text.count("\n") > MOST_LINES:
        raise DataError(f"{path} has {text.count(chr(10))} lines, where {MOST_LINES} are the most; split it")
    lines = text.split("\n")
    columns = _columns(path, lines[0])
    records: list[Record] = []
    radii: list[str] = []
    line_of: dict[int, int] = {}
    dropped = None
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        fields = _fields(line, columns)
        # Every whole line ends in a newline, so only the text after the last one can be a part of a line.
        if number == len(lines) and _is_cut_off(fields, columns):
            dropped = line
            continue
        try:
            record = _record(fields, columns, sigma)
            if record.index in line_of:
                raise _LineError(f"idx {record.index} was on line {line_of[record.index]} already; keep one")
        except _LineError as error:
            raise DataError(f"{path}, line {number}: {error} (the line is {_shortened(line)!r})") from None
        line_of[record.index] = number
        records.append(record)
        radii.append(fields[columns.index("radius")])
    if not records:
        raise DataError(f"{path} holds a header but no finished input; let the certification run first")
    return FieldLog(records, dropped, Printed.of(radii))


def write_field_log(records: Iterable[Record], stream: TextIO, digits: int = 4) -> None:
    """Write the field's columns, radii cut to ``digits`` decimals and never rounded up.

    If the records differ in σ, a column ``sigma`` before ``time`` keeps it.
    """
    check_count("digits", digits)
    records = list(records)
    own_sigma = len({record.sigma for record in records}) > 1
    stream.write("\t".join((*_REQUIRED, *(["sigma"] if own_sigma else []), "time")) + "\n")
    for record in records:
        fields = map(str, (record.index, record.label, record.predicted))
        after = [repr(record.sigma)] if own_sigma else []
        radius, correct = decimal_down(record.radius, digits), str(int(record.correct))
        stream.write("\t".join((*fields, radius, correct, *after, _clock(record.seconds))) + "\n")


def import_manifest(
    path: Path,
    sigma: float,
    *,
    noise: str = DEFAULT_NOISE,
    bound: str | None = None,
    n0: int | None = None,
    n: int | None = None,
    alpha: float | None = None,
    data_name: str | None = None,
    method: str | None = None,
    read: FieldLog | None = None,
) -> Manifest:
    """The manifest of an imported log. A log doesn't say how it was made: what isn't given here stays None.

    ``method``, by which a paper's table calls the run, goes to its origin. From ``read``, the log itself, it states
    which inputs the log is of (unknown if it was cut off) and how its radii are printed.
    """
    sigma = check_positive("sigma", sigma)
    if bound is not None:
        BOUNDS[bound]  # an unknown name is an error that lists the known ones
    for name, count in (("n0", n0), ("n", n)):
        if count is not None:
            check_count(name, count)
    if alpha is not None:
        alpha = check_probability("alpha", alpha)
    sha256, origin = hashlib.sha256(_content(path)).hexdigest(), {} if method is None else {"method": method}
    plan = {"noise": noise, "sigma": sigma, "norm": NOISES[noise].norm, "bound": bound}
    plan |= {"n0": n0, "n": n, "alpha": alpha}
    data = {"name": data_name, "log": path.name, "log_sha256": sha256} | ({} if read is None else _seen(read))
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Manifest.of("import", plan, {}, data, {"smoothcert": smoothcert.__version__}, now, origin)


def _seen(read: FieldLog) -> dict[str, Any]:
    """What the log shows of itself, for the manifest's ``data``."""
    printed = {} if read.printed is None else read.printed.as_json()
    if read.dropped_tail is not None:
        return printed | {"planned": None}
    indices = sorted(record.index for record in read.records)
    skip = indices[1] - indices[0] if len(indices) > 1 else 1
    if indices == list(range(0, skip * len(indices), skip)):
        return printed | {"skip": skip, "planned": len(indices)}
    return printed | {"planned": indices}


def _shortened(line: str) -> str:
    line = line.rstrip("\r")
    return line if len(line) <= _SHOWN_OF_A_LINE else f"{line[:_SHOWN_OF_A_LINE]}…"


def _content(path: Path) -> bytes:
    try:
        return read_file(path, MOST_BYTES)
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from None


def _text(path: Path) -> str:
    content = _content(path)
    if content.startswith(_GZIP_START):
        try:
            with gzip.open(io.BytesIO(content)) as unzipped:
                content = unzipped.read(MOST_BYTES + 1)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path} is a damaged gzip file ({error}); fetch it again, or use zcat") from None
    if len(content) > MOST_BYTES:
        raise DataError(f"{path} unpacks to more than {MOST_BYTES} bytes, which no log has; it wasn't read")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not a text file ({error}); give a tab-separated log") from None
    if not text.strip():
        raise DataError(f"{path} is empty; a log begins with the line {' '.join(_REQUIRED)} time")
    return text if "\n" in text else text.replace("\r", "\n")  # lines may end as on old Macs


def _columns(path: Path, header: str) -> list[str]:
    columns = [name.strip() for name in header.rstrip().split("\t")]
    if len(columns) > _MOST_COLUMNS:
        raise DataError(f"{path}, line 1: {len(columns)} columns, where {_MOST_COLUMNS} are the most")
    missing = [name for name in _REQUIRED if name not in columns]
    if columns[0] and all(_INTEGER.fullmatch(name) for name in columns[:3]):
        raise DataError(
            f"{path}, line 1 holds numbers ({header.strip()[:_SHOWN_OF_A_LINE]!r}): the header is missing; put "
            f"the line {' '.join(_REQUIRED)} time, with tabs between its words, before it"
        )
    if missing:
        raise DataError(
            f"{path}, line 1: the header {header.strip()[:_SHOWN_OF_A_LINE]!r} has no {', '.join(missing)}; a log "
            f"begins with the tab-separated names {' '.join(_REQUIRED)} time"
        )
    twice = sorted({name for name in columns if columns.count(name) > 1})
    if twice:
        raise DataError(f"{path}, line 1: the header names {', '.join(twice)} twice; rename one of them")
    return columns


def _fields(line: str, columns: list[str]) -> list[str]:
    fields = [field.strip() for field in line.split("\t")]
    while len(fields) > len(columns) and not fields[-1]:
        fields.pop()
    return fields


def _is_cut_off(fields: list[str], columns: list[str]) -> bool:
    """Whether the unterminated last line lacks something the record needs."""
    if len(fields) != len(columns):
        return len(fields) < len(columns)
    # A cut time is still a time or isn't needed; a cut radius would be another radius (1.2e-05 → 1.2).
    if columns[-1] == "time":
        return _seconds_or_none(fields[-1]) is None
    return columns[-1] in ("idx", "label", "predict", "radius", "sigma") or not fields[-1]


def _record(fields: list[str], columns: list[str], sigma: float) -> Record:
    if len(fields) != len(columns):
        raise _LineError(f"{len(fields)} fields where the header names {len(columns)}; restore or delete it")
    values = dict(zip(columns, fields))
    predicted = _integer("predict", values["predict"], least=ABSTAIN)
    radius = _number(values["radius"])
    if not 0 <= radius <= FARTHEST:
        raise _wrong("radius", "a finite number of at least 0", values["radius"])
    own_sigma = _number(values["sigma"]) if "sigma" in values else sigma
    if not 0 < own_sigma <= FARTHEST:
        raise _wrong("sigma", "positive and finite", values["sigma"], "restore it or rename the column")
    seconds = _seconds_or_none(values["time"]) if "time" in values else 0.0
    if seconds is None:
        raise _wrong("time", "h:mm:ss or seconds", values["time"], "restore it or remove the column")
    index, label = _integer("idx", values["idx"], most=MOST_INPUTS), _integer("label", values["label"])
    record = Record(index, label, predicted, abs(radius), own_sigma, seconds)  # "-0.0" is 0
    if record.abstained and record.radius > 0:
        raise _LineError(f"radius {record.radius} of an abstention (predict -1) must be 0; correct it")
    flag = _integer("correct", values["correct"])
    if flag != int(record.correct):
        raise _LineError(
            f"correct is {flag}, but label {record.label} and predict {predicted} make it "
            f"{int(record.correct)}; find out which of them is wrong"
        )
    return record


def _wrong(name: str, rule: str, text: str, remedy: str = "restore or delete it") -> _LineError:
    return _LineError(f"{name} must be {rule}, got {_shortened(text)!r}; {remedy}")


def _integer(name: str, text: str, least: int = 0, most: int = MOST_CLASSES) -> int:
    if not _INTEGER.fullmatch(text) or int(text) < least:
        raise _wrong(name, f"an integer of at least {least}", text)
    if int(text) > most:
        raise _wrong(name, f"at most {most}", text)
    return int(text)


def _number(text: str) -> float:
    """A number as text, NaN for what is none."""
    return float(text) if len(text) <= _LONGEST_FIELD and _NUMBER.fullmatch(text) else math.nan


def _seconds_or_none(text: str) -> float | None:
    if len(text) > _LONGEST_FIELD:
        return None
    if clock := _CLOCK.fullmatch(text):
        days, hours, minutes, rest = clock.groups()
        seconds = int(days or 0) * 86_400 + int(hours) * 3600 + int(minutes) * 60 + float(rest)
        return seconds if seconds <= _LONGEST_SECONDS else None
    seconds = _number(text)
    return seconds if 0 <= seconds <= _LONGEST_SECONDS else None


def _clock(seconds: float) -> str:
    microseconds = round(seconds * 1_000_000)
    whole, fraction = divmod(microseconds, 1_000_000)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}.{fraction:06d}"


_LOG_ERROR = 1e-9  # more than the error of log10: a power of ten must not be taken for the number below it


@dataclass(frozen=True)
class Printed:
    """The most significant digits and decimals that any radius of a log has.

    Logs print a fixed number of either (the field's ``{:.3}``: three significant digits, zeros at the end left out)
    and round to nearest. Which of the two it was isn't known: the larger unit is taken.
    """

    digits: int
    decimals: int

    @classmethod
    def of(cls, radii: Iterable[str]) -> Printed:
        """From radii as they are printed."""
        digits = decimals = 0
        for text in radii:
            _, figures, exponent = Decimal(text).as_tuple()
            decimals = max(decimals, -int(exponent))
            if any(figures):
                digits = max(digits, len(figures))
        return cls(max(1, digits), decimals)

    @classmethod
    def stated(cls, data: DataStatement) -> Printed | None:
        """What a manifest's ``data`` says; None where it says nothing."""
        digits, decimals = data.radius_digits, data.radius_decimals
        return cls(digits, decimals) if isinstance(digits, int) and isinstance(decimals, int) else None

    def as_json(self) -> dict[str, int]:
        """For a manifest's ``data``."""
        return {"radius_digits": self.digits, "radius_decimals": self.decimals}

    def half_units(self, radii: NDArray[np.float64]) -> NDArray[np.float64]:
        """For each printed radius, how far the certified one may be from it."""
        with np.errstate(divide="ignore"):
            leading = np.floor(np.log10(radii) + _LOG_ERROR)
        exponents = np.maximum(leading - self.digits + 1, -self.decimals)
        return np.asarray(0.5 * 10.0**exponents * (1 + 1e-12), dtype=np.float64)
