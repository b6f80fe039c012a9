"""Where a run's figures come from: plan, hashes, versions, and the commands that make them again."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Sequence
from typing import Any

from smoothcert.knobs import written
from smoothcert.noise import DEFAULT_NOISE, DIAGONAL_NOISES
from smoothcert.runs import Run
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.statement import PlanStatement

_PLAN_OPTIONS = ("n0", "n", "alpha", "bound", "seed", "dtype", "route", "chunk", "device")


def provenance_json(run: Run) -> dict[str, Any]:
    """Tables of names and values, as text."""
    manifest = run.manifest
    hashes = [
        ("results", run.records.digest),
        (f"statement ({RunFiles.statement.name})", _statement_sha256(run)),
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


def _statement_sha256(run: Run) -> str | None:
    statement = RunFiles(run.path).statement
    return hashlib.sha256(statement.read_bytes()).hexdigest() if statement.is_file() else None


def certify_command(run: Run) -> str | None:
    """The command that certifies the same again; None for imported logs, whose maker isn't smoothcert.

    It names the run's own file of scales, where its noise has one, as seen from the folder that holds the run.
    """
    manifest = run.manifest
    if manifest.kind != "certify":
        return None
    origin, plan = manifest.origin, manifest.plan
    words = ["smoothcert", "certify", str(origin.model or "MODEL")]
    for option in ("dataset", "split", "data_dir", "architecture", "sharpen"):
        if (given := origin.value(option)) is not None:
            words += [f"--{option.replace('_', '-')}", str(given)]
    words += _noise_words(plan, run.name)
    for option in _PLAN_OPTIONS:
        if (stated := plan.value(option)) is not None:
            words += [f"--{option}", f"{stated}"]
    words += _search_words(plan) + _stop_words(plan.stops)
    words += ["--skip", str(manifest.data.skip or 1)]
    asked = len(run.records) if manifest.data.asked_for is None else len(manifest.data.asked_for)
    if manifest.data.allowed is not None and asked < len(manifest.data.allowed):
        words += ["--max", str(asked)]
    return shlex.join([*words, "--out", f"{run.name}-again"])


def _noise_words(plan: PlanStatement, directory: str) -> list[str]:
    """σ and the noise's name; of noise with a scale for each dimension, the file that holds them."""
    name = str(plan.noise)
    if name in DIAGONAL_NOISES:
        kind = DIAGONAL_NOISES[name].kind
        prefix = "" if kind == DEFAULT_NOISE else f"{kind}:"
        return ["--noise", f"{prefix}{directory}/{RunFiles.sigmas.name}"]
    return [
        word
        for option in ("sigma", "noise")
        if (stated := plan.value(option)) is not None
        for word in (f"--{option}", f"{stated}")
    ]


def _search_words(plan: PlanStatement) -> list[str]:
    """The search and its knobs."""
    if plan.sigma_search is None:
        return []
    knobs = {knob: value for knob, value in plan.search_knobs.items() if value is not None}
    return ["--sigma-search", written(str(plan.sigma_search), knobs)]


def _stop_words(rules: Sequence[str]) -> list[str]:
    """Each rule; a plain total as the option made for it, which stands for a last rule."""
    words = []
    for position, rule in enumerate(rules):
        name, _, argument = rule.partition(":")
        if name == "total" and argument.isdigit() and position == len(rules) - 1:
            words += ["--total-votes", argument]
        else:
            words += ["--stop", rule]
    return words


def _rows(pairs: list[tuple[str, Any]]) -> list[list[str]]:
    return [[name, _text(value)] for name, value in pairs]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "not stated"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
