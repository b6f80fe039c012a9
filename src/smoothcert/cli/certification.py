"""A certification as commands ask for it: model, data and plan, run with a bar and shown."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter
from rich.table import Table

from smoothcert.analysis.facts import votes_in_words, votes_used
from smoothcert.bounds.base import BOUNDS, VoteKind
from smoothcert.cli import options
from smoothcert.cli.arguments import NamedModel, load_named_model
from smoothcert.cli.console import View, figure_table, progress_bar
from smoothcert.cli.levels import LevelOptions
from smoothcert.cli.plan_options import EngineOptions, SearchText, VoteOptions, search_of
from smoothcert.datasets.base import Dataset
from smoothcert.errors import check_count
from smoothcert.plain_text import norm_name
from smoothcert.runs.run import Run
from smoothcert.runs.statement import Choice, Shard
from smoothcert.smoothing.plan import AUTO
from smoothcert.smoothing.stopping.base import BUDGETS, STOP_RULES

if TYPE_CHECKING:
    from smoothcert.smoothing.classifier import ModelClassifier
    from smoothcert.smoothing.holding import HoldingClassifier

_STOP = Group("Fewer votes, same guarantee", sort_key=3)


def _written(goal: str) -> str:
    """How rules and budgets for a goal are written, and what they do."""
    rules = [*(STOP_RULES[name] for name in STOP_RULES), *(BUDGETS[name] for name in BUDGETS)]
    return ", ".join(f"**{rule.example}** ({rule.words})" for rule in rules if rule.goal == goal)


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
            f"With any: {_written('any')}."
        ),
    ] = None
    total_votes: int | None = None
    """Votes for all inputs together, spread so that the mean radius comes out largest: pilots find out where votes pay,
    inputs whose class is wrong get none. An input may get up to 16 n votes."""

    def stops(self) -> tuple[str, ...]:
        """Stop rules and budget as the plan takes them."""
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
    classifier: ModelClassifier


@Parameter(name="*")
@dataclass(frozen=True)
class CertificationOptions:
    """All that decides what is certified, and how fast; where it goes is the command's own."""

    dataset: options.DataName = None
    sigma: options.Sigma = None
    noise: options.NoiseText = None
    votes: VoteOptions = VoteOptions()
    bound: options.BoundName | None = None
    """top-two (p_A and its strongest rival; the default), clopper-pearson (the papers' protocol), or, for soft votes,
    hoeffding and bernstein. Those that hold whenever voting stops: mixture, mixture-top-two, and, only at certain n
    (1000, 10000, 100000 and seven between each two), looks and looks-top-two. Where --stop looks at the votes,
    mixture-top-two is the default."""
    seed: int = 0
    """Names the random streams; the same seed gives the same votes."""
    stopping: StopOptions = StopOptions()
    sigma_search: SearchText = None
    levels: LevelOptions = LevelOptions()
    data: options.DataOptions = options.DataOptions()
    shard: str | None = None
    """I/N: every N-th of the inputs, from the I-th on, into a directory of their own; `smoothcert run merge` makes
    one run of all N. For arrays of jobs in a batch queue (docs/scaling.md)."""
    model_options: options.ModelOptions = options.ModelOptions()
    engine: EngineOptions = EngineOptions()

    def of(self, model: str, default_bound: str | None = None, hold: list[str] | None = None) -> Asked:
        """Options as the library takes them; what can't be is refused before anything long begins."""
        bound = self.bound or default_bound
        plan = {**vars(self.votes), "bound": bound or AUTO, "seed": self.seed}
        plan |= {"search": search_of(self.sigma_search), "stop": self.stopping.stops()}
        return self.smoothed(model, "hard" if bound is None else BOUNDS[bound].votes, plan, hold)

    def smoothed(self, model: str, votes: VoteKind, plan: dict[str, Any], hold: list[str] | None) -> Asked:
        """Model and data, and the model smoothed by these fields of a plan and the engine's."""
        from smoothcert.cli.tables import perturbed

        execution = self.engine.execution
        choice = self.data.choice(None if self.shard is None else Shard.parse(self.shard))
        named = load_named_model(model, self.model_options, votes)
        noise = named.noise_or(self.noise)
        data_name = self.data.spec(named.dataset_or(self.dataset))
        inputs = self.data.load(data_name)
        perturbation, inputs = perturbed(
            *(named, self.noise, self.sigma, inputs),
            lambda: replace(self.data, split="train").load(data_name),
            held=hold is not None,
        )
        sigma, plan = self.sigma if perturbation is None else None, plan | self.engine.plan_fields
        classifier = self.levels.smoothed(
            model, named, self.model_options, execution, sigma, perturbation or noise, **plan
        )
        options.settle_for(classifier, inputs, hold)
        noise = noise if perturbation is None else perturbation.name
        return Asked(named, noise, data_name, inputs, choice, classifier)


def certify_with_bar(
    classifier: ModelClassifier | HoldingClassifier,
    dataset: Dataset,
    out: Path,
    choice: Choice,
    origin: dict[str, Any] | None = None,
) -> Run:
    """Certify into ``out`` while a bar shows inputs, votes per second and time left."""
    from smoothcert.evaluation.certification import Progress, certify_dataset

    total = len(choice.indices(len(dataset)))
    with progress_bar("certifying", "votes") as bar:
        progress = Progress(
            begin=lambda votes, done: bar.begin(votes, total, done),
            votes=bar.advance,
            record=lambda _: bar.item(),
        )
        return certify_dataset(classifier, dataset, out, choice, progress, origin)


def run_view(run: Run) -> View:
    """The run's figures."""
    from smoothcert.analysis.layouts import render_table
    from smoothcert.analysis.metrics import summarise
    from smoothcert.analysis.overview import levels_used, used_json
    from smoothcert.analysis.tables import default_radii

    data: dict[str, Any] = {"run": str(run.path), "results_sha256": run.records.digest, "table": []}
    if (
        run.complete and not run.records
    ):  # of more shards than inputs some have none; such a job has done its part
        stated = run.manifest.data
        told = (
            f"{run.name}: there are more shards than the {stated.value('planned')} inputs, and none for shard "
            f"{stated.shard}; merge it with the others"
        )
        return View(data, [told])
    radii = default_radii([run])
    summary = summarise(run, [float(radius) for radius in radii])
    table = figure_table(*radii)
    table.add_row(*(f"{100 * rate:.1f}" for rate in summary.accuracy))
    abstained = int(run.records.abstained.sum())
    used, levels = votes_used(run), levels_used(run)
    noise = f"σ = {summary.sigma:g}{summary.sigma_mark}"
    if run.norm == "l2/sigma":  # σ would be a mean over columns of different units
        noise = f"β = {run.manifest.plan.value('beta'):g}, no category changed"
    parts: list[str | Table] = [
        f"{run.name}: certified accuracy (%) at {norm_name(run.norm)} radius",
        table,
        f"ACR {summary.acr:.3f} over {summary.inputs} inputs, {abstained} abstained "
        f"({noise}, {summary.bound} bound, {votes_in_words(run)}, "
        f"α = {summary.alpha:g})",
        *([] if used is None else [used.in_words()]),
        *([] if levels is None else levels.sentences()),
        f"Each certificate is wrong with probability at most {summary.alpha:g}.  "
        f"results sha256 {data['results_sha256'][:16]}",
    ]
    data["table"] = json.loads(render_table([run], radii, format="json"))
    return View(data | used_json(run), parts)
