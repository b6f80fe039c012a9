"""Options of one classifier whose σ follows the input: its levels, its chooser, and how that votes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group, Parameter

if TYPE_CHECKING:
    from smoothcert.commands.model_argument import NamedModel
    from smoothcert.commands.options import ModelOptions
    from smoothcert.sampling import Execution
    from smoothcert.smoothing import SmoothedClassifier

_GROUP = Group("σ levels (one classifier whose σ follows the input)", sort_key=7)


@Parameter(name="*", group=_GROUP, consume_multiple=True)
@dataclass(frozen=True)
class LevelOptions:
    """Levels of σ and the chooser among them."""

    chooser: str | None = None
    """What gives each point its σ: a model of levels (a directory that `smoothcert fit-levels` made, or any MODEL with
    a score for each level), `constant:K` (level K, counted from 0, everywhere), or a statistic of the noisy input with
    its edges, such as `spread:0.3,0.4`, `mean:…`, `energy:…`. Its median under noise makes one classifier of all
    levels, which needs no memory (docs/levels.md)."""
    sigma_levels: list[float] | None = None
    """The σ that it chooses among, ascending: `--sigma-levels 0.25 0.5 1` (default: what the chooser was fitted
    for)."""
    level_models: list[str] | None = None
    """A model for each level, smallest σ first; the last must be MODEL (default: MODEL for all)."""
    chooser_sigma: float | None = None
    """σ of the chooser's noise (default: what it was fitted for, or the largest level)."""
    chooser_n0: int = 100
    """Votes of the chooser that find the likeliest level."""
    chooser_n: int | None = None
    """Votes of the chooser that bound how likely other levels are, at most (default: n; they end once that is
    enough)."""

    @property
    def asked(self) -> bool:
        """Whether any of it was given."""
        return self != LevelOptions()

    def smoothed(
        self,
        model: str,
        named: NamedModel,
        model_options: ModelOptions,
        execution: Execution,
        sigma: float | None,
        noise: str,
        **plan_fields: Any,
    ) -> SmoothedClassifier:
        """The model smoothed with one σ, or with the levels that the options describe."""
        from smoothcert.commands.model_argument import level_classifiers
        from smoothcert.errors import InvalidValueError
        from smoothcert.noise import NOISES
        from smoothcert.smoothing.levelled import LevelledClassifier

        if not self.asked:
            return named.smoothed(execution, sigma, noise=noise, **plan_fields)
        if sigma is not None:
            raise InvalidValueError(f"--sigma {sigma:g} is one σ for all inputs: leave it or the levels out")
        if noise not in NOISES:
            raise InvalidValueError(
                f"sigma levels have one σ each, and --noise {noise} has one for each coordinate"
            )
        chooser, sigmas, chooser_sigma = self._chosen()
        models = level_classifiers(model, named, self.level_models, model_options)
        return LevelledClassifier(
            models[0] if self.level_models is None else models,
            chooser,
            sigmas=sigmas,
            chooser_sigma=chooser_sigma,
            chooser_n0=self.chooser_n0,
            chooser_n=self.chooser_n,
            noise=noise,
            execution=execution,
            **plan_fields,
        )

    def _chosen(self) -> tuple[Any, list[float], float | None]:
        """The chooser, the levels and the σ of its noise."""
        from smoothcert.errors import InvalidValueError
        from smoothcert.sigma_levels.fitted import read_chooser_statement

        if self.chooser is None:
            raise InvalidValueError(
                "--chooser is missing: what gives each point its σ? A directory that `smoothcert fit-levels` made, "
                "constant:K, or a statistic such as spread:0.3,0.4"
            )
        fitted = read_chooser_statement(Path(self.chooser))
        sigmas = self.sigma_levels or (None if fitted is None else list(fitted[0]))
        if sigmas is None:
            raise InvalidValueError(
                f"--sigma-levels is missing, and the chooser {self.chooser} doesn't say which σ it chooses among"
            )
        sigma = self.chooser_sigma if fitted is None or self.chooser_sigma is not None else fitted[1]
        return load_chooser(self.chooser), sigmas, sigma


def load_chooser(text: str) -> Any:
    """The chooser that an option names: one without training, or a model of levels."""
    from smoothcert.commands.model_argument import load_named_model
    from smoothcert.commands.options import ModelOptions
    from smoothcert.sigma_levels import chooser_named

    return chooser_named(text) or load_named_model(text, ModelOptions(), "hard").classifier
