"""A fit of noise: what is asked of it, how coordinates are grouped, and what it says of a model's features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError, check_count, check_positive, check_probability
from smoothcert.files import MOST_TEXT, parse_json, read_file
from smoothcert.knobs import knob
from smoothcert.npy import load_npy, opened_npz
from smoothcert.perturb.base import NOISES
from smoothcert.registry import check_name, suggesting_fields

CALIBRATION, VALIDATION, VOTES = 2000, 200, 250
"""Of a network in int8: rows that ranges are taken from, inputs held out for its statement, noisy copies of each."""

RouteKind = Literal["gradient", "votes"]
ScaleKind = Literal["none", "std"]


@suggesting_fields
@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """One fit from one starting constant. Defaults are the paper's for MNIST, in pixels; the validation is smaller.

    The paper's rate .001 moves σ of normalised inputs; one of their units is 0.3081 in pixels, so a step is 3.081e-4
    here. docs/nonuniform.md has the settings of its other data sets.
    """

    init: float
    """Where every σ starts, in the units of the inputs."""
    noise: str = knob(
        "gaussian",
        "kind of noise: gaussian certifies ellipsoids; uniform stretched ℓ1 balls",
        choices="smoothcert.perturb.base:NOISES",
    )
    route: RouteKind = knob(
        "gradient",
        "how σ is moved: gradient (torch models, the default for them) or votes (any model: each group is tried "
        "larger and smaller)",
        option="fit_by",
    )
    groups: str = knob(
        "pixel",
        "which coordinates share a σ: pixel (none), channel, rows, patch:K, a list 0,0,1 or a .json or .npy file of "
        "labels",
    )
    rank: int | None = knob(None, "for images: ln σ has this rank over rows and columns, instead of groups")
    scale: ScaleKind = knob(
        "none",
        "where σ starts: at --init, or (std) at --init times each coordinate's standard deviation over the data, for "
        "features in units of their own",
    )
    sub_epochs: int = knob(5, "passes over the inputs (gradient) or sweeps over the groups (votes)")
    decay: float = knob(0.5, "the step is multiplied by this after each sub-epoch")
    lr: float = knob(3.081e-4, "step of a σ where it starts, by Adam", group="gradient")
    batch: int = knob(128, "inputs of a step", group="gradient", option="step_inputs")
    n0: int = knob(32, "samples of each input in a step", group="gradient", option="step_samples")
    beta: float = knob(
        1.0,
        "the model's scores are multiplied by this before the softmax; raise it for a model that is right but unsure",
        group="gradient",
    )
    factor: float = knob(4.0, "how far a group's σ is tried up and down in the first sweep", group="votes")
    votes: int = knob(64, "votes for each input at each σ tried", group="votes")
    tried: int = knob(128, "inputs that each sweep votes on", group="votes")
    validation: int = knob(256, "inputs kept apart for it", group="validation")
    validation_n0: int = knob(32, "votes that choose the class", group="validation")
    validation_n: int = knob(256, "votes that bound its probability", group="validation")
    alpha: float = knob(0.001, "level of those bounds", group="validation")
    seed: int = knob(0, "names the random streams")

    def __post_init__(self) -> None:
        check_positive("init", self.init)
        NOISES[self.noise]  # an unknown name is an error that lists the known ones
        check_name("route", self.route, get_args(RouteKind))
        check_name("scale", self.scale, get_args(ScaleKind))
        for each in fields(self):
            if each.type == "int":
                check_count(each.name, getattr(self, each.name), least=0 if each.name == "seed" else 1)
        check_positive("lr", self.lr)
        check_positive("beta", self.beta)
        if not 0 < self.decay <= 1:
            raise InvalidValueError(f"decay must lie above 0 and not above 1, got {self.decay}")
        if not 1 < self.factor <= 64:
            raise InvalidValueError(f"factor must lie above 1 and not above 64, got {self.factor}")
        check_probability("alpha", self.alpha)
        if self.rank is not None:
            check_count("rank", self.rank)
            if self.groups != "pixel":
                raise InvalidValueError(
                    f"--rank {self.rank} and --groups are mutually exclusive: leave one out"
                )
            if self.route == "votes":
                raise InvalidValueError("rank needs gradients: with --fit-by votes, use --groups instead")

    def as_json(self) -> dict[str, Any]:
        """Every field that the route uses, in plain values."""
        unused = (
            {"lr", "batch", "n0", "beta", "rank"} if self.route == "votes" else {"factor", "votes", "tried"}
        )
        return {name: value for name, value in asdict(self).items() if name not in unused}


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
                f"{path}: 'feature_names' is rejected ({error}); save np.array(names, dtype=str)"
            ) from None
    if names.ndim != 1 or names.dtype.kind != "U":
        raise DataError(f"{path}: 'feature_names' must be texts, got {names.dtype} {names.shape}")
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
    volume_radius: float | None = None,
) -> list[Feature]:
    """Every number of an input from the most sensitive on; equal factors share a rank.

    ``start``: σ before the fit. ``volume_radius``: the equal-volume radius of a certified region; its half-width along
    axis i is that times σ_i over the geometric mean.
    """
    if names is not None and len(names) != sigmas.size:
        raise InvalidValueError(f"{len(names)} feature names for {sigmas.size} numbers: give one for each")
    flat, factors = sigmas.ravel(), (sigmas / start).ravel()
    mean = float(np.exp(np.log(flat).mean()))
    ordered = np.sort(factors)
    ranked = []
    for k in np.argsort(factors, kind="stable").tolist():
        place = tuple(int(i) for i in np.unravel_index(k, sigmas.shape))
        name = names[k] if names is not None else str(place[0] if len(place) == 1 else place)
        half_width = None if volume_radius is None else float(flat[k]) / mean * volume_radius
        rank = int(np.searchsorted(ordered, factors[k])) + 1
        ranked.append(Feature(name, place, float(flat[k]), float(factors[k]), rank, half_width))
    return ranked


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
    return [
        replace(
            group[0],
            name=names[number],
            sigma=float(np.exp(np.mean(np.log([feature.sigma for feature in group])))),
            rank=int(np.searchsorted(factors, group[0].factor)) + 1,
            half_width=min((f.half_width for f in group if f.half_width is not None), default=None),
        )
        for number, group in members.items()
    ]


FORMS = "pixel, channel, rows, patch:K, a list such as 0,0,1, or a .json or .npy file of labels"


def group_labels(spec: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """A group number (0 … groups−1) for each coordinate of an input of this shape.

    ``pixel``: every coordinate by itself. ``channel``: the first axis of an image. ``rows``: a row of a channel.
    ``patch:K``: squares of K×K pixels of a channel. Else labels of the user's own, any integers.
    """
    if spec == "pixel":
        return np.arange(math.prod(shape)).reshape(shape)
    return _of_image(spec, shape) if named_groups(spec) else _given(spec, shape)


def named_groups(spec: str) -> bool:
    """Whether the groups follow from the inputs' shape alone, and not from labels of the user's own."""
    return spec in ("pixel", "channel", "rows") or spec.startswith("patch:")


def group_names(spec: str, shape: tuple[int, ...]) -> list[str] | None:
    """What each group of an image is called, in the order of their numbers; None where each coordinate has its own.

    Labels of the user's own aren't kept with a fit: None for those also.
    """
    if spec == "pixel" or not named_groups(spec) or len(shape) != 3:
        return None
    channels = [f"channel {k}" for k in range(shape[0])]
    if spec == "channel":
        return channels
    of = [""] if shape[0] == 1 else [f" of {channel}" for channel in channels]
    if spec == "rows":
        return [f"row {k}{channel}" for channel in of for k in range(shape[1])]
    down, across = (-(-length // int(spec.removeprefix("patch:"))) for length in shape[1:])
    return [f"patch {r}, {c}{channel}" for channel in of for r in range(down) for c in range(across)]


def _of_image(spec: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    if len(shape) != 3:
        raise InvalidValueError(
            f"groups {spec!r} needs images of shape (channels, height, width), got inputs of shape {shape}; use "
            "pixel, a list or a file"
        )
    channel, row, column = np.indices(shape)
    if spec == "channel":
        return np.asarray(channel, dtype=np.int64)
    if spec == "rows":
        return np.asarray(channel * shape[1] + row, dtype=np.int64)
    side = spec.removeprefix("patch:")
    if not (side.isdecimal() and 1 <= int(side) <= max(shape[1:])):
        raise InvalidValueError(f"groups patch:K needs a K from 1 to {max(shape[1:])}, got {spec!r}")
    down, across = (-(-length // int(side)) for length in shape[1:])
    return np.asarray((channel * down + row // int(side)) * across + column // int(side), dtype=np.int64)


def _given(spec: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
    path = Path(spec)
    try:
        if path.suffix == ".npy":
            labels = load_npy(path)
        elif path.suffix == ".json":
            labels = np.asarray(parse_json(read_file(path, MOST_TEXT)))
        else:
            labels = np.array([int(label) for label in spec.split(",")])
    except (OSError, ValueError, DataError) as error:
        if path.suffix in (".npy", ".json"):
            raise DataError(f"groups: {path} can't be read as integer labels ({error})") from None
        raise InvalidValueError(f"groups must be {FORMS}; got {spec!r}") from None
    if labels.dtype.kind not in "iu":
        raise InvalidValueError(f"groups {spec!r}: labels must be integers, got {labels.dtype}")
    if labels.size != math.prod(shape):
        raise InvalidValueError(
            f"groups {spec!r}: {labels.size} labels for inputs of {math.prod(shape)} numbers (shape {shape}); give one "
            "label for each"
        )
    _, numbers = np.unique(labels, return_inverse=True)
    return np.asarray(numbers, dtype=np.int64).reshape(shape)
