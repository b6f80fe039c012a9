"""A sweep's cells: methods × σ × seeds, each trained and certified in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol

from smoothcert.analysis.seeds import SeedGroup
from smoothcert.analysis.trained import TRAINED, training_facts
from smoothcert.architectures.weights import load_model
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, check_positive
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.knobs import plain_value, written_values
from smoothcert.noise import NOISES
from smoothcert.objectives import OBJECTIVES
from smoothcert.plain_text import norm_name
from smoothcert.runs import Run
from smoothcert.sampling import Execution
from smoothcert.sampling.models import TorchClassifier
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.training import Progress as StepProgress
from smoothcert.training import Ramp, Recipe, find_recipe, make_recipe, shipped_recipes, train_into
from smoothcert.training.idle import without_effect
from smoothcert.training.plan import TrainPlan
from smoothcert.training.processes import Processes
from smoothcert.training.recipe import SUFFIX, parse_ramps

_RAMP, _RAMPS = "ramp", "ramps"
_OF_THE_SWEEP = {
    _RAMPS: "write ramp=…, once for each knob",
    "sigma": "it is for all methods: --sigmas",
    "seed": "it is for all methods: --seeds",
}


class Certifier(Protocol):
    """Certifies the chosen inputs into a run, as :func:`certify_dataset` does."""

    def __call__(
        self,
        classifier: SmoothedClassifier,
        dataset: Dataset,
        out: Path,
        choice: Choice,
        /,
        *,
        origin: dict[str, Any],
    ) -> Run:
        """Go on with the run if it was begun."""
        ...


@dataclass(frozen=True)
class Cell:
    """One training and its certification."""

    method: str
    recipe: Recipe

    @property
    def sigma(self) -> float:
        """The noise level of both."""
        return self.recipe.plan.sigma

    @property
    def seed(self) -> int:
        """The seed of both."""
        return self.recipe.plan.seed

    @property
    def folder(self) -> str:
        """A name for its folder, the same whenever the cell is the same."""
        base, changes = _parts(self.method)
        named = Path(base).stem if base.endswith(SUFFIX) else base
        method = re.sub(r"[^\w.=-]+", "-", f"{named}:{changes}" if changes else named)
        return f"{method}-sigma{self.sigma:g}-seed{self.seed}"

    def model(self, out: Path) -> Path:
        """Its training run."""
        return out / self.folder / "model"

    def certified(self, out: Path) -> Path:
        """Its certification."""
        return out / self.folder / "certified"


def plan_cells(
    methods: Sequence[str],
    sigmas: Sequence[float],
    seeds: Sequence[int],
    common: Mapping[str, object],
) -> list[Cell]:
    """Every method at every σ from every seed, ``common`` recipe fields overriding each method's own.

    A method is an objective (``smoothmix``), the name of a shipped recipe or a recipe file, each with knobs or fields
    of the plan changed (``smoothmix:eta=1,steps=8``, ``mnist-macer-0.5:copies=4,ramp=lam:0@10``). Without ``sigmas``,
    recipes keep their own. Ramps replace those of the same knob.
    """
    if not methods or not seeds:
        raise InvalidValueError(f"a sweep needs methods and seeds, got {list(methods)} and {list(seeds)}")
    levels: list[dict[str, object]] = [{"sigma": sigma} for sigma in sigmas] or [{}]
    cells = [
        Cell(method, _recipe(method, {**common, **level, "seed": seed}))
        for method in methods
        for level in levels
        for seed in seeds
    ]
    folders = [cell.folder for cell in cells]
    twice = {folder for folder in folders if folders.count(folder) > 1}
    if twice:
        raise InvalidValueError(
            f"the sweep asks twice for {', '.join(sorted(twice))}: leave one out (or rename one of two recipe files of "
            "one name)"
        )
    norms = {NOISES[cell.recipe.plan.noise].norm: cell.method for cell in cells}
    if len(norms) > 1:
        named = " and ".join(f"{method} ({norm_name(norm)})" for norm, method in norms.items())
        raise InvalidValueError(f"radii in different norms don't compare: {named}; sweep one norm at a time")
    for cell in cells:
        check_positive("sigma of a sweep, whose models are certified,", cell.sigma)
    return cells


def settings_without_effect(cells: Sequence[Cell], common: Mapping[str, object]) -> list[str]:
    """A sentence for each setting, of the sweep or behind a method, that does nothing, and of which methods that is."""
    told: dict[str, dict[str, None]] = {}
    for cell in cells:
        written = list(written_values(_parts(cell.method)[1], f"method {cell.method!r}"))
        ramped = {ramp.knob for ramp in parse_ramps(common.get(_RAMPS, ()))}
        ramped |= {Ramp.parse(value).knob for name, value in written if name == _RAMP}
        plan = cell.recipe.plan
        plan = replace(plan, ramps=tuple(ramp for ramp in plan.ramps if ramp.knob in ramped))
        for sentence in without_effect(plan, {*common, *(name for name, _ in written), _RAMPS}):
            told.setdefault(sentence, {})[cell.method] = None
    everything = len({cell.method for cell in cells})
    return [
        sentence if len(methods) == everything else f"{', '.join(methods)}: {sentence}"
        for sentence, methods in told.items()
    ]


@dataclass(frozen=True)
class Trial:
    """How cells are certified: the fields of their CertifyPlan but σ and seed, which inputs, and where."""

    plan: Mapping[str, Any]
    choice: Choice
    execution: Execution
    split: str = "test"
    data_dir: Path | None = None
    """Of the data set that is certified: its split, and where its files are."""

    def train(
        self,
        cell: Cell,
        out: Path,
        train_set: Dataset,
        test_set: Dataset,
        on_step: StepProgress | None = None,
    ) -> None:
        """Train a cell under ``out``, or go on with what was begun."""
        device = Processes(self.execution.main_device)
        train_into(
            cell.model(out), cell.recipe, train_set, test_set=test_set, on_step=on_step, processes=device
        )

    def certify(
        self, cell: Cell, out: Path, test_set: Dataset, certifier: Certifier = certify_dataset
    ) -> Run:
        """Certify a trained cell under ``out``, or go on with what was begun."""
        module, spec = load_model(cell.model(out))
        classifier = SmoothedClassifier(
            TorchClassifier(module, spec.architecture),
            sigma=cell.sigma,
            noise=cell.recipe.plan.noise,
            seed=cell.seed,
            execution=self.execution,
            **self.plan,
        )
        origin = {
            "model": str(cell.model(out)),
            "dataset": cell.recipe.dataset,
            "split": self.split,
            "data_dir": None if self.data_dir is None else str(self.data_dir),
            "method": cell.method,
            TRAINED: training_facts(cell.model(out)),
        }
        return certifier(classifier, test_set, cell.certified(out), self.choice, origin=origin)


def group_by_seed(done: Sequence[tuple[Cell, Run]]) -> list[SeedGroup]:
    """The runs of each method and σ together, in the order they were first met."""
    runs: dict[tuple[str, float], list[Run]] = {}
    for cell, run in done:
        runs.setdefault((cell.method, cell.sigma), []).append(run)
    return [SeedGroup(method, sigma, tuple(members)) for (method, sigma), members in runs.items()]


def _parts(method: str) -> tuple[str, str]:
    """What a method starts from, and what is changed in it."""
    base, _, changes = (method, "", "") if method.endswith(SUFFIX) else method.partition(":")
    return base, changes


def _recipe(method: str, values: Mapping[str, object]) -> Recipe:
    base, changes = _parts(method)
    found = find_recipe(base) if base.endswith(SUFFIX) or base in shipped_recipes() else None
    objective = OBJECTIVES[base] if found is None else type(found.plan.objective)
    of_plan = {each.name for each in fields(TrainPlan)} - {"objective", "sigma", "seed", _RAMPS}
    of_plan -= {each.name for each in fields(objective)}
    # The last ramp of a knob counts: a method's own before the sweep's, and that before the recipe's.
    ramps = [*(() if found is None else found.plan.ramps), *parse_ramps(values.get(_RAMPS, ()))]
    changed, knobs = dict(values), dict[str, object]()
    for name, value in written_values(changes, f"method {method!r}"):
        if (option := _OF_THE_SWEEP.get(name)) is not None:
            raise InvalidValueError(f"method {method!r}: {name} isn't set there, {option}")
        if name == _RAMP:
            ramps.append(Ramp.parse(value))
        elif name in of_plan:
            changed[name] = plain_value(value)
        else:
            knobs[name] = plain_value(value)
    changed[_RAMPS] = [str(ramp) for ramp in {ramp.knob: ramp for ramp in ramps}.values()]
    return make_recipe(changed, base, knobs) if found is None else found.changed(changed, knobs=knobs)
