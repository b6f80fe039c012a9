"""Peak memory above model and runtime, of one contender in a process of its own.

``python -m benchmarks.memory lenet smoothcert 10000`` prints it in MB. The baseline is what the process holds after
its imports, building the model and one plain pass of the batch the contender will use; the peak is the largest
resident size from there to the end, so buffers, copies of the model, routes and worker threads all count.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.contenders import smoothcert_certify
from benchmarks.networks import NETWORKS
from benchmarks.reference_loops import (
    CUSTOMARY_BATCH,
    TOOLBOX_BATCH,
    plain_loop,
    toolbox_certify,
    toolbox_class,
)
from benchmarks.workload import Workload

SMOOTHCERT_ROWS = 64

CONTENDERS: dict[str, tuple[Callable[[Workload], Callable[[], int]], int]] = {
    "smoothcert": (smoothcert_certify, SMOOTHCERT_ROWS),
    "smoothcert-onnxruntime": (lambda work: smoothcert_certify(work, "onnxruntime"), SMOOTHCERT_ROWS),
    "loop": (lambda work: plain_loop(work, CUSTOMARY_BATCH), SMOOTHCERT_ROWS),
    "toolbox": (toolbox_certify, TOOLBOX_BATCH),
}
"""What can be measured, and the rows of the pass that belongs to the baseline."""


def peak_megabytes(network: str, contender: str, n: int) -> float:
    """Run the measurement in a fresh interpreter."""
    command = [sys.executable, "-m", "benchmarks.memory", network, contender, str(n)]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}"
        raise RuntimeError(f"{' '.join(command[1:])} failed: {last}")
    return float(done.stdout)


def _measure(network: str, contender: str, n: int) -> float:
    prepare, rows = CONTENDERS[contender]
    _import_runtime(contender)
    work = Workload.of(NETWORKS[network], n, inputs=1)
    with torch.inference_mode():
        work.module(torch.zeros((rows, *work.network.input_shape)))
    before = status_bytes("VmRSS")
    _forget_peak()
    prepare(work)()
    return (status_bytes("VmHWM") - before) / 1e6


def _import_runtime(contender: str) -> None:
    """Load what the contender would load anyway, so that only its own use of memory is measured."""
    if contender == "smoothcert-onnxruntime":
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    elif contender == "toolbox":
        toolbox_class()


def status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}; memory is measured on Linux only")


def _forget_peak() -> None:
    """Let the peak start from here; where that isn't allowed the figure can only come out larger."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        print("the peak before the measurement can't be forgotten and is included", file=sys.stderr)


if __name__ == "__main__":
    print(_measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))
