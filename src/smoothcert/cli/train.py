"""`smoothcert train`: a classifier trained under noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Group, Parameter

from smoothcert import datasets
from smoothcert.analysis.facts import guessing
from smoothcert.cli.console import View, emit, note, progress_bar, silence, warn
from smoothcert.cli.options import OutputOptions
from smoothcert.cli.plan_options import OptionField, given, listed, merged, option, options, sentence
from smoothcert.datasets import DATASETS
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, InvalidValueError
from smoothcert.knobs import knobs_of
from smoothcert.models.numerics import check_device
from smoothcert.objectives import OBJECTIVES
from smoothcert.plain_text import certify_trained
from smoothcert.runs.side_files import EpochMetrics
from smoothcert.training.plan import TrainPlan, without_effect
from smoothcert.training.recipe import Recipe, find_recipe, make_recipe

if TYPE_CHECKING:
    from smoothcert.training.runs import EpochListener
    from smoothcert.training.steps import AcrCheck

_PLAN = Group("Plan (overrides the recipe)", sort_key=2)
_KNOBS = Group("Options of the objective (default of each that has it)", sort_key=3)


def _plan_fields(but: tuple[str, ...] = ()) -> Iterator[OptionField]:
    for knob in knobs_of(TrainPlan):
        if knob.name not in ("objective", "ramps", *but):
            shown = "" if knob.default in (dataclasses.MISSING, None, (), False) else f" \\[{knob.default}]"
            yield option(dataclasses.replace(knob, help=sentence(knob).help + shown), _PLAN, unset=True)


@options(_plan_fields())
class PlanOptions:
    """The plan's fields but objective and ramps, each None unless given."""


@options(_plan_fields(but=("sigma", "seed")))
class SweepOptions:
    """The same without σ and seed: a sweep takes several of both."""


def _knob_fields() -> list[OptionField]:
    knobs = merged({name: knobs_of(OBJECTIVES[name]) for name in OBJECTIVES})
    return [option(knob, _KNOBS) for knob in sorted(knobs, key=lambda knob: knob.name)]


@options(_knob_fields())
class KnobOptions:
    """The options of all objectives, each None unless given."""


def train(
    dataset: Annotated[
        str | None,
        Parameter(help=f"{', '.join(DATASETS)}, folder:PATH or npz:PATH; its train split is used."),
    ] = None,
    *,
    out: Path,
    recipe: str | None = None,
    start: Annotated[str | None, Parameter(name="--from")] = None,
    objective: Annotated[
        str | None, Parameter(help=f"Training method: {', '.join(OBJECTIVES)} (see `smoothcert recipes`).")
    ] = None,
    architecture: Annotated[
        str | None,
        Parameter(
            help="lenet, small-cnn, cifar_resnet20, …, timm:NAME, torchvision:NAME (default: by the inputs' size)."
        ),
    ] = None,
    normalise: Annotated[bool | None, Parameter(negative=None)] = None,
    train_inputs: int | None = None,
    ramp: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, converter=listed)] = None,
    plan: PlanOptions = PlanOptions(),
    knobs: KnobOptions = KnobOptions(),
    data_dir: Path | None = None,
    device: str = "cpu",
    tensorboard: bool = False,
    acr_every: int | None = None,
    acr_inputs: int | None = None,
    acr_votes: int | None = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Train a classifier under noise and save it with everything needed to certify it.

    Take a published setting with `--recipe` (`smoothcert recipes` lists them), or set the fields yourself; every field
    of a recipe can be overridden. Stop it at any moment: rerun the same command to resume after the last finished
    epoch;
    it ends with the same weights. On several cards or machines: `torchrun --nproc-per-node 4 -m -- smoothcert train …`.

    `--out` receives recipe.toml (what was done, ready for `--recipe`), metrics.jsonl (a line per epoch), checkpoint.pt
    and, at the end, model.safetensors.

    Example: `smoothcert train digits --sigma 0.25 --epochs 30 --lr 0.05 --out runs/digits`

    Example: `smoothcert train digits --sigma 0.25 --from runs/digits --data-dependent --epochs 10 --out runs/digits-ds`

    Example: `smoothcert train --recipe mnist-smoothmix-1.0 --epochs 10 --eta 1 --out runs/short`

    Parameters
    ----------
    out
        Run directory; made, or continued if it holds the same run.
    recipe
        Name of a shipped recipe, or a recipe.toml.
    start
        Fine-tune: start from the weights of this finished training run (or .safetensors file) and its network.
    normalise
        Standardise inputs in the model's first layer, where the data set has published statistics (default: yes).
    train_inputs
        Train on the first M inputs only.
    ramp
        Options that rise during training, OPTION[=START]:EPOCHS[@AFTER]: `epsilon:10` from 0 over 10 epochs, `lam:0@60`
        jumps after 60; lr, sigma or a number among the method's options.
    data_dir
        Where the data set's files are (default: the environment variable SMOOTHCERT_DATA).
    device
        Where to train: cpu, cuda, mps.
    tensorboard
        Also write TensorBoard events to OUT/tensorboard.
    acr_every
        After every so many epochs, and the last, certify some validation inputs and note their ACR in metrics.jsonl;
        `smoothcert plot --kind training` draws it. Changes nothing of the training.
    acr_inputs
        How many inputs that is, the same each time (default: 100).
    acr_votes
        Votes for each of them: more give larger radii, at all epochs alike (default: 1000).
    """
    from smoothcert.training.processes import connect, keep_freed_memory
    from smoothcert.training.runs import TensorBoard, check_begins, train_into

    check_device(device)
    acr_check = _acr_check(acr_every, acr_inputs, acr_votes)
    keep_freed_memory()
    about = {"dataset": dataset, "architecture": architecture, "normalise": normalise}
    values = given(plan, **about, inputs=train_inputs, start=start, ramps=ramp)
    chosen = (
        make_recipe(values, objective or "gaussian", given(knobs))
        if recipe is None
        else find_recipe(recipe).changed(values, objective, given(knobs))
    )
    inputs = datasets.load(chosen.dataset, "train", data_dir)
    test_set = None if chosen.plan.holdout else _test_split(chosen, data_dir)
    processes = connect(device)
    if not processes.is_first or (output.json and output.log_format is None):
        silence()
    check_begins(out, chosen.plan)  # before it is warned of, too
    for idle in without_effect(chosen.plan, values):
        warn(idle)
    with ExitStack() as stack:
        made: list[EpochMetrics] = []
        listeners: list[EpochListener] = [made.append]
        if tensorboard and processes.is_first:
            listeners.append(stack.enter_context(closing(TensorBoard(out / "tensorboard"))))
        bar = stack.enter_context(progress_bar("training", "steps"))
        history = train_into(
            out,
            chosen,
            inputs,
            test_set=test_set,
            on_step=bar.step,
            listeners=listeners,
            processes=processes,
            data_dir=data_dir,
            acr_check=acr_check,
        )
        if not bar.all_items:  # all was trained before
            bar.begin(0, len(history), len(history))
    if acr_check is not None:
        validated = chosen.plan.holdout or len(inputs.first(chosen.inputs) if test_set is None else test_set)
        if (told := _acr_told(out, acr_check, validated, history, made)) is not None:
            warn(told)
    last = history[-1]
    split = "train" if (test_set or _test_split(chosen, data_dir)) is None else None
    named = None if chosen.dataset in DATASETS else chosen.dataset
    after = certify_trained(out, named, data_dir, split, noisy=chosen.plan.sigma > 0)
    acr = "" if last.acr is None else f"; ACR {last.acr:.3f} of {_rests_on(last)}"
    note(
        f"{out}: loss {last.loss:.4f}, base classifier {100 * last.accuracy:.1f} % right on noisy "
        f"{last.validated_on} inputs{acr}\nNext: {after}"
    )
    if (doubt := guessing(out, len(inputs.classes))) is not None:
        warn(doubt)
    if processes.is_first:
        figures = {"out": str(out), "epochs": last.epoch, "loss": last.loss, "accuracy": last.accuracy}
        acr_figures = {"acr": last.acr, "acr_inputs": last.acr_inputs, "acr_votes": last.acr_votes}
        emit(
            View(figures | {name: value for name, value in acr_figures.items() if value is not None}), output
        )


def _acr_check(every: int | None, inputs: int | None, votes: int | None) -> AcrCheck | None:
    """What --acr-every asks for; options that say more about it are refused without it."""
    from smoothcert.training.steps import AcrCheck

    more = {name: value for name, value in (("inputs", inputs), ("votes", votes)) if value is not None}
    if every is not None:
        return AcrCheck(every, **more)
    for name in more:
        raise InvalidValueError(
            f"--acr-{name} has no effect without --acr-every, which says when the ACR is measured: give it, or leave "
            f"--acr-{name} out"
        )
    return None


def _acr_told(
    out: Path, check: AcrCheck, validated: int, history: Sequence[EpochMetrics], made: Sequence[EpochMetrics]
) -> str | None:
    measured = [one for one in history if one.acr is not None]
    if not made:
        asked = (check.counted(validated), check.votes)
        due = {one.epoch for one in history if check.due(one.epoch, len(history))}
        if due <= {one.epoch for one in measured if (one.acr_inputs, one.acr_votes) == asked}:
            return None
        return (
            f"{out} was finished before: nothing was trained now, so --acr-every {check.every} measured nothing; train "
            "into another --out to see the ACR of its epochs, or certify the model"
        )
    before = [one for one in measured if one.epoch < made[0].epoch]
    others = [one for one in before if _rests_on(one) != _rests_on(measured[-1])]
    if not others:
        return None
    return (
        f"ACRs up to epoch {others[-1].epoch} are of {_rests_on(others[-1])}, from epoch {made[0].epoch} on of "
        f"{_rests_on(measured[-1])}: they don't compare, and aren't drawn as one line"
    )


def _rests_on(one: EpochMetrics) -> str:
    """What an epoch's ACR is of; earlier versions didn't say."""
    if one.acr_inputs is None or one.acr_votes is None:
        return "inputs and votes that aren't stated"
    return f"{one.acr_inputs} {one.validated_on} inputs with {one.acr_votes} votes each"


def _test_split(recipe: Recipe, data_dir: Path | None) -> Dataset | None:
    try:
        return datasets.load(recipe.dataset, "test", data_dir)
    except DataError:
        return None
