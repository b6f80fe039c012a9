"""MODEL, RUN, --noise and --radii: what the words of a command line mean, and what they name, loaded."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter, Token
from numpy.typing import NDArray

from smoothcert.analysis.facts import Departures, Fact, read_recipe_file, training_facts
from smoothcert.bounds.base import VoteKind
from smoothcert.cli.options import ModelOptions
from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import DataError, InvalidValueError, ModelError, RunError
from smoothcert.extras import require
from smoothcert.npy import opened_npz
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES, PERTURBATIONS
from smoothcert.perturb.diagonal import DiagonalNoise, diagonal_noise, load_sigmas
from smoothcert.plain_text import option as spelled
from smoothcert.registry import unknown_name
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.run import Run, suggested_options
from smoothcert.smoothing.plan import CertifyPlan

if TYPE_CHECKING:
    from smoothcert.models.base import BaseClassifier
    from smoothcert.perturb.base import Perturbation
    from smoothcert.perturb.hybrid import Hybrid
    from smoothcert.smoothing.classifier import ModelClassifier, SmoothedClassifier

_PICKLES = {".pkl", ".pickle", ".joblib"}


@dataclass(frozen=True)
class NamedModel:
    """A loaded model and, where it came from a training run, what it was trained with."""

    classifier: BaseClassifier
    sigma: float | None = None
    dataset: str | None = None
    method: str | None = None
    noise: str | None = None
    trained: Mapping[str, Fact] = field(default_factory=dict)
    trained_range: tuple[float, float] | None = None
    """The smallest and the largest number among the inputs that it was trained on."""
    input_shape: tuple[int, ...] | None = None
    """Of an input, where the model says."""
    assumed: str | None = None
    """What a checkpoint left open, and how it was read."""

    def departures(self, noise: str | None, sigma: float | None, inputs: Dataset) -> list[str]:
        """In words, what was assumed of it, and how the noise and the inputs differ from those of its training."""
        asked = Departures(noise, sigma, inputs.value_range(), self.trained, self.trained_range)
        return [*([] if self.assumed is None else [self.assumed]), *asked.in_words()]

    @property
    def trained_for(self) -> Hybrid | None:
        """The masks and noise that an estimator says it was trained with."""
        return getattr(self.classifier, "trained_for", None)

    def noise_or(self, given: str | None) -> str:
        """The noise asked for, else the kind that the model was trained with, else Gaussian."""
        return given or self.noise or DEFAULT_NOISE

    def sigma_or(self, given: float | None) -> float:
        """The σ asked for, else the one the model was trained with."""
        if given is not None:
            return given
        if self.sigma == 0:
            raise InvalidValueError("--sigma is missing, and the model was trained without noise")
        if self.sigma is None:
            raise InvalidValueError("--sigma is missing, and the model doesn't say what it was trained with")
        return self.sigma

    def dataset_or(self, given: str | None) -> str:
        """The data set asked for, else the one the model was trained on, if that is a registered name and no path."""
        if given is not None:
            return given
        if self.dataset is None:
            raise InvalidValueError("--dataset is missing, and the model doesn't say what it was trained on")
        if self.dataset not in DATASETS:
            raise InvalidValueError(
                "--dataset is missing: the model names a path, and no path that a file names is opened unasked. If it "
                f"is the one you mean, add {suggested_options(dataset=self.dataset)}"
            )
        return self.dataset

    def smoothed(
        self, execution: Execution, sigma: float | None, noise: str | Perturbation, **plan_fields: Any
    ) -> SmoothedClassifier:
        """The model smoothed with the σ asked for, or the one it was trained with; or with scales that are given."""
        from smoothcert.smoothing.classifier import SmoothedClassifier

        fitted = named_diagonal(noise, sigma) if isinstance(noise, str) else noise
        if fitted is not None:
            return SmoothedClassifier(
                self.classifier, CertifyPlan(fitted, **plan_fields), execution=execution
            )
        assert isinstance(noise, str)
        sigma = self.sigma_or(sigma)
        return SmoothedClassifier(
            self.classifier, sigma=sigma, noise=noise, execution=execution, **plan_fields
        )


def load_named_model(name: str, options: ModelOptions, votes: VoteKind) -> NamedModel:
    """Find out what ``name`` means and load it."""
    from smoothcert.analysis.facts import trained_range
    from smoothcert.architectures.checkpoints import CHECKPOINT_SUFFIXES, whole_module
    from smoothcert.architectures.weights import load_model
    from smoothcert.models.adapt import as_stated
    from smoothcert.models.torch_module import TorchClassifier
    from smoothcert.models.wrappers import Sharpened

    path = Path(name)
    if path.suffix == ".onnx":
        if path.exists() and not path.is_file():
            raise ModelError(f"{name}: can't be read: it is not a regular file")
        return NamedModel(_adapted(path, options, votes))
    if path.suffix in _PICKLES:
        return NamedModel(_adapted(_unpickled(path, options.trust_pickle), options, votes))
    if ":" in name and not path.exists():
        return NamedModel(_adapted(_made(name, _imported(name)), options, votes))
    if path.suffix in CHECKPOINT_SUFFIXES and options.trust_pickle and options.architecture is None:
        with _own_modules():
            whole = whole_module(path)
        if whole is not None:
            return NamedModel(_adapted(whole, options, votes))
    asked = {name: getattr(options, name) for name in ("architecture", "trust_pickle", "normalisation")}
    module, spec = load_model(path, **asked)
    for option in ("output", "classes", "input_dtype", "constants", "retries"):
        if getattr(options, option) is not None:
            raise InvalidValueError(
                f"{name} is a network that smoothcert knows, with one input of floats and one output: drop "
                f"{spelled(option)}"
            )
    if options.sharpen is not None:
        module = Sharpened(module, options.sharpen)
    trained = read_recipe_file(path)
    objective = trained.get("objective")
    sigma, noise = trained.get("sigma"), trained.get("noise")
    base = TorchClassifier(module, spec.architecture, options.outputs, spec.classes, options.thread_safe)
    base.declared = as_stated(outputs=options.outputs)
    return NamedModel(
        base,
        float(sigma) if isinstance(sigma, int | float) else None,
        _text(trained.get("dataset")),
        _text(objective.get("name")) if isinstance(objective, dict) else None,
        noise if noise in NOISES else None,  # any other would be a path
        training_facts(path),
        trained_range(path),
        spec.input_shape,
        spec.assumed,
    )


def named_estimator(name: str, trust_pickle: bool) -> Any:
    """An estimator to be trained: made by a class or a function of a module, an object there, or a pickled one."""
    path = Path(name)
    if path.suffix in _PICKLES:
        return _unpickled(path, trust_pickle)
    if ":" not in name:
        raise ModelError(
            f"{name} is not an estimator: give module:Class, such as sklearn.svm:SVC, or a .joblib file"
        )
    return _made(name, _imported(name))


def level_classifiers(
    model: str, named: NamedModel, level_models: Sequence[str] | None, options: ModelOptions
) -> list[BaseClassifier]:
    """The model of each level, smallest σ first, where each has its own; else the one model alone."""
    if level_models is not None and level_models[-1] != model:
        raise InvalidValueError(
            f"the last of --level-models is the largest level's and must be MODEL, {model}; got {level_models[-1]}"
        )
    lower = [load_named_model(one, options, "hard") for one in (level_models or [model])[:-1]]
    return [*(one.classifier for one in lower), named.classifier]


def _adapted(model: Any, options: ModelOptions, votes: VoteKind) -> BaseClassifier:
    from smoothcert.models.adapt import adapt

    if options.normalisation is not None:
        raise InvalidValueError("--normalisation is for published checkpoints: normalise inside this model")
    if options.sharpen is not None:
        raise InvalidValueError(
            "--sharpen is for models that smoothcert loads itself: multiply the scores inside this one, or leave it out"
        )
    asked = {name: getattr(options, name) for name in ("output", "thread_safe", "input_dtype", "retries")}
    constants = None if options.constants is None else _arrays(options.constants)
    return adapt(model, votes, options.outputs, options.classes, constants=constants, **asked)


def declared_as(options: ModelOptions, stated: object) -> ModelOptions:
    """The options with what a run states of its model where they say nothing."""
    from smoothcert.models.adapt import taken_over

    return replace(options, **taken_over(stated, vars(options)))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with opened_npz(path) as archive:
            return {name: archive[name] for name in archive}
    except FileNotFoundError:
        raise DataError(f"--constants {path}: no such file") from None
    except (OSError, ValueError) as error:
        raise DataError(f"--constants {path} can't be read ({error}): save arrays with np.savez") from None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


@contextmanager
def _own_modules() -> Iterator[None]:
    sys.path.insert(0, folder := str(Path.cwd()))
    try:
        yield
    finally:
        sys.path.remove(folder)


def _imported(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        with _own_modules():
            found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise ModelError(f"{name}: can't import {module_name} ({error}); run from its folder") from None
    except AttributeError:
        raise ModelError(f"{name}: module {module_name} has no {attribute}") from None
    return found


def _made(name: str, found: Any) -> Any:
    """What a class or factory without required arguments makes; anything else as it is."""
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return found
    taken = inspect.signature(found).parameters.values()
    many = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    required = [each.name for each in taken if each.default is each.empty and each.kind not in many]
    if inspect.isfunction(found) and (required or any(each.kind is each.VAR_POSITIONAL for each in taken)):
        return found
    if required:
        raise ModelError(
            f"{name} is a class whose {', '.join(required)} must be given: write a function without arguments that "
            "makes the model, and name that"
        )
    try:
        with _own_modules():
            return found()
    except Exception as error:  # the user's code can raise anything
        raise ModelError(f"{name}() fails ({type(error).__name__}: {str(error)[:200]})") from error


def _unpickled(path: Path, trusted: bool) -> Any:
    """The fitted model that joblib or pickle wrote; the file is not opened unless it is trusted."""
    if not trusted:
        raise ModelError(
            f"{path}: a pickle can run any code when it is opened, so it was not opened. If you trust where it comes "
            "from, add --trust-pickle; or load it in a function of your own and give that as MODEL, such as "
            "mymodule:predict"
        )
    joblib = require("joblib", f"opening {path}")
    try:
        with _own_modules():
            return joblib.load(path)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except ImportError as error:
        raise ModelError(
            f"{path}: its model needs {error.name or error}, which can't be imported ({error}); install it, or run "
            "from the folder that holds it"
        ) from error
    except Exception as error:  # what unpickling calls can raise anything
        raise ModelError(
            f"{path}: can't be unpickled ({type(error).__name__}: {str(error)[:200]}); save it with joblib.dump, with "
            "the versions of packages that are installed here"
        ) from error


def _directory(_kind: object, tokens: Sequence[Token]) -> Path:
    text = tokens[0].value
    if "://" not in text:  # most are paths: help and mistakes don't wait for the library
        return Path(text)
    from smoothcert.runs.publishing import local_run

    try:
        return local_run(text)
    except InvalidValueError as error:  # a ValueError: the parser would repeat the address, secrets included
        raise RunError(str(error)) from None


RunPath = Annotated[Path, Parameter(converter=_directory)]
"""A run of any origin."""


def named_diagonal(text: str, sigma: float | None) -> DiagonalNoise | None:
    """The noise of a FIT directory or a .npy file (``uniform:FILE.npy`` for uniform noise); None for a plain name.

    ``sigma`` must be left out: the vector is complete, and scaling it would give another noise than the fitted one.
    """
    from smoothcert.smoothing.fits.fit import finished_fit

    if text in NOISES:
        return None
    kind, colon, rest = text.partition(":")
    stated = bool(colon) and kind in NOISES
    path, kind = (Path(rest), kind) if stated else (Path(text), DEFAULT_NOISE)
    if not path.exists():
        names = [*NOISES.names(), *PERTURBATIONS.names(), "FIT", "FILE.npy"]
        raise unknown_name("noise, fit directory or .npy file", text, names)
    if sigma is not None:
        raise InvalidValueError(
            f"--sigma {sigma:g} and --noise {text} are mutually exclusive: leave --sigma out. For the same "
            f"shape at another scale, save a multiple of its {RunFiles.sigmas.name} and give that file"
        )
    if path.is_dir():
        noise = finished_fit(path).noise
        if stated and noise is not None and noise.kind != kind:
            raise InvalidValueError(
                f"{path} was fitted with {noise.name} noise, not {kind}: leave the prefix out, or fit with --noise "
                f"{kind}"
            )
        return noise
    return diagonal_noise(kind, load_sigmas(path))


def foreign_fit(text: str, classifier: ModelClassifier, input_shape: tuple[int, ...]) -> str | None:
    """A sentence if the fit was made for another model: its vector is as sound as any, but not this model's best."""
    from smoothcert.smoothing.fits.fit import read_fit

    if text in NOISES or text in PERTURBATIONS:
        return None
    classifier.prepare(input_shape)
    path, base = Path(text), classifier.base
    if not path.is_dir() or (fitted := read_fit(path).manifest.model).sha256 == base.fingerprint(input_shape):
        return None
    return (
        f"{text} was fitted for another model ({fitted.name}): certificates hold, but the noise may not suit this "
        f"{base.name}"
    )


def chosen_beforehand(typed: str | None, runs: list[Run]) -> list[str] | None:
    """The radii given, else those that the runs' plans allow; None where only the results could choose."""
    from smoothcert.analysis.comparison import planned_radii
    from smoothcert.analysis.tables import parse_radii

    if typed is not None:
        return parse_radii(typed)
    planned = planned_radii(*runs)
    return None if planned is None else [f"{radius:g}" for radius in planned]
