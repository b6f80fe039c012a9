"""`smoothcert merge`: one run from the shards of a batch queue's jobs."""

from __future__ import annotations

from pathlib import Path

from smoothcert.commands.options import OutputOptions
from smoothcert.commands.run_argument import RunPath


def merge(*shards: RunPath, out: Path, output: OutputOptions = OutputOptions()) -> None:
    """Make one run of the shards that `certify --shard I/N` made.

    The result is the run that a single process would have made, to the bit: an input's votes depend on the seed and its
    number, not on who cast them. Shards that don't belong together, are missing, doubled or unfinished are refused,
    and so are shards made by other versions: nothing is written then.

    Example: `smoothcert merge shards/* --out runs/whole`

    Parameters
    ----------
    shards
        Directories of all shards of a run, in any order.
    out
        Directory of the run.
    """
    from smoothcert.commands.certify_view import show_run
    from smoothcert.evaluation.merging import merge as merge_shards

    show_run(merge_shards(shards, out), output)
