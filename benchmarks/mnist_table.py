"""``python -m benchmarks.mnist_table``: SmoothMix's Table 5 (MNIST, ACR) re-made, from the logs kept in the repository.

``keep RUN`` adds a certified run to them: its log, and beside it what was trained and how it was certified. Runs that
were certified otherwise than published (another bound, a σ for each input, a memory) make a table of their own, and
with ``--training DIR``, a training run made with ``--acr-every``, so does the ACR over its epochs.
``remember LOG`` passes a log kept with a σ for each input through a region memory, and keeps what that answers.
``control LOG --sigma S`` keeps what the table needs of a published log of the whole test set: its ACR and its radii on
every twentieth input. A subset can be harder than the whole, and the published log says by how much: see
``benchmarks.adjusted_acr``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.adjusted_acr import Adjusted, adjust
from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.analysis.tables import markdown_table
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.region_memory import MemoryStatement, RegionMemory
from smoothcert.regions import L2Ball
from smoothcert.runs import Record, Run, read_run
from smoothcert.runs.epochs import EpochMetrics, read_epochs
from smoothcert.runs.field_log import read_field_log, write_field_log
from smoothcert.runs.statement import ModelStatement, OriginStatement, PlanStatement
from smoothcert.training import find_recipe

KEPT = Path(__file__).parents[1] / "docs" / "results" / "mnist"
EVERY = 20
"""The inputs of a control: those of any run with ``--skip 20`` or a multiple of it."""
DIGITS = 6
_HEADS = ("σ", "recipe", "epochs", "trained in", "inputs", "ACR on them", "adjusted ± s. e.")

PUBLISHED = {
    0.25: {
        "gaussian": 0.9108,
        "stability": 0.9152,
        "consistency": 0.9279,
        "macer": 0.9201,
        "smoothadv": 0.9322,
        "smoothmix-eta1": 0.9296,
        "smoothmix": 0.9317,
        "smoothmix-eta1-onestep": 0.9330,
        "smoothmix-onestep": 0.9332,
    },
    0.5: {
        "gaussian": 1.5581,
        "stability": 1.5719,
        "consistency": 1.6549,
        "macer": 1.5899,
        "smoothadv": 1.6872,
        "smoothmix-eta1": 1.6776,
        "smoothmix": 1.6932,
        "smoothmix-eta1-onestep": 1.6932,
        "smoothmix-onestep": 1.6851,
    },
    1.0: {
        "gaussian": 1.6184,
        "stability": 1.6341,
        "consistency": 1.7376,
        "macer": 1.5950,
        "smoothadv": 1.7786,
        "smoothmix-eta1": 1.7867,
        "smoothmix": 1.8185,
        "smoothmix-eta1-onestep": 1.8169,
        "smoothmix-onestep": 1.8212,
    },
}
"""Means of five seeds, by σ and by the name of the recipe here."""


@dataclass(frozen=True)
class Kept:
    """What is stated beside a log."""

    recipe: str
    epochs: int
    seed: int
    hours: float
    precision: str
    sigma: float
    bound: str
    n0: int
    n: int
    alpha: float
    route: str
    dtype: str
    model_sha256: str
    sigma_search: str | None = None
    memory: bool = False
    curve: tuple[tuple[int, float], ...] = ()
    """The ACR during training, (epoch, ACR), of few inputs and votes."""

    @property
    def as_published(self) -> bool:
        """Whether it was certified as the published runs were."""
        return self.bound == "clopper-pearson" and self.sigma_search is None and not self.memory

    @property
    def way(self) -> str:
        """How it was certified otherwise."""
        search = [] if self.sigma_search is None else [self.sigma_search.partition(":")[0]]
        return "-".join([self.bound, *search, *(["memory"] if self.memory else [])])

    @property
    def method(self) -> str:
        """The recipe's name without data set and σ."""
        return self.recipe.removeprefix("mnist-").rsplit("-", 1)[0]


@dataclass(frozen=True, eq=False)
class _Certificate:
    predicted: int
    region: L2Ball | None


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or add to what it is made of."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mnist_table", description=__doc__)
    parser.add_argument("--kept", type=Path, default=KEPT, help="directory of the logs")
    commands = parser.add_subparsers(dest="command")
    keep_parser = commands.add_parser("keep", help="add a certified run")
    keep_parser.add_argument("run", type=Path)
    keep_parser.add_argument(
        "--training", type=Path, help="its model's training run, for the ACR over epochs"
    )
    remember_parser = commands.add_parser("remember", help="pass a kept log through a region memory")
    remember_parser.add_argument("log", type=Path)
    control_parser = commands.add_parser("control", help="add a published log of the whole test set")
    control_parser.add_argument("log", type=Path)
    control_parser.add_argument("--sigma", type=float, required=True)
    options = parser.parse_args(arguments)
    options.kept.mkdir(parents=True, exist_ok=True)
    if options.command == "keep":
        curve = () if options.training is None else read_epochs(options.training)
        print(keep(read_run(options.run), options.kept, curve))
    elif options.command == "remember":
        print(remember(options.log, load("mnist", "test"), options.kept))
    elif options.command == "control":
        print(keep_control(options.log, options.sigma, options.kept))
    else:
        print("\n\n".join(made for part in TABLES if (made := part(options.kept))))


def keep(run: Run, directory: Path, epochs: Sequence[EpochMetrics] = ()) -> Path:
    """Write a run's log and statement; refuses one that isn't finished or of another recipe than published."""
    if not run.complete:
        raise SystemExit(f"{run.path}: not finished, give `smoothcert certify` again")
    plan, model, origin = run.manifest.plan, run.manifest.model, run.manifest.origin
    trained: dict[str, Any] = origin.trained or {}
    sigma = plan.known(PlanStatement.sigma)
    recipe = _recipe_of(trained, origin.known(OriginStatement.method), sigma)
    kept = Kept(
        recipe=recipe,
        epochs=int(trained["epochs"]),
        seed=trained["seed"],
        hours=round(trained["seconds"] / 3600, 2),
        precision=trained.get("precision", "float32"),
        sigma=sigma,
        bound=plan.known(PlanStatement.bound),
        n0=plan.known(PlanStatement.n0),
        n=plan.known(PlanStatement.n),
        alpha=plan.known(PlanStatement.alpha),
        route=plan.known(PlanStatement.route),
        dtype=plan.known(PlanStatement.dtype),
        model_sha256=model.known(ModelStatement.sha256),
        sigma_search=plan.sigma_search,
        memory=plan.memory is not None,
        curve=tuple((one.epoch, round(one.acr, 4)) for one in epochs if one.acr is not None),
    )
    full = find_recipe(recipe).plan
    name = recipe.removeprefix("mnist-") + ("" if kept.epochs == full.epochs else f"-{kept.epochs}-epochs")
    name += "" if kept.precision == full.precision else f"-{kept.precision}"
    name += "" if kept.as_published else f"-{kept.way}"
    return _write_kept(directory / f"{name}.tsv.gz", kept, list(run.records))


def remember(log: Path, dataset: Dataset, directory: Path) -> Path:
    """Ask a new region memory about a kept log's inputs, in their order, its certificates at hand."""
    kept = _stated_of(log)
    about = MemoryStatement(kept.model_sha256, dataset.input_shape, "gaussian", "l2")
    answered = []
    with TemporaryDirectory() as folder, RegionMemory.open(Path(folder) / "memory", about) as memory:
        for record in read_field_log(log, kept.sigma).records:
            x = dataset.input(record.index).astype(np.float64)
            answer = memory.offer(x, _Certificate(record.predicted, _ball(x, record)))
            answered.append(replace(record, predicted=answer.predicted, radius=answer.radius))
    path = directory / log.name.replace(".tsv.gz", "-memory.tsv.gz")
    return _write_kept(path, replace(kept, memory=True), answered)


def keep_control(log: Path, sigma: float, directory: Path) -> Path:
    """Write what the table needs of a published log."""
    records = read_field_log(log, sigma).records
    path = directory / f"control-{sigma}.tsv.gz"
    _write_log(path, [record for record in records if record.index % EVERY == 0])
    stated = {"log": log.name, "inputs": len(records), "acr": average_certified_radius(records)}
    path.with_name(f"control-{sigma}.json").write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")
    return path


def table(directory: Path) -> str:
    """Every log kept that was certified as published, beside the published figure."""
    rows = [
        _row(kept, records, _adjusted(records, kept.sigma, directory), PUBLISHED[kept.sigma][kept.method])
        for kept, records in _logs(directory)
        if kept.as_published
    ]
    return markdown_table([*_HEADS, "published", "difference"], rows, text_columns={1, 3})


def beyond(directory: Path) -> str:
    """Every log kept that was certified otherwise, beside the best published figure of its σ; empty without any."""
    rows = []
    for kept, records in _logs(directory):
        if not kept.as_published:
            best = max(PUBLISHED[kept.sigma].values())
            rows.append([kept.way, *_row(kept, records, _adjusted(records, kept.sigma, directory), best)])
    heads = ["certified by", *_HEADS, "best published", "difference"]
    return markdown_table(heads, rows, text_columns={0, 2, 4}) if rows else ""


def curves(directory: Path) -> str:
    """The ACR over the epochs of every training that has one; empty without any."""
    kept = [each for each, _ in _logs(directory) if each.curve]
    epochs = sorted({epoch for each in kept for epoch, _ in each.curve})
    rows = [
        [
            f"{each.sigma:g}",
            each.method,
            *(f"{dict(each.curve)[k]:.3f}" if k in dict(each.curve) else "" for k in epochs),
        ]
        for each in kept
    ]
    return markdown_table(["σ", "after epoch", *map(str, epochs)], rows, text_columns={1}) if rows else ""


TABLES = (table, beyond, curves)


def _logs(directory: Path) -> Iterator[tuple[Kept, list[Record]]]:
    for path in sorted(directory.glob("*.tsv.gz"), key=_order):
        if not path.name.startswith("control-"):
            kept = _stated_of(path)
            yield kept, read_field_log(path, kept.sigma).records


def _row(kept: Kept, records: list[Record], adjusted: Adjusted, published: float) -> list[str]:
    return [
        f"{kept.sigma:g}",
        kept.method,
        f"{kept.epochs} of {find_recipe(kept.recipe).plan.epochs}",
        kept.precision,
        str(len(records)),
        f"{average_certified_radius(records):.4f}",
        f"{adjusted.acr:.4f} ± {adjusted.error:.4f}",
        f"{published:.4f}",
        f"{adjusted.acr - published:+.4f}",
    ]


def _adjusted(records: list[Record], sigma: float, directory: Path) -> Adjusted:
    control = directory / f"control-{sigma}.tsv.gz"
    whole_acr = json.loads(_beside(control).read_text(encoding="utf-8"))["acr"]
    return adjust(records, read_field_log(control, sigma).records, whole_acr)


def _ball(x: NDArray[np.float64], record: Record) -> L2Ball | None:
    return None if record.abstained or record.radius <= 0 else L2Ball(x, record.radius)


def _recipe_of(trained: dict[str, Any], method: str, sigma: float) -> str:
    names = [name for name in PUBLISHED[sigma] if name.split("-")[0] == method]
    for name in names:
        plan = find_recipe(f"mnist-{name}-{sigma}").plan
        wanted = {f"objective.{knob}": value for knob, value in asdict(plan.objective).items()}
        if all(trained[knob] == value for knob, value in wanted.items() if knob in trained):
            return f"mnist-{name}-{sigma}"
    raise SystemExit(f"no published recipe trains {method} at σ = {sigma} with these knobs: {trained}")


def _stated_of(log: Path) -> Kept:
    return Kept(**json.loads(_beside(log).read_text(encoding="utf-8")))


def _write_kept(log: Path, kept: Kept, records: list[Record]) -> Path:
    _write_log(log, records)
    _beside(log).write_text(json.dumps(asdict(kept), indent=2) + "\n", encoding="utf-8")
    return log


def _write_log(path: Path, records: list[Record]) -> None:
    text = io.StringIO()
    write_field_log(records, text, digits=DIGITS)
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _beside(log: Path) -> Path:
    return log.with_name(log.name.removesuffix(".tsv.gz") + ".json")


def _order(path: Path) -> tuple[float, int, int, str]:
    stated = json.loads(_beside(path).read_text(encoding="utf-8"))
    if "recipe" not in stated:
        return (0.0, 0, 0, path.name)
    kept = Kept(**stated)
    return (kept.sigma, list(PUBLISHED[kept.sigma]).index(kept.method), kept.epochs, kept.way)


if __name__ == "__main__":
    main()
