"""Descriptions of the objectives: summary, paper, cost, knobs, recipes."""

from __future__ import annotations

import inspect
from dataclasses import asdict, dataclass, replace
from typing import Any

from smoothcert.knobs import Knob, knobs_of
from smoothcert.objectives import OBJECTIVES, Passes
from smoothcert.training.recipe import shipped_recipes


@dataclass(frozen=True)
class Method:
    """An objective described."""

    name: str
    summary: str
    text: str
    paper: str
    passes: Passes
    knobs: tuple[Knob, ...]
    recipes: tuple[str, ...]

    @property
    def cost(self) -> str:
        """The passes of a step with the default knobs, in words."""
        passes = self.passes
        parts = []
        if passes.attack_forward:
            parts.append(f"{passes.attack_forward} forward")
        if passes.attack_backward:
            parts.append(f"{passes.attack_backward} backward to inputs")
        parts.append(f"{passes.training} forward + {passes.training} backward")
        return ", ".join(parts) + f" × {passes.rows} row{'s' if passes.rows > 1 else ''}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; of each knob its name, default and help."""
        knobs = [{"name": knob.name, "default": knob.default, "help": knob.help} for knob in self.knobs]
        return asdict(replace(self, knobs=())) | {"knobs": knobs}


def describe(name: str) -> Method:
    """One registered objective."""
    cls = OBJECTIVES[name]
    text = inspect.getdoc(cls) or ""
    return Method(
        name,
        summary=text.partition("\n")[0].rstrip(".").replace("``", ""),
        text="\n\n".join(" ".join(part.split()) for part in text.replace("``", "").split("\n\n")),
        paper=cls.paper,
        passes=cls().passes(),
        knobs=tuple(knobs_of(cls)),
        recipes=tuple(
            recipe.name for recipe in shipped_recipes().values() if recipe.plan.objective_name == name
        ),
    )


def descriptions() -> list[Method]:
    """Every registered objective, by name."""
    return [describe(name) for name in OBJECTIVES]


def markdown_rows() -> str:
    """The table of the documentation: a row for each objective."""
    header = "| objective | what it optimises | cost of a step with default knobs | knobs | paper | recipes |"
    rows = [
        "| "
        + " | ".join(
            cell.replace("|", "\\|")
            for cell in (
                f"`{method.name}`",
                method.summary,
                method.cost,
                ", ".join(f"`{knob.name}` {knob.default}" for knob in method.knobs) or "–",
                method.paper,
                # Without their σ, each once.
                ", ".join(dict.fromkeys(f"`{name.rpartition('-')[0]}-σ`" for name in method.recipes)) or "–",
            )
        )
        + " |"
        for method in descriptions()
    ]
    return "\n".join([header, "|---|---|---|---|---|---|", *rows]) + "\n"
