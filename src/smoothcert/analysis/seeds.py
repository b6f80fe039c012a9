"""Several runs that differ only in their seed: mean and standard deviation over them."""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.about import data_in_words
from smoothcert.analysis.metrics import RunFacts, accuracy_beyond_jumps, check_same_norm, summarise
from smoothcert.analysis.tables.cells import UNKNOWN, csv_escaped, csv_text, markdown_table, stated
from smoothcert.analysis.trained import training_difference
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.registry import check_name
from smoothcert.runs import Run


@dataclass(frozen=True)
class SeedGroup:
    """Runs of one method at one σ, each trained from another seed."""

    method: str
    sigma: float
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.runs:
            raise InvalidValueError(f"{self.method} at σ = {self.sigma:g} has no run to average")


def reason_not_to_average(runs: Sequence[Run]) -> str | None:
    """Why a mean over these runs would be none over seeds, as "A and B …"; None if nothing speaks against it.

    Means are of distinct models on the same inputs, trained alike: of other inputs or settings the spread would be
    theirs, and of one model certified twice it would be that of the votes.
    """
    first = runs[0]
    models: dict[str, Run] = {}
    for run in runs:
        if (differ := training_difference(first.manifest.origin, run.manifest.origin)) is not None:
            return f"the models of {first.path} and {run.path} were trained otherwise ({differ})"
        if run.manifest.data.sha256 != first.manifest.data.sha256:
            return f"{first.path} and {run.path} are on different data"
        if not np.array_equal(run.records.index, first.records.index):
            return f"{first.path} and {run.path} certify different inputs"
        # An imported log knows no model: the same results twice would be the same model twice.
        digest = run.manifest.model.sha256 or _results_digest(run)
        if digest is not None and digest in models:
            return f"{models[digest].path} and {run.path} certify the same model"
        if digest is not None:
            models[digest] = run
    return None


def _results_digest(run: Run) -> str:
    """Of answers and radii alone, whatever the log's times, compression and order."""
    order = np.argsort(run.records.index)
    columns = (run.records.index, run.records.predicted, run.records.radius)
    return hashlib.sha256(b"".join(column[order].tobytes() for column in columns)).hexdigest()


@dataclass(frozen=True)
class Spread:
    """A mean over seeds and the sample standard deviation (None for one seed)."""

    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)

    def text(self, digits: int, scale: float = 1.0) -> str:
        """``1.558±0.002``, or the mean alone."""
        mean = f"{scale * self.mean:.{digits}f}"
        return mean if self.sd is None else f"{mean}±{scale * self.sd:.{digits}f}"


@dataclass(frozen=True, kw_only=True)
class SeedSummary(RunFacts):
    """One row of a table over seeds; ``accuracy`` holds the certified accuracy (0 to 1) at each radius."""

    method: str
    seeds: int
    acr: Spread
    accuracy: tuple[Spread, ...]
    indices: tuple[int, ...]
    """Which inputs of the data set the figures are of."""

    def printed(self) -> tuple[str, ...]:
        """ACR and the percentages, as they stand in a table."""
        return self.acr.text(3), *(spread.text(1, scale=100) for spread in self.accuracy)

    def spreads(self, radii_as_typed: Sequence[str]) -> dict[str, dict[str, float | None]]:
        """Mean and standard deviation of the accuracy at each radius, as they stand in JSON."""
        return {radius: asdict(spread) for radius, spread in zip(radii_as_typed, self.accuracy)}


def summarise_seeds(group: SeedGroup, radii: Sequence[float]) -> SeedSummary:
    """The group's figures; runs on different inputs or under different plans don't average."""
    summaries = [summarise(run, radii) for run in group.runs]
    first = summaries[0]
    for summary, run in zip(summaries, group.runs):
        for field in ("sigma", "bound", "n", "alpha", "norm", "inputs"):
            if getattr(summary, field) != getattr(first, field):
                raise InvalidValueError(
                    f"{run.path} has {field} {getattr(summary, field)}, {group.runs[0].path} has "
                    f"{getattr(first, field)}: only runs that differ in their seed alone can be averaged"
                )
    if (reason := reason_not_to_average(group.runs)) is not None:
        raise InvalidValueError(f"{reason}: only runs that differ in their seed alone can be averaged")
    return SeedSummary.stated_by(
        group.runs[0],
        method=group.method,
        sigma=group.sigma,
        seeds=len(summaries),
        acr=Spread.of([summary.acr for summary in summaries]),
        accuracy=tuple(Spread.of(column) for column in zip(*(summary.accuracy for summary in summaries))),
        indices=tuple(group.runs[0].records.index.tolist()),
        complete=all(summary.complete for summary in summaries),
    )


def mean_curve(
    runs: Sequence[Run],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Radii of all jumps from 0 on, and beyond each the mean and sd over runs of the certified accuracy (0 to 1)."""
    radii, curves = accuracy_beyond_jumps(runs)
    spread = curves.std(axis=0, ddof=1) if len(runs) > 1 else np.zeros_like(radii)
    return radii, curves.mean(axis=0), spread


def render_seed_table(summaries: Sequence[SeedSummary], radii_as_typed: Sequence[str], format: str) -> str:
    """Mean ± sd over seeds as markdown, csv or json."""
    check_name("table format", format, SEED_TABLE_FORMATS)
    check_same_norm([(summary.method, summary.norm) for summary in summaries])
    return SEED_TABLE_FORMATS[format](summaries, radii_as_typed)


def _markdown(summaries: Sequence[SeedSummary], radii: Sequence[str]) -> str:
    header = ["data", "method", "σ", "seeds", "inputs", "ACR", *radii]
    rows = [
        [
            data_in_words(summary.dataset, summary.split) or UNKNOWN,
            summary.method,
            UNKNOWN if summary.sigma is None else f"{summary.sigma:g}",
            str(summary.seeds),
            str(summary.inputs),
            *summary.printed(),
        ]
        for summary in summaries
    ]
    stated = ", ".join(
        f"{name} = {value}" for name, value in (("n", summaries[0].n), ("bound", summaries[0].bound)) if value
    )
    norm = norm_name(summaries[0].norm)
    note = f"Certified accuracy (%) at {norm} radius, mean±sd over seeds ({stated}):"
    return f"{note}\n\n{markdown_table(header, rows, text_columns={0, 1})}"


def _csv(summaries: Sequence[SeedSummary], radii: Sequence[str]) -> str:
    figures = [f"{name}{end}" for name in ("acr", *radii) for end in ("", "_sd")]
    rows = [
        [
            csv_escaped(summary.method),
            *(summary.sigma, summary.seeds, summary.inputs),
            *(each for spread in (summary.acr, *summary.accuracy) for each in (spread.mean, spread.sd)),
            *(csv_escaped(text or "") for text in (summary.dataset, summary.split)),
        ]
        for summary in summaries
    ]
    return csv_text(["method", "sigma", "seeds", "inputs", *figures, "dataset", "split"], rows)


def _json(summaries: Sequence[SeedSummary], radii: Sequence[str]) -> str:
    rows = [
        {
            **stated(summary, ("dataset", "split", "method", "sigma", "seeds", "inputs", "n", "bound")),
            "acr": summary.acr.mean,
            "acr_sd": summary.acr.sd,
            "certified_accuracy": summary.spreads(radii),
        }
        for summary in summaries
    ]
    return json.dumps({"norm": summaries[0].norm, "radii": list(radii), "rows": rows}, indent=2) + "\n"


SEED_TABLE_FORMATS: dict[str, Callable[[Sequence[SeedSummary], Sequence[str]], str]] = {
    "markdown": _markdown,
    "csv": _csv,
    "json": _json,
}
"""Every format a table over seeds can be written in."""
