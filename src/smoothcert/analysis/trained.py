"""What a run says of its model's training, copied when it is certified: no path that a run names is opened."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from smoothcert.errors import DataError
from smoothcert.files import MOST_TEXT, read_file, read_lines
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.statement import OriginStatement

Fact: TypeAlias = str | int | float | bool

TRAINED = OriginStatement.trained.name
"""Where a run's origin keeps it."""

SECONDS = "seconds"
_ABOUT = ("source", "published_acr", "start", "name", "inputs", "dataset", "architecture", "normalise")


def read_recipe_file(path: Path) -> dict[str, Any]:
    """A training run's recipe as its file has it; nothing where ``path`` is no training run."""
    try:
        return tomllib.loads(read_file(RunFiles(path).recipe, MOST_TEXT, links=False).decode())
    except (OSError, DataError, ValueError, RecursionError):
        return {}


def training_facts(path: Path) -> dict[str, Fact]:
    """The plan of a training run field by field (``epochs``, ``objective.lam``, …) and the seconds it took."""
    recipe = read_recipe_file(path)
    if not recipe:
        return {}
    objective = recipe.pop("objective", {})
    flat = {name: value for name, value in recipe.items() if name not in _ABOUT}
    flat |= {f"objective.{name}": value for name, value in objective.items() if name != "name"}
    facts: dict[str, Fact] = {
        name: value if isinstance(value, Fact) else json.dumps(value) for name, value in flat.items()
    }
    facts["objective"] = str(objective.get("name", "gaussian"))
    if (seconds := _seconds(path)) is not None:
        facts[SECONDS] = seconds
    return facts


def _seconds(path: Path) -> float | None:
    try:
        each = [float(json.loads(line)["seconds"]) for line in read_lines(RunFiles(path).metrics)]
    except (OSError, DataError, ValueError, TypeError, KeyError, RecursionError):
        return None
    total = math.fsum(each)
    return total if each and math.isfinite(total) else None


def stated_training(origin: OriginStatement) -> dict[str, Fact]:
    """What a run's origin states of its model's training, plain values only; a run can come from anybody."""
    stated = origin.trained
    if not isinstance(stated, Mapping):
        return {}
    return {
        name: value
        for name, value in stated.items()
        if isinstance(name, str) and isinstance(value, Fact) and not (value != value or value in _INFINITE)
    }


_INFINITE = (math.inf, -math.inf)
