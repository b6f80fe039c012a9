"""MODEL on the command line: a training run, a weight file, an ONNX file, or module:function."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothcert.analysis.trained import Departures, Fact, read_recipe_file, trained_range, training_facts
from smoothcert.errors import InvalidValueError, ModelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from smoothcert.bounds import VoteKind
    from smoothcert.commands.options import ModelOptions
    from smoothcert.datasets.base import Dataset
    from smoothcert.sampling import BaseClassifier, Execution
    from smoothcert.smoothing import SmoothedClassifier

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

    def noise_or(self, given: str | None) -> str:
        """The noise asked for, else the kind that the model was trained with, else Gaussian."""
        from smoothcert.noise import DEFAULT_NOISE

        return given or self.noise or DEFAULT_NOISE

    def sigma_or(self, given: float | None) -> float:
        """The σ asked for, else the one the model was trained with."""
        if given is not None:
            return given
        if self.sigma == 0:
            raise InvalidValueError("--sigma is missing, and the model was trained without noise")
        if self.sigma is None:
            raise InvalidValueError(
                "--sigma is missing, and the model doesn't say which noise it was trained with"
            )
        return self.sigma

    def dataset_or(self, given: str | None) -> str:
        """The data set asked for, else the one the model was trained on, if that is a registered name and no path."""
        from smoothcert.datasets.base import DATASETS
        from smoothcert.runs.data_check import suggested_options

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
        self, execution: Execution, sigma: float | None, noise: str, **plan_fields: Any
    ) -> SmoothedClassifier:
        """The model smoothed with the σ asked for, or the one it was trained with; or with a fitted σ vector."""
        from smoothcert.commands.noise_argument import named_diagonal
        from smoothcert.smoothing import CertifyPlan, SmoothedClassifier

        if (fitted := named_diagonal(noise, sigma)) is not None:
            return SmoothedClassifier(
                self.classifier, CertifyPlan(fitted, **plan_fields), execution=execution
            )
        sigma = self.sigma_or(sigma)
        return SmoothedClassifier(
            self.classifier, sigma=sigma, noise=noise, execution=execution, **plan_fields
        )


def load_named_model(name: str, options: ModelOptions, votes: VoteKind) -> NamedModel:
    """Find out what ``name`` means and load it."""
    from smoothcert.architectures.weights import load_model
    from smoothcert.noise import NOISES
    from smoothcert.sampling.models import TorchClassifier
    from smoothcert.sampling.models.declared import as_stated
    from smoothcert.sampling.models.sharpened import Sharpened

    path = Path(name)
    if path.suffix == ".onnx":
        if path.exists() and not path.is_file():
            raise ModelError(f"{name}: can't be read: it is no plain file")
        return NamedModel(_adapted(path, options, votes))
    if path.suffix in _PICKLES:
        raise ModelError(
            f"{name}: pickles run code when opened and are not loaded. Load it in a function of your own and give "
            "that as MODEL, such as mymodule:predict"
        )
    if ":" in name and not path.exists():
        return NamedModel(_adapted(_imported(name), options, votes))
    module, spec = load_model(
        path,
        architecture=options.architecture,
        trust_pickle=options.trust_pickle,
        normalisation=options.normalisation,
    )
    for option in ("output", "classes", "input_dtype", "constants"):
        if getattr(options, option) is not None:
            raise InvalidValueError(
                f"{name} is a network that smoothcert knows, with one input of floats and one output: drop "
                f"--{option.replace('_', '-')}"
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


def level_classifiers(
    model: str, named: NamedModel, level_models: list[str] | None, options: ModelOptions
) -> list[BaseClassifier]:
    """The model of each level, smallest σ first, where each has its own; else the one model alone."""
    if level_models is not None and level_models[-1] != model:
        raise InvalidValueError(
            f"the last of --level-models is the largest level's and must be MODEL, {model}; got {level_models[-1]}"
        )
    lower = [load_named_model(one, options, "hard") for one in (level_models or [model])[:-1]]
    return [*(one.classifier for one in lower), named.classifier]


def _adapted(model: Any, options: ModelOptions, votes: VoteKind) -> BaseClassifier:
    from smoothcert.sampling import adapt

    if options.normalisation is not None:
        raise InvalidValueError(
            "--normalisation is for published checkpoints: normalise inside this model, or leave it out"
        )
    if options.sharpen is not None:
        raise InvalidValueError(
            "--sharpen is for models that smoothcert loads itself: multiply the scores inside this one, or leave it out"
        )
    return adapt(
        model,
        votes,
        options.outputs,
        options.classes,
        output=options.output,
        thread_safe=options.thread_safe,
        input_dtype=options.input_dtype,
        constants=None if options.constants is None else _arrays(options.constants),
    )


def declared_as(options: ModelOptions, stated: object) -> ModelOptions:
    """The options with what a run states of its model where they say nothing."""
    from smoothcert.sampling.models.declared import taken_over

    return replace(options, **taken_over(stated, vars(options)))


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    from smoothcert.errors import DataError
    from smoothcert.npy import opened_npz

    try:
        with opened_npz(path) as archive:
            return {name: archive[name] for name in archive}
    except FileNotFoundError:
        raise DataError(f"--constants {path}: no such file") from None
    except (OSError, ValueError) as error:
        raise DataError(
            f"--constants {path} can't be read ({error}): save plain arrays with np.savez"
        ) from None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _imported(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise ModelError(
            f"{name}: can't import {module_name} ({error}); run from the folder that holds it"
        ) from None
    except AttributeError:
        raise ModelError(f"{name}: module {module_name} has no {attribute}") from None
    finally:
        sys.path.pop(0)
    return found
