"""`smoothcert doctor`: check this machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from smoothcert.cli.commands import Exit
from smoothcert.cli.console import View, emit, listed_below, progress_bar, show_parts
from smoothcert.cli.options import OutputOptions

if TYPE_CHECKING:
    from smoothcert.health import Checkup

_BROKEN = "Promises that don't hold here"


def doctor(
    *, quick: bool = False, device: str | None = None, output: OutputOptions = OutputOptions()
) -> None:
    """Examine this machine: what is installed, whether promises hold here, how fast it is, and what to change.

    It looks at versions, devices, cores, extras and the file system of the working directory. It casts the same votes
    in several batches, orders and numbers of workers on every route and device, and compares their bits. It holds
    drawn noise against its distribution. And it measures votes a second beside the bare forward pass for LeNet,
    ResNet-20 and ResNet-50 with random weights. That takes a minute or two; nothing is written or sent anywhere.

    The exit code is 0 if all promises hold, 4 if one doesn't: don't certify on such a machine, and please report it.

    Example: `smoothcert doctor --quick`

    Parameters
    ----------
    quick
        The same in a few seconds: fewer votes, and the speed of LeNet alone.
    device
        Examine this device alone (cuda, cuda:1, cpu): known votes, votes beside the CPU's on each route, and the rest;
        prints a table to paste into an issue. Refused where torch can't reach the device.
    """
    from smoothcert.health import check_up

    with progress_bar("checking", "steps") as bar:

        def begun(words: str, number: int, total: int) -> None:
            bar.task = words
            if number:
                bar.one()
            else:
                bar.begin(total, total)

        found = check_up(Path.cwd(), quick=quick, device=device, on_step=begun)
        bar.one()
    if output.quiet:
        show_parts(listed_below(_BROKEN, found.broken))
    emit(View(found.as_json(), _parts(found) if device is None else [found.markdown()]), output)
    if found.broken:
        sys.exit(Exit.BROKEN)


def _parts(found: Checkup) -> Iterator[str | Text | Table]:
    here = found.environment
    if here is not None:
        lines = Table("", "", show_header=False)
        lines.add_row("versions", ", ".join(f"{name} {version}" for name, version in here.versions.items()))
        lines.add_row(
            "machine", f"{here.machine}, {here.cores} of {here.all_cores} cores, load {here.load:.1f}"
        )
        lines.add_row("devices", ", ".join(here.devices))
        lines.add_row("extras missing", ", ".join(here.missing) or "none")
        lines.add_row("file system", f"{here.file_system} ({here.directory})")
        yield lines
    promises = Table("promise", "where", "holds")
    for bits in found.bits:
        where = f"{bits.network}, {bits.device}, {bits.route}"
        promises.add_row("same bits", where, "yes" if bits.same else "NO")
    for noise in found.noise:
        where = f"{noise.noise}, {noise.what}, {noise.device}"
        promises.add_row(
            f"noise, {noise.votes:,} draws", where, f"{'yes' if noise.fits else 'NO'}, p = {noise.p:.2g}"
        )
    yield promises
    speed = Table("network", "device", "route", "votes/s", "bare rows/s", "ratio")
    for rates in found.rates:
        route = f"{rates.route} (default)" if rates.auto else rates.route
        figures = _rate(rates.votes), _rate(rates.bare), f"{rates.ratio:.2f}"
        speed.add_row(rates.network, rates.device, route, *figures)
    yield speed
    yield from listed_below(_BROKEN, found.broken)
    yield from listed_below("What couldn't be tried", found.failures)
    yield from listed_below("What to change", found.advice)
    if not found.broken:
        yield "All promises hold on this machine."


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
