"""Where a run's figures come from: plan, hashes, versions, and the commands that make them again."""

from __future__ import annotations

import json
import shlex
from typing import Any

from smoothcert.report.condensed import Condensed

_PLAN_OPTIONS = ("sigma", "noise", "n0", "n", "alpha", "bound", "seed", "dtype", "route", "chunk", "device")


def provenance_json(run: Condensed) -> dict[str, Any]:
    """Tables of names and values, as text."""
    manifest = run.manifest
    hashes = [
        ("results", run.results_sha256),
        ("statement (run.json)", run.manifest_sha256),
        ("model", manifest.model.get("sha256")),
        ("data", manifest.data.get("sha256")),
        ("log", manifest.data.get("log_sha256")),
    ]
    stated = [("made", manifest.created), ("kind", manifest.kind), ("model", manifest.model.get("name"))]
    data = [(f"data {name}", value) for name, value in manifest.data.items() if "sha256" not in name]
    return {
        "plan": _rows([*stated, *data, *manifest.plan.items()]),
        "hashes": _rows([(name, value) for name, value in hashes if value]),
        "versions": _rows(list(manifest.versions.items())),
        "command": certify_command(run),
    }


def certify_command(run: Condensed) -> str | None:
    """The command that certifies the same again; None for imported logs, whose maker isn't smoothcert."""
    manifest = run.manifest
    if manifest.kind != "certify":
        return None
    origin, plan = manifest.origin, manifest.plan
    words = ["smoothcert", "certify", str(origin.get("model") or "MODEL")]
    for option in ("dataset", "split", "data_dir", "architecture"):
        if origin.get(option) is not None:
            words += [f"--{option.replace('_', '-')}", str(origin[option])]
    for option in _PLAN_OPTIONS:
        if plan.get(option) is not None:
            words += [f"--{option}", f"{plan[option]}"]
    for rule in plan.get("stop", ()):
        words += ["--stop", str(rule)]
    words += ["--skip", str(manifest.data.get("skip", 1))]
    if run.expected is not None and len(run) < run.expected:
        words += ["--max", str(len(run))]
    return shlex.join([*words, "--out", f"{run.name}-again"])


def _rows(pairs: list[tuple[str, Any]]) -> list[list[str]]:
    return [[name, _text(value)] for name, value in pairs]


def _text(value: Any) -> str:
    if value is None or value == "":
        return "not stated"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
