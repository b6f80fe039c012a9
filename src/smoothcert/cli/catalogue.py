"""`smoothcert data` and `recipes`: what comes with the package, or can be fetched."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich import box
from rich.table import Column, Table
from rich.text import Text

from smoothcert.cli.console import View, emit, note, progress_bar, stdout
from smoothcert.cli.options import OutputOptions
from smoothcert.cli.progress import Meter
from smoothcert.datasets.published import DATA_VARIABLE, PUBLICATIONS
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import command, option
from smoothcert.registry import check_name, unknown_name
from smoothcert.training.recipe import Method, Recipe, descriptions, markdown_rows, shipped_recipes

if TYPE_CHECKING:
    from smoothcert.downloads import Watch

_MB = 10**6
_WIDE = 90
"""Columns of a screen that holds sources and papers as well; --json has them in any width."""


def list_data(
    *names: str,
    data_dir: Path | None = None,
    mirror: Annotated[list[str] | None, Parameter(show=False)] = None,  # noqa: ARG001  (earlier versions took it)
    output: OutputOptions = OutputOptions(),
) -> None:
    """List the published data sets and where they are looked for.

    Example: `smoothcert data list`

    Parameters
    ----------
    names
        Data sets: mnist, fashion-mnist, cifar10, svhn, bank (default: all of them).
    data_dir
        Where the files are (default: the environment variable SMOOTHCERT_DATA).
    """
    from smoothcert.downloads import found_in

    headings = (Column(name, overflow="fold") for name in ("name", "MB to fetch", "there", "looked for in"))
    table = Table(*headings, title="names for data fetch", title_justify="left")
    rows: dict[str, Any] = {}
    for name in names:
        check_name("published data set", name, PUBLICATIONS)
    for name in names or tuple(PUBLICATIONS):
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
        looked = (
            "\n".join(map(str, places if place is None else [place])) or f"nowhere: {DATA_VARIABLE} isn't set"
        )
        table.add_row(name, f"{publication.size / _MB:.1f}", state, looked)
    others = "Besides these, digits comes with scikit-learn; imagenet and kitti are read, and must be fetched by hand."
    emit(View(rows, [table, others]), output)


def fetch_data(
    *names: str,
    data_dir: Path | None = None,
    mirror: list[str] | None = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Fetch published data sets.

    No file gets its name before its SHA-256 is the published one, which smoothcert knows. A download that broke off
    is resumed when the command is given again; files that are right already stay as they are. Proxies are taken from
    the environment (HTTPS_PROXY). Without a network, copy the files by hand: `smoothcert data list` says where to.

    Example: `smoothcert data fetch mnist cifar10 --data-dir data`

    Parameters
    ----------
    names
        Data sets: mnist, fashion-mnist, cifar10, svhn, bank.
    data_dir
        Where the files go (default: the environment variable SMOOTHCERT_DATA).
    mirror
        Fetch from https://HOST/FOLDER, which has the files under their published names, and not from the usual places.
        Repeat it for more: they are tried in turn.
    """
    from smoothcert.downloads import fetch

    mirrors = [part for text in mirror or () for part in re.split(r",(?=https?://)", text)]
    for name in names:
        check_name("published data set", name, PUBLICATIONS)
    if not names:
        raise InvalidValueError(f"name what to fetch: {', '.join(PUBLICATIONS)}")
    root = data_dir or (Path(named) if (named := os.environ.get(DATA_VARIABLE)) else None)
    if root is None:
        raise InvalidValueError(f"name the folder with --data-dir or the variable {DATA_VARIABLE}")
    told: dict[str, Any] = {}
    for name in names:
        with progress_bar(f"fetching {name}", "MB") as meter:
            done = fetch(PUBLICATIONS[name], root, mirrors, _watch(meter))
        told[name] = {"folder": str(done.folder), "fetched": list(done.fetched)}
        how = "fetched and checked" if done.fetched else "there already and right"
        note(f"{name}: {how}, in {done.folder}")
    where = "" if data_dir is None else f" with --data-dir {shlex.quote(str(root))}"
    note(f"Commands find {'it' if len(names) == 1 else 'them'}{where}.")
    emit(View(told), output)


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


def recipes(
    name: str | None = None,
    *,
    methods: bool = False,
    markdown: bool = False,
    output: OutputOptions = OutputOptions(),
) -> None:
    """List the training methods and the shipped recipes, or explain one.

    A method is explained with its options and the cost of a step; a recipe is printed as TOML, to be changed and
    trained by `--recipe`. Recipes state their source and the published ACR.

    Example: `smoothcert recipes smoothmix`

    Example: `smoothcert recipes mnist-smoothmix-1.0 > mine.toml`, change it, `smoothcert train --recipe mine.toml …`

    Parameters
    ----------
    name
        A method, or a recipe; a part of a name lists the recipes that have it.
    methods
        Only the training methods.
    markdown
        The training methods as a Markdown table.
    """
    if markdown:
        print(markdown_rows(), end="")
        return
    described = {method.name: method for method in descriptions()}
    shipped = {} if methods else shipped_recipes()
    if name in described:
        emit(View({name: described[name].to_json()}, _method(described[name])), output)
        return
    if name in shipped and not output.json:
        sys.stdout.write(shipped[name].to_toml())
        return
    chosen = [recipe for recipe in shipped.values() if name is None or name in recipe.name]
    if name is not None and not chosen:
        kind = "training method" if methods else "training method or recipe"
        raise unknown_name(kind, name, [*described, *shipped])
    listed = list(described.values()) if name is None else []
    data = {method.name: method.to_json() for method in listed}
    data |= {recipe.name: recipe.to_json() for recipe in chosen}
    emit(View(data, [*_methods(listed), *_recipes(chosen)]), output)


def _methods(methods: Sequence[Method]) -> Iterator[str | Table]:
    if not methods:
        return
    wide = stdout().width >= _WIDE
    headings = ("method", "what it optimises", "cost of a step", *(["paper"] if wide else []))
    table = Table(*headings, title="names for train --objective", title_justify="left", box=box.SIMPLE_HEAD)
    for method in methods:
        table.add_row(method.name, method.summary, method.cost, *([method.paper] if wide else []))
    yield table
    yield f"The options of one: {command('recipes', 'smoothmix')}"


def _method(method: Method) -> Iterator[str | Text | Table]:
    yield Text.assemble((method.name, "bold"), f"  {method.paper}\n\n{method.text}\n")
    yield f"cost of a step: {method.cost}"
    if method.knobs:
        table = Table("option", "default", "what it does")
        for knob in method.knobs:
            table.add_row(option(knob.name), str(knob.default), knob.help)
        yield table
    if method.recipes:
        yield f"recipes: {', '.join(method.recipes)}"


def _recipes(recipes: Sequence[Recipe]) -> Iterator[Table]:
    if not recipes:
        return
    wide = stdout().width >= _WIDE
    figures = (Column(name, justify="right", no_wrap=True) for name in ("epochs", "ACR"))
    columns = [Column("recipe", no_wrap=True), *figures, *([Column("published in")] if wide else [])]
    table = Table(*columns, title="names for train --recipe", title_justify="left", box=box.SIMPLE_HEAD)
    for recipe in recipes:
        acr = "–" if recipe.published_acr is None else f"{recipe.published_acr:.3f}"
        cells = [recipe.name, str(recipe.plan.epochs), acr]
        table.add_row(*cells, *([recipe.source] if wide else []))
    yield table
