"""The certification that a command line asks for: model, data and plan, for commands that run it or plan it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

from smoothcert.commands.level_options import LevelOptions
from smoothcert.commands.options import BoundName, DataName, DataOptions, ModelOptions, NoiseText, Sigma
from smoothcert.commands.plan_options import VoteOptions
from smoothcert.commands.sampling_options import NumericsOptions, SpeedOptions, execution_of, numerics_of
from smoothcert.commands.search_options import SearchText, search_of
from smoothcert.commands.stop_options import StopOptions

if TYPE_CHECKING:
    from smoothcert.commands.model_argument import NamedModel
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

    def of(self, model: str, default_bound: str | None = None) -> Asked:
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
        classifier.settle_for(inputs.levels, inputs.largest)
        return Asked(named, noise, data_name, inputs, choice, classifier)
