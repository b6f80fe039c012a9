"""Inputs on the page: runs grouped by their data, the data set behind them, which inputs are shown, and how."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothcert import datasets
from smoothcert.analysis.changes import CertifiedChanges, is_of_changes
from smoothcert.analysis.facts import data_in_words, dataset_of, split_of
from smoothcert.analysis.metrics import largest_radius
from smoothcert.datasets.base import Dataset
from smoothcert.datasets.tables import encoded_as
from smoothcert.errors import DataError, SmoothcertError
from smoothcert.perturb.base import NOISES, Noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.rounding import decimal_down
from smoothcert.runs.records import UNKNOWN, Floats, Ints
from smoothcert.runs.run import Run, registered_dataset, suggested_options
from smoothcert.runs.statement import DataStatement


@dataclass(frozen=True, eq=False)
class Group:
    """Runs on the same data. ``by_labels`` says that this was told from indices and labels, for want of a hash."""

    name: str
    runs: tuple[Run, ...]
    by_labels: bool

    def reach(self) -> float:
        """The largest radius certified correctly."""
        return max((largest_radius(run.records) for run in self.runs), default=0.0)

    def indices(self) -> Ints:
        """Every input that a run of the group has, in order."""
        empty = np.array([], dtype=np.int64)
        return np.unique(np.concatenate([empty, *(run.records.index for run in self.runs)]))


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Runs with the same data hash together; logs, which state none, where indices and labels agree."""
    members: dict[str, list[Run]] = {}
    for run in runs:
        members.setdefault(run.manifest.data.sha256 or f"labels {_labels_digest(run)}", []).append(run)
    groups = []
    for same in members.values():
        named = next((name for run in same if (name := dataset_of(run)) is not None), None)
        split = next((name for run in same if (name := split_of(run)) is not None), None)
        by_labels = not same[0].manifest.data.has(DataStatement.sha256)
        # Several groups may be nameless; their labels tell them apart.
        name = named or f"data set not named (labels {_labels_digest(same[0])[:8]})"
        name = data_in_words(name, split) or name
        groups.append(Group(name, tuple(same), by_labels))
    return groups


def _labels_digest(run: Run) -> str:
    return hashlib.sha256(run.records.index.tobytes() + run.records.label.tobytes()).hexdigest()


@dataclass(frozen=True)
class DataPlace:
    """Where the data is now; what is None is taken from the runs."""

    dataset: str | None = None
    split: str | None = None
    data_dir: Path | None = None

    @property
    def named(self) -> bool:
        """Whether anything was said."""
        return any(part is not None for part in (self.dataset, self.split, self.data_dir))


@dataclass(frozen=True, eq=False)
class FoundData:
    """A group's data set, or why there is none; ``note`` goes on the page either way."""

    dataset: Dataset | None
    note: str


def find_data(groups: Sequence[Group], place: DataPlace) -> list[FoundData]:
    """Each group's data set. Where a place was named but no group's inputs are there, that is an error."""
    # Each data set is read once, however many groups ask for it, and its hash computed where a run states one.
    load, check = cache(datasets.load), cache(Dataset.check_contents)
    data_sets = []
    first_error: SmoothcertError | None = None
    for group in groups:
        try:
            data_sets.append(_find(group.runs[0], place, load, check))
        except SmoothcertError as error:
            first_error = first_error or error
            data_sets.append(FoundData(None, f"Pictures are missing: {error}"))
    if place.named and first_error is not None and all(data.dataset is None for data in data_sets):
        raise first_error
    return data_sets


def _find(
    run: Run,
    place: DataPlace,
    load: Callable[[str, str, Path | None], Dataset],
    check: Callable[[Dataset, object, str], None],
) -> FoundData:
    origin, data = run.manifest.origin, run.manifest.data
    stated = data.sha256
    spec = place.dataset or (None if stated is None else registered_dataset(run.manifest))
    if spec is None:
        named = None if run.manifest.kind == "import" else origin.dataset or data.name
        raise DataError(
            f"{run.name} doesn't say where its data set is; name it with --dataset (and --data-dir, --split)"
            if named is None
            else f"{run.name} names a data set by its path or without its hash, which is not opened unasked; if you "
            f"want its inputs on the page, add {suggested_options(dataset=named)}"
        )
    dataset = load(spec, place.split or origin.split or "test", place.data_dir)
    dataset = encoded_as(dataset, run.manifest.plan.as_json())
    if stated is None:
        _check_labels(run, dataset)
        return FoundData(
            dataset,
            f"Inputs come from {dataset.name}. The run states no hash of its data: that they are the certified ones "
            "was checked by their labels only.",
        )
    check(dataset, stated, run.name)
    return FoundData(
        dataset,
        f"Inputs come from {dataset.name}, whose sha256 {stated[:12]}… is the one the run was made with.",
    )


def _check_labels(run: Run, dataset: Dataset) -> None:
    index, label = run.records.index, run.records.label
    if len(index) and index[-1] >= len(dataset):
        raise DataError(
            f"{dataset.name} has {len(dataset)} inputs, but {run.name} has an input {index[-1]}; name the data set it "
            "was made with"
        )
    for place in np.flatnonzero(dataset.labels[index] != label)[:1]:
        raise DataError(
            f"{dataset.name} gives input {index[place]} the label {dataset.labels[index[place]]}, {run.name} gives it "
            f"{label[place]}; name the data set it was made with"
        )


T = TypeVar("T")

MOST_RUNS = 24
"""Runs whose inputs can be looked at one by one; all others are in tables, charts and comparisons."""


def choose_inputs(runs: Sequence[Run], most: int) -> Ints:
    """At most ``most`` inputs: in turn from every run a wrong, an abstained, a barely certified and any other one."""
    lists = [kind.tolist() for run in runs for kind in _kinds(run)]
    return np.array(sorted(_in_turn(lists, most)), dtype=np.int64)


def least_robust(run: Run) -> Ints:
    """Places of the tenth of the right answers (rounded up) with the smallest radii, least first."""
    right = np.flatnonzero(run.records.correct)
    order = right[np.argsort(run.records.radius[right], kind="stable")]
    return order[: math.ceil(len(right) / 10)]


def records_json(run: Run, chosen: Ints) -> dict[str, Any]:
    """The chosen inputs' records as columns, in the order of their index."""
    places = np.flatnonzero(np.isin(run.records.index, chosen))
    votes = run.records.votes
    weak = np.zeros(len(run.records), dtype=bool)
    weak[least_robust(run)] = True
    return {
        "index": run.records.index[places].tolist(),
        "label": run.records.label[places].tolist(),
        "predicted": run.records.predicted[places].tolist(),
        "radius": [float(decimal_down(radius, 6)) for radius in run.records.radius[places].tolist()],
        "sigma": [f"{sigma:g}" for sigma in run.records.sigma[places].tolist()],
        "base": _stated(run.records.base[places]),
        "weak": weak[places].astype(int).tolist(),
        **({"changes": CertifiedChanges.of(run).regions(places.tolist())} if is_of_changes(run) else {}),
        "total": _whole(votes.total[places]),
        "chosen": _stated(votes.chosen[places]),
        "votes": _whole(votes.chosen_votes[places]),
        "rival": _stated(votes.rival[places]),
        "rivalVotes": _whole(votes.rival_votes[places]),
        "leaders": [
            [[int(c), _number(v)] for c, v in zip(classes, counts) if c != UNKNOWN and v > 0]
            for classes, counts in zip(votes.leaders[places], votes.leader_votes[places].tolist())
        ],
    }


def counts_json(run: Run) -> dict[str, int]:
    """How many of all the run's inputs each filter finds."""
    return {
        "all": len(run.records),
        "wrong": int(np.count_nonzero(~run.records.correct & ~run.records.abstained)),
        "abstained": int(np.count_nonzero(run.records.abstained)),
        "weak": len(least_robust(run)),
    }


def explored(groups: Sequence[Group], most: int = MOST_RUNS) -> set[str]:
    """Names of the runs to explore: in turn from every group, so that none goes without."""
    return _in_turn([[run.name for run in group.runs if len(run.records)] for group in groups], most)


def _in_turn(lists: Iterable[Iterable[T]], most: int) -> set[T]:
    """At most so many, in turn from every list, each time the next that isn't among them yet."""
    chosen: set[T] = set()
    turns = [iter(each) for each in lists]
    while turns and len(chosen) < most:
        still = []
        for turn in turns:
            fresh = next((one for one in turn if one not in chosen), None)
            if fresh is not None and len(chosen) < most:
                chosen.add(fresh)
                still.append(turn)
        turns = still
    return chosen


def _kinds(run: Run) -> Iterator[Ints]:
    wrong = np.flatnonzero(~run.records.correct & ~run.records.abstained)
    # Wrong answers that are certified far out come first: they say most about the model.
    yield run.records.index[wrong[np.argsort(-run.records.radius[wrong], kind="stable")]]
    yield run.records.index[run.records.abstained]
    yield run.records.index[least_robust(run)]
    by_radius = run.records.index[np.argsort(run.records.radius, kind="stable")]
    yield by_radius[_spread(len(by_radius))]


def _spread(count: int) -> Ints:
    """0 … count−1 in an order of which every beginning is evenly spread."""
    bits = count.bit_length()
    return np.array(sorted(range(count), key=lambda k: f"{k:0{bits}b}"[::-1]), dtype=np.int64)


def _stated(classes: Ints) -> list[int | None]:
    return [None if c == UNKNOWN else c for c in classes.tolist()]


def _whole(values: Floats) -> list[float | int | None]:
    return [None if math.isnan(value) else _number(value) for value in values.tolist()]


def _number(value: float) -> float | int:
    """Hard votes are whole numbers; sums of probabilities keep one decimal."""
    return int(value) if value == int(value) else round(value, 1)


_LARGEST_SIDE = 96
_MOST_FEATURES = 64


@dataclass(frozen=True, eq=False)
class Gallery:
    """Shows inputs of one data set. Values are mapped from ``low``..``high`` to what a screen can show."""

    dataset: Dataset
    low: float
    high: float

    @classmethod
    def of(cls, dataset: Dataset) -> Gallery:
        """Values in [0, 1] are shown as they are, others from the smallest to the largest of the set."""
        low, high = dataset.value_range()
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        return cls(dataset, low, high if high > low else low + 1.0)

    @property
    def pictures(self) -> bool:
        """Whether inputs are pictures; all others are shown as features."""
        shape = self.dataset.input_shape
        return (len(shape) == 2 and min(shape) > 1) or (len(shape) == 3 and shape[0] in (1, 3))

    def note(self) -> str:
        """What was done to the inputs to show them."""
        if not self.pictures:
            size = int(np.prod(self.dataset.input_shape))
            cut = (
                f" The first {_MOST_FEATURES} of {size} features are drawn." if size > _MOST_FEATURES else ""
            )
            return f"A bar runs from the smallest to the largest value of its feature on this page.{cut}"
        parts = ["Noisy pictures are one draw each, made for this page; values out of range are cut off."]
        if (self.low, self.high) != (0.0, 1.0):
            parts.append(f"Black is {self.low:g} and white {self.high:g}.")
        if max(self.dataset.input_shape[-2:]) > _LARGEST_SIDE:
            parts.append("Pictures are shown smaller than they are, which softens the noise.")
        return " ".join(parts)

    def features(self) -> list[str] | None:
        """Names of a table's columns."""
        columns = self.dataset.columns
        return None if columns is None else list(columns.names)

    def texts(self, index: int) -> list[str]:
        """A table's row as its columns have it: categories by name."""
        columns, row = self.dataset.columns, self.dataset.input(index)
        return (
            []
            if columns is None
            else [columns.text(place, value) for place, value in enumerate(row.tolist())]
        )

    def shown(self, index: int) -> Any:
        """The input: a data URI, or a list of features."""
        return self._view(self.dataset.input(index))

    def shown_noisy(self, index: int, scale: float | NDArray[np.float64], noise: str) -> Any:
        """The input with noise from a stream that depends on the index alone: not one of the votes."""
        x = self.dataset.input(index)
        return self._view(x + scale * _drawn(x.shape, index, noise))

    def _view(self, x: NDArray[np.floating[Any]]) -> Any:
        if not self.pictures:
            return [float(f"{value:.4g}") for value in x.reshape(-1)[:_MOST_FEATURES].tolist()]
        picture = x if x.ndim == 2 else np.moveaxis(x, 0, -1)
        scaled = (_shrunk(picture.astype(np.float64)) - self.low) / (self.high - self.low)
        pixels = np.clip(scaled * 255 + 0.5, 0, 255).astype(np.uint8)
        png = encode_png(pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels)
        return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def _drawn(shape: tuple[int, ...], index: int, noise: str) -> NDArray[np.float64]:
    kind: type[Noise] = DIAGONAL_NOISES[noise] if noise in DIAGONAL_NOISES else NOISES[noise]
    seed = hashlib.sha256(f"smoothcert report|{index}".encode()).digest()
    return kind.sample(np.random.default_rng(int.from_bytes(seed[:16], "little")), shape)


def _shrunk(picture: NDArray[np.float64]) -> NDArray[np.float64]:
    block = -(-max(picture.shape[:2]) // _LARGEST_SIDE)
    if block == 1:
        return picture
    height, width = (max(1, side // block) for side in picture.shape[:2])
    if min(picture.shape[:2]) < block:
        return picture[::block, ::block]
    cut = picture[: height * block, : width * block]
    return np.asarray(cut.reshape(height, block, width, block, *picture.shape[2:]).mean(axis=(1, 3)))


def encode_png(picture: NDArray[np.uint8]) -> bytes:
    """An H×W (grey) or H×W×3 (colour) picture of bytes as a PNG file."""
    pixels = picture[:, :, np.newaxis] if picture.ndim == 2 else picture
    height, width, channels = pixels.shape
    # Every row begins with the number of its filter; 0 is none.
    rows = np.zeros((height, 1 + width * channels), dtype=np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    made = b"\x89PNG\r\n\x1a\n"
    for kind, content in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 9)), (b"IEND", b"")):
        made += (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )
    return made
