"""``python -m benchmarks.levels MODEL… --sigma-levels … --chooser DIR``: ways to choose σ, on the same votes.

A row each for every fixed level; for the best level of each input, which is nobody's classifier and the ceiling; for
the level frozen at each input by its selection votes (data-dependent smoothing), and the same with a memory, asked
about the inputs in their order; for a chooser smoothed by majority with the smaller of two radii (dual smoothing, arXiv
2512.01782); and for the chooser smoothed by its median, after what its levels would be worth if the median stayed there
everywhere. Votes are taped (``--tapes FOLDER``), so that another chooser needs only its own.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.level_tapes import Shelf, TapedClassifier
from smoothcert import datasets
from smoothcert.analysis.tables import markdown_table
from smoothcert.architectures.weights import load_model
from smoothcert.commands.level_options import load_chooser
from smoothcert.commands.model_argument import load_named_model
from smoothcert.commands.options import ModelOptions
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation import Choice
from smoothcert.level_fit import label_radii
from smoothcert.region_memory import MemoryAnswer, MemoryStatement, RegionMemory
from smoothcert.sampling import BaseClassifier, Execution
from smoothcert.sampling.models import class_order
from smoothcert.sampling.numerics import DTYPES, Numerics
from smoothcert.sigma_levels import ConstantChooser
from smoothcert.sigma_levels.fitted import read_chooser_statement
from smoothcert.smoothing import Certification
from smoothcert.smoothing.level_plans import chooser_plan, home_plan, stage_seed
from smoothcert.smoothing.procedures import decide
from smoothcert.tally import Phase

Radii = NDArray[np.float64]

_TOGETHER = 20

ONE = "one classifier, stateless"
NOBODY = "nothing: no classifier answers so"
FROZEN = "of each input another classifier's"
STATEFUL = "one classifier, which depends on the order of questions"


@dataclass(frozen=True)
class Row:
    """A way to choose σ: each input's radius (0 where the label isn't certified) and votes, and what it promises."""

    name: str
    radii: Radii
    votes: float
    promise: str
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def acr(self) -> float:
        """Average certified radius."""
        return float(self.radii.mean())

    def accuracy(self, radius: float) -> float:
        """Certified accuracy; at 0, of inputs that are certified at all."""
        return float((self.radii > radius).mean() if radius == 0 else (self.radii >= radius).mean())


@dataclass(frozen=True)
class Trial:
    """Models, inputs and votes that all rows share."""

    models: list[BaseClassifier]
    sigmas: list[float]
    dataset: Dataset
    chosen: range
    shelf: Shelf
    votes: dict[str, Any]
    """n0, n, alpha, seed and numerics."""
    execution: Execution

    @property
    def labels(self) -> NDArray[np.int64]:
        """Of the chosen inputs."""
        return np.asarray(self.dataset.labels[list(self.chosen)], dtype=np.int64)

    @property
    def fixed_votes(self) -> int:
        """Votes of an input at one σ."""
        return int(self.votes["n0"] + self.votes["n"])

    def classifier(
        self, chooser: Any, sigma: float | None = None, most: int | None = None
    ) -> TapedClassifier:
        """The levels with a chooser."""
        seed = self.votes["seed"]
        if isinstance(chooser, ConstantChooser):  # it has its σ's own streams: let them be a level's
            seed = stage_seed(seed, f"level {chooser.level}")
        made = TapedClassifier(
            self.models,
            chooser,
            sigmas=self.sigmas,
            chooser_sigma=sigma,
            chooser_n=most,
            levels=self.dataset.levels,
            execution=self.execution,
            **self.votes | {"seed": seed},
        ).in_order(class_order(self.models[-1], self.dataset))
        assert isinstance(made, TapedClassifier)
        made.shelf = self.shelf
        return made

    def certified(
        self, chooser: Any, sigma: float | None = None, most: int | None = None
    ) -> dict[int, Certification]:
        """Every input's certificate, by its place."""
        return {one.index: one for one in self.classifier(chooser, sigma, most).certify_each(self.inputs())}

    def label_radii(self, found: Mapping[int, Certification | MemoryAnswer]) -> Radii:
        """Of each input: its radius where the label is certified, else 0."""
        return np.array(
            [
                found[index].radius * (found[index].predicted == label)
                for index, label in zip(self.chosen, self.labels)
            ]
        )

    def inputs(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Numbered by their places."""
        return ((index, self.dataset.input(index)) for index in self.chosen)


def fixed(trial: Trial) -> tuple[list[Row], list[dict[int, Certification]]]:
    """CERTIFY at each level. Some inputs at all levels first, then others: what is taped can be used early."""
    for start in range(0, len(trial.chosen), _TOGETHER):
        part = replace(trial, chosen=trial.chosen[start : start + _TOGETHER])
        for level in range(len(trial.sigmas)):
            _level_tapes(part, level)
    rows, certified = [], []
    for level, sigma in enumerate(trial.sigmas):
        found = trial.certified(ConstantChooser(level))
        rows.append(Row(f"σ = {sigma:g}", trial.label_radii(found), trial.fixed_votes, ONE))
        certified.append(found)
        print(f"{rows[-1].name}: ACR {rows[-1].acr:.4f}", flush=True)
    return rows, certified


def ceiling(levels: Sequence[Row]) -> Row:
    """The best level of each input, known from its certificates."""
    radii = np.max([row.radii for row in levels], axis=0)
    return Row("best level of each input", radii, sum(row.votes for row in levels), NOBODY)


def frozen(trial: Trial, levels: Sequence[dict[int, Certification]]) -> list[Row]:
    """The level whose selection votes show the longest radius for their own class, CERTIFY there; and with a memory."""
    shown = []
    for level in range(len(trial.sigmas)):
        plan, tapes = _level_tapes(trial, level)
        counts = np.stack([tapes[index].selection for index in trial.chosen])
        shown.append(label_radii(counts, counts.argmax(axis=1), plan.noise))
    best = np.argmax(shown, axis=0)
    found = {index: levels[level][index] for index, level in zip(trial.chosen, best)}
    votes = trial.votes["n"] + len(trial.sigmas) * trial.votes["n0"]
    notes = {"homes": _shares(best, len(levels))}
    remembered, sources = _remembered(trial, found)
    return [
        Row("σ frozen at each input (DS)", trial.label_radii(found), votes, FROZEN, notes),
        Row("the same with a memory", trial.label_radii(remembered), votes, STATEFUL, {"answers": sources}),
    ]


def _remembered(
    trial: Trial, certified: dict[int, Certification]
) -> tuple[dict[int, MemoryAnswer], dict[str, int]]:
    """What a memory answers, asked about the inputs in their order, and where its answers come from."""
    statement = MemoryStatement("taped", trial.dataset.input_shape, "gaussian", "l2")
    answers = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        RegionMemory.open(Path(folder) / "memory.sqlite", statement) as memory,
    ):
        for index, x in trial.inputs():
            answers[index] = memory.offer(x, certified[index])
    return answers, dict(Counter(answer.source for answer in answers.values()))


def _level_tapes(trial: Trial, level: int) -> Any:
    classifier = trial.classifier(ConstantChooser(level))
    stages = classifier._stages_for(trial.dataset.input_shape)
    plan = home_plan(stages.plan, level)
    points = {index: stages.plan.point(x) for index, x in trial.inputs()}
    prepared = stages.prepared[level if len(stages.prepared) > 1 else 0]
    return plan, trial.shelf.cast(plan, prepared, points, stages)


def majority(trial: Trial, chooser: Any, sigma: float | None, most: int | None) -> Row:
    """The chooser's likeliest level, certified as a class is; the smaller of its radius and the level's."""
    classifier = trial.classifier(chooser, sigma, most)
    stages = classifier._stages_for(trial.dataset.input_shape)
    assert stages.chooser is not None
    own = chooser_plan(stages.plan)
    points = {index: stages.plan.point(x) for index, x in trial.inputs()}
    tapes = trial.shelf.cast(own, stages.chooser, points, stages)
    at_level = {level: _level_tapes(trial, level)[1] for level in range(len(trial.sigmas))}
    radii, homes = [], []
    for index, label in zip(trial.chosen, trial.labels):
        home = tapes[index].tally(Phase.SELECTION, 0, own.n0).top()
        bounds = stages.plan.confidence_bound(tapes[index].tally(Phase.ESTIMATION, 0, own.n), home, own.alpha)
        reach = own.certificate.radius(bounds.paying(own.sampler_error))
        plan, tape = home_plan(stages.plan, home), at_level[home][index]
        there = decide(
            points[index],
            plan,
            tape.tally(Phase.SELECTION, 0, plan.n0),
            tape.tally(Phase.ESTIMATION, 0, plan.n),
        )
        radii.append(min(reach, there.radius) if there.predicted == label else 0.0)
        homes.append(home)
    votes = trial.fixed_votes + own.n0 + own.n
    return Row(
        "majority (dual smoothing)", np.array(radii), votes, ONE, {"homes": _shares(homes, len(trial.sigmas))}
    )


def median(
    trial: Trial,
    chooser: Any,
    sigma: float | None,
    most: int | None,
    levels: Sequence[dict[int, Certification]],
) -> list[Row]:
    """The library's classifier; before it what the chooser knows, its levels' radii if the median stayed everywhere."""
    found = trial.certified(chooser, sigma, most)
    evidence = {index: one.levels for index, one in found.items() if one.levels is not None}
    at_home = {index: levels[one.home][index] for index, one in evidence.items()}
    votes = float(np.mean([one.n for one in evidence.values()]))
    notes = {
        "homes": _shares([one.home for one in evidence.values()], len(trial.sigmas)),
        "limits": dict(Counter(one.limit for one in evidence.values())),
        "levels looked at": float(np.mean([len(one.votes) for one in evidence.values()])),
        "chooser's votes": float(np.mean([one.chooser.n if one.chooser else 0 for one in evidence.values()])),
    }
    return [
        Row("the median's levels alone", trial.label_radii(at_home), votes, NOBODY),
        Row("median", trial.label_radii(found), votes, ONE, notes),
    ]


class Confidence(nn.Module):
    """A chooser between two levels: the larger one where a network gives its likeliest class more than ``least``."""

    def __init__(self, network: nn.Module, least: float) -> None:
        super().__init__()
        self.network, self.least = network, least

    def forward(self, x: Tensor) -> Tensor:
        """A score for each level."""
        likeliest = self.network(x).float().softmax(-1).amax(-1)
        return torch.stack([torch.full_like(likeliest, self.least), likeliest], -1)


def _chooser(name: str, model: str) -> tuple[Any, float | None]:
    """The chooser of a name, and the σ of its noise where it states one; ``model`` is the largest level's."""
    kind, _, least = name.partition(":")
    if kind == "confidence":
        return Confidence(load_model(model)[0], float(least)).eval(), None
    fitted = read_chooser_statement(Path(name))
    return load_chooser(name), None if fitted is None else fitted[1]


def _shares(homes: Any, levels: int) -> list[float]:
    return [float(share) for share in np.bincount(np.asarray(homes), minlength=levels) / len(homes)]


def table(rows: Sequence[Row], best: Row, room: float, fixed_votes: int, radii: Sequence[float]) -> str:
    """ACR, its gain over the best fixed σ in pairs with a standard error, accuracies, and votes."""
    cells = []
    for row in rows:
        gains = row.radii - best.radii
        error = float(gains.std(ddof=1)) / len(gains) ** 0.5
        of_room = f"{float(gains.mean()) / room:.0%}" if room > 0 else ""
        cells.append(
            [
                row.name,
                f"{row.acr:.4f}",
                "" if row is best else f"{float(gains.mean()):+.4f} ± {error:.4f}",
                "" if row is best else of_room,
                *(f"{100 * row.accuracy(radius):.1f}" for radius in radii),
                f"{row.votes / fixed_votes:.2f}",
                row.promise,
            ]
        )
    header = ["σ", "ACR", "gain", "of the room", *(f"{radius:g}" for radius in radii), "votes", "promise"]
    return markdown_table(header, cells, text_columns={0, len(header) - 1})


def main() -> None:
    """Certify, tabulate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", help="one for all levels, or one for each, smallest σ first")
    parser.add_argument("--sigma-levels", type=float, nargs="+", help="default: the first chooser's")
    parser.add_argument(
        "--chooser",
        nargs="+",
        default=[],
        help="made by fit-levels, confidence:0.4 (of the last model), spread:0.3,0.4, …",
    )
    parser.add_argument("--chooser-sigma", type=float)
    parser.add_argument("--chooser-n", type=int)
    parser.add_argument("--dataset")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--n0", type=int, default=100)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--alpha", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip", type=int, default=20)
    parser.add_argument("--max", type=int)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--radii", type=float, nargs="+", default=[0, 0.25, 0.5, 0.75, 1, 1.5, 2])
    parser.add_argument("--dtype", default="auto", choices=DTYPES, help="of the models' passes")
    parser.add_argument("--tapes", type=Path, help="folder that keeps votes for other choosers")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    named = [load_named_model(model, ModelOptions(), "hard") for model in options.models]
    dataset = datasets.load(named[-1].dataset_or(options.dataset), "test", options.data_dir)
    stated = read_chooser_statement(Path(options.chooser[0])) if options.chooser else None
    sigmas = options.sigma_levels or (list(stated[0]) if stated is not None else None)
    if sigmas is None:
        parser.error("--sigma-levels is missing")
    trial = Trial(
        [one.classifier for one in named],
        sigmas,
        dataset,
        Choice(options.skip, options.max).indices(len(dataset)),
        Shelf(options.tapes),
        {
            "n0": options.n0,
            "n": options.n,
            "alpha": options.alpha,
            "seed": options.seed,
            "numerics": Numerics(dtype=options.dtype),
        },
        Execution(workers=options.workers),
    )
    levels, certified = fixed(trial)
    best, most = max(levels, key=lambda row: row.acr), ceiling(levels)
    rows = [*levels, most, *frozen(trial, certified)]
    for name in options.chooser:
        chooser, stated_sigma = _chooser(name, options.models[-1])
        asked = (trial, chooser, options.chooser_sigma or stated_sigma, options.chooser_n)
        several = f", {Path(name).name}" if len(options.chooser) > 1 else ""
        for row in (majority(*asked), *median(*asked, certified)):
            rows.append(replace(row, name=f"{row.name}{several}"))
            print(f"{rows[-1].name}: ACR {row.acr:.4f}, {row.votes:.0f} votes, {row.notes}", flush=True)
    text = table(rows, best, most.acr - best.acr, trial.fixed_votes, options.radii)
    print(f"\n{len(trial.chosen)} inputs, n = {options.n}, α = {options.alpha:g}\n\n{text}")
    if options.json is not None:
        stated_options = {name: str(value) for name, value in vars(options).items()}
        found = [vars(row) | {"radii": row.radii.tolist(), "acr": row.acr} for row in rows]
        options.json.write_text(json.dumps({"options": stated_options, "rows": found}), encoding="utf-8")


if __name__ == "__main__":
    main()
