"""`smoothcert import-log`: other projects' logs, and exported runs, as runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothcert.commands.options import BoundName, NoiseName


def import_log(
    log: Path,
    *,
    out: Path,
    sigma: float | None = None,
    method: str | None = None,
    dataset: str | None = None,
    noise: NoiseName | None = None,
    bound: BoundName | None = None,
    n0: int | None = None,
    n: int | None = None,
    alpha: float | None = None,
    seed: int | None = None,
) -> None:
    """Make a run of a TSV certification log (idx, label, predict, radius, correct, time), plain or gzipped.

    A log doesn't say how it was made: `--sigma` is needed, and anything else not given stays unknown and is shown as
    missing. A file that `export-log --format parquet` wrote states all of it and becomes the same run again.

    Example: `smoothcert import-log cohen.tsv.gz --sigma 0.25 --method gaussian --dataset cifar10 --out runs/cohen`

    Parameters
    ----------
    log
        The log file.
    out
        Run directory to write.
    sigma
        Standard deviation of the noise it was made with.
    method
        What a paper's table calls it (`table --layout paper`).
    dataset
        Data set it was made on.
    noise
        Noise it was made with (gaussian, the default: ℓ2 radii; uniform: ℓ1).
    bound
        Bound it was made with.
    n0
        Selection votes it was made with.
    n
        Estimation votes it was made with.
    alpha
        Failure probability it was made with.
    seed
        Seed its model was trained with: logs of one method that differ in it alone are pooled to mean±sd
        (`table --layout paper`).
    """
    from dataclasses import replace

    from smoothcert.analysis.about import own_sigmas
    from smoothcert.commands.console import note
    from smoothcert.errors import InvalidValueError, check_count
    from smoothcert.noise import DEFAULT_NOISE
    from smoothcert.runs import create_run
    from smoothcert.runs.field_log import import_manifest, read_field_log
    from smoothcert.runs.parquet import is_parquet, read_parquet

    dropped = ""
    stated: dict[str, Any] = {"bound": bound, "n0": n0, "n": n, "alpha": alpha}
    if is_parquet(log):
        options = {"sigma": sigma, "dataset": dataset, "seed": seed, "noise": noise, **stated}
        given = [name for name, value in options.items() if value is not None]
        if given:
            raise InvalidValueError(
                f"{log} states its own {', '.join(given)}: leave out --{', --'.join(given)}"
            )
        manifest, records, files = read_parquet(log)
        if method is not None:
            manifest = replace(manifest, origin=manifest.origin.but(method=method))
    else:
        if sigma is None:
            raise InvalidValueError(f"--sigma is missing: {log} doesn't say which noise it was made with")
        read = read_field_log(log, sigma)
        manifest = import_manifest(
            log,
            sigma,
            noise=noise or DEFAULT_NOISE,
            data_name=dataset,
            method=method,
            read=read,
            **stated,
        )
        if seed is not None:
            check_count("seed", seed, least=0)
            manifest = replace(manifest, plan=manifest.plan.but(seed=seed))
        records, files = read.records, {}
        if read.dropped_tail is not None:
            dropped = " The last line was cut off and left out: the log isn't complete, and nothing is stated from it."
    create_run(out, manifest, records, files)
    spread = own_sigmas([record.sigma for record in records])
    own = "" if spread is None else f" The log's own σ of each input is kept: {spread}."
    note(f"{len(records)} inputs imported into {out}.{own}{dropped}")
