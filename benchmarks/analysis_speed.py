"""How long `smoothcert table` and `report` take over many large runs: `python -m benchmarks.analysis_speed`.

The runs are made up, with the votes of ten classes in every record as `certify` writes them.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from smoothcert.runs import Manifest, Record, create_run
from smoothcert.tally import Phase, Stream, Tally

CLASSES, VOTES = 10, 100_000


def make_run(out: Path, inputs: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    counts = random.multinomial(VOTES, [0.9] + [0.1 / (CLASSES - 1)] * (CLASSES - 1), size=inputs).tolist()
    radii = random.uniform(0.0, 0.95, size=inputs).tolist()
    records = [
        Record(
            k,
            k % CLASSES,
            0,
            radii[k],
            0.25,
            1.0,
            Tally(Stream(0, k, Phase.SELECTION), 0, 100, (100, *[0] * (CLASSES - 1))),
            Tally(Stream(0, k, Phase.ESTIMATION), 0, VOTES, tuple(counts[k])),
            0,
        )
        for k in range(inputs)
    ]
    plan = {
        "noise": "gaussian",
        "sigma": 0.25,
        "norm": "l2",
        "bound": "top-two",
        "n": VOTES,
        "alpha": 0.001,
    }
    create_run(
        out,
        Manifest.of("certify", plan | {"seed": seed}, {}, {"name": "made-up", "planned": len(records)}),
        records,
    )


def _processor_seconds() -> float:
    """Of finished child processes: what the figure would be on an idle machine."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--inputs", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "run0"
        make_run(first, options.inputs, 0)
        paths = [first, *(Path(folder) / f"run{k}" for k in range(1, options.runs))]
        for path in paths[1:]:
            shutil.copytree(first, path)
        page = Path(folder) / "page"
        for words in (
            ["table", "--layout", "runs", "--format", "csv"],
            ["table", "--layout", "paper", "--format", "csv"],
            ["report", "--out", str(page)],
        ):
            command = [sys.executable, "-m", "smoothcert", words[0], *map(str, paths), *words[1:]]
            began, busy_before = time.perf_counter(), _processor_seconds()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            seconds, busy = time.perf_counter() - began, _processor_seconds() - busy_before
            asked = f"{' '.join(words[:3])}, {options.runs} runs of {options.inputs} inputs".replace(
                str(page), "DIR"
            )
            print(f"{asked}: {seconds:.2f} s ({busy:.2f} s of processor time)")
        print(f"page: {sum(file.stat().st_size for file in page.rglob('*')) / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
