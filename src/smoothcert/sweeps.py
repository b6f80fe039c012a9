"""Sweeps: methods × σ × seeds, each trained and certified in a folder of its own, so that any part can be resumed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from smoothcert.analysis.seeds import SeedGroup
from smoothcert.architectures.weights import load_model
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.objectives import OBJECTIVES
from smoothcert.runs import Run
from smoothcert.sampling import Execution
from smoothcert.sampling.models import TorchClassifier
from smoothcert.smoothing import SmoothedClassifier
from smoothcert.training import Progress as StepProgress
from smoothcert.training import Recipe, find_recipe, make_recipe, shipped_recipes, train_into
from smoothcert.training.processes import Processes
from smoothcert.training.recipe import SUFFIX


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
        method = re.sub(
            r"[^\w.=-]+", "-", Path(self.method).stem if self.method.endswith(SUFFIX) else self.method
        )
        return f"{method}-sigma{self.sigma:g}-seed{self.seed}"

    def model(self, out: Path) -> Path:
        """Its training run."""
        return out / self.folder / "model"


def plan_cells(
    methods: Sequence[str],
    sigmas: Sequence[float],
    seeds: Sequence[int],
    common: Mapping[str, object],
) -> list[Cell]:
    """Every method at every σ from every seed, ``common`` recipe fields overriding each method's own.

    A method is an objective (``smoothmix``), one with knobs (``smoothmix:eta=1,steps=8``), the name of a shipped
    recipe or a recipe file. Without ``sigmas``, recipes keep their own.
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
        raise InvalidValueError(f"the sweep asks twice for {', '.join(sorted(twice))}: leave one out")
    return cells


@dataclass(frozen=True)
class Trial:
    """How cells are certified: the fields of their CertifyPlan but σ and seed, which inputs, and where."""

    plan: Mapping[str, Any]
    choice: Choice
    execution: Execution

    def train(
        self,
        cell: Cell,
        out: Path,
        train_set: Dataset,
        test_set: Dataset,
        on_step: StepProgress | None = None,
    ) -> None:
        """Train a cell under ``out``, or go on with what was begun."""
        device = Processes(self.execution.device)
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
            seed=cell.seed,
            execution=self.execution,
            **self.plan,
        )
        origin = {"model": str(cell.model(out)), "dataset": cell.recipe.dataset, "method": cell.method}
        return certifier(classifier, test_set, out / cell.folder / "certified", self.choice, origin=origin)


def group_by_seed(done: Sequence[tuple[Cell, Run]]) -> list[SeedGroup]:
    """The runs of each method and σ together, in the order they were first met."""
    runs: dict[tuple[str, float], list[Run]] = {}
    for cell, run in done:
        runs.setdefault((cell.method, cell.sigma), []).append(run)
    return [SeedGroup(method, sigma, tuple(members)) for (method, sigma), members in runs.items()]


def _recipe(method: str, values: Mapping[str, object]) -> Recipe:
    if method.endswith(SUFFIX) or method in shipped_recipes():
        return find_recipe(method).changed(values)
    name, _, knobs = method.partition(":")
    _ = OBJECTIVES[name]  # an unknown name is told before its knobs are looked at
    return make_recipe(values, name, _knobs(method, knobs))


def _knobs(method: str, text: str) -> dict[str, object]:
    """``eta=1,attack=ddn`` as TOML would read it, with bare words for texts."""
    knobs: dict[str, object] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidValueError(
                f"method {method!r}: write knobs as NAME=VALUE with commas between, got {part!r}"
            )
        try:
            knobs[name.strip().replace("-", "_")] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            knobs[name.strip().replace("-", "_")] = value.strip()
    return knobs
