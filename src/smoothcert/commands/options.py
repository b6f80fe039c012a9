"""Options that several commands share, each group with one meaning everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset
    from smoothcert.sampling import Execution, Numerics

BoundName = Literal[
    "two-class",
    "clopper-pearson",
    "hoeffding",
    "bernstein",
    "mixture",
    "mixture-two-class",
    "looks",
    "looks-two-class",
]
NoiseName = Literal["gaussian", "uniform"]
DtypeName = Literal["auto", "float32", "float64", "bfloat16", "float16"]
RouteName = Literal["auto", "eager", "channels-last", "folded", "compiled", "onnxruntime"]

_MODEL = Group("Models that don't describe themselves", sort_key=5)
_DATA = Group("Which inputs", sort_key=4)
_SPEED = Group("Speed (never changes an answer)", sort_key=20)
_NUMERICS = Group("Numerics (part of the plan: may change a last bit)", sort_key=10)
_OUTPUT = Group("Output", sort_key=30)


@Parameter(name="*")
@dataclass(frozen=True)
class SpeedOptions:
    """Where and how wide to work."""

    batch: Annotated[
        int | None,
        Parameter(group=_SPEED, help="Votes handed to a worker at a time (default: a block or a pass)."),
    ] = None
    workers: Annotated[
        int | None, Parameter(group=_SPEED, help="Worker threads (default: one per core).")
    ] = None
    device: Annotated[str, Parameter(group=_SPEED, help="Where the model runs: cpu, cuda, cuda:1, mps.")] = (
        "cpu"
    )

    def execution(self) -> Execution:
        """The options as the engine takes them."""
        from smoothcert.sampling import Execution
        from smoothcert.sampling.execution import check_device

        check_device(self.device)
        return Execution(self.device, self.workers, self.batch)


@Parameter(name="*")
@dataclass(frozen=True)
class NumericsOptions:
    """How the model sees samples."""

    dtype: Annotated[
        DtypeName,
        Parameter(
            group=_NUMERICS,
            help="Numeric type of the model; auto: float32, or float64 where noisy inputs aren't exact in it.",
        ),
    ] = "auto"
    route: Annotated[
        RouteName,
        Parameter(
            group=_NUMERICS,
            help="Which execution of a torch model; auto: folded, channels-last or eager, the first that works.",
        ),
    ] = "auto"
    levels: Annotated[
        int | None,
        Parameter(
            group=_NUMERICS,
            help="Inputs are multiples of 1/Q: noise is drawn on that grid, or a finer one (default: from the data; "
            "255 for 8-bit pictures).",
        ),
    ] = None
    chunk: Annotated[
        int | None,
        Parameter(group=_NUMERICS, help="Rows of every forward pass (default: from the model's size)."),
    ] = None

    def numerics(self) -> Numerics:
        """The options as the plan takes them."""
        from smoothcert.sampling import Numerics

        return Numerics(self.dtype, self.route, self.chunk)


@Parameter(name="*")
@dataclass(frozen=True)
class OutputOptions:
    """How much to say."""

    quiet: Annotated[
        bool, Parameter(group=_OUTPUT, negative="", help="No progress, no table; errors only.")
    ] = False
    json: Annotated[
        bool, Parameter(group=_OUTPUT, negative="", help="One JSON object on standard output.")
    ] = False


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
        str | None, Parameter(group=_MODEL, help="Which output of an ONNX file votes, where several could.")
    ] = None
    classes: Annotated[
        int | None, Parameter(group=_MODEL, help="Number of classes of a function that returns labels.")
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
    """Which inputs, of the training split unless told otherwise."""

    split: Annotated[Literal["test", "train"], Parameter(group=_DATA, help="Split of the data set.")] = (
        "train"
    )


@Parameter(name="*")
@dataclass(frozen=True)
class FewInputsOptions(DataOptions):
    """Which inputs: a few from all over, unless told otherwise."""

    skip: Annotated[int, Parameter(group=_DATA, help="Take every K-th input.")] = 20
    max: Annotated[int | None, Parameter(group=_DATA, help="Stop after M inputs, whatever --skip is.")] = 50
