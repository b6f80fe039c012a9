"""`smoothcert run …`: what is made of runs that are there: merged, recertified, remembered, published, as files."""

from __future__ import annotations

import io
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from smoothcert.analysis.facts import own_sigmas
from smoothcert.cli.arguments import RunPath
from smoothcert.cli.certification import run_view
from smoothcert.cli.console import View, emit, note, progress_bar
from smoothcert.cli.options import BoundName, NoiseName, OriginOptions, OutputOptions
from smoothcert.databases import public_address
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, check_count
from smoothcert.extras import require
from smoothcert.files import write_atomically
from smoothcert.perturb.base import DEFAULT_NOISE
from smoothcert.plain_text import norm_name
from smoothcert.runs.field_log import import_manifest, read_field_log, write_field_log
from smoothcert.runs.records import Records
from smoothcert.runs.run import Run, create_run, open_inputs_of, read_run
from smoothcert.runs.statement import PlanStatement

# Refused with a reason instead of "unknown option".
_Refused = Parameter(show=False)

LogFormat = Literal["tsv", "parquet"]
_TEXT_SUFFIXES = {".tsv", ".txt", ".csv", ".log"}


def merge(*shards: RunPath, out: Path, output: OutputOptions = OutputOptions()) -> None:
    """Make one run of the shards that `certify --shard I/N` made.

    The result is the run that a single process would have made, to the bit: an input's votes depend on the seed and its
    number, not on who cast them. Shards that don't belong together, are missing, doubled or unfinished are refused,
    and so are shards made by other versions: nothing is written then.

    Example: `smoothcert run merge shards/* --out runs/whole`

    Parameters
    ----------
    shards
        Directories of all shards of a run, in any order.
    out
        Directory of the run.
    """
    from smoothcert.evaluation.merging import merge as merge_shards

    with progress_bar("reading shards", "runs", len(shards), patient=True) as bar:
        merged = merge_shards(shards, out, bar.one)
    emit(run_view(merged), output)


def recertify(
    run: RunPath,
    *,
    out: Path,
    alpha: float | None = None,
    bound: BoundName | None = None,
    sigma: Annotated[float | None, _Refused] = None,
    noise: Annotated[str | None, _Refused] = None,
    n: Annotated[int | None, _Refused] = None,
    n0: Annotated[int | None, Parameter(name="--n0", show=False)] = None,
    seed: Annotated[int | None, _Refused] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Compute a run's certificates anew from its stored votes, at another alpha or with another bound.

    A run keeps the votes of every input, so this takes seconds and no model. Certificates hold as if the run had been
    certified this way from the start, and are the same to the last bit where each input has n votes (no `--stop` but
    wrong); other rules, and choosers of σ levels, would have ended the voting elsewhere. Another σ, noise, n, n0 or
    seed needs new votes: that is `certify`. Without `--alpha` and `--bound` it checks that the results follow from the
    votes.

    **Choose alpha and bound for the whole run, and before you see what they give.** Trying several and keeping the
    best, or choosing per input, voids the promise: certificates would be wrong more often than alpha says. The new
    run records which run it was made from.

    Soft votes (hoeffding, bernstein) hold the hard ones as well, but not the other way round; with a hard bound the
    certificates are about the classifier smoothed by hard votes.

    Example: `smoothcert run recertify runs/digits-cert --bound clopper-pearson --out runs/digits-cert-cp`

    Parameters
    ----------
    run
        Run directory made by certify; an unfinished one is taken as far as it goes.
    out
        Directory of the new run.
    alpha
        Probability that a certificate is wrong (default: the run's).
    bound
        top-two, clopper-pearson, hoeffding or bernstein (default: the run's).
    """
    from smoothcert.evaluation.recertification import CHANGEABLE, as_if_certified
    from smoothcert.evaluation.recertification import recertify as write_recertified

    source = read_run(run)
    with progress_bar("recertifying", "inputs", len(source.records), patient=True) as bar:
        made = write_recertified(
            source, out, bar.one, alpha=alpha, bound=bound, sigma=sigma, noise=noise, n=n, n0=n0, seed=seed
        )
    if source.shortfall is not None:
        note(f"{run} holds {source.shortfall}; what it adds later won't be in {out}")
    before, after = ({key: one.manifest.plan.value(key) for key in CHANGEABLE} for one in (source, made))
    if before != after and not as_if_certified(source, made.manifest.plan.known(PlanStatement.bound)):
        stops = " ".join(source.manifest.plan.stops)
        if source.manifest.plan.sigma_levels is not None:
            stops = " ".join(filter(None, (stops, "what chooser and levels had to show")))
        note(
            f"the certificates hold, but certify with {_stated(after)} would have stopped at other numbers of votes: "
            f"{run} stopped by {stops} with {_stated(before)}"
        )
    emit(run_view(made), output)


def _stated(plan: dict[str, object]) -> str:
    return " and ".join(f"{key} {value}" for key, value in plan.items())


def remember(
    run: RunPath,
    *,
    memory: str,
    out: Path,
    origin: OriginOptions = OriginOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Pass a certified run through a region memory, so that no two answers contradict each other.

    Where each input has its own σ, its certificate is about the classifier frozen at that σ; an input nearby may get
    another σ and another class. The memory keeps every answer with its region. An input inside a stored region gets
    that class; a certificate of its own class, or outside of all, is cut until it meets no region of another class,
    and stored. What that promises is stateful: it holds for questions asked of this memory afterwards, while it is
    complete, and depends on the order (docs/region-memory.md). The new run says so, and tables mark it.

    Example: `smoothcert certify runs/lenet --sigma-search ladder --out runs/ds` and then
    `smoothcert run remember runs/ds --memory lenet.memory --out runs/ds-remembered`

    Parameters
    ----------
    run
        Run directory made by certify.
    memory
        The memory: an SQLite file, made if missing, or postgresql://USER@HOST/DATABASE#SCHEMA, with the password in
        PGPASSWORD or ~/.pgpass. It is bound to the run's model.
    out
        Directory for the new run.
    """
    whole = read_run(run)
    remember_with_bar(whole, open_inputs_of(whole, **vars(origin)), memory, out, output)


def remember_with_bar(whole: Run, inputs: Dataset, memory: str, out: Path, output: OutputOptions) -> None:
    """Pass a run through a memory while a bar shows how far it is, and say how its answers came about."""
    from smoothcert.evaluation.remembering import remember as remember_run

    address = memory.removeprefix("sqlite:")
    with progress_bar("remembering", "inputs", len(whole.records)) as bar:
        made, sources = remember_run(whole, inputs, address, out, bar.one)
    emit(run_view(made), output)
    words = {"certified": "kept their certificate", "shrunk": "were cut to fit"}
    words |= {"memory": "were answered from memory", "abstained": "abstained"}
    told = ", ".join(f"{sources[source]} {text}" for source, text in words.items() if sources[source])  # type: ignore[index]
    note(f"{told}. Stateful: holds for questions asked of {public_address(address)} from now on.")


def publish(
    run: Path,
    to: str,
    *,
    with_model: bool = False,
    replace: bool = False,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Put a finished run into object storage: `show`, `table`, `report`, `verify` and the like read it from there.

    All files are read back and compared before the list that makes them a run is written, so that an upload that is
    killed can't be mistaken for one; the same command completes it. Credentials come from the environment or the
    provider's own files, are never part of the address, and are neither shown nor kept.

    Example: `smoothcert run publish runs/digits-cert s3://bucket/certified/digits`

    Then: `smoothcert show s3://bucket/certified/digits`

    Parameters
    ----------
    run
        Directory of a finished run.
    to
        s3://BUCKET/PREFIX; gs://, az:// or abfs:// where gcsfs or adlfs is installed; file:///DIRECTORY.
    with_model
        A training run's weights and checkpoint as well.
    replace
        Replace another run that is there.
    """
    from smoothcert.runs.publishing import publish as publish_run

    with progress_bar("publishing", "files", patient=True) as bar:

        def sent(files: int) -> None:
            if not bar.all_items:
                bar.begin(files, files)
            bar.one()

        done = publish_run(run, to, with_model=with_model, replace=replace, on_file=sent)
    said = "files" if done.uploaded else "files were there already"
    told = f"{done.place}: {done.files} {said}, {done.bytes / 1e6:.2f} MB, read back and compared"
    emit(View(asdict(done), [told]), output)


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
    output: OutputOptions = OutputOptions(),
) -> None:
    """Make a run of a TSV certification log (idx, label, predict, radius, correct, time), plain or gzipped.

    A log doesn't say how it was made: `--sigma` is needed, and anything else not given stays unknown and is shown as
    missing. A file that `run export --format parquet` wrote states all of it and becomes the same run again.

    Example: `smoothcert run import cohen.tsv.gz --sigma 0.25 --method gaussian --dataset cifar10 --out runs/cohen`

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

    from smoothcert.runs.parquet import is_parquet, read_parquet

    dropped = ""
    stated: dict[str, Any] = {"bound": bound, "n0": n0, "n": n, "alpha": alpha}
    with progress_bar("importing", "inputs", patient=True):
        if is_parquet(log):
            options = {"sigma": sigma, "dataset": dataset, "seed": seed, "noise": noise, **stated}
            given = [name for name, value in options.items() if value is not None]
            if given:
                raise InvalidValueError(f"{log} states its {', '.join(given)}: drop --{', --'.join(given)}")
            manifest, records, files = read_parquet(log)
            if method is not None:
                manifest = replace(manifest, origin=manifest.origin.but(method=method))
        else:
            if sigma is None:
                raise InvalidValueError(f"--sigma is missing: {log} doesn't say which noise it was made with")
            read = read_field_log(log, sigma)
            about = {"noise": noise or DEFAULT_NOISE, "data_name": dataset, "method": method, **stated}
            manifest = import_manifest(log, sigma, read=read, **about)
            if seed is not None:
                check_count("seed", seed, least=0)
                manifest = replace(manifest, plan=manifest.plan.but(seed=seed))
            records, files = Records.of(read.records), {}
            if read.dropped_tail is not None:
                dropped = " The last line was cut off: the log is incomplete, so nothing is stated."
        create_run(out, manifest, records, files)
    spread = own_sigmas([record.sigma for record in records])
    own = "" if spread is None else f" The log's own σ of each input is kept: {spread}."
    told = f"{len(records)} inputs imported into {out}.{own}{dropped}"
    emit(View({"run": str(out), "inputs": len(records)}, [told]), output)


def export_log(
    run: RunPath,
    *,
    format: LogFormat | None = None,
    out: Path | None = None,
    digits: int = 4,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Write a run as a log of one file.

    tsv is what the field's scripts read: idx, label, predict, radius, correct, time, with radii rounded down. parquet
    (extra `parquet`) keeps everything in full precision, votes, statement, noise scales, σ searches and levels as well:
    `run import` makes an identical run of it, and pandas, polars or DuckDB read it as a table.

    Example: `smoothcert run export runs/a --out a.parquet`

    Parameters
    ----------
    run
        Run directory.
    format
        tsv or parquet (default: parquet if the name of `--out` ends in .parquet, else tsv).
    out
        File to write (default for tsv: standard output).
    digits
        Decimals of the radius in a tsv.
    """
    if output.json and out is None:
        raise InvalidValueError("--json tells about a file: give --out, or leave --json out to print the log")
    if _log_format(format, out) == "parquet":
        from smoothcert.runs.parquet import write_parquet

        if out is None:
            raise InvalidValueError("--out is missing: a Parquet file doesn't go to standard output")
        require("pyarrow.parquet", "Parquet")
        with progress_bar("exporting", "inputs", patient=True):
            whole = read_run(run)
            write_parquet(whole, out)
        emit(View({"run": str(run), "out": str(out), "inputs": len(whole.records)}), output)
        return
    whole = read_run(run)
    if whole.shortfall is not None:
        note(f"{run} holds {whole.shortfall}; a tsv doesn't say so and will look complete")
    if whole.manifest.model.held is not None:
        note(f"{run} certifies in {norm_name(whole.norm)}; a tsv doesn't say that coordinates are held")
    if out is None:
        write_field_log(whole.records, sys.stdout, digits)
    else:
        stream = io.StringIO()
        write_field_log(whole.records, stream, digits)
        write_atomically(out, stream.getvalue().encode())
        emit(View({"run": str(run), "out": str(out), "inputs": len(whole.records)}), output)


def _log_format(given: LogFormat | None, out: Path | None) -> LogFormat:
    suffix = "" if out is None else out.suffix.lower()
    named: LogFormat = "parquet" if suffix == ".parquet" else "tsv"
    if given is None:
        return named
    if given != named and suffix in {".parquet", *_TEXT_SUFFIXES}:
        raise InvalidValueError(f"--format {given} contradicts --out {out}: name the file .{given}")
    return given
