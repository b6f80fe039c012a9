"""The certification that a command line asks for: model, data and plan, for commands that run it or plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from smoothcert.commands.level_options import LevelOptions
from smoothcert.commands.options import (
    BoundName,
    DataName,
    DataOptions,
    ModelOptions,
    NoiseText,
    Sigma,
    settle_for,
)
from smoothcert.commands.plan_options import VoteOptions
from smoothcert.commands.sampling_options import NumericsOptions, SpeedOptions, execution_of, numerics_of
from smoothcert.commands.search_options import SearchText, search_of
from smoothcert.commands.written_knobs import members

if TYPE_CHECKING:
    from smoothcert.commands.model_argument import NamedModel
    from smoothcert.datasets.base import Dataset
    from smoothcert.evaluation import Choice
    from smoothcert.smoothing import SmoothedClassifier


_STOP = Group("Fewer votes, same guarantee", sort_key=3)


def _written(goal: str) -> str:
    """How rules and budgets for a goal are written, and what they do."""
    stated = [
        one for registry in ("STOP_RULES", "BUDGETS") for one in members("smoothcert.stopping", registry)
    ]
    return ", ".join(
        f"**{one.variable('example')}** ({one.variable('words')})"
        for one in stated
        if one.variable("goal") == goal
    )


@Parameter(name="*", group=_STOP)
@dataclass(frozen=True)
class StopOptions:
    """When to stop voting on an input."""

    stop: Annotated[
        list[str] | None,
        Parameter(
            help="Fewer votes, same guarantee: pilot:1% for the mean radius, decide:0.5 for a decision. Says when an "
            "input has had enough votes; may be given several times, the first reason counts.\n\n"
            f"For a decision: {_written('decision')}. Radii stop growing once the question is answered: don't take "
            "their mean.\n\n"
            f"For the mean radius: {_written('mean radius')}.\n\n"
            f"With any: {_written('any')}.",
        ),
    ] = None
    total_votes: int | None = None
    """Votes for all inputs together, spread so that the mean radius comes out largest: pilots find out where votes pay,
    inputs whose class is wrong get none. An input may get up to 16 n votes."""

    def stops(self) -> tuple[str, ...]:
        """Stop rules and budget as the plan takes them."""
        from smoothcert.errors import check_count

        total = self.total_votes
        if total is not None:
            check_count("total votes", total)
        return (*(self.stop or ()), *(() if total is None else (f"total:{total}",)))


@dataclass(frozen=True)
class Asked:
    """What to certify, by which plan."""

    named: NamedModel
    noise: str
    data_name: str
    inputs: Dataset
    choice: Choice
    classifier: SmoothedClassifier


@Parameter(name="*")
@dataclass(frozen=True)
class CertificationOptions:
    """All that decides what is certified, and how fast; where it goes is the command's own."""

    dataset: DataName = None
    sigma: Sigma = None
    noise: NoiseText = None
    votes: VoteOptions = VoteOptions()
    bound: BoundName | None = None
    """top-two (p_A and its strongest rival; the default), clopper-pearson (the papers' protocol), or, for soft votes,
    hoeffding and bernstein. Those that hold whenever voting stops: mixture, mixture-top-two, and, only at certain n
    (1000, 10000, 100000 and seven between each two), looks and looks-top-two. Where --stop looks at the votes,
    mixture-top-two is the default."""
    seed: int = 0
    """Names the random streams; the same seed gives the same votes."""
    stopping: StopOptions = StopOptions()
    sigma_search: SearchText = None
    levels: LevelOptions = LevelOptions()
    data: DataOptions = DataOptions()
    shard: str | None = None
    """I/N: every N-th of the inputs, from the I-th on, into a directory of their own; `smoothcert merge` makes one run
    of all N. For arrays of jobs in a batch queue (docs/scaling.md)."""
    model_options: ModelOptions = ModelOptions()
    numerics: NumericsOptions = NumericsOptions()
    speed: SpeedOptions = SpeedOptions()

    def of(self, model: str, default_bound: str | None = None, hold: list[str] | None = None) -> Asked:
        """Options as the library takes them; what can't be is refused before anything long begins."""
        from smoothcert.bounds import BOUNDS
        from smoothcert.commands.model_argument import load_named_model
        from smoothcert.evaluation import Choice
        from smoothcert.runs.shards import Shard
        from smoothcert.smoothing.plan import AUTO

        execution, searched = execution_of(self.speed), search_of(self.sigma_search)
        shard = None if self.shard is None else Shard.parse(self.shard)
        choice = Choice(self.data.skip, self.data.max, shard)
        bound = self.bound or default_bound
        named = load_named_model(model, self.model_options, "hard" if bound is None else BOUNDS[bound].votes)
        noise = named.noise_or(self.noise)
        data_name = named.dataset_or(self.dataset)
        inputs = self.data.load(data_name)
        classifier = self.levels.smoothed(
            model,
            named,
            self.model_options,
            execution,
            self.sigma,
            noise,
            levels=self.numerics.levels,
            bound=bound or AUTO,
            **vars(self.votes),
            seed=self.seed,
            numerics=numerics_of(self.numerics),
            search=searched,
            stop=self.stopping.stops(),
        )
        settle_for(classifier, inputs, hold)
        return Asked(named, noise, data_name, inputs, choice, classifier)
