"""`smoothcert doctor`: is this machine all right?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from smoothcert.health import Checkup

PROMISE_BROKEN = 4


def doctor(
    *,
    quick: bool = False,
    format: Literal["text", "json"] = "text",
    quiet: bool = False,
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
    format
        text, or json: one object on standard output.
    quiet
        No progress; print what is wrong, and nothing if nothing is.
    """
    from smoothcert.commands.console import note
    from smoothcert.health import check_up

    silent = quiet or format == "json"

    def told(words: str, number: int, total: int) -> None:
        note(f"{number + 1}/{total} {words}", silent)

    found = check_up(Path.cwd(), quick=quick, on_step=told)
    if format == "json":
        print(json.dumps(found.as_json(), ensure_ascii=False))
    else:
        _show(found, quiet)
    if found.broken:
        sys.exit(PROMISE_BROKEN)


def _show(found: Checkup, quiet: bool) -> None:
    from rich.table import Table

    from smoothcert.commands.console import print_list, stdout

    if quiet:
        print_list("Promises that don't hold here", found.broken)
        return
    console = stdout()
    here = found.environment
    if here is not None:
        lines = Table(show_header=False)
        lines.add_column()
        lines.add_column()
        lines.add_row("versions", ", ".join(f"{name} {version}" for name, version in here.versions.items()))
        lines.add_row(
            "machine", f"{here.machine}, {here.cores} of {here.all_cores} cores, load {here.load:.1f}"
        )
        lines.add_row("devices", ", ".join(here.devices))
        lines.add_row("extras missing", ", ".join(here.missing) or "none")
        lines.add_row("file system", f"{here.file_system} ({here.directory})")
        console.print(lines)
    promises = Table("promise", "where", "holds")
    for bits in found.bits:
        where = f"{bits.network}, {bits.device}, {bits.route}"
        promises.add_row("same bits", where, "yes" if bits.same else "NO")
    for noise in found.noise:
        where = f"{noise.noise}, {noise.what}, {noise.device}"
        promises.add_row(
            f"noise, {noise.votes:,} draws", where, f"{'yes' if noise.fits else 'NO'}, p = {noise.p:.2g}"
        )
    console.print(promises)
    speed = Table("network", "device", "route", "votes/s", "bare rows/s", "ratio")
    for rates in found.rates:
        speed.add_row(
            rates.network,
            rates.device,
            f"{rates.route} (default)" if rates.auto else rates.route,
            _rate(rates.votes),
            _rate(rates.bare),
            f"{rates.ratio:.2f}",
        )
    console.print(speed)
    print_list("Promises that don't hold here", found.broken)
    print_list("What couldn't be tried", found.failures)
    print_list("What to change", found.advice)
    if not found.broken:
        console.print("All promises hold on this machine.")


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
