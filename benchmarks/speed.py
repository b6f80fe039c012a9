"""``python -m benchmarks.speed``, from the root of the repository: every figure of README.md here.

Times are never asserted: they depend on the machine. Ratios between contenders that take turns are printed beside
their targets.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Figure, show, write_json
from benchmarks.networks import NETWORKS
from benchmarks.parts import PARTS, Scale


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    options = _parser().parse_args(arguments)
    console = Console(width=140) if not sys.stdout.isatty() else Console()
    warnings.simplefilter("ignore")  # exporters and the toolbox warn about themselves
    repeats = options.repeats or (2 if options.quick else 5)
    inputs = options.inputs or (1 if options.quick else 2)
    scale = Scale(options.n, inputs, repeats, options.patience, options.quick, options.processor_time)
    figures: list[Figure] = []
    for name in options.network or NETWORKS:
        for part in options.only:
            for figure in PARTS[part](NETWORKS[name], scale, console.print):
                console.print(f"({figure.part}) {figure.network}: {figure.what}: {figure.value.median:.2f}")
                # Few votes are mostly start-up and padding: a smoke test has nothing to compare with a target.
                figures.append(replace(figure, target=None) if options.quick else figure)
    show(figures, console)
    if options.json is not None:
        words = sys.argv[1:] if arguments is None else arguments
        write_json(figures, options.json, shlex.join(["python", "-m", "benchmarks.speed", *words]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=main.__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke test: few votes, no compiled route")
    parser.add_argument("--network", action="append", choices=list(NETWORKS), help="default: all")
    parser.add_argument(
        "--only",
        type=_letters,
        default=list(PARTS),
        help=f"parts, for example a,c (default: {','.join(PARTS)})",
    )
    parser.add_argument("--n", type=_positive, help="votes an input (default: the network's)")
    parser.add_argument(
        "--inputs", type=_positive, help="inputs certified in a turn (default: 2; with --quick 1)"
    )
    parser.add_argument("--repeats", type=_positive, help="rounds (default: 5; with --quick 2)")
    parser.add_argument(
        "--patience",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="wait at most this long before every turn for other processes to leave the machine alone",
    )
    parser.add_argument(
        "--processor-time",
        action="store_true",
        help="votes per second of processor time: for a machine that others use, with `taskset -c 0` for one core each",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here too")
    return parser


def _letters(text: str) -> list[str]:
    parts = text.split(",")
    for part in parts:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"no part {part!r}; choose from {','.join(PARTS)}")
    return parts


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


if __name__ == "__main__":
    main()
