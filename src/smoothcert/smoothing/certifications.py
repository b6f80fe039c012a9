"""Certifications: the answers for many inputs as a list, and as columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.errors import InvalidValueError
from smoothcert.extras import require
from smoothcert.runs.columns import Records, objects
from smoothcert.runs.parquet import write_columns
from smoothcert.runs.record_figures import (
    average_certified_radius,
    certified_accuracy,
    correct_radii,
    step_counts,
)
from smoothcert.runs.records import Record
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.inputs import as_numpy, class_numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SHOWN = 3  # answers at either end of a long list


class Certifications(list[Certification]):
    """A list of answers, in the order of the inputs, with a column for each of their fields that is a number or a name.

    ``class_names``: what the model calls its classes; labels are then given by name, as the model was taught them.
    """

    def __init__(
        self, answers: Iterable[Certification] = (), class_names: Sequence[Any] | None = None
    ) -> None:
        super().__init__(answers)
        self.class_names = None if class_names is None else tuple(class_names)

    @overload
    def __getitem__(self, place: SupportsIndex) -> Certification: ...
    @overload
    def __getitem__(self, place: slice) -> Certifications: ...
    def __getitem__(self, place: SupportsIndex | slice) -> Certification | Certifications:
        if isinstance(place, slice):
            return Certifications(super().__getitem__(place), self.class_names)
        return super().__getitem__(place)

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The certified classes by number; ABSTAIN (−1) where nothing was certified."""
        return np.array([answer.predicted for answer in self], dtype=np.int64)

    @property
    def radius(self) -> NDArray[np.float64]:
        """The certified radii; 0 where nothing was certified."""
        return np.array([answer.radius for answer in self], dtype=np.float64)

    @property
    def abstained(self) -> NDArray[np.bool_]:
        """Where nothing was certified."""
        return np.array([answer.abstained for answer in self], dtype=np.bool_)

    @property
    def label(self) -> NDArray[np.object_]:
        """What the model calls the certified classes; None where it abstained or has only numbers."""
        return objects([answer.label for answer in self])

    @property
    def sigma(self) -> NDArray[np.float64]:
        """The noise of each."""
        return np.array([answer.sigma for answer in self], dtype=np.float64)

    @property
    def seconds(self) -> NDArray[np.float64]:
        """The worker time that the votes took."""
        return np.array([answer.seconds for answer in self], dtype=np.float64)

    def records(self, y: ArrayLike) -> Records:
        """The answers beside their labels ``y``, as a run keeps them; numbered by their place."""
        labels = self._numbers(y)
        return Records.of(
            record_of(answer, place, label) for place, (answer, label) in enumerate(zip(self, labels))
        )

    def accuracy(self, y: ArrayLike, radii: float | Sequence[float] = 0.0) -> Any:
        """Certified accuracy: the share of inputs that are right and certified at radius ≥ r, for each of ``radii``.

        One number for one radius. A wrong answer and an abstention both count against it.
        """
        asked = as_numpy(radii)
        if asked.dtype.kind not in "biuf" or asked.ndim > 1 or not bool((asked >= 0).all()):
            raise InvalidValueError(f"radii must be numbers that aren't negative, got {radii!r}")
        found = certified_accuracy(self.records(y), np.atleast_1d(asked).astype(np.float64).tolist())
        return float(found[0]) if asked.ndim == 0 else found

    def acr(self, y: ArrayLike) -> float:
        """Average certified radius: wrong answers and abstentions count as 0."""
        return average_certified_radius(self.records(y))

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns by name, as plain values."""
        return {
            "row": [place if answer.row is None else answer.row for place, answer in enumerate(self)],
            "predicted": self.predicted.tolist(),
            "label": list(self.label),
            "radius": self.radius.tolist(),
            "abstained": self.abstained.tolist(),
            "sigma": self.sigma.tolist(),
            "seconds": self.seconds.tolist(),
        }

    def to_dataframe(self) -> Any:
        """The columns as a pandas DataFrame, a row for each input."""
        try:
            from pandas import DataFrame, Series  # type: ignore[import-not-found,import-untyped,unused-ignore]
        except ImportError:
            raise InvalidValueError(
                "to_dataframe() needs pandas: pip install pandas, or take the columns from to_dict()"
            ) from None
        # Labels as they are: of numbers and None pandas would make floats and NaN.
        return DataFrame(self.to_dict() | {"label": Series(self.label, dtype=object)})

    def to_parquet(self, path: str | Path) -> Path:
        """The columns as a Parquet file, whose path comes back; for pandas, polars and DuckDB."""
        write_columns(self.to_dict(), Path(path))
        return Path(path)

    def plot(self, y: ArrayLike | None = None, *, ax: Axes | None = None, **style: Any) -> Axes:
        """Draw certified accuracy against the radius: without ``y`` the share that is certified, right or wrong.

        Onto ``ax``, or a new figure of pyplot's; ``style`` goes to matplotlib's ``step``. The axes come back.
        """
        if not self:
            raise InvalidValueError("there is nothing to plot: no input was certified")
        sizes = np.sort(self.radius[~self.abstained]) if y is None else correct_radii(self.records(y))
        if ax is None:
            ax = require("matplotlib.pyplot", "plot()").subplots()[1]
        radii, counts = step_counts(sizes)
        ax.step(radii, 100 * counts / len(self), where="post", **style)
        ax.set_xlabel(f"ℓ{self[0].norm.removeprefix('l')} radius")
        ax.set_ylabel("certified inputs (%)" if y is None else "certified accuracy (%)")
        ax.set_xlim(left=0.0)
        ax.set_ylim(0.0, 101.5)
        return ax

    def __repr__(self) -> str:
        """A line for each answer; of many the first and the last."""
        shown = [repr(answer) for answer in list(self)]
        if len(shown) > 2 * _SHOWN:
            shown = [*shown[:_SHOWN], f"… {len(shown) - 2 * _SHOWN} more …", *shown[-_SHOWN:]]
        lines = "".join(f"\n  {line}," for line in shown)
        return f"Certifications([{lines}\n])" if shown else "Certifications([])"

    def _numbers(self, y: ArrayLike) -> list[int]:
        """The number of each label: its place among the model's names, or the number that it is."""
        names = self.class_names
        classes = len(self[0].estimation.counts) if self else 0  # votes are counted for each
        found = class_numbers(y, names, classes)
        if len(found) != len(self):
            raise InvalidValueError(f"y must have a label for each of {len(self)} answers, got {len(found)}")
        numbers = []
        for label, number in found:
            if number is None:
                known = f"0 to {classes - 1}" if names is None else ", ".join(map(repr, names[:8]))
                raise InvalidValueError(f"y holds {label!r}, which is no class of the model; it has {known}")
            numbers.append(number)
        return numbers


def record_of(answer: Certification, index: int, label: int, base: int | None = None) -> Record:
    """What a run keeps of an answer to the input called ``index``."""
    return Record(
        index,
        label,
        answer.predicted,
        answer.radius,
        answer.sigma,
        answer.seconds,
        answer.selection,
        answer.estimation,
        base,
        answer.volume_radius,
        answer.stopped,
    )
