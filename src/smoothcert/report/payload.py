"""Payload: everything the page shows, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import smoothcert
from smoothcert.analysis.about import levels_of, search_of, sigma_mark, sigma_per
from smoothcert.analysis.evidence import is_sample
from smoothcert.analysis.intervals import percent_down, percent_up
from smoothcert.analysis.levels import levels_used
from smoothcert.analysis.metrics import average_certified_radius, certified_count, check_same_norm
from smoothcert.analysis.tables.radii import radii_up_to
from smoothcert.analysis.trained import Departures
from smoothcert.analysis.votes import inputs_depend, spreads_a_total, votes_used
from smoothcert.errors import InvalidValueError, check_count, check_not_negative
from smoothcert.hints import command
from smoothcert.noise import DEFAULT_NOISE, DIAGONAL_NOISES
from smoothcert.plain_text import norm_name
from smoothcert.report.curves import carried_by_few, curve_json, histograms_json, interval
from smoothcert.report.data import DataPlace, FoundData, find_data
from smoothcert.report.explorer import MOST_RUNS, choose_inputs, counts_json, explored, records_json
from smoothcert.report.groups import Group, comparison_json, group_runs
from smoothcert.report.pictures import Gallery
from smoothcert.report.provenance import provenance_json
from smoothcert.report.statements import HeadlineRadius, guarantee, headline
from smoothcert.runs import Run
from smoothcert.runs.columns import UNKNOWN, Floats, Ints
from smoothcert.runs.layout import RunFiles


@dataclass(frozen=True)
class ReportOptions:
    """What to put on the page. Without ``radius`` the headline's is chosen from the runs."""

    radius: float | None = None
    inputs: int = 200
    place: DataPlace = field(default_factory=DataPlace)

    def __post_init__(self) -> None:
        check_count("inputs", self.inputs, least=0)
        if self.radius is not None:
            check_not_negative("radius", self.radius)


def make_payload(runs: Sequence[Run], options: ReportOptions, out: Path = Path("report")) -> dict[str, Any]:
    """The data of a page that will be in ``out``; runs in different norms are refused."""
    if not runs:
        raise InvalidValueError("a report needs at least one run, got none; name a run")
    check_same_norm([(run.name, run.norm) for run in runs])
    groups = group_runs(runs)
    found = find_data(groups, options.place)
    looked_at = explored(groups)
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": smoothcert.__version__,
        "norm": norm_name(runs[0].norm),
        "banners": [banner for run in runs for banner in _banners(run)],
        "groups": [_group_json(group, data, looked_at, options) for group, data in zip(groups, found)],
        "explored": {
            "runs": len(looked_at),
            "of": sum(len(run.records) > 0 for run in runs),
            "most": MOST_RUNS,
        },
        "command": command(
            "report",
            *(run.path for run in runs),
            radius=options.radius,
            **asdict(options.place),
            inputs=options.inputs,
            out=out,
        ),
    }


def _group_json(
    group: Group, found: FoundData, looked_at: set[str], options: ReportOptions
) -> dict[str, Any]:
    radii = radii_up_to(group.reach())[1:]
    first = next((run for run in group.runs if len(run.records)), group.runs[0])
    radius = HeadlineRadius.of(first) if options.radius is None else HeadlineRadius.fixed(options.radius)
    reach = max((float(run.records.radius.max()) for run in group.runs if len(run.records)), default=0.0)
    shown = [run for run in group.runs if run.name in looked_at]
    chosen = choose_inputs(shown, options.inputs)
    return {
        "name": group.name,
        "byLabels": group.by_labels,
        "inputs": len(group.indices()),
        "headlineRadius": radius.value,
        "tableRadii": radii,
        "comparison": comparison_json(group),
        "data": _data_json(shown, chosen, found),
        "runs": [
            {
                **_run_json(run, radius.for_run(run), radii, reach),
                "records": records_json(run, chosen) if run.name in looked_at else None,
            }
            for run in group.runs
        ],
    }


def _run_json(run: Run, radius: HeadlineRadius, radii: Sequence[str], reach: float) -> dict[str, Any]:
    plan, total, used = run.manifest.plan, len(run.records), votes_used(run)
    levels = levels_used(run)
    figures: dict[str, Any] = {}
    if total:
        figures = {
            "acr": f"{average_certified_radius(run.records):.3f}",
            "cells": [_rate(run, certified_count(run.records, float(r))) for r in radii],
            "smoothed": _rate(run, int(np.count_nonzero(run.records.correct))),
            "abstained": _rate(run, int(np.count_nonzero(run.records.abstained))),
            "base": None
            if (run.records.base == UNKNOWN).any()
            else _rate(run, int(np.count_nonzero(run.records.base == run.records.label))),
            "curve": curve_json(run),
            "histograms": histograms_json(run, reach),
            "carried": carried_by_few(run),
        }
    return {
        "name": run.name,
        "inputs": total,
        "planned": None if run.planned is None else len(run.planned),
        "complete": run.complete,
        "sigma": None if run.manifest.plan.sigma is None else float(f"{run.manifest.plan.sigma:.6g}"),
        "sigmaMark": sigma_mark(search_of(run), sigma_per(run), levels_of(run)).strip(),
        "n": plan.n,
        "n0": plan.n0,
        "votesUsed": None if used is None else used.in_words(),
        "levels": [] if levels is None else levels.sentences(),
        "alpha": run.manifest.plan.alpha,
        "bound": plan.bound,
        "imported": run.manifest.kind == "import",
        "votesKind": plan.votes or "hard",
        "statement": headline(run, radius).as_json(),
        "guarantee": guarantee(run),
        "counts": counts_json(run),
        "provenance": provenance_json(run),
        **figures,
    }


def _rate(run: Run, count: int) -> dict[str, Any]:
    """A rate in percent to one decimal as tables print it, and its 95 % interval rounded outwards.

    No interval where inputs depend on one another, or aren't all done: none would hold.
    """
    rate = {"count": count, "percent": f"{100 * (count / len(run.records)):.1f}", "low": None, "high": None}
    if not is_sample(run):
        return rate
    low, high = interval(count, len(run.records))
    return rate | {"low": percent_down(low), "high": percent_up(high)}


def _scales_of(run: Run) -> Floats | None:
    """The noise's scale for each coordinate, where it has one and its file is there."""
    if run.manifest.plan.noise not in DIAGONAL_NOISES or not RunFiles(run.path).sigmas.exists():
        return None
    return run.manifest.plan.noise_in(run.path).scales()


def _data_json(runs: Sequence[Run], chosen: Ints, found: FoundData) -> dict[str, Any]:
    """Names of classes, and the chosen inputs as they are and with each σ that a run of the group has."""
    if found.dataset is None:
        return {"classes": None, "kind": None, "note": found.note, "inputs": {}, "noisy": {}}
    gallery = Gallery.of(found.dataset)
    noisy: dict[str, dict[str, Any]] = {}
    for run in runs:
        noise, scales = run.manifest.plan.noise or DEFAULT_NOISE, _scales_of(run)
        for place in np.flatnonzero(np.isin(run.records.index, chosen)).tolist():
            index, sigma = int(run.records.index[place]), float(run.records.sigma[place])
            drawn = noisy.setdefault(f"{sigma:g}", {})
            if str(index) not in drawn:
                drawn[str(index)] = gallery.shown_noisy(index, sigma if scales is None else scales, noise)
    return {
        "classes": list(found.dataset.classes),
        "kind": "pictures" if gallery.pictures else "features",
        "note": f"{found.note} {gallery.note()}",
        "inputs": {str(index): gallery.shown(index) for index in chosen.tolist()},
        "noisy": noisy,
    }


def _banners(run: Run) -> list[str]:
    if not len(run.records):
        return [f"{run.name}: nothing has been certified yet."]
    found = [f"{run.name}: {departure}." for departure in Departures.of(run.manifest).in_words()]
    if run.shortfall is not None:
        found.append(
            f"{run.name}: {run.shortfall}. All figures are counts of the inputs done, those decided quickly first: "
            "nothing is stated about others, and tests and intervals are left out, until it is complete."
        )
    if spreads_a_total(run.manifest.plan):
        found.append(
            f"{run.name}: one total of votes was spread over its inputs, so their results depend on one another. "
            "Tests and 95 % intervals wouldn't hold, and are left out; a headline does."
        )
    elif inputs_depend(run.manifest):
        found.append(
            f"{run.name}: answers of a region memory depend on one another. Tests and 95 % intervals wouldn't hold, "
            "and are left out."
        )
    return found
