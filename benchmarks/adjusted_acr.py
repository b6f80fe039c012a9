"""``python -m benchmarks.adjusted_acr RUN LOG``: the ACR of a whole test set, from a run on some of its inputs.

A subset can be harder than the whole. LOG, another model's certification of the whole test set (the field's TSV), says
how much: the mean paired difference on the run's inputs is added to the log's ACR on all of them. It is a regression
estimate with slope 1, and its standard error that of the paired differences.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.runs import Record, read_run
from smoothcert.runs.field_log import read_field_log


@dataclass(frozen=True)
class Adjusted:
    """An estimate for the whole test set, and its standard error."""

    acr: float
    error: float


def adjust(records: Sequence[Record], control: Sequence[Record], whole_acr: float) -> Adjusted:
    """From a run's records on some inputs, a control's on at least those, and the control's ACR on all."""
    others = {record.index: record for record in control}
    differences = [_counted(record) - _counted(others[record.index]) for record in records]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return Adjusted(whole_acr + statistics.fmean(differences), error)


def main() -> None:
    """Print the run's own ACR, the log's on both sets of inputs, and the adjusted one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adjusted_acr", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("log", type=Path)
    options = parser.parse_args()
    records = list(read_run(options.run).records)
    whole = read_field_log(options.log, records[0].sigma).records
    chosen = {record.index for record in records}
    log_acr = average_certified_radius(whole)
    adjusted = adjust(records, whole, log_acr)
    print(f"run: ACR {average_certified_radius(records):.4f} on {len(records)} inputs")
    print(
        f"log: ACR {average_certified_radius([one for one in whole if one.index in chosen]):.4f} on them, "
        f"{log_acr:.4f} on all {len(whole)}"
    )
    print(f"adjusted: ACR {adjusted.acr:.4f} ± {adjusted.error:.4f} (standard error)")


def _counted(record: Record) -> float:
    return record.radius if record.correct else 0.0


if __name__ == "__main__":
    main()
