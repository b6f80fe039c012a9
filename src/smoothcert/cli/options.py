"""Options that several commands share, each group with one meaning everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter

from smoothcert import datasets
from smoothcert.bounds.base import BOUNDS
from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.tables import with_options
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.base import NOISES
from smoothcert.runs.statement import Choice, Shard

if TYPE_CHECKING:
    from smoothcert.smoothing.classifier import ModelClassifier
    from smoothcert.smoothing.holding import HoldingClassifier

    BoundName: TypeAlias = str
    NoiseName: TypeAlias = str
else:
    BoundName = Literal[tuple(BOUNDS)]
    NoiseName = Literal[tuple(NOISES)]

_NOISES = ", ".join(f"{name} ({NOISES[name].words})" for name in NOISES)

ModelName = Annotated[
    str,
    Parameter(
        help="A training run, .safetensors, .onnx, a published checkpoint (.pth, .pt, .tar), a fitted estimator "
        "(.joblib, .pkl; with --trust-pickle), or module:function."
    ),
]
Sigma = Annotated[
    float | None,
    Parameter(help="Standard deviation of the noise in input units (default: as the model was trained)."),
]
DataName = Annotated[
    str | None,
    Parameter(
        alias="-d",
        help=f"{', '.join(DATASETS)}, folder:PATH, npz:PATH, csv:PATH, parquet:PATH (default: what the model was "
        "trained on).",
    ),
]
NoiseText = Annotated[
    str | None,
    Parameter(
        help=f"{_NOISES}. Or a directory made by fit noise, or a .npy file "
        "with a per-coordinate σ (uniform:FILE.npy for uniform noise): these certify an ellipsoid, or an ℓ1 ball "
        "stretched along its axes, and need no --sigma (default: what the model was trained with, or gaussian)."
    ),
]

_MODEL = Group("Models that don't describe themselves", sort_key=5)
_DATA = Group("Which inputs", sort_key=4)
_TABLE = Group("Tables (csv:PATH, parquet:PATH)", sort_key=4)
_OUTPUT = Group("Output", sort_key=30)
ORIGIN = Group("Where model and data are (what a run names is not opened unasked)", sort_key=5)


@Parameter(name="*", group=_OUTPUT)
@dataclass(frozen=True)
class OutputOptions:
    """How much to print."""

    quiet: bool = False
    """No progress and no notes; errors only."""
    json: bool = False
    """One JSON object on standard output."""
    log_format: Literal["text", "json"] | None = None
    """How progress and errors are told: text, or json, an object a line (docs/scripts.md)."""


@Parameter(name="*", group=_MODEL)
@dataclass(frozen=True)
class ModelOptions:
    """How to read a model that doesn't describe itself."""

    architecture: str | None = None
    """Network of a bare state dict (lenet, small-cnn, cifar_resnet20, …)."""
    normalisation: Literal["standard", "centre", "none"] | None = None
    """What the first layer of a published checkpoint did, where the file doesn't hold it: standard, (x − mean) / sd
    (default); centre, x − mean (Salman et al.'s models); none, nothing."""
    outputs: Annotated[
        Literal["labels", "scores", "probabilities"] | None, Parameter(name="--model-returns")
    ] = None
    """What the model returns (default: scores; estimators: labels)."""
    output: Annotated[str | None, Parameter(name="--model-output")] = None
    """Which of several outputs votes, by its name, or its place in a tuple."""
    classes: int | None = None
    """Number of classes of a function that returns labels; 2 if one number a row tells two classes apart (a logit with
    --model-returns scores, or one of the --model-returns probabilities)."""
    input_dtype: Literal["int8", "int16", "int32", "int64", "uint8"] | None = None
    """The model takes whole numbers: noise is added in floating point, then rounded and clipped to this type."""
    constants: Path | None = None
    """An .npz file with an array for each input of an ONNX file but the one that is smoothed."""
    thread_safe: Annotated[bool | None, Parameter(negative=None)] = None
    """Whether several workers may evaluate the model at once (default: torch and ONNX models, not functions)."""
    retries: int | None = None
    """How often a failed call of a function is repeated, after growing pauses: for functions that ask a service."""
    sharpen: float | None = None
    """Multiply the scores by this before soft votes are made of them (MACER's β, 16 there; torch models)."""
    trust_pickle: bool = False
    """Unpickle MODEL (.joblib, .pkl, or a checkpoint) fully. It can run any code: only for files you trust."""


Names = Annotated[
    tuple[str, ...],
    Parameter(
        name=("--name", "--labels"),
        consume_multiple=True,
        help="What to call the runs, in order (default: the shortest names that tell their directories apart).",
    ),
]

Held = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True,
        help="Columns without noise, by number or name: categories, and what cannot change. Certificates are about "
        "changes of the others.",
    ),
]


def held_columns(words: list[str] | None) -> list[int] | list[str] | None:
    """Numbers where all are numbers, else names; with spaces or commas between them."""
    if words is None:
        return None
    columns = [word.strip() for each in words for word in each.split(",") if word.strip()]
    return [int(word) for word in columns] if all(word.isdecimal() for word in columns) else columns


def held_back(classifier: ModelClassifier, hold: list[str] | None) -> ModelClassifier | HoldingClassifier:
    """The classifier with the columns of ``--hold`` held, where any are."""
    from smoothcert.smoothing.holding import HoldingClassifier

    columns = held_columns(hold)
    return classifier if columns is None else HoldingClassifier(classifier, columns)


def settle_for(classifier: ModelClassifier, inputs: Dataset, hold: list[str] | None) -> None:
    """Settle what the plan left open for these inputs, with the columns of ``--hold`` held."""
    from smoothcert.smoothing.holding import held_finely
    from smoothcert.smoothing.inputs import held_mask

    columns, fine = held_columns(hold), False
    held_back(classifier, hold)  # one that can't hold any refuses before its inputs are looked at
    if columns is not None:
        fine = held_finely(inputs, held_mask(columns, inputs.input_shape, classifier.base.feature_names))
    classifier.settle_for(inputs.levels, inputs.largest, fine=fine)


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True)
class DataOptions:
    """Which inputs."""

    split: Literal["test", "train"] = "test"
    """Split of the data set."""
    data_dir: Path | None = None
    """Where its files are (default: the environment variable SMOOTHCERT_DATA)."""
    every: int = 1
    """Take every K-th input."""
    max: int | None = None
    """Stop after M inputs, whatever --every is."""
    range: str | None = None
    """Only inputs A to B − 1, counted from 0: A:B, such as 500:1000; --every counts from A."""
    target: Annotated[str | None, Parameter(group=_TABLE)] = None
    """Column of classes."""
    categorical: Annotated[list[str] | None, Parameter(group=_TABLE, consume_multiple=True)] = None
    """Columns of numbers that are categories; columns of text are without being named."""
    ignore: Annotated[list[str] | None, Parameter(group=_TABLE, consume_multiple=True)] = None
    """Columns that the model does not see."""
    separator: Annotated[str | None, Parameter(group=_TABLE)] = None
    """Between the cells of a csv file (default: as its header suggests)."""

    def choice(self, shard: Shard | None = None) -> Choice:
        """The inputs that are meant."""
        if self.range is None:
            return Choice(self.every, self.max, shard)
        written = re.fullmatch(r"(\d+):(\d+)", self.range)
        if written is None:
            raise InvalidValueError(f"range must be A:B, such as 500:1000, got {self.range!r}")
        return Choice(self.every, self.max, shard, int(written[1]), int(written[2]))

    def spec(self, name: str) -> str:
        """The data set by name or path, with the options of tables behind it."""
        columns = {
            option: tuple(column.strip() for word in words for column in word.split(",") if column.strip())
            for option in ("categorical", "ignore")
            if (words := getattr(self, option)) is not None
        }
        texts = {
            option: text for option in ("target", "separator") if (text := getattr(self, option)) is not None
        }
        return with_options(name, {**columns, **texts})

    def load(self, name: str) -> Dataset:
        """Read the data set."""
        return datasets.load(self.spec(name), self.split, self.data_dir)


@Parameter(name="*", group=ORIGIN)
@dataclass(frozen=True)
class OriginOptions:
    """Where a run's data is."""

    dataset: str | None = None
    """The data set, where the run doesn't name a registered one, such as mnist."""
    split: Literal["test", "train"] | None = None
    """Its split."""
    data_dir: Path | None = None
    """Where its files are."""


# Other defaults need classes of their own: given one option of a group, cyclopts makes the whole group anew.


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True)
class TrainingDataOptions(DataOptions):
    """Which inputs, of the training split by default."""

    split: Literal["test", "train"] = "train"


@Parameter(name="*", group=_DATA)
@dataclass(frozen=True)
class FewInputsOptions(DataOptions):
    """Which inputs: a few from all over, by default."""

    every: int = 20
    max: int | None = 50
