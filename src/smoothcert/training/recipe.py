"""Recipes: training runs as TOML files, shipped for the published settings or written by the user; and the methods."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from smoothcert.errors import DataError, InvalidValueError, SmoothcertError, check_count
from smoothcert.knobs import Knob, from_mapping, knobs_of
from smoothcert.objectives.base import OBJECTIVES, Objective, StepCost
from smoothcert.objectives.ramps import Ramp
from smoothcert.registry import check_name
from smoothcert.training.plan import TrainPlan

SUFFIX = ".toml"
_OBJECTIVE, _RAMPS = "objective", "ramps"


@dataclass(frozen=True)
class Recipe:
    """A plan, what it is for and where it comes from. ``architecture`` None: one that suits the inputs."""

    dataset: str
    plan: TrainPlan
    architecture: str | None = None
    normalise: bool = True
    """Whether the model's first layer standardises, for data sets that have published statistics."""
    inputs: int | None = None
    """Train on this many inputs only, the first ones."""
    name: str = ""
    source: str = ""
    published_acr: float | None = None
    start: str | None = None
    """A finished training run, or a model file, whose weights training starts from."""

    def __post_init__(self) -> None:
        if self.inputs is not None:
            check_count("inputs", self.inputs)

    def changed(
        self,
        values: Mapping[str, object],
        objective: str | None = None,
        knobs: Mapping[str, object] | None = None,
    ) -> Recipe:
        """The recipe with other values; another objective brings its own default options, and no ramps of them.

        A changed recipe is no longer the published one, so it drops the published figure.
        """
        if not values and objective is None and not knobs:
            return self
        plain = self.to_json()
        table: dict[str, object] = plain.pop(_OBJECTIVE)
        if objective is not None and objective != table["name"]:
            table = {"name": objective}
            plain[_RAMPS] = [str(ramp) for ramp in self.plan.ramps if ramp.option in ("lr", "sigma")]
        changed = _from_plain(plain | dict(values) | {_OBJECTIVE: table | dict(knobs or {})}, self.name)
        return changed if changed == self else replace(changed, published_acr=None)

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in a recipe file; None stands for what the file leaves out."""
        about = {f.name: getattr(self, f.name) for f in fields(Recipe) if f.name not in ("plan", "name")}
        plan = {each.name: getattr(self.plan, each.name) for each in fields(TrainPlan)}
        own = {each.name: getattr(self.plan.objective, each.name) for each in fields(self.plan.objective)}
        plan[_OBJECTIVE] = {"name": self.plan.objective_name} | own
        plan[_RAMPS] = [str(ramp) for ramp in self.plan.ramps]
        plan["milestones"] = list(self.plan.milestones)
        return about | plan

    def to_toml(self) -> str:
        """The text of a recipe file that reads back as this recipe."""
        plain = self.to_json()
        table = plain.pop(_OBJECTIVE)
        return _toml_lines(plain) + f"\n[{_OBJECTIVE}]\n" + _toml_lines(table)


def _toml_lines(values: Mapping[str, object]) -> str:
    # A JSON text, number, boolean or list of them is a TOML one too.
    return "".join(
        f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
        for name, value in values.items()
        if value not in (None, "", [])
    )


def _from_plain(values: Mapping[str, object], name: str) -> Recipe:
    given = {key: value for key, value in values.items() if value is not None}
    in_plan = {each.name for each in fields(TrainPlan)}
    in_recipe = {each.name for each in fields(Recipe)} - {"plan", "name"}
    for key in given:
        check_name("recipe field", key, sorted(in_plan | in_recipe))
    for required in ("dataset", "sigma"):
        if required not in given:
            raise InvalidValueError(f"{required} is missing: give it in the recipe or on the command line")
    given[_OBJECTIVE] = _objective(given.get(_OBJECTIVE, {"name": "gaussian"}))
    given[_RAMPS] = parse_ramps(given.get(_RAMPS, []))
    plan = from_mapping(TrainPlan, {key: given[key] for key in given if key in in_plan}, "recipe")
    about = {key: given[key] for key in given if key in in_recipe}
    return from_mapping(Recipe, about | {"plan": plan, "name": name}, "recipe")


def _objective(table: object) -> Objective:
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        raise InvalidValueError(f"[{_OBJECTIVE}] must be a table with a name, got {table!r}")
    name = table["name"]
    knobs = {key: value for key, value in table.items() if key != "name" and value is not None}
    return from_mapping(OBJECTIVES[name], knobs, name, OBJECTIVES.load())


def parse_ramps(texts: object) -> list[Ramp]:
    """Ramps as a recipe file has them."""
    if not isinstance(texts, (list, tuple)) or not all(isinstance(each, str) for each in texts):
        raise InvalidValueError(f"ramps must be a list of texts such as 'epsilon:10', got {texts!r}")
    return [Ramp.parse(each) for each in texts]


def make_recipe(
    values: Mapping[str, object], objective: str = "gaussian", knobs: Mapping[str, object] | None = None
) -> Recipe:
    """A recipe from plain values alone."""
    return _from_plain({**values, _OBJECTIVE: {"name": objective, **(knobs or {})}}, name="")


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file."""
    try:
        return _from_plain(tomllib.loads(path.read_text(encoding="utf-8")), path.stem)
    except OSError as error:
        raise DataError(f"recipe {path} can't be read: {error.strerror or error}") from None
    except (ValueError, SmoothcertError) as error:
        raise DataError(f"recipe {path}: {error}") from None


@cache
def shipped_recipes() -> dict[str, Recipe]:
    """The recipes that come with the package, by name: FAMILY-METHOD-σ, of the file recipes/FAMILY.toml."""
    folder = resources.files("smoothcert.training") / "recipes"
    values = {
        f"{file.name.removesuffix(SUFFIX)}-{member}": table
        for file in folder.iterdir()
        if file.name.endswith(SUFFIX)
        for member, table in _members(tomllib.loads(file.read_text(encoding="utf-8")))
    }
    return {name: _from_plain(values[name], name) for name in sorted(values)}


def _members(family: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, object]]]:
    """The recipes of a family, by METHOD-σ: its defaults, overridden by a method's table, and that by its line of σ."""
    defaults = family.pop("defaults")
    for method, table in family.items():
        for sigma, overrides in table.pop("sigma").items():
            objective = table[_OBJECTIVE] | overrides.get(_OBJECTIVE, {})
            member = {**defaults, **table, **overrides, "sigma": float(sigma), _OBJECTIVE: objective}
            yield f"{method}-{sigma}", member


def find_recipe(name: str) -> Recipe:
    """A recipe by the path of its file, or by the name of a shipped one."""
    if name.endswith(SUFFIX):
        return read_recipe(Path(name))
    check_name("recipe", name, shipped_recipes())
    return shipped_recipes()[name]


@dataclass(frozen=True)
class Method:
    """An objective described."""

    name: str
    summary: str
    text: str
    paper: str
    passes: StepCost
    knobs: tuple[Knob, ...]
    recipes: tuple[str, ...]

    @property
    def cost(self) -> str:
        """The passes of a step with the default options, in words."""
        passes = self.passes
        parts = []
        if passes.attack_forward:
            parts.append(f"{passes.attack_forward} forward")
        if passes.attack_backward:
            parts.append(f"{passes.attack_backward} backward to inputs")
        parts.append(f"{passes.training} forward + {passes.training} backward")
        return ", ".join(parts) + f" × {passes.rows} row{'s' if passes.rows > 1 else ''}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; of each option its name, default and help."""
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
        recipes=tuple(each for each, it in shipped_recipes().items() if it.plan.objective_name == name),
    )


def descriptions() -> list[Method]:
    """Every registered objective, by name."""
    return [describe(name) for name in OBJECTIVES]


def markdown_rows() -> str:
    """The table of the documentation: a row for each objective."""
    header = "objective | what it optimises | cost of a step with default options | options | paper | recipes"
    rows = []
    for method in descriptions():
        options = ", ".join(f"`{knob.name}` {knob.default}" for knob in method.knobs) or "–"
        # Without their σ, each once.
        recipes = ", ".join(dict.fromkeys(f"`{name.rpartition('-')[0]}-σ`" for name in method.recipes)) or "–"
        cells = (f"`{method.name}`", method.summary, method.cost, options, method.paper, recipes)
        rows.append(" | ".join(cell.replace("|", "\\|") for cell in cells))
    return "\n".join([f"| {header} |", "|---|---|---|---|---|---|", *(f"| {row} |" for row in rows)]) + "\n"
