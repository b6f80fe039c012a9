"""Where a run's figures come from: plan, hashes, versions, and the commands that make them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smoothcert.hints import beside, command
from smoothcert.knobs import written
from smoothcert.noise import DEFAULT_NOISE, DIAGONAL_NOISES, Grid
from smoothcert.runs import Run
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.statement import OriginStatement, PlanStatement, is_count

_ORIGIN_OPTIONS = (
    "dataset",
    "split",
    "data_dir",
    "architecture",
    "normalisation",
    "outputs",
    "output",
    "classes",
    "input_dtype",
    "constants",
    "thread_safe",
    "sharpen",
    "trust_pickle",
    "hold",
    "chooser",
    "level_models",
)
_PLAN_OPTIONS = ("n0", "n", "alpha", "bound", "seed", "dtype", "route", "chunk", "generator", "device")


def provenance_json(run: Run) -> dict[str, Any]:
    """Tables of names and values, as text."""
    manifest, statement = run.manifest, RunFiles(run.path).statement
    digest = hashlib.sha256(statement.read_bytes()).hexdigest() if statement.is_file() else None
    hashes = [
        ("results", run.records.digest),
        (f"statement ({statement.name})", digest),
        ("model", manifest.model.sha256),
        ("data", manifest.data.sha256),
        ("log", manifest.data.log_sha256),
    ]
    stated = [("made", manifest.created), ("kind", manifest.kind), ("model", manifest.model.name)]
    data = [(f"data {name}", value) for name, value in manifest.data.items() if "sha256" not in name]
    return {
        "plan": _rows([*stated, *data, *manifest.plan.items()]),
        "hashes": _rows([(name, value) for name, value in hashes if value]),
        "versions": _rows(list(manifest.versions.items())),
        "command": certify_command(run),
    }


def certify_command(run: Run) -> str | None:
    """The command that certifies the same again, from the folder that the page was made in.

    None where there is none: for imported logs, whose maker isn't smoothcert, and for runs made in Python, which don't
    say where model and data are. It names the run's own file of scales, where its noise has one.
    """
    manifest = run.manifest
    origin, plan = manifest.origin, manifest.plan
    if manifest.kind != "certify" or origin.model is None or origin.dataset is None:
        return None
    words = [origin.model, *_origin_words(origin), *_noise_words(plan, run.path)]
    data = manifest.data
    if plan.levels not in (None, data.levels) and plan.cells_per_sigma != Grid.of(None).cells:
        words += _option("levels", plan.levels)
    for option in _PLAN_OPTIONS:
        words += _option(option, plan.value(option))
    words += _search_words(plan) + _level_words(plan) + _stop_words(plan.stops)
    words += _option("skip", data.skip or 1)
    asked = data.planned if is_count(data.planned) else len(data.asked_for or run.records)
    if data.allowed is not None and asked < len(data.allowed):
        words += _option("max", asked)
    return command("certify", *words, *_option("shard", data.shard), out=beside(run.path, "again"))


def _option(name: str, *values: object) -> list[str]:
    """The words of an option; none where its value isn't known."""
    return [] if values == (None,) else [f"--{name}", *map(str, values)]


def _origin_words(origin: OriginStatement) -> list[str]:
    """Where model and data are, and what was declared of the model."""
    words = []
    for option in _ORIGIN_OPTIONS:
        name, given = option.replace("_", "-"), origin.value(option)
        if isinstance(given, bool):
            words.append(f"--{name}" if given else f"--no-{name}")
        else:
            words += _option(name, *(given if isinstance(given, list) else [given]))
    return words


def _noise_words(plan: PlanStatement, directory: Path) -> list[str]:
    """σ and the noise's name; of noise with a scale for each dimension, the file that holds them."""
    name = str(plan.noise)
    if name in DIAGONAL_NOISES:
        kind = DIAGONAL_NOISES[name].kind
        prefix = "" if kind == DEFAULT_NOISE else f"{kind}:"
        return _option("noise", f"{prefix}{RunFiles(directory).sigmas}")
    own = plan.value("sigma") if plan.sigma_levels is None else None
    return _option("sigma", own) + _option("noise", plan.value("noise"))


def _search_words(plan: PlanStatement) -> list[str]:
    """The search and its knobs."""
    if plan.sigma_search is None:
        return []
    knobs = {knob: value for knob, value in plan.search_knobs.items() if value is not None}
    return _option("sigma-search", written(str(plan.sigma_search), knobs))


def _level_words(plan: PlanStatement) -> list[str]:
    """The levels, and how the chooser votes; which one it is, the origin says."""
    if plan.sigma_levels is None:
        return []
    words = _option("sigma-levels", *(float(sigma) for sigma in plan.sigma_levels))
    for option in ("sigma", "n0", "n"):
        words += _option(f"chooser-{option}", (plan.chooser or {}).get(option))
    return words


def _stop_words(rules: Sequence[str]) -> list[str]:
    """Each rule; a plain total as the option made for it, which stands for a last rule."""
    words = []
    for position, rule in enumerate(rules):
        name, _, argument = rule.partition(":")
        if name == "total" and argument.isdigit() and position == len(rules) - 1:
            words += _option("total-votes", argument)
        else:
            words += _option("stop", rule)
    return words


def _rows(pairs: list[tuple[str, Any]]) -> list[list[str]]:
    return [[name, _text(value)] for name, value in pairs]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "not stated"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
