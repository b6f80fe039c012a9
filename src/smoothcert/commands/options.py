"""Options that several commands share, each group with one meaning everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Group, Parameter

from smoothcert.commands.written_knobs import choices, members, registered

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset

if TYPE_CHECKING:
    BoundName: TypeAlias = str
    NoiseName: TypeAlias = str
else:  # read from the source: help must come without waiting for torch
    BoundName = choices("smoothcert.bounds", "BOUNDS")
    NoiseName = choices("smoothcert.noise", "NOISES")

_NOISES = ", ".join(
    f"{each.name} ({each.variable('words')})" for each in members("smoothcert.noise", "NOISES")
)

ModelName = Annotated[
    str,
    Parameter(
        help="A training run, .safetensors, .onnx, a published checkpoint (.pth, .pt, .tar), or module:function."
    ),
]
Sigma = Annotated[
    float | None,
    Parameter(
        help="Standard deviation of the noise in input units (default: what the model was trained with)."
    ),
]
DataName = Annotated[
    str | None,
    Parameter(
        alias="-d",
        help=f"{', '.join(registered('smoothcert.datasets', 'DATASETS'))}, folder:PATH, npz:PATH (default: what the "
        "model was trained on).",
    ),
]
NoiseText = Annotated[
    str | None,
    Parameter(
        help=f"{_NOISES}. Or a directory made by fit-noise, or a .npy file "
        "with a per-coordinate σ (uniform:FILE.npy for uniform noise): these certify an ellipsoid, or an ℓ1 ball "
        "stretched along its axes, and need no --sigma (default: what the model was trained with, or gaussian)."
    ),
]

_MODEL = Group("Models that don't describe themselves", sort_key=5)
_DATA = Group("Which inputs", sort_key=4)
_OUTPUT = Group("Output", sort_key=30)


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """How much to print."""

    quiet: Annotated[
        bool, Parameter(group=_OUTPUT, negative="", help="No progress, no table; errors only.")
    ] = False
    json: Annotated[
        bool, Parameter(group=_OUTPUT, negative="", help="One JSON object on standard output.")
    ] = False
    log_format: Annotated[
        Literal["text", "json"] | None,
        Parameter(
            group=_OUTPUT,
            help="How progress and errors are told: text, or json, an object a line (docs/scripts.md).",
        ),
    ] = None

    @property
    def silent(self) -> bool:
        """Whether there is no progress and no note: with ``--json``, only where a log was asked for as well."""
        return self.quiet or (self.json and self.log_format is None)


@Parameter(name="*")
@dataclass(frozen=True)
class ModelOptions:
    """How to read a model that doesn't describe itself."""

    architecture: Annotated[
        str | None,
        Parameter(group=_MODEL, help="Network of a bare state dict (lenet, small-cnn, cifar_resnet20, …)."),
    ] = None
    outputs: Annotated[
        Literal["labels", "scores", "probabilities"] | None,
        Parameter(group=_MODEL, help="What the model returns (default: scores; estimators: labels)."),
    ] = None
    output: Annotated[
        str | None,
        Parameter(group=_MODEL, help="Which of several outputs votes, by its name, or its place in a tuple."),
    ] = None
    classes: Annotated[
        int | None,
        Parameter(
            group=_MODEL,
            help="Number of classes of a function that returns labels; 2 if one number a row tells two classes apart "
            "(a logit with --outputs scores, or one of the --outputs probabilities).",
        ),
    ] = None
    input_dtype: Annotated[
        Literal["int8", "int16", "int32", "int64", "uint8"] | None,
        Parameter(
            group=_MODEL,
            help="The model takes whole numbers: noise is added in floating point, then rounded and clipped to this "
            "type.",
        ),
    ] = None
    constants: Annotated[
        Path | None,
        Parameter(
            group=_MODEL,
            help="An .npz file with an array for each input of an ONNX file but the one that is smoothed.",
        ),
    ] = None
    thread_safe: Annotated[
        bool | None,
        Parameter(
            group=_MODEL,
            help="Whether several workers may evaluate the model at once (default: torch and ONNX models, not "
            "functions).",
        ),
    ] = None
    sharpen: Annotated[
        float | None,
        Parameter(
            group=_MODEL,
            help="Multiply the scores by this before soft votes are made of them (MACER's β, 16 there; torch models).",
        ),
    ] = None
    trust_pickle: Annotated[
        bool,
        Parameter(
            group=_MODEL,
            negative="",
            help="Unpickle the checkpoint fully. It can run any code: only for files you trust.",
        ),
    ] = False


Held = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=True,
        negative="",
        help="Columns without noise, by number or name: categories, and what nobody can change. Certificates are about "
        "changes of the others.",
    ),
]


def held_columns(words: list[str] | None) -> list[int] | list[str] | None:
    """Numbers where all are numbers, else names; with spaces or commas between them."""
    if words is None:
        return None
    columns = [word.strip() for each in words for word in each.split(",") if word.strip()]
    return [int(word) for word in columns] if all(word.isdecimal() for word in columns) else columns


@Parameter(name="*")
@dataclass(frozen=True)
class DataOptions:
    """Which inputs."""

    split: Annotated[Literal["test", "train"], Parameter(group=_DATA, help="Split of the data set.")] = "test"
    data_dir: Annotated[
        Path | None,
        Parameter(
            group=_DATA, help="Where its files are (default: the environment variable SMOOTHCERT_DATA)."
        ),
    ] = None
    skip: Annotated[int, Parameter(group=_DATA, help="Take every K-th input.")] = 1
    max: Annotated[int | None, Parameter(group=_DATA, help="Stop after M inputs, whatever --skip is.")] = None

    def load(self, name: str) -> Dataset:
        """Read the data set."""
        from smoothcert import datasets

        return datasets.load(name, self.split, self.data_dir)


# Other defaults need classes of their own: given one option of a group, cyclopts makes the whole group anew.


@Parameter(name="*")
@dataclass(frozen=True)
class TrainingDataOptions(DataOptions):
    """Which inputs, of the training split by default."""

    split: Annotated[Literal["test", "train"], Parameter(group=_DATA, help="Split of the data set.")] = (
        "train"
    )


@Parameter(name="*")
@dataclass(frozen=True)
class FewInputsOptions(DataOptions):
    """Which inputs: a few from all over, by default."""

    skip: Annotated[int, Parameter(group=_DATA, help="Take every K-th input.")] = 20
    max: Annotated[int | None, Parameter(group=_DATA, help="Stop after M inputs, whatever --skip is.")] = 50
