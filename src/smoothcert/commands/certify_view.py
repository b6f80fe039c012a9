"""Certification with a progress bar, and its summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smoothcert.analysis.levels import levels_used, used_json
from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.tables import default_radii, render_table
from smoothcert.analysis.votes import votes_in_words, votes_used
from smoothcert.commands.console import figure_table, print_figures, progress_bar, stdout
from smoothcert.commands.options import OutputOptions
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation import Choice, Progress, certify_dataset
from smoothcert.plain_text import norm_name
from smoothcert.runs import Run
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.smoothing.holding import HoldingClassifier


def certify_with_bar(
    classifier: SmoothedClassifier | HoldingClassifier,
    dataset: Dataset,
    out: Path,
    choice: Choice,
    origin: dict[str, Any] | None = None,
    *,
    quiet: bool,
) -> Run:
    """Certify into ``out`` while a bar shows inputs, votes per second and time left."""
    total = len(choice.indices(len(dataset)))
    with progress_bar("certifying", "votes", quiet) as bar:
        progress = Progress(
            begin=lambda votes, done: bar.begin(votes, total, done),
            votes=bar.advance,
            record=lambda _: bar.item(),
        )
        return certify_dataset(classifier, dataset, out, choice, progress, origin)


def show_run(run: Run, output: OutputOptions) -> None:
    """The run's figures: a table, a JSON object, or nothing when quiet."""
    if run.complete and not run.records:
        _show_empty_shard(run, output)
        return
    radii = default_radii([run])
    summary = summarise(run, [float(r) for r in radii])
    digest = run.records.digest
    if output.json:
        rows = json.loads(render_table([summary], radii, "json"))
        print(json.dumps({"run": str(run.path), "results_sha256": digest, "table": rows, **used_json(run)}))
        return
    if output.quiet:
        return
    console = stdout()
    console.print(f"{run.name}: certified accuracy (%) at {norm_name(run.norm)} radius")
    table = figure_table(*radii)
    table.add_row(*(f"{100 * rate:.1f}" for rate in summary.accuracy))
    print_figures(table)
    abstained = int(run.records.abstained.sum())
    used, levels = votes_used(run), levels_used(run)
    console.print(
        f"ACR {summary.acr:.3f} over {summary.inputs} inputs, {abstained} abstained "
        f"(σ = {summary.sigma:g}{summary.sigma_mark}, {summary.bound} bound, {votes_in_words(run)}, "
        f"α = {summary.alpha:g})\n"
        + ("" if used is None else f"{used.in_words()}\n")
        + ("" if levels is None else "".join(f"{sentence}\n" for sentence in levels.sentences()))
        + f"Each certificate is wrong with probability at most {summary.alpha:g}.  results sha256 {digest[:16]}"
    )


def _show_empty_shard(run: Run, output: OutputOptions) -> None:
    """Of more shards than inputs some have none; such a job has done its part."""
    if output.json:
        print(json.dumps({"run": str(run.path), "results_sha256": run.records.digest, "table": []}))
    elif not output.quiet:
        data = run.manifest.data
        stdout().print(
            f"{run.name}: there are more shards than the {data.value('planned')} inputs, and none for shard "
            f"{data.shard}; merge it with the others"
        )
