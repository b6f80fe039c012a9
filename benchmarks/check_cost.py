"""What the check of the rows that vote costs: rows evaluated for it, and seconds, over those of the votes.

    python -m benchmarks.check_cost

Rows are counted exactly, by a model that counts them. Seconds are of a small network, certified with and without the
check in turns, in seconds of the processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from benchmarks.interleave import Ratio, interleave
from smoothcert import Execution, SmoothedClassifier

SHAPE = (1, 28, 28)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.check_cost", description=main.__doc__)
    parser.add_argument("--inputs", type=int, default=40, help="inputs certified in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--n", type=int, nargs="+", default=[1_000, 10_000], help="votes an input")
    options = parser.parse_args(arguments)
    inputs = np.random.default_rng(0).random((options.inputs, *SHAPE)).astype(np.float32)
    table = Table("votes an input", "rows for the check", "seconds for the check, median", "range")
    for n in options.n:
        network = _network()
        rows = [_rows(network, inputs, n, checked) for checked in (True, False)]
        turns = {
            "checked": _turn(network, inputs, n, checked=True),
            "unchecked": _turn(network, inputs, n, checked=False),
        }
        rounds = interleave(turns, options.repeats, processor_time=True)
        seconds = Ratio.of(
            [
                other.rate / one.rate - 1
                for one, other in zip(rounds["checked"], rounds["unchecked"], strict=True)
            ]
        )
        table.add_row(
            f"{n}",
            f"{100 * (rows[0] / rows[1] - 1):.2f} %",
            f"{100 * seconds.median:.2f} %",
            f"{100 * seconds.low:.2f} to {100 * seconds.high:.2f} %",
        )
    Console().print(table)


def _network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 13 * 13, 10)).eval()


def _certified(smoothed: SmoothedClassifier, inputs: np.ndarray, checked: bool) -> None:
    if checked:
        smoothed.certify(inputs)
        return
    with (
        patch("smoothcert.sampling.checking.RowCheck.open", lambda *_: None),
        patch("smoothcert.sampling.checking.RowCheck.due", lambda *_: False),
        patch("smoothcert.sampling.engine._Checking.finish", lambda _: None),
    ):
        smoothed.certify(inputs)


def _smoothed(model: object, n: int) -> SmoothedClassifier:
    options = {"sigma": 0.5, "n": n, "seed": 0, "execution": Execution(workers=1)}
    return SmoothedClassifier(model, input_shape=SHAPE, **options)  # type: ignore[arg-type]


def _rows(network: nn.Module, inputs: np.ndarray, n: int, checked: bool) -> int:
    seen = [0]

    def counting(batch: np.ndarray) -> np.ndarray:
        seen[0] += len(batch)
        with torch.inference_mode():
            found: np.ndarray = network(torch.from_numpy(batch).float()).numpy()
        return found

    smoothed = _smoothed(counting, n)
    smoothed.prepare(SHAPE)
    seen[0] = 0
    _certified(smoothed, inputs, checked)
    return seen[0]


def _turn(network: nn.Module, inputs: np.ndarray, n: int, checked: bool) -> Callable[[], int]:
    def turn() -> int:
        smoothed = _smoothed(network, n)
        smoothed.prepare(SHAPE)
        _certified(smoothed, inputs, checked)
        return n * len(inputs)

    return turn


if __name__ == "__main__":
    main()
