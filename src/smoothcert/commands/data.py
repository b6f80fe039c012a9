"""`smoothcert data`: the published data sets, listed and fetched."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from smoothcert.commands.options import OutputOptions

if TYPE_CHECKING:
    from smoothcert.commands.progress import Meter
    from smoothcert.downloads import Watch

_MB = 10**6


def data(
    action: Literal["list", "fetch"],
    /,
    *names: str,
    data_dir: Path | None = None,
    mirror: list[str] | None = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """List the published data sets and where they are looked for, or fetch some of them.

    No file gets its name before its SHA-256 is the published one, which smoothcert knows. A download that broke off
    goes on when the command is given again; files that are right already stay as they are. Proxies are taken from the
    environment (HTTPS_PROXY). Without a network, copy the files by hand: `list` says where to.

    Example: `smoothcert data fetch mnist cifar10 --data-dir data`

    Parameters
    ----------
    action
        list, or fetch.
    names
        Data sets: mnist, fashion-mnist, cifar10, svhn (list: all of them if none is named).
    data_dir
        Where the files are or go (default: the environment variable SMOOTHCERT_DATA).
    mirror
        Fetch from https://HOST/FOLDER, which has the files under their published names, and not from the usual places.
        Repeat it for more: they are tried in turn.
    """
    from smoothcert.datasets.published import PUBLICATIONS
    from smoothcert.registry import check_name

    for name in names:
        check_name("published data set", name, PUBLICATIONS)
    if action == "list":
        _list(names or tuple(PUBLICATIONS), data_dir, output)
    else:
        _fetch(names, data_dir, mirror or [], output)


def _fetch(names: tuple[str, ...], data_dir: Path | None, mirrors: list[str], output: OutputOptions) -> None:
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.datasets.places import DATA_VARIABLE
    from smoothcert.datasets.published import PUBLICATIONS
    from smoothcert.downloads import fetch
    from smoothcert.errors import InvalidValueError

    if not names:
        raise InvalidValueError(f"name what to fetch: {', '.join(PUBLICATIONS)}")
    root = data_dir or (Path(named) if (named := os.environ.get(DATA_VARIABLE)) else None)
    if root is None:
        raise InvalidValueError(
            f"name the folder for the files with --data-dir or the environment variable {DATA_VARIABLE}"
        )
    told: dict[str, Any] = {}
    for name in names:
        with progress_bar(f"fetching {name}", "MB", output.silent) as meter:
            done = fetch(PUBLICATIONS[name], root, mirrors, _watch(meter))
        told[name] = {"folder": str(done.folder), "fetched": list(done.fetched)}
        how = "fetched and checked" if done.fetched else "there already and right"
        note(f"{name}: {how}, in {done.folder}", output.silent)
    if output.json:
        print(json.dumps(told))
    else:
        where = "" if data_dir is None else f" with --data-dir {shlex.quote(str(root))}"
        note(f"Commands find {'it' if len(names) == 1 else 'them'}{where}.", output.silent)


def _watch(meter: Meter) -> Watch:
    """The meter counts whole megabytes."""
    from smoothcert.downloads import Watch

    came = 0

    def received(size: int) -> None:
        nonlocal came
        before, came = came, came + size
        if whole := came // _MB - before // _MB:
            meter.advance(whole)

    return Watch(lambda size, files: meter.begin(size // _MB, files), received, meter.item)


def _list(names: tuple[str, ...], data_dir: Path | None, output: OutputOptions) -> None:
    from rich.table import Table

    from smoothcert.commands.console import note, stdout
    from smoothcert.datasets.places import DATA_VARIABLE
    from smoothcert.datasets.published import PUBLICATIONS
    from smoothcert.downloads import found_in

    table = Table(title="names for data fetch", title_justify="left")
    for column in ("name", "MB to fetch", "there", "looked for in"):
        table.add_column(column, overflow="fold")
    rows: dict[str, Any] = {}
    for name in names:
        publication = PUBLICATIONS[name]
        place, there, places = found_in(publication, data_dir)
        all_of_them = len(publication.installed)
        rows[name] = {
            "bytes": publication.size,
            "folder": None if place is None else str(place),
            "files_there": there,
            "files": all_of_them,
            "places": list(map(str, places)),
            "mirrors": list(publication.mirrors),
        }
        state = "no" if not there else "yes" if there == all_of_them else f"{there} of {all_of_them} files"
        looked = "\n".join(map(str, places if place is None else [place]))
        table.add_row(
            name, f"{publication.size / _MB:.1f}", state, looked or f"nowhere: {DATA_VARIABLE} isn't set"
        )
    if output.json:
        print(json.dumps(rows))
        return
    stdout().print(table)
    note(
        "Besides these, digits comes with scikit-learn; imagenet and kitti are read, and must be fetched by hand.",
        output.silent,
    )
