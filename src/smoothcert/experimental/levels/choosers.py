"""Choosers of a level for each input: constant, by a statistic, or fitted and stored in a directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError, ModelError, check_count, check_positive
from smoothcert.files import parse_json, read_file, unsealed, write_sealed
from smoothcert.knobs import knob
from smoothcert.perturb.base import NOISES
from smoothcert.runs.layout import RunFiles
from smoothcert.sigma_levels import SigmaLevels

_STATISTICS: dict[str, Callable[[NDArray[Any]], NDArray[np.float64]]] = {
    "mean": lambda rows: rows.mean(axis=1),
    "spread": lambda rows: rows.std(axis=1),
    "energy": lambda rows: np.square(rows).mean(axis=1),
}
_MOST_BYTES = 1 << 20  # of a chooser's statement


@dataclass(frozen=True)
class ConstantChooser:
    """The same level everywhere: certificates are exactly those of that σ, and no vote is spent on choosing."""

    level: int
    """Counted from 0."""


@dataclass(frozen=True)
class StatisticChooser:
    """The level is how many of the ``edges`` a statistic of the noisy input exceeds.

    ``mean``, ``spread`` (standard deviation) or ``energy`` (mean square) of all its numbers. Noise adds σ² to the
    energy: edges are to be chosen for noisy inputs.
    """

    statistic: str
    """``mean``, ``spread`` or ``energy``."""
    edges: tuple[float, ...]
    """Ascending; one fewer than there are levels."""

    def __post_init__(self) -> None:
        if self.statistic not in _STATISTICS:
            raise InvalidValueError(f"no statistic {self.statistic!r}; there are {', '.join(_STATISTICS)}")
        if not self.edges or any(a >= b for a, b in pairwise(self.edges)):
            raise InvalidValueError(f"the edges of {self.statistic} must be ascending, got {self.edges}")

    @property
    def text(self) -> str:
        """As it is written: ``spread:0.3,0.4``."""
        return f"{self.statistic}:{','.join(map(repr, self.edges))}"

    @property
    def levels(self) -> int:
        """How many levels the edges make."""
        return len(self.edges) + 1

    def __call__(self, batch: NDArray[Any]) -> NDArray[np.int64]:
        """The level of each row."""
        rows = np.asarray(batch, dtype=np.float64).reshape(len(batch), -1)
        return np.searchsorted(self.edges, _STATISTICS[self.statistic](rows), side="left").astype(np.int64)


def chooser_named(text: str) -> ConstantChooser | StatisticChooser | None:
    """``constant:1`` or ``spread:0.3,0.4``; None where the text names neither, but perhaps a model."""
    name, colon, argument = text.partition(":")
    if not colon or name not in ("constant", *_STATISTICS):
        return None
    try:
        if name == "constant":
            return ConstantChooser(int(argument))
        edges = tuple(float(edge) for edge in argument.split(","))
    except ValueError:
        raise InvalidValueError(
            f"{text!r} is not a chooser: write constant:LEVEL (from 0) or {name}:EDGE,…"
        ) from None
    return StatisticChooser(name, edges)


@dataclass(frozen=True, kw_only=True)
class LevelFitPlan:
    """One chooser among ``sigmas``, fitted on the votes of training inputs at every level."""

    sigmas: tuple[float, ...]
    noise: str = knob(
        "gaussian",
        "kind of noise, of the levels and of the chooser",
        choices="smoothcert.perturb.base:NOISES",
    )
    chooser_sigma: float | None = knob(None, "standard deviation of its noise (default: the largest level)")
    inputs: int = knob(4000, "inputs that are voted on, drawn from those there are", group="votes")
    votes: int = knob(256, "votes for each input at each level", group="votes")
    validation: int = knob(1000, "of these inputs, so many are kept apart from the fit", group="votes")
    network: str | None = knob(
        None,
        "the chooser's network (default: lenet for images from 16×16 on, else small-cnn)",
        group="chooser",
    )
    epochs: int = knob(30, "passes over the inputs", group="chooser")
    batch: int = knob(64, "inputs of a step", group="chooser", option="step_inputs")
    copies: int = knob(8, "noisy copies of each input in a step", group="chooser")
    lr: float = knob(1e-3, "learning rate of Adam, which falls to 0 along a cosine", group="chooser")
    seed: int = knob(0, "names the random streams")

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", self.levels.sigmas)
        NOISES[self.noise]  # an unknown name is an error that lists the known ones
        for name in ("inputs", "votes", "validation", "epochs", "batch", "copies"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        check_positive("lr", self.lr)
        if self.network is not None:
            from smoothcert.architectures.base import check_architecture

            check_architecture(self.network)

    @property
    def levels(self) -> SigmaLevels:
        """The levels and the chooser's noise, as a plan of certification states them."""
        return SigmaLevels(tuple(self.sigmas), self.chooser_sigma)

    @property
    def noise_sigma(self) -> float:
        """σ of the chooser's noise."""
        return self.levels.noise_sigma

    def as_json(self) -> dict[str, Any]:
        """The fields that a statement has."""
        fields = asdict(self) | {"chooser_sigma": self.noise_sigma}
        return {"sigma_levels": list(fields.pop("sigmas")), **fields}


def level_names(sigmas: Sequence[float]) -> tuple[str, ...]:
    """What a fitted chooser calls its classes: the σ of each level."""
    return tuple(f"{sigma:g}" for sigma in sigmas)


def write_chooser_statement(
    directory: Path, sigmas: tuple[float, ...], chooser_sigma: float, about: Mapping[str, Any]
) -> None:
    """State levels and noise beside a chooser's weights, and whatever else is to be known of its fit."""
    fields = {"sigma_levels": list(sigmas), "chooser_sigma": chooser_sigma, **about}
    write_sealed(RunFiles(directory).chooser, fields)


def read_chooser_fields(directory: Path) -> dict[str, Any] | None:
    """All that is stated beside a chooser's weights; None where nothing is."""
    path = RunFiles(directory).chooser
    if not path.is_file():
        return None
    try:
        return unsealed(parse_json(read_file(path, _MOST_BYTES).decode()))
    except (ValueError, DataError) as error:
        raise ModelError(f"{path} is damaged ({error}); fit the chooser again") from None


def read_chooser_statement(directory: Path) -> tuple[tuple[float, ...], float] | None:
    """Levels and σ of the noise; None where the path isn't a fitted chooser's. Nothing that it names is opened."""
    if (fields := read_chooser_fields(directory)) is None:
        return None
    try:
        levels = SigmaLevels(tuple(fields["sigma_levels"]), fields["chooser_sigma"])
    except (ValueError, KeyError, TypeError, InvalidValueError) as error:
        path = RunFiles(directory).chooser
        raise ModelError(f"{path} is damaged ({error}); fit the chooser again") from None
    return levels.sigmas, levels.noise_sigma
