"""Names of features, where a file of tabular data has them, and which of them a fit found sensitive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.npy import opened_npz


def feature_names(spec: str) -> list[str] | None:
    """The array ``feature_names`` of an .npz data set as the command line names it, or None."""
    if not (spec.startswith("npz:") or spec.endswith(".npz")):
        return None
    path = Path(spec.removeprefix("npz:")).expanduser()
    with opened_npz(path) as archive:
        if "feature_names" not in archive:
            return None
        try:
            names = archive["feature_names"]
        except ValueError as error:
            raise DataError(
                f"{path}: 'feature_names' is refused ({error}); save it with np.array(names, dtype=str)"
            ) from None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise DataError(
            f"{path}: 'feature_names' must be one text a feature, found {names.dtype} {names.shape}"
        )
    return [str(name) for name in names.tolist()]


@dataclass(frozen=True)
class Feature:
    """One feature. Rank 1 has the σ that shrank most or grew least: the model relies on it most."""

    name: str
    place: tuple[int, ...]
    sigma: float
    factor: float
    """σ over where the fit started it: the same for all features of one importance, whatever their units."""
    rank: int
    half_width: float | None = None
    """How far it alone may change, either way, without changing the answer."""


def ranked_features(
    sigmas: NDArray[np.float64],
    start: NDArray[np.float64],
    names: Sequence[str] | None = None,
    reach: float | None = None,
) -> list[Feature]:
    """Every number of an input from the most sensitive on; equal factors share a rank.

    ``start``: σ before the fit. ``reach``: the equal-volume radius of a certified region; along axis i the region
    reaches σ_i over the geometric mean times that far.
    """
    if names is not None and len(names) != sigmas.size:
        raise InvalidValueError(f"{len(names)} feature names for {sigmas.size} numbers: give one for each")
    flat, factors = sigmas.ravel(), (sigmas / start).ravel()
    mean = float(np.exp(np.log(flat).mean()))
    ordered = np.sort(factors)
    found = []
    for k in np.argsort(factors, kind="stable").tolist():
        place = tuple(int(i) for i in np.unravel_index(k, sigmas.shape))
        name = names[k] if names is not None else str(place[0] if len(place) == 1 else place)
        half_width = None if reach is None else float(flat[k]) / mean * reach
        rank = int(np.searchsorted(ordered, factors[k])) + 1
        found.append(Feature(name, place, float(flat[k]), float(factors[k]), rank, half_width))
    return found


def ranked_groups(
    features: Sequence[Feature], labels: NDArray[np.int64], names: Sequence[str]
) -> list[Feature]:
    """A line for each group of coordinates that share a factor, under its name and ranked among groups.

    ``sigma`` is the geometric mean of theirs, ``half_width`` how far any one of them may change alone.
    """
    members: dict[int, list[Feature]] = {}
    for feature in features:
        members.setdefault(int(labels[feature.place]), []).append(feature)
    factors = np.sort([group[0].factor for group in members.values()])
    found = []
    for number, group in members.items():
        widths = [one.half_width for one in group if one.half_width is not None]
        found.append(
            replace(
                group[0],
                name=names[number],
                sigma=float(np.exp(np.mean(np.log([one.sigma for one in group])))),
                rank=int(np.searchsorted(factors, group[0].factor)) + 1,
                half_width=min(widths, default=None),
            )
        )
    return found
