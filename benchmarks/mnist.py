"""MNIST held against the papers: SmoothMix's Table 5 (ACR) re-made from kept logs, and recomputed from its authors'.

``python -m benchmarks.mnist`` prints the tables of docs/results/mnist.md. ``keep RUN`` adds a certified run to them:
its log, and beside it what was trained and how it was certified. Runs that were certified otherwise than published
(another bound, a σ for each input, a memory) make a table of their own, and with ``--training DIR``, a training run
made with ``--acr-every``, so does the ACR over its epochs. ``control LOG --sigma S`` keeps what the tables need of a
published log of the whole test set, because a subset can be harder than the whole: its ACR and its radii on every
twentieth input.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.timing import ROOT, command_line, narrow_table
from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.runs.field_log import read_field_log, write_field_log
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.side_files import EpochMetrics, read_epochs
from smoothcert.runs.statement import ModelStatement, OriginStatement, PlanStatement
from smoothcert.training.recipe import find_recipe

KEPT = ROOT / "docs" / "results" / "mnist"
PRINTED = Path(__file__).with_name("smoothmix.tsv")
"""Tables 5 to 9 as printed, and the logs that their rows were made of."""

EVERY = 20
"""The inputs of a control: those of any run with ``--skip 20`` or a multiple of it."""
_HEADS = ("σ", "recipe", "epochs", "trained in", "inputs", "ACR on them", "adjusted ± s. e.")

PUBLISHED = (
    "gaussian",
    "stability",
    "consistency",
    "macer",
    "smoothadv",
    "smoothmix-eta1",
    "smoothmix",
    "smoothmix-eta1-onestep",
    "smoothmix-onestep",
)
"""The table's rows by the names of the recipes here, which state the published figures: means of five seeds."""


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


app = command_line("mnist", __doc__)


@app.default
def tables(*, kept: Path = KEPT) -> None:
    """Print the tables of the logs in a directory."""
    print("\n\n".join(made for part in TABLES if (made := part(kept))))


@app.command
def keep(run: Path, *, training: Path | None = None, kept: Path = KEPT) -> None:
    """Add a certified run; one that is not finished or of another recipe than published is rejected.

    Parameters
    ----------
    training:
        Its model's training run, for the ACR over epochs.
    kept:
        Directory of the logs.
    """
    print(keep_run(read_run(run), kept, () if training is None else read_epochs(training)))


@app.command
def control(log: Path, *, sigma: float, kept: Path = KEPT) -> None:
    """Add what the tables need of a published log of the whole test set."""
    records = read_field_log(log, sigma).records
    path = kept / f"control-{sigma}.tsv.gz"
    stated = {"log": log.name, "inputs": len(records), "acr": average_certified_radius(records)}
    print(_write_kept(path, stated, [record for record in records if record.index % EVERY == 0]))


@app.command
def logs(folder: Path) -> None:
    """Recompute SmoothMix's Tables 5 to 9 from its authors' logs, and say which printed numbers differ.

    Parameters
    ----------
    folder:
        ``data/certify`` of a checkout of github.com/jh-jeong/smoothmix.
    """
    rows = list(csv.DictReader(PRINTED.read_text(encoding="utf-8").splitlines(), delimiter="\t"))
    for number, table in itertools.groupby(rows, lambda row: row["table"]):
        cells = [_recomputed(row, folder) for row in table]
        same = sum(cell[-1] == "none" for cell in cells)
        print(f"Table {number}: {same} of {len(cells)} rows are as printed\n")
        heads = ["row", "σ", "logs", "ACR of the logs", "printed", "numbers that differ"]
        print(narrow_table(heads, cells, text_columns={0, 5}) + "\n")


def _recomputed(row: dict[str, str], folder: Path) -> list[str]:
    found = sorted(folder.glob(row["logs"]))
    if not found:
        raise SystemExit(f"no logs {folder / row['logs']}: give data/certify of a checkout")
    runs = [read_field_log(path, float(row["sigma"])).records for path in found]
    acrs = [average_certified_radius(records) for records in runs]
    mean, several = statistics.fmean(acrs), len(acrs) > 1
    stated = [row["acr"], *([row["sd"]] if several else []), *row["accuracies"].split()]
    ours = [f"{mean:.{4 if several else 3}f}"]
    ours += [f"{statistics.stdev(acrs):.4f}"] if several else []
    accuracies = [statistics.fmean(r.correct and r.radius >= k / 4 for r in runs[0]) for k in range(11)]
    ours += [f"{100 * accuracy:.1f}" for accuracy in accuracies[: len(row["accuracies"].split())]]
    names = ["ACR", *(["sd"] if several else []), *(f"at {k / 4:g}" for k in range(11))]
    differ = [f"{name}: {a} for {b}" for name, a, b in zip(names, ours, stated) if a != b]
    told = " ± ".join(ours[: 1 + several]), " ± ".join(stated[: 1 + several]) or "not in the text at hand"
    verdict = ("; ".join(differ) or "none") if row["acr"] else ""
    return [row["row"], f"{float(row['sigma']):g}", str(len(runs)), *told, verdict]


def keep_run(run: Run, directory: Path, epochs: Sequence[EpochMetrics] = ()) -> Path:
    """Write a run's log and statement."""
    if not run.complete:
        raise SystemExit(f"{run.path}: not finished; rerun the `smoothcert certify` that made it")
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
    return _write_kept(directory / f"{name}.tsv.gz", asdict(kept), list(run.records))


@dataclass(frozen=True)
class Adjusted:
    """An estimate of the ACR on the whole test set, and its standard error."""

    acr: float
    error: float


def adjust(records: Sequence[Record], control: Sequence[Record], whole_acr: float) -> Adjusted:
    """From a run's records on some inputs, a control's on at least those, and the control's ACR on all.

    The mean paired difference on the run's inputs is added to the control's ACR: a regression estimate with slope 1,
    whose standard error is that of the paired differences.
    """
    of_control = {record.index: record for record in control}
    differences = [_counted(record) - _counted(of_control[record.index]) for record in records]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return Adjusted(whole_acr + statistics.fmean(differences), error)


def _counted(record: Record) -> float:
    return record.radius if record.correct else 0.0


def published(method: str, sigma: float) -> float:
    """The papers' ACR."""
    acr = find_recipe(f"mnist-{method}-{sigma}").published_acr
    assert acr is not None
    return acr


def table(directory: Path) -> str:
    """Every log kept that was certified as published, beside the published figure."""
    rows = [
        _row(kept, records, _adjusted(records, kept.sigma, directory), published(kept.method, kept.sigma))
        for kept, records in _logs(directory)
        if kept.as_published
    ]
    return narrow_table([*_HEADS, "published", "difference"], rows, text_columns={1, 3})


def beyond(directory: Path) -> str:
    """Every log kept that was certified otherwise, beside the best published figure of its σ; empty without any."""
    rows = []
    for kept, records in _logs(directory):
        if not kept.as_published:
            best = max(published(method, kept.sigma) for method in PUBLISHED)
            rows.append([kept.way, *_row(kept, records, _adjusted(records, kept.sigma, directory), best)])
    heads = ["certified by", *_HEADS, "best published", "difference"]
    return narrow_table(heads, rows, text_columns={0, 2, 4}) if rows else ""


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
    return narrow_table(["σ", "after epoch", *map(str, epochs)], rows, text_columns={1}) if rows else ""


TABLES = (table, beyond, curves)


def _logs(directory: Path) -> Iterator[tuple[Kept, list[Record]]]:
    for path in sorted(directory.glob("*.tsv.gz"), key=_order):
        if not path.name.startswith("control-"):
            kept = _stated_of(path)
            yield kept, read_field_log(path, kept.sigma).records


def _row(kept: Kept, records: list[Record], adjusted: Adjusted, paper: float) -> list[str]:
    return [
        f"{kept.sigma:g}",
        kept.method,
        f"{kept.epochs} of {find_recipe(kept.recipe).plan.epochs}",
        kept.precision,
        str(len(records)),
        f"{average_certified_radius(records):.4f}",
        f"{adjusted.acr:.4f} ± {adjusted.error:.4f}",
        f"{paper:.4f}",
        f"{adjusted.acr - paper:+.4f}",
    ]


def _adjusted(records: list[Record], sigma: float, directory: Path) -> Adjusted:
    control = directory / f"control-{sigma}.tsv.gz"
    whole_acr = json.loads(_beside(control).read_text(encoding="utf-8"))["acr"]
    return adjust(records, read_field_log(control, sigma).records, whole_acr)


def _recipe_of(trained: dict[str, Any], method: str, sigma: float) -> str:
    names = [name for name in PUBLISHED if name.split("-")[0] == method]
    for name in names:
        plan = find_recipe(f"mnist-{name}-{sigma}").plan
        wanted = {f"objective.{knob}": value for knob, value in asdict(plan.objective).items()}
        if all(trained[knob] == value for knob, value in wanted.items() if knob in trained):
            return f"mnist-{name}-{sigma}"
    raise SystemExit(f"no published recipe trains {method} at σ = {sigma} with these knobs: {trained}")


def _stated_of(log: Path) -> Kept:
    return Kept(**json.loads(_beside(log).read_text(encoding="utf-8")))


def _write_kept(log: Path, stated: dict[str, Any], records: list[Record]) -> Path:
    text = io.StringIO()
    write_field_log(records, text, digits=6)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    _beside(log).write_text(json.dumps(stated, indent=2) + "\n", encoding="utf-8")
    return log


def _beside(log: Path) -> Path:
    return log.with_name(log.name.removesuffix(".tsv.gz") + ".json")


def _order(path: Path) -> tuple[float, int, int, str]:
    stated = json.loads(_beside(path).read_text(encoding="utf-8"))
    if "recipe" not in stated:
        return (0.0, 0, 0, path.name)
    kept = Kept(**stated)
    return (kept.sigma, PUBLISHED.index(kept.method), kept.epochs, kept.way)


if __name__ == "__main__":
    app()
