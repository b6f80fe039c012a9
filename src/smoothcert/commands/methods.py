"""`smoothcert methods`: the training objectives, their knobs and what a step costs."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter

_WIDE = 80  # columns that hold the papers, too; one method's page has them in any width


def methods(
    name: str | None = None,
    *,
    markdown: bool = False,
    json_: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """List the training objectives, or explain one with its knobs.

    Example: `smoothcert methods smoothmix`

    Parameters
    ----------
    name
        Explain this objective.
    markdown
        The list as a Markdown table.
    json_
        One JSON object on standard output.
    """
    from rich.table import Table

    from smoothcert.commands.console import stdout
    from smoothcert.hints import command
    from smoothcert.training.methods import describe, descriptions, markdown_rows

    if markdown:
        print(markdown_rows(), end="")
        return
    console = stdout()
    chosen = descriptions() if name is None else [describe(name)]
    if json_:
        print(json.dumps({method.name: method.to_json() for method in chosen}, ensure_ascii=False))
        return
    if name is None:
        wide = console.width >= _WIDE
        table = Table("objective", "what it optimises", "cost of a step", *(["paper"] if wide else []))
        for method in chosen:
            table.add_row(method.name, method.summary, method.cost, *([method.paper] if wide else []))
        console.print(table)
        console.print(f"Knobs of one: {command('methods', 'smoothmix')}")
        return
    (method,) = chosen
    console.print(method.name, style="bold", end="")
    console.print(f"  {method.paper}\n\n{method.text}\n")
    console.print(f"cost of a step: {method.cost}")
    table = Table("knob", "default", "what it does")
    for knob in method.knobs:
        table.add_row(f"--{knob.name.replace('_', '-')}", str(knob.default), knob.help)
    if method.knobs:
        console.print(table)
    if method.recipes:
        console.print(f"recipes: {', '.join(method.recipes)}")
