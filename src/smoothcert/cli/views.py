"""What a command found, for people or for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Column, Table
from rich.text import Text

from smoothcert.cli.console import print_figures, stdout

if TYPE_CHECKING:
    from smoothcert.cli.options import OutputOptions


@dataclass(frozen=True)
class View:
    """A result: ``data`` for ``--json``, and lines and tables to read."""

    data: Any
    parts: Iterable[str | Text | Table] = ()


def emit(view: View, output: OutputOptions) -> None:
    """Print a result: one JSON object with ``--json``, nothing with ``--quiet``."""
    if output.json:
        print(json.dumps(view.data))
    elif not output.quiet:
        show_parts(view.parts)


def show_parts(parts: Iterable[str | Text | Table]) -> None:
    """Print lines as they are, and tables of figures as wide as they are: half a figure is another."""
    for part in parts:
        if isinstance(part, Table) and all(column.no_wrap for column in part.columns):
            print_figures(part)
        else:
            stdout().print(part, soft_wrap=not isinstance(part, Table))


def figure_table(*headings: str, title: str | None = None) -> Table:
    """A table of figures, which are set to the right below their headings."""
    columns = (Column(name, justify="right", no_wrap=True) for name in headings)
    return Table(*columns, title=title, title_justify="left")


def listed_below(title: str, sentences: Sequence[str]) -> list[str | Text]:
    """A title and a line for each sentence; nothing where there are none."""
    return [Text(title, "bold"), *(f"  - {sentence}" for sentence in sentences)] if sentences else []
