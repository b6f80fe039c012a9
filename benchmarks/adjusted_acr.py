"""``python -m benchmarks.adjusted_acr RUN LOG``: the ACR of a whole test set, from a run on some of its inputs.

A subset can be harder than the whole. LOG, another model's certification of the whole test set (the field's TSV), says
how much: the mean paired difference on the run's inputs is added to the log's ACR on all of them. It is a regression
estimate with slope 1, and its standard error that of the paired differences.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path

from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.runs import Record, read_run
from smoothcert.runs.field_log import read_field_log


def main() -> None:
    """Print the run's own ACR, the log's on both sets of inputs, and the adjusted one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adjusted_acr", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("log", type=Path)
    options = parser.parse_args()
    records = read_run(options.run).records
    sigma = records[0].sigma
    whole = {record.index: record for record in read_field_log(options.log, sigma).records}
    differences = [_counted(record) - _counted(whole[record.index]) for record in records]
    log_acr = average_certified_radius(list(whole.values()))
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    print(f"run: ACR {average_certified_radius(records):.4f} on {len(records)} inputs")
    print(
        f"log: ACR {average_certified_radius([whole[r.index] for r in records]):.4f} on them, {log_acr:.4f} on all "
        f"{len(whole)}"
    )
    print(f"adjusted: ACR {log_acr + statistics.fmean(differences):.4f} ± {error:.4f} (standard error)")


def _counted(record: Record) -> float:
    return record.radius if record.correct else 0.0


if __name__ == "__main__":
    main()
