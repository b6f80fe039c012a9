"""The certification that a command line asks for: model, data and plan, for commands that run it or plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smoothcert.commands.level_options import LevelOptions
    from smoothcert.commands.model_argument import NamedModel
    from smoothcert.commands.options import DataOptions, ModelOptions
    from smoothcert.commands.sampling_options import NumericsOptions, SpeedOptions
    from smoothcert.commands.search_options import SearchOptions
    from smoothcert.commands.stop_options import StopOptions
    from smoothcert.commands.vote_options import VoteOptions
    from smoothcert.datasets.base import Dataset
    from smoothcert.evaluation import Choice
    from smoothcert.smoothing import SmoothedClassifier


@dataclass(frozen=True)
class Asked:
    """What to certify, by which plan."""

    named: NamedModel
    noise: str
    data_name: str
    inputs: Dataset
    choice: Choice
    classifier: SmoothedClassifier


def asked_for(
    model: str,
    dataset: str | None,
    sigma: float | None,
    noise: str | None,
    votes: VoteOptions,
    bound: Any,
    seed: int,
    stopping: StopOptions,
    search: SearchOptions,
    data: DataOptions,
    shard: str | None,
    model_options: ModelOptions,
    numerics: NumericsOptions,
    speed: SpeedOptions,
    levels: LevelOptions,
) -> Asked:
    """Options as the library takes them; what can't be is refused before anything long begins."""
    from smoothcert.bounds import BOUNDS
    from smoothcert.commands.model_argument import load_named_model
    from smoothcert.commands.sampling_options import execution_of, numerics_of
    from smoothcert.evaluation import Choice
    from smoothcert.runs.shards import Shard
    from smoothcert.smoothing.plan import AUTO

    execution, searched = execution_of(speed), search.search()
    choice = Choice(data.skip, data.max, None if shard is None else Shard.parse(shard))
    named = load_named_model(model, model_options, "hard" if bound is None else BOUNDS[bound].votes)
    noise = named.noise_or(noise)
    data_name = named.dataset_or(dataset)
    inputs = data.load(data_name)
    classifier = levels.smoothed(
        model,
        named,
        model_options,
        execution,
        sigma,
        noise,
        levels=numerics.levels,
        bound=bound or AUTO,
        **vars(votes),
        seed=seed,
        numerics=numerics_of(numerics),
        search=searched,
        stop=stopping.stops(),
    )
    classifier.settle_for(inputs.levels, inputs.largest)
    return Asked(named, noise, data_name, inputs, choice, classifier)
