"""The page: what it shows of runs as plain values, in a file with its style and script that asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

import smoothcert
from smoothcert.analysis import facts, metrics, seeds
from smoothcert.analysis.evidence import is_sample, radius_ceiling
from smoothcert.analysis.facts import Departures
from smoothcert.analysis.intervals import percent_down, percent_up, rate_interval
from smoothcert.analysis.overview import levels_used
from smoothcert.analysis.report.inputs import (
    MOST_RUNS,
    DataPlace,
    FoundData,
    Gallery,
    Group,
    choose_inputs,
    counts_json,
    explored,
    find_data,
    group_runs,
    records_json,
)
from smoothcert.analysis.report.statements import HeadlineRadius, audit, guarantee, headline, provenance_json
from smoothcert.analysis.tables import percentage, radii_up_to, round_radii
from smoothcert.errors import InvalidValueError, OutputError, check_count, check_not_negative
from smoothcert.files import write_atomically
from smoothcert.perturb.base import DEFAULT_NOISE, PERTURBATIONS, real_noise
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.plain_text import command, norm_name
from smoothcert.rounding import decimal_down
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.records import UNKNOWN, Ints, step_counts
from smoothcert.runs.run import Run, read_run, unique_names

FILE_NAME = "index.html"
_SCRIPTS = ("dom.js", "curves.js", "figures.js", "compare.js", "explorer.js", "page.js")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}

_MOST_SLIDER_STEPS = 100
_ABSENT = 255  # one byte per input: the number of slider steps it is certified at, or this


@dataclass(frozen=True)
class WrittenReport:
    """The file, its size in bytes, and the headline of every run."""

    path: Path
    size: int
    headlines: tuple[str, ...]


def write_report(
    paths: Sequence[Path], out: Path, options: ReportOptions, on_read: Callable[[], None] = lambda: None
) -> WrittenReport:
    """Read the runs and write ``out``/index.html; of their votes no more is decoded than is shown.

    ``on_read`` is called after each run.
    """
    if options.names and len(options.names) != len(paths):
        raise InvalidValueError(f"--name has {len(options.names)} names for {len(paths)} runs: give one each")
    runs = []
    for path, name in zip(paths, options.names or unique_names(paths)):
        runs.append(replace(read_run(path), alias=name))
        on_read()
    payload = make_payload(runs, options, out)
    page = render_page(payload)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out} can't be made: {error.strerror}; choose another --out") from None
    target = out / FILE_NAME
    write_atomically(target, page)
    return WrittenReport(target, len(page), tuple(headline_lines(payload)))


def render_page(payload: dict[str, Any]) -> bytes:
    """The whole file; it states its own size."""
    first, *more = (run["name"] for group in payload["groups"] for run in group["runs"])
    title = f"{payload['title']}: {first}" + (f" and {len(more)} more" if more else "")
    script = "'use strict';\n(function () {\n" + "\n".join(_asset(name) for name in _SCRIPTS) + "})();\n"
    parts = {
        "policy": content_policy(script),
        "title": html.escape(title),
        "style": _filled(_asset("page.css"), {"dark": _asset("dark.css")}),
        "statements": "".join(f"<p>{html.escape(line)}</p>" for line in headline_lines(payload)),
        "data": embedded_json(payload),
        "script": script,
    }
    template, size, page = _asset("page.html"), 0, b""
    # The number's own length changes the size by a few bytes: three rounds settle it.
    for _ in range(3):
        text = _filled(template, {**parts, "size": str(size)})
        page = text.encode(errors="replace")  # a folder's name may be no valid text
        size = len(page)
    return page


def content_policy(script: str) -> str:
    """Nothing may be fetched, and no script runs but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded_json(value: Any) -> str:
    """JSON that can't end the element it stands in, whatever its texts say."""
    # In ASCII, which escapes U+2028, U+2029 and halves of surrogate pairs on the way.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda character: _UNSAFE[character[0]], text)


def headline_lines(payload: dict[str, Any]) -> Iterable[str]:
    """Every run's name and headline, one line each."""
    for group in payload["groups"]:
        for run in group["runs"]:
            statement = run["statement"]
            yield f"{run['name']}: {statement['lead']}{statement['figure']}{statement['rest']}"


def _filled(template: str, parts: dict[str, str]) -> str:
    """In one pass: text from the data that looks like a place is left alone."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _asset(name: str) -> str:
    return (files("smoothcert.analysis.report") / "assets" / name).read_text(encoding="utf-8")


def slider_radii(reach: float) -> list[str]:
    """At most a hundred or so round radii from 0 to just above ``reach``, at which runs are compared."""
    return ["0"] if reach <= 0 else round_radii(reach, _MOST_SLIDER_STEPS)


def comparison_json(group: Group) -> dict[str, Any] | None:
    """For every run and input, one byte: at how many of the slider's radii it is right and certified.

    Of runs that a test holds for: complete ones, whose inputs don't depend on one another.
    """
    runs = [run for run in group.runs if len(run.records) and is_sample(run)]
    if len(runs) < 2:
        return None
    radii, indices = slider_radii(group.reach()), group.indices()
    steps = np.array([float(radius) for radius in radii])
    levels = {}
    for run in runs:
        at = np.full(len(indices), _ABSENT, dtype=np.uint8)
        reached = np.searchsorted(steps, run.records.radius, side="right")
        at[np.searchsorted(indices, run.records.index)] = np.where(run.records.correct, reached, 0)
        levels[run.name] = base64.b64encode(at.tobytes()).decode("ascii")
    return {"radii": radii, "levels": levels}


MOST_POINTS = 500
_RADIUS_BINS, _SHARE_BINS = 40, 25


def curve_json(run: Run) -> dict[str, Any]:
    """Radii (cut to six decimals, so never to the right of the truth), counts, and the pointwise 95 % band.

    The band is None where inputs depend on one another, or aren't all done: none would hold.
    """
    jumps, certified = step_counts(metrics.correct_radii(run.records))
    radii, counts, highest = metrics.thin(jumps, certified, MOST_POINTS)
    total = len(run.records)
    low = high = None
    if is_sample(run):
        low = [math.floor(rate_interval(count, total)[0] * 1e4) / 1e4 for count in counts.tolist()]
        high = [math.ceil(rate_interval(count, total)[1] * 1e4) / 1e4 for count in highest.tolist()]
    return {
        "radii": [float(decimal_down(radius, 6)) for radius in radii.tolist()],
        "counts": counts.tolist(),
        "low": low,
        "high": high,
        "jumps": len(jumps) - 1,
        "ceiling": radius_ceiling(run),
    }


def histograms_json(run: Run, reach: float) -> dict[str, Any]:
    """Radii of right and wrong answers in equal bins up to ``reach``, and the chosen class's share of the votes."""
    edges, records = np.linspace(0.0, reach if reach > 0 else 1.0, _RADIUS_BINS + 1), run.records
    answered_wrong, votes = ~records.correct & ~records.abstained, records.votes
    shares = (votes.chosen_votes / votes.total)[~np.isnan(votes.chosen_votes)]
    return {
        "reach": float(edges[-1]),
        "right": np.histogram(records.radius[records.correct], edges)[0].tolist(),
        "wrong": np.histogram(records.radius[answered_wrong], edges)[0].tolist(),
        "shares": np.histogram(shares, _SHARE_BINS, (0.0, 1.0))[0].tolist() if shares.size else None,
    }


def carried_by_few(run: Run) -> str | None:
    """How unequally the average certified radius is spread, in a sentence."""
    share = metrics.acr_share_of_top(run.records) if len(run.records) else None
    if share is None:
        return None
    nothing = len(run.records) - int(np.count_nonzero(metrics.correct_radii(run.records) > 0))
    return (
        f"The tenth of the inputs with the largest radii carries {100 * share:.0f} % of this run's ACR, and {nothing} "
        f"of its {len(run.records)} inputs add nothing to it."
    )


@dataclass(frozen=True)
class ReportOptions:
    """What to put on the page. Without ``radius`` the headline's is chosen from the runs.

    Without ``title`` the page is called by its models and data, without ``names`` runs are by their directories.
    """

    radius: float | None = None
    inputs: int = 200
    place: DataPlace = field(default_factory=DataPlace)
    title: str | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_count("inputs", self.inputs, least=0)
        if self.radius is not None:
            check_not_negative("radius", self.radius)


def make_payload(runs: Sequence[Run], options: ReportOptions, out: Path = Path("report")) -> dict[str, Any]:
    """The data of a page that will be in ``out``; runs in different norms are refused."""
    if not runs:
        raise InvalidValueError("a report needs at least one run, got none; name a run")
    metrics.check_same_norm([(run.name, run.norm) for run in runs])
    groups = group_runs(runs)
    data_sets = find_data(groups, options.place)
    looked_at = explored(groups)
    place = asdict(options.place)
    paths = [run.path for run in runs]
    called = {"title": options.title, "name": options.names or None}
    again = command(
        "report", *paths, radius=options.radius, **place, inputs=options.inputs, **called, out=out
    )
    models = list(dict.fromkeys(run.manifest.model.name or "a model" for run in runs))
    shown = models[0] if len(models) == 1 else f"{len(models)} models"
    title = f"Certified robustness of {shown} on {', '.join(group.name for group in groups)}"
    return {
        "title": options.title or title,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": smoothcert.__version__,
        "norm": norm_name(runs[0].norm),
        "banners": [banner for run in runs for banner in _banners(run)],
        "groups": [_group_json(group, data, looked_at, options) for group, data in zip(groups, data_sets)],
        "explored": {
            "runs": len(looked_at),
            "of": sum(len(run.records) > 0 for run in runs),
            "most": MOST_RUNS,
        },
        "command": again,
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
        "means": means_json(group.runs, radii),
        "data": _data_json(shown, chosen, found),
        "runs": [
            _run_json(run, radius.for_run(run), radii, reach)
            | {"records": records_json(run, chosen) if run.name in looked_at else None}
            for run in group.runs
        ],
    }


def means_json(runs: Sequence[Run], radii: Sequence[str]) -> list[dict[str, Any]]:
    """Means over the seeds of each method at each σ, where runs differ in their seed alone; the runs by name."""
    methods: dict[tuple[str, float | None], list[Run]] = {}
    for run in runs:
        if run.complete and len(run.records):
            methods.setdefault((seeds.method_of(run), run.manifest.plan.sigma), []).append(run)

    def certified_percent(run: Run, radius: float) -> float:
        return 100 * metrics.certified_count(run.records, radius) / len(run.records)

    def mean(of: Sequence[Run], digits: int, figure: Callable[[Run], float]) -> str:
        return seeds.Spread.of([figure(run) for run in of]).text(digits)

    return [
        {
            "name": f"{method}, mean ± sd of {len(of)} seeds",
            "runs": [run.name for run in of],
            "sigma": None if sigma is None else float(f"{sigma:.6g}"),
            "acr": mean(of, 3, lambda run: metrics.average_certified_radius(run.records)),
            "cells": [mean(of, 1, partial(certified_percent, radius=float(r))) for r in radii],
        }
        for (method, sigma), of in methods.items()
        if len(of) > 1 and seeds.differ_in_seed_alone(of)
    ]


def _run_json(run: Run, radius: HeadlineRadius, radii: Sequence[str], reach: float) -> dict[str, Any]:
    plan, total, used = run.manifest.plan, len(run.records), facts.votes_used(run)
    levels = levels_used(run)
    figures: dict[str, Any] = {}
    if total:
        records = run.records
        base = None if (records.base == UNKNOWN).any() else np.count_nonzero(records.base == records.label)
        figures = {
            "acr": f"{metrics.average_certified_radius(records):.3f}",
            "cells": [_rate(run, metrics.certified_count(records, float(r))) for r in radii],
            "smoothed": _rate(run, int(np.count_nonzero(records.correct))),
            "abstained": _rate(run, int(np.count_nonzero(records.abstained))),
            "base": None if base is None else _rate(run, int(base)),
            "curve": curve_json(run),
            "histograms": histograms_json(run, reach),
            "carried": carried_by_few(run),
        }
    own = facts.search_of(run), facts.sigma_per(run), facts.levels_of(run)
    return {
        "name": run.name,
        "model": run.manifest.model.name,
        "audit": audit(run),
        "inputs": total,
        "planned": None if run.planned is None else len(run.planned),
        "complete": run.complete,
        # Of masks beside numbers, a mean over columns of different units, which says nothing.
        "sigma": None if plan.sigma is None or run.norm == "l2/sigma" else float(f"{plan.sigma:.6g}"),
        "sigmaMark": facts.sigma_mark(*own).strip(),
        "n": plan.n,
        "n0": plan.n0,
        "votesUsed": None if used is None else used.in_words(),
        "levels": [] if levels is None else levels.sentences(),
        "alpha": plan.alpha,
        "bound": plan.bound,
        "imported": run.manifest.kind == "import",
        "votesKind": plan.votes or "hard",
        "statement": asdict(headline(run, radius)),
        "guarantee": guarantee(run),
        "counts": counts_json(run),
        "provenance": provenance_json(run),
        **figures,
    }


def _rate(run: Run, count: int) -> dict[str, Any]:
    """A rate in percent to one decimal as tables print it, and its 95 % interval rounded outwards.

    No interval where inputs depend on one another, or aren't all done: none would hold.
    """
    rate = {"count": count, "percent": percentage(count / len(run.records)), "low": None, "high": None}
    if not is_sample(run):
        return rate
    low, high = rate_interval(count, len(run.records))
    return rate | {"low": percent_down(low), "high": percent_up(high)}


def _data_json(runs: Sequence[Run], chosen: Ints, found: FoundData) -> dict[str, Any]:
    """Names of classes, and the chosen inputs as they are and with each σ that a run of the group has."""
    if found.dataset is None:
        return {"classes": None, "kind": None, "note": found.note, "inputs": {}, "noisy": {}}
    gallery = Gallery.of(found.dataset)
    noisy: dict[str, dict[str, Any]] = {}
    for run in runs:
        noise, scales = run.manifest.plan.noise or DEFAULT_NOISE, None
        if run.manifest.plan.noise in DIAGONAL_NOISES and RunFiles(run.path).sigmas.exists():
            scales = real_noise(run.manifest.plan.noise_in(run.path), "a picture of the noise").scales()
        if noise in PERTURBATIONS:
            continue
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
        "features": (features := gallery.features()),
        "texts": {str(index): gallery.texts(index) for index in chosen.tolist()} if features else {},
        "noisy": noisy,
    }


def _banners(run: Run) -> list[str]:
    if not len(run.records):
        return [f"{run.name}: nothing has been certified yet."]
    banners = [f"{run.name}: {departure}." for departure in Departures.of(run.manifest).in_words()]
    if run.shortfall is not None:
        banners.append(
            f"{run.name}: {run.shortfall}. All figures are counts of the inputs done, those decided quickly first: "
            "nothing is stated about others, and tests and intervals are left out, until it is complete."
        )
    if facts.spreads_a_total(run.manifest.plan):
        banners.append(
            f"{run.name}: one total of votes was spread over its inputs, so their results depend on one another. "
            "Tests and 95 % intervals wouldn't hold, and are left out; a headline does."
        )
    elif facts.inputs_depend(run.manifest):
        banners.append(
            f"{run.name}: answers of a region memory depend on one another. Tests and 95 % intervals wouldn't hold, "
            "and are left out."
        )
    return banners
