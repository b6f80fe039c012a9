"""Options that several commands share, each group with one meaning everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset
    from smoothcert.sampling import Execution, Numerics
    from smoothcert.sigma_search import SigmaSearch

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
SearchName = Literal["ellipsoid", "gradient", "grid", "ladder"]
DtypeName = Literal["auto", "float32", "float64", "bfloat16", "float16"]
RouteName = Literal["auto", "eager", "channels-last", "folded", "compiled", "onnxruntime"]

_MODEL = Group("Models that don't describe themselves", sort_key=5)
_DATA = Group("Which inputs", sort_key=4)
_SEARCH = Group("A σ for each input (data-dependent smoothing)", sort_key=6)
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


def _search_option(help: str) -> Parameter:
    return Parameter(group=_SEARCH, help=help, negative="")


@Parameter(name="*")
@dataclass(frozen=True)
class SearchOptions:
    """How each input's σ is searched for; knobs are None unless given."""

    sigma_search: Annotated[
        SearchName | None,
        _search_option(
            "Choose each input's σ before certifying it: ladder (votes, any model), gradient (the papers' ascent, "
            "torch models), grid (their baseline), ellipsoid (a σ for each number of each input, torch models). "
            "Without a region memory, a certificate is then about the "
            "classifier frozen at that input's σ."
        ),
    ] = None
    search_factor: Annotated[float | None, _search_option("σ stays within this factor of --sigma \\[4].")] = (
        None
    )
    search_rescue: Annotated[bool | None, _search_option("Also move inputs that abstain at --sigma.")] = None
    search_check_votes: Annotated[
        int | None,
        _search_option(
            "gradient, grid, ellipsoid: votes at each σ of the comparison that decides \\[64, 64, 128]."
        ),
    ] = None
    search_steps: Annotated[
        int | None, _search_option("gradient, ellipsoid: steps of ascent \\[900, 100].")
    ] = None
    search_samples: Annotated[
        int | None,
        _search_option("gradient, ellipsoid, grid: samples in each step \\[1, 4], at each σ \\[4]."),
    ] = None
    search_lr: Annotated[float | None, _search_option("gradient, ellipsoid: step size \\[1e-4, 0.02].")] = (
        None
    )
    search_rows: Annotated[int | None, _search_option("gradient, ellipsoid: rows of every pass \\[32].")] = (
        None
    )
    search_kappa: Annotated[
        float | None,
        _search_option("ellipsoid: weight of the inscribed radius beside the equal-volume one \\[0]."),
    ] = None
    search_cover: Annotated[
        bool | None, _search_option("ellipsoid: only where it promises to cover the best ball.")
    ] = None
    search_rungs: Annotated[int | None, _search_option("ladder: σ to vote at first \\[9].")] = None
    search_votes: Annotated[int | None, _search_option("ladder: votes at each of them \\[32].")] = None
    search_rounds: Annotated[int | None, _search_option("ladder: rounds around the best σ \\[2].")] = None
    search_round_votes: Annotated[int | None, _search_option("ladder: votes of a round \\[288].")] = None
    search_budget: Annotated[int | None, _search_option("grid: evaluations in all \\[200].")] = None
    search_top: Annotated[float | None, _search_option("grid: its largest σ \\[1].")] = None

    def search(self) -> SigmaSearch | None:
        """The search asked for, or None; a knob that it doesn't have is named."""
        from smoothcert.errors import InvalidValueError
        from smoothcert.knobs import from_mapping
        from smoothcert.sigma_search import SEARCHES

        knobs = {
            name.removeprefix("search_"): value
            for name, value in vars(self).items()
            if name != "sigma_search" and value is not None
        }
        if self.sigma_search is None:
            if knobs:
                option = f"--search-{next(iter(knobs)).replace('_', '-')}"
                raise InvalidValueError(
                    f"{option} needs a search: add --sigma-search ladder, gradient or grid"
                )
            return None
        return from_mapping(SEARCHES[self.sigma_search], knobs, f"sigma search {self.sigma_search}")


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
