"""Runs made by the library, one of each kind, and ways to tamper with a copy."""

import json
import re
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.perturb.uniform import DiagonalUniform
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert_verify import verify_run
from tests.runs.sealing import without_checksums

INPUTS = 8


def dataset() -> Dataset:
    """Points at several distances from the border between two of the bands."""
    x = np.zeros((INPUTS, 3), np.float32)
    x[:, 0] = np.linspace(-1.2, 1.0, INPUTS)
    x[3, 0] = 0.01  # whose votes are too close to call
    return Dataset("made-up", x, (x[:, 0] > 0).astype(np.int64), ("a", "b", "c"))


def bands(batch: np.ndarray) -> np.ndarray:
    """Class 0 left of 0, class 1 right of it, and a few of class 2 far out."""
    first = batch[:, 0]
    return np.where(first > 0, 1, np.where(first < -2, 2, 0)).astype(np.int64)


def scores(batch: np.ndarray) -> np.ndarray:
    first = batch[:, 0].astype(np.float64)
    return np.stack([-3 * first, 3 * first, np.full(len(first), -1.0)], 1)


class Linear(torch.nn.Module):
    """A torch model, for searches by gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[-3.0, 0.2, 0.1], [3.0, -0.2, 0.1], [0.0, 0.0, 0.1]]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T


def whole_points() -> Dataset:
    """Points of whole numbers, which lie on every grid."""
    x = np.array([[-2, 0, 0], [-1, 0, 1], [1, 1, 0], [2, 0, 0]], np.float32)
    return Dataset("whole", x, (x[:, 0] > 0).astype(np.int64), ("a", "b", "c"))


def certified(
    out: Path, model: Any = bands, most: int | None = None, data: Dataset | None = None, **options: Any
) -> Path:
    """A run in the directory ``out``."""
    fields = {"sigma": 0.5, "n": 1000, "n0": 20} | options
    if "plan" in fields:
        fields = {"plan": fields["plan"]}
    if model is bands:
        fields |= {"outputs": "labels", "classes": 3}
    elif model is scores:
        fields |= {"outputs": "scores"}
    certify_dataset(SmoothedClassifier(model, **fields), data or dataset(), out, Choice(most=most))
    return out


SIGMAS = np.array([0.4, 0.7, 0.55])
STRETCHED = {"diagonal-gaussian": DiagonalGaussian, "diagonal-uniform": DiagonalUniform}


def stretched(out: Path, kind: str) -> Path:
    """A run with a σ for each dimension."""
    return certified(out, plan=CertifyPlan(STRETCHED[kind](SIGMAS), n=1000, n0=20))


def copied(run: Path, out: Path) -> Path:
    """A copy to tamper with: checksums are against damage, and who tampers takes them out."""
    shutil.copytree(run, out)
    return without_checksums(out)


def edit_plan(run: Path, **fields: Any) -> None:
    """Change fields of run.json's plan."""
    path = without_checksums(run) / "run.json"
    content = json.loads(path.read_text())
    content["plan"] |= fields
    path.write_text(json.dumps(content))


def sql(file: Path, *commands: str, values: Sequence[Any] = ()) -> list[Any]:
    """What the last of some commands to an SQLite file returns."""
    with closing(sqlite3.connect(file)) as connection, connection:
        for command in commands:
            rows = connection.execute(command, values).fetchall()
    return rows


def edit_record(run: Path, index: int, **fields: Any) -> None:
    """Change columns of one record."""
    journal = without_checksums(run) / "journal.sqlite"
    for name, value in fields.items():
        sql(journal, f'UPDATE records SET "{name}" = ? WHERE "index" = ?', values=(value, index))


def edit_votes(run: Path, index: int, which: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a tally of one record."""
    votes = json.loads(column(run, index, which))
    change(votes)
    edit_record(run, index, **{which: json.dumps(votes)})


def column(run: Path, index: int, name: str) -> Any:
    """One value of the journal."""
    query = f'SELECT "{name}" FROM records WHERE "index" = ?'
    ((value,),) = sql(run / "journal.sqlite", query, values=(index,))
    return value


def verified(run: Path, inputs: int = INPUTS) -> None:
    """Everything about a finished run follows."""
    report = verify_run(run).report
    assert report.problems == []
    assert report.recomputed == report.records == inputs
    assert report.finished
    assert report.results_sha256 == results_digest(read_run(run).records)


def messages(run: Path) -> dict[int | None, str]:
    """What doesn't follow, by input."""
    found: dict[int | None, str] = {}
    for problem in verify_run(run).report.problems:
        found[problem.index] = "; ".join(filter(None, (found.get(problem.index), problem.message)))
    return found


def figures(message: str) -> list[float]:
    """The decimal numbers of a message: of a radius that does not follow, the stated one and the exact one."""
    return [float(text) for text in re.findall(r"(?<![\w.])-?\d+(?:\.\d+(?:e-?\d+)?|e-?\d+)", message)]


def says(message: str, told: str | Callable[[float, float], bool]) -> bool:
    """Whether a message matches a pattern, or how the stated radius compares with the exact one."""
    if isinstance(told, str):
        return re.search(told, message) is not None
    stated, exact = figures(message)
    return told(stated, exact)
