"""`smoothcert import-log`: other projects' logs as runs."""

from __future__ import annotations

from pathlib import Path

from smoothcert.commands.options import BoundName, NoiseName


def import_log(
    log: Path,
    *,
    sigma: float,
    out: Path,
    noise: NoiseName = "gaussian",
    bound: BoundName | None = None,
    n0: int | None = None,
    n: int | None = None,
    alpha: float | None = None,
) -> None:
    """Import a TSV certification log (idx, label, predict, radius, correct, time), plain or gzipped.

    What the log doesn't say stays unknown unless you give it: bound, n0, n and alpha.

    Parameters
    ----------
    log
        The log file.
    sigma
        Standard deviation of the noise it was made with.
    out
        Run directory to write.
    noise
        Noise it was made with (gaussian: ℓ2 radii; uniform: ℓ1).
    bound
        Bound it was made with.
    n0
        Selection votes it was made with.
    n
        Estimation votes it was made with.
    alpha
        Failure probability it was made with.
    """
    from smoothcert.commands.console import note
    from smoothcert.runs import create_run
    from smoothcert.runs.field_log import import_manifest, read_field_log

    read = read_field_log(log, sigma)
    manifest = import_manifest(log, sigma, noise=noise, bound=bound, n0=n0, n=n, alpha=alpha)
    create_run(out, manifest, read.records)
    dropped = " The last line was cut off and left out." if read.dropped_tail is not None else ""
    note(f"{len(read.records)} inputs imported into {out}.{dropped}")
