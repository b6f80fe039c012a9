"""A ladder: one fit for each of several starting constants, and the blanket over all their sub-epochs."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from smoothcert.errors import InvalidValueError, RunError
from smoothcert.files import write_atomically
from smoothcert.noise_fit.blanket import blanket
from smoothcert.noise_fit.fit import Fit, read_fit
from smoothcert.runs.layout import RunFiles

_MOST_RUNGS = 200


@dataclass(frozen=True)
class Point:
    """A sub-epoch of a rung: accuracy and mean area on the validation inputs. Sub-epoch 0 is the start itself."""

    fit: str
    init: float
    sub_epoch: int
    area: float
    accuracy: float
    certified: float
    kept: bool = False


def starting_constants(spec: str) -> list[float]:
    """``0.5``; ``0.1,0.2,0.5``; or ``0.1:1.0:0.1``, from the first to the second in steps of the third."""
    try:
        if spec.count(":") == 2:
            low, high, step = map(float, spec.split(":"))
            if not (math.isfinite(low) and math.isfinite(high) and step > 0 and high >= low):
                raise ValueError
            count = math.floor((high - low) / step + 1e-9) + 1
            if count > _MOST_RUNGS:
                raise InvalidValueError(
                    f"init {spec!r} makes {count} starting constants; at most {_MOST_RUNGS}: take a larger step"
                )
            found = [float(f"{low + k * step:.10g}") for k in range(count)]
        else:
            found = [float(part) for part in spec.split(",")]
    except InvalidValueError:
        raise
    except ValueError:
        raise InvalidValueError(
            f"init must be a number, a list 0.1,0.2 or a ladder FIRST:LAST:STEP such as 0.1:1.0:0.1; got {spec!r}"
        ) from None
    for value in found:
        if not (math.isfinite(value) and value > 0):
            raise InvalidValueError(f"init must be positive and finite, got {value:g}")
    if len(set(found)) < len(found):
        raise InvalidValueError(f"init {spec!r} names a starting constant twice")
    return found


def ladder_points(fits: Sequence[Fit]) -> list[Point]:
    """Every sub-epoch of every rung that certified something, ordered by area; ``kept``: on the blanket.

    Sub-epoch 0 is noise without a fit and takes no part in the blanket.
    """
    points = [
        Point(fit.path.name, fit.init, one.sub_epoch, one.area, one.accuracy, one.certified)
        for fit in fits
        for one in fit.history
        if one.area is not None
    ]
    fitted = [point for point in points if point.sub_epoch > 0]
    kept = {fitted[k] for k in blanket([(point.area, point.accuracy) for point in fitted])}
    marked = [replace(point, kept=point in kept) for point in points]
    return sorted(marked, key=lambda point: (point.area, point.fit, point.sub_epoch))


def read_ladder(path: Path) -> list[Fit]:
    """The rungs of a ladder by starting constant; a single fit is a ladder of one."""
    if not path.is_dir():
        raise RunError(f"{path} is not a fit: no such directory")
    if RunFiles(path).statement.exists():
        return [read_fit(path)]
    rungs = [read_fit(each) for each in sorted(path.iterdir()) if RunFiles(each).statement.exists()]
    if not rungs:
        raise RunError(f"{path} is not a fit: make one with smoothcert fit-noise")
    return sorted(rungs, key=lambda fit: fit.init)


def finished_fit(path: Path) -> Fit:
    """A single fit that has ended; else an error that says what to name instead."""
    fits = read_ladder(path)
    if len(fits) > 1 or fits[0].path != path:
        names = ", ".join(str(each.path) for each in fits)
        raise RunError(f"{path} is a ladder of fits: name one of {names}")
    if fits[0].noise is None:
        raise RunError(
            f"{path} isn't finished: give the fit-noise command again, and it goes on where it stopped"
        )
    return fits[0]


def write_blanket(path: Path, points: Sequence[Point]) -> None:
    """``blanket.json`` and ``blanket.csv``: all points, those kept marked."""
    rows = [asdict(point) for point in points]
    write_atomically(path / "blanket.json", (json.dumps(rows, indent=2) + "\n").encode())
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else ["fit"])
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path / "blanket.csv", text.getvalue().encode())
