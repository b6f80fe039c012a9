"""``python -m benchmarks.adjusted_check LOGS``: is the standard error of an adjusted ACR honest?

LOGS is a folder of published logs of the whole MNIST test set (``mnist-sigmaS-METHOD.tsv.gz``). Each stands in for a
run in turn: its radii on every K-th input, from each of the K places where that can begin, are adjusted by the
consistency log of the same σ, as ``benchmarks.mnist_table`` does, and held against its ACR on all inputs.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.adjusted_acr import adjust
from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.analysis.tables import markdown_table
from smoothcert.runs import Record
from smoothcert.runs.field_log import read_field_log

CONTROL = "consistency"


@dataclass(frozen=True)
class Honesty:
    """How far the estimates of many subsets lie from the truth, beside what they say of themselves."""

    subsets: int
    error: float
    """Root of the mean square."""
    stated: float
    """Median of the standard errors."""
    covered: float
    """Share of the subsets whose truth lies within two standard errors."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each σ and number of inputs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adjusted_check", description=__doc__)
    parser.add_argument("logs", type=Path)
    parser.add_argument("--sigma", type=float, nargs="+", default=[0.25, 0.5, 1.0])
    parser.add_argument("--every", type=int, nargs="+", default=[20, 40, 80, 160])
    options = parser.parse_args(arguments)
    rows = []
    for sigma in options.sigma:
        logs = {path.name: read_field_log(path, sigma).records for path in _paths(options.logs, sigma)}
        control = logs.pop(f"mnist-sigma{sigma}-{CONTROL}.tsv.gz")
        for every in options.every:
            found = check(list(logs.values()), control, every)
            rows.append(
                [
                    f"{sigma:g}",
                    str(len(control) // every),
                    str(found.subsets),
                    f"{found.error:.4f}",
                    f"{found.stated:.4f}",
                    f"{found.covered:.1%}",
                ]
            )
    heads = ["σ", "inputs", "subsets", "error (rms)", "standard error (median)", "truth within two of them"]
    print(markdown_table(heads, rows, text_columns=set()))


def check(logs: Sequence[Sequence[Record]], control: Sequence[Record], every: int) -> Honesty:
    """Every log on every subset, adjusted by the control."""
    control_acr = average_certified_radius(control)
    errors, stated = [], []
    for log in logs:
        truth = average_certified_radius(log)
        for begin in range(every):
            chosen = [record for record in log if record.index % every == begin]
            estimate = adjust(chosen, control, control_acr)
            errors.append(abs(estimate.acr - truth))
            stated.append(estimate.error)
    covered = statistics.fmean(error <= 2 * se for error, se in zip(errors, stated, strict=True))
    mean_square = statistics.fmean(error**2 for error in errors)
    return Honesty(len(errors), mean_square**0.5, statistics.median(stated), covered)


def _paths(logs: Path, sigma: float) -> list[Path]:
    found = sorted(logs.glob(f"mnist-sigma{sigma}-*.tsv.gz"))
    if not any(path.name == f"mnist-sigma{sigma}-{CONTROL}.tsv.gz" for path in found):
        raise SystemExit(f"{logs} has no {CONTROL} log of σ = {sigma} (mnist-sigma{sigma}-{CONTROL}.tsv.gz)")
    return found


if __name__ == "__main__":
    main()
