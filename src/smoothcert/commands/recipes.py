"""`smoothcert recipes`: the published settings that come with the package."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from cyclopts import Parameter

_WIDE = 90
"""Columns of a screen that has room for the sources, too; --json and a recipe's own file have them always."""


def recipes(name: str | None = None, *, json_: Annotated[bool, Parameter(name="--json")] = False) -> None:
    """List the shipped recipes with their source and published ACR, or print one.

    Example: `smoothcert recipes mnist-smoothmix-1.0 > mine.toml`, change it, `smoothcert train --recipe mine.toml …`

    Parameters
    ----------
    name
        Print this recipe as TOML; a part of a name lists the recipes that have it.
    json_
        One JSON object on standard output.
    """
    from rich import box
    from rich.table import Table

    from smoothcert.commands.console import stdout
    from smoothcert.registry import unknown_name
    from smoothcert.training import shipped_recipes

    shipped = shipped_recipes()
    if name in shipped and not json_:
        sys.stdout.write(shipped[name].to_toml())
        return
    chosen = [recipe for recipe in shipped.values() if name is None or name in recipe.name]
    if not chosen:
        raise unknown_name("recipe", str(name), list(shipped))
    if json_:
        print(json.dumps({recipe.name: recipe.to_json() for recipe in chosen}, ensure_ascii=False))
        return
    wide = stdout().width >= _WIDE
    table = Table(title="names for train --recipe", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("epochs", justify="right", no_wrap=True)
    table.add_column("ACR", justify="right", no_wrap=True)
    if wide:
        table.add_column("published in")
    for recipe in chosen:
        acr = "–" if recipe.published_acr is None else f"{recipe.published_acr:.3f}"
        cells = [recipe.name, str(recipe.plan.epochs), acr]
        table.add_row(*cells, *([recipe.source] if wide else []))
    stdout().print(table)
