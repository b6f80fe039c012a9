"""`smoothcert train`: a classifier trained under noise."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothcert.architectures import ARCHITECTURES
from smoothcert.commands.made_options import given
from smoothcert.commands.options import OutputOptions
from smoothcert.commands.recipe_options import KnobOptions, PlanOptions
from smoothcert.datasets import DATASETS
from smoothcert.objectives import OBJECTIVES

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset
    from smoothcert.training import Recipe


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
        str | None,
        Parameter(help=f"Training method: {', '.join(OBJECTIVES)} (see `smoothcert methods`)."),
    ] = None,
    architecture: Annotated[
        str | None,
        Parameter(
            help=f"{', '.join(ARCHITECTURES)}, timm:NAME or torchvision:NAME (default: by the size of the inputs)."
        ),
    ] = None,
    normalise: Annotated[bool | None, Parameter(negative=None)] = None,
    max: Annotated[int | None, Parameter(help="Train on the first M inputs only.")] = None,
    ramp: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True)] = None,
    plan: PlanOptions = PlanOptions(),
    knobs: KnobOptions = KnobOptions(),
    data_dir: Path | None = None,
    device: str = "cpu",
    tensorboard: bool = False,
    acr_every: int | None = None,
    acr_inputs: int = 100,
    acr_votes: int = 1000,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Train a classifier under noise and save it with everything needed to certify it.

    Take a published setting with `--recipe` (`smoothcert recipes` lists them), or set the fields yourself; every field
    of a recipe can be overridden. Interrupted, the same command goes on after the last finished epoch and ends with
    the same weights. On several cards or machines: `torchrun --nproc-per-node 4 -m -- smoothcert train …`.

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
    ramp
        Knobs that rise during training, KNOB[=START]:EPOCHS[@AFTER]: `epsilon:10` from 0 over 10 epochs, `lam:0@60`
        jumps after 60; lr, sigma or a number among the knobs.
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
        How many inputs that is, the same each time.
    acr_votes
        Votes for each of them: more give larger radii, at all epochs alike.
    """
    from smoothcert import datasets
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.hints import certify_trained
    from smoothcert.sampling.execution import check_device
    from smoothcert.training import AcrCheck, find_recipe, make_recipe, train_into
    from smoothcert.training.memory import keep_freed_memory
    from smoothcert.training.processes import connect
    from smoothcert.training.tensorboard import TensorBoard

    check_device(device)
    acr_check = None if acr_every is None else AcrCheck(acr_every, acr_inputs, acr_votes)
    keep_freed_memory()
    values = given(
        plan,
        dataset=dataset,
        architecture=architecture,
        normalise=normalise,
        inputs=max,
        start=start,
        ramps=ramp,
    )
    chosen = (
        make_recipe(values, objective or "gaussian", given(knobs))
        if recipe is None
        else find_recipe(recipe).changed(values, objective, given(knobs))
    )
    inputs = datasets.load(chosen.dataset, "train", data_dir)
    test_set = None if chosen.plan.holdout else _test_split(chosen, data_dir)
    processes = connect(device)
    quiet = output.silent or not processes.is_first
    with ExitStack() as stack:
        listeners = []
        if tensorboard and processes.is_first:
            listeners = [stack.enter_context(closing(TensorBoard(out / "tensorboard")))]
        bar = stack.enter_context(progress_bar("training", "steps", quiet))
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
    last = history[-1]
    if output.json and processes.is_first:
        told = {"out": str(out), "epochs": last.epoch, "loss": last.loss, "accuracy": last.accuracy}
        print(json.dumps(told if last.acr is None else told | {"acr": last.acr}))
    split = "train" if (test_set or _test_split(chosen, data_dir)) is None else None
    named = None if chosen.dataset in DATASETS else chosen.dataset
    after = certify_trained(out, named, data_dir, split, noisy=chosen.plan.sigma > 0)
    acr = "" if last.acr is None else f"; ACR {last.acr:.3f} of a few of them, with few votes"
    note(
        f"{out}: loss {last.loss:.4f}, base classifier {100 * last.accuracy:.1f} % right on noisy "
        f"{last.validated_on} inputs{acr}\nNext: {after}",
        quiet,
    )


def _test_split(recipe: Recipe, data_dir: Path | None) -> Dataset | None:
    """The split that training is reported on; None where the data set has none."""
    from smoothcert import datasets
    from smoothcert.errors import DataError

    try:
        return datasets.load(recipe.dataset, "test", data_dir)
    except DataError:
        return None
