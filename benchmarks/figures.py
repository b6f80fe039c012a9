"""Figures: what was measured, beside what was wanted."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.interleave import Ratio
from benchmarks.workload import workers

_PACKAGES = ("smoothcert", "torch", "onnxruntime", "adversarial-robustness-toolbox")


@dataclass(frozen=True)
class Figure:
    """One line of the table. ``target`` is a least value, or a largest one where ``at_most``."""

    part: str
    network: str
    what: str
    value: Ratio
    unit: str = "×"
    target: float | None = None
    at_most: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the median is on the right side of the target; None without one."""
        if self.target is None:
            return None
        return self.value.median <= self.target if self.at_most else self.value.median >= self.target


def show(figures: Sequence[Figure], console: Console) -> None:
    """All figures as a table."""
    table = Table("", "network", "measured", "median", "range", "target", "met", "note")
    for figure in figures:
        sign = "≤" if figure.at_most else "≥"
        table.add_row(
            figure.part,
            figure.network,
            figure.what,
            _text(figure.value.median, figure.unit),
            f"{_text(figure.value.low)} – {_text(figure.value.high)}",
            "" if figure.target is None else f"{sign} {_text(figure.target, figure.unit)}",
            {True: "yes", False: "[bold]no[/]", None: ""}[figure.met],
            figure.note,
        )
    console.print(table)


def write_json(figures: Sequence[Figure], path: Path, command: str) -> None:
    """All figures, and what they were measured with."""
    environment = {
        "command": command,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {workers()} cores",
        **{name: _version(name) for name in _PACKAGES},
    }
    rows = [{**asdict(figure), "met": figure.met} for figure in figures]
    path.write_text(json.dumps({"environment": environment, "figures": rows}, indent=2) + "\n")


def _text(value: float, unit: str = "") -> str:
    digits = f"{value:.0f}" if abs(value) >= 20 else f"{value:.2f}"
    return f"{digits} {unit}".rstrip()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
