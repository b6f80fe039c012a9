"""`smoothcert sweep`: several methods, noise levels and seeds, trained, certified and compared."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, Token

from smoothcert import datasets
from smoothcert.analysis.plots.drawing import require_matplotlib
from smoothcert.cli.certification import certify_with_bar
from smoothcert.cli.commands import Exit
from smoothcert.cli.console import note, progress_bar, report_mistake, warn
from smoothcert.cli.options import BoundName, DataOptions, OutputOptions
from smoothcert.cli.plan_options import EngineOptions, VoteOptions, given, listed
from smoothcert.cli.train import SweepOptions
from smoothcert.files import write_atomically
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.statement import Shard

if TYPE_CHECKING:
    from smoothcert.sweeps import Cell, Trial


def _several_methods(_kind: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Methods with commas or spaces between them; after a comma, KEY=VALUE still belongs to the method before."""
    methods: list[str] = []
    for token in tokens:
        for place, part in enumerate(token.value.split(",")):
            if place and "=" in part.partition(":")[0]:
                methods[-1] += f",{part}"
            else:
                methods.append(part)
    return tuple(methods)


def sweep(
    dataset: str | None = None,
    *,
    methods: Annotated[tuple[str, ...], Parameter(consume_multiple=True, converter=_several_methods)],
    sigmas: Annotated[tuple[float, ...], Parameter(consume_multiple=True, converter=listed)] = (),
    seeds: Annotated[tuple[int, ...], Parameter(consume_multiple=True, converter=listed)] = (0,),
    out: Path,
    architecture: str | None = None,
    train_inputs: int | None = None,
    ramp: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, converter=listed)] = None,
    shard: str | None = None,
    votes: VoteOptions = VoteOptions(),
    bound: BoundName = "top-two",
    plan: SweepOptions = SweepOptions(),
    data: DataOptions = DataOptions(),
    engine: EngineOptions = EngineOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Train and certify every method at every σ from every seed, and end in one table and one plot.

    Each cell is a training run and a certification run in its own folder under `--out`. Stopped, rerun the
    same command to resume; ask for more methods, σ or seeds later and only those are added. `--out` also receives
    table.md, table.json and certified-accuracy.png (mean and standard deviation over seeds). With `--backend processes`
    or `ray`, `--workers` cells are worked on at once; the results are the same.

    Example: `smoothcert sweep digits --methods gaussian consistency smoothmix:eta=1,steps=4 --sigmas 0.25 0.5
    --seeds 0 1 2 --epochs 30 --lr 0.05 --n 10000 --every 5 --out sweeps/digits`

    Example: `smoothcert sweep --methods mnist-gaussian-0.5 mnist-smoothmix-0.5 --out sweeps/published`

    Parameters
    ----------
    dataset
        Data set to train on and certify (recipes name their own).
    methods
        Objectives (`smoothmix`), names of recipes, or recipe files; with options, or fields of the plan, changed:
        `smoothmix:eta=1,steps=8`, `mnist-macer-0.5:copies=4,batch_size=64,ramp=lam:0@10`.
    sigmas
        Noise levels (recipes have their own).
    seeds
        Seeds of training and certification.
    out
        Folder for all of it.
    architecture
        Network of every cell (default: the recipe's, or by the size of the inputs).
    train_inputs
        Train on this many inputs only, the first ones.
    ramp
        Options that rise during training, for every method, OPTION[=START]:EPOCHS[@AFTER] as in train; a recipe's own
        ramps
        of other options stay.
    shard
        I/N: only every N-th of the cells, from the I-th on, and no table: for arrays of jobs in a batch queue. When all
        are done, the command without it makes the table.
    bound
        top-two, clopper-pearson (the papers' protocol), or, for soft votes, hoeffding and bernstein.
    """
    from smoothcert.sweeps import Trial, plan_cells, run_cells, settings_without_effect
    from smoothcert.training.runs import check_begins

    part = None if shard is None else Shard.parse(shard)
    if part is None:
        require_matplotlib()
    common = given(
        plan,
        dataset=None if dataset is None else data.spec(dataset),
        architecture=architecture,
        inputs=train_inputs,
        ramps=ramp,
    )
    cells = plan_cells(methods, sigmas, seeds, common)
    for cell in cells:  # the last of them, too, before hours go into the first
        check_begins(cell.model(out), cell.recipe.plan)
    for sentence in settings_without_effect(cells, common):
        warn(sentence)
    certify_plan = {
        **vars(votes),
        "bound": bound,
        **engine.plan_fields,
    }
    trial = Trial(certify_plan, data.choice(), engine.execution, data.split, data.data_dir)
    if part is not None:
        cells = [cells[place] for place in part.part(range(len(cells)))]
    if trial.execution.backend == "threads":
        diverged = _one_after_another(cells, trial, out)
    else:
        count = iter(range(1, len(cells) + 1))
        diverged = run_cells(
            cells, trial, out, lambda cell: note(f"{next(count)}/{len(cells)}  {cell.folder}")
        )
    for cell, why in diverged.items():
        report_mistake(f"{cell.folder}: {why}")
    certified = [cell for cell in cells if cell not in diverged]
    if part is not None:
        note(f"shard {part}: {len(certified)} cells; the command without --shard makes the table")
    elif certified:
        _show([(cell, read_run(cell.certified(out))) for cell in certified], out, output)
    if diverged:
        report_mistake(
            f"{len(diverged)} of {len(cells)} trainings diverged and are left out: "
            + ", ".join(cell.folder for cell in diverged)
        )
        sys.exit(Exit.MISTAKE)


def _one_after_another(cells: Sequence[Cell], trial: Trial, out: Path) -> dict[Cell, str]:
    """Train and certify the cells with a bar for each; why some diverged."""
    from smoothcert.training.loop import TrainingDivergedError
    from smoothcert.training.processes import keep_freed_memory

    keep_freed_memory()
    load = cache(lambda name, split: datasets.load(name, split, trial.data_dir))
    diverged = {}
    for number, cell in enumerate(cells, start=1):
        note(f"{number}/{len(cells)}  {cell.method}  σ = {cell.sigma:g}  seed {cell.seed}")
        train_set, test_set = (load(cell.recipe.dataset, split) for split in ("train", trial.split))
        try:
            with progress_bar("training", "steps") as bar:
                trial.train(cell, out, train_set, test_set, bar.step)
            trial.certify(cell, out, test_set, certify_with_bar)
        except TrainingDivergedError as error:
            diverged[cell] = str(error)
    return diverged


def _show(done: list[tuple[Cell, Run]], out: Path, output: OutputOptions) -> None:
    from smoothcert.analysis.layouts import seed_table
    from smoothcert.analysis.plots.curves import plot_seed_groups
    from smoothcert.analysis.seeds import summarise_seeds
    from smoothcert.analysis.tables import default_radii, render
    from smoothcert.sweeps import group_by_seed

    groups = group_by_seed(done)
    radii = default_radii([run for _, run in done])
    summaries = [summarise_seeds(group, [float(r) for r in radii]) for group in groups]
    table = seed_table(summaries, radii)
    tables = {name: render(table, name) for name in ("markdown", "json")}
    write_atomically(out / "table.md", tables["markdown"].encode())
    write_atomically(out / "table.json", tables["json"].encode())
    picture = out / "certified-accuracy.png"
    plot_seed_groups(groups, picture)
    note(f"{out / 'table.md'}, {out / 'table.json'}, {picture}")
    if not output.quiet:
        sys.stdout.write(tables["json" if output.json else "markdown"])
