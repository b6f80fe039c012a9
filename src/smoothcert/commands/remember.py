"""`smoothcert remember`: certificates made consistent by a region memory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from smoothcert.commands.options import OutputOptions
from smoothcert.commands.run_argument import RunPath

if TYPE_CHECKING:
    from smoothcert.datasets.base import Dataset
    from smoothcert.runs import Run


def remember(
    run: RunPath,
    *,
    memory: str,
    out: Path,
    dataset: str | None = None,
    split: Literal["test", "train"] | None = None,
    data_dir: Path | None = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Pass a certified run through a region memory, so that no two answers contradict each other.

    Where each input has its own σ, its certificate is about the classifier frozen at that σ; an input nearby may get
    another σ and another class. The memory keeps every answer with its region. An input inside a stored region gets
    that class; a certificate of its own class, or outside of all, is cut until it meets no region of another class,
    and stored. What that promises is stateful: it holds for questions asked of this memory afterwards, while it is
    complete, and depends on the order (docs/region-memory.md). The new run says so, and tables mark it.

    Example: `smoothcert certify runs/lenet --sigma-search ladder --out runs/ds` and then
    `smoothcert remember runs/ds --memory lenet.memory --out runs/ds-remembered`

    Parameters
    ----------
    run
        Run directory made by certify.
    memory
        The memory: an SQLite file, made if missing, or postgresql://USER@HOST/DATABASE#SCHEMA, with the password in
        PGPASSWORD or ~/.pgpass. It is bound to the run's model.
    out
        Directory for the new run.
    dataset
        The data set, unless the run names a registered one, such as mnist: a path that it names is not opened unasked.
    split
        Its split.
    data_dir
        Where its files are.
    """
    from smoothcert.runs import read_run
    from smoothcert.runs.data_check import open_inputs_of

    whole = read_run(run)
    remember_with_bar(whole, open_inputs_of(whole, dataset, split, data_dir), memory, out, output)


def remember_with_bar(whole: Run, inputs: Dataset, memory: str, out: Path, output: OutputOptions) -> None:
    """Pass a run through a memory while a bar shows how far it is, and say how its answers came about."""
    from smoothcert.commands.certify_view import show_run
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.databases import public_address
    from smoothcert.region_memory.runs import remember as remember_run

    address = memory.removeprefix("sqlite:")
    with progress_bar("remembering", "inputs", output.silent) as bar:
        bar.begin(len(whole.records), len(whole.records))
        made, sources = remember_run(whole, inputs, address, out, bar.one)
    show_run(made, output)
    words = {
        "certified": "kept their certificate",
        "shrunk": "were cut to fit",
        "memory": "were answered from memory",
        "abstained": "abstained",
    }
    told = ", ".join(f"{sources[source]} {text}" for source, text in words.items() if sources[source])  # type: ignore[index]
    note(
        f"{told}. Stateful: holds for questions asked of {public_address(address)} from now on.",
        output.silent,
    )
