"""The functions of the top level: what researchers do with votes, answers, runs and models, in one call each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.analysis import comparison, metrics
from smoothcert.analysis.layouts import render_table
from smoothcert.analysis.plots.curves import plot_certified_accuracy
from smoothcert.analysis.tables import default_radii, parse_radii
from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import InvalidValueError, ModelError, RunError, check_count, check_probability
from smoothcert.perturb.base import DEFAULT_NOISE, NOISES
from smoothcert.runs import records
from smoothcert.runs.publishing import local_run
from smoothcert.runs.run import Run, read_run, unique_names
from smoothcert.tally import Phase, Stream, Tally

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    from smoothcert.architectures.checkpoints import Normalisation
    from smoothcert.datasets.base import Dataset
    from smoothcert.empirical.results import AttackPlan, AttackReport
    from smoothcert.engine.execution import Execution
    from smoothcert.objectives.base import Objective
    from smoothcert.objectives.ramps import Ramp
    from smoothcert.smoothing.answers import Certifications
    from smoothcert.smoothing.fits.fit import Fit
    from smoothcert.smoothing.fits.plan import FitPlan
    from smoothcert_verify import Report

RunOrPath = Run | str | Path


def radius(
    counts: ArrayLike,
    sigma: float,
    alpha: float = 0.001,
    bound: str = "top-two",
    *,
    predicted: ArrayLike | None = None,
    noise: str = DEFAULT_NOISE,
) -> Any:
    """The certified radius that votes give, rounded down; 0 where they certify nothing.

    ``counts`` has the votes for each class, for one input or a row for each of many. ``predicted`` is the class that
    other votes chose (a number, or one for each row). Without it the class with the most of these votes is certified,
    and α is divided by the number of classes to pay for that choice. The votes must be on exact Gaussian (or uniform)
    noise and their number fixed in advance.
    """
    alpha = check_probability("alpha", alpha)
    rows, rule, law = np.atleast_2d(np.asarray(counts)), BOUNDS[bound], NOISES[noise](sigma)
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or rows.shape[1] < 2 or (rows < 0).any():
        raise InvalidValueError(f"counts must be whole numbers for two classes or more, got {counts!r}")
    if rule.votes != "hard":
        raise InvalidValueError(f"the {bound} bound is of soft votes, and counts are of hard ones")
    if predicted is not None and np.size(predicted) not in (1, len(rows)):
        raise InvalidValueError(f"predicted must be one class, or {len(rows)}, got {np.size(predicted)}")
    chosen = rows.argmax(1) if predicted is None else np.broadcast_to(predicted, len(rows))
    level = alpha / rows.shape[1] if predicted is None else alpha

    def radius_of(votes: list[int], of: int) -> float:
        if not any(votes):
            return 0.0
        tally = Tally(Stream(0, 0, Phase.ESTIMATION), 0, sum(votes), tuple(votes))
        return law.certificate.radius(rule(tally, of, level))

    found = [radius_of(votes, int(of)) for votes, of in zip(rows.tolist(), chosen.tolist())]
    return found[0] if np.ndim(counts) == 1 else np.array(found)


def certified_accuracy(
    results: Certifications | RunOrPath, radii: float | Sequence[float] = 0.0, labels: ArrayLike | None = None
) -> Any:
    """The share of inputs that are right and certified at radius ≥ r, for each of ``radii``.

    ``results`` is a run, its path, or what ``certify`` returned, with ``labels`` then. A wrong answer and an abstention
    both count against it.
    """
    if isinstance(results, Run | str | Path):
        shares = metrics.certified_accuracy(_run(results, labels).records, np.atleast_1d(radii).tolist())
        return float(shares[0]) if np.ndim(radii) == 0 else shares
    return results.accuracy(_labels(labels), radii)


def average_certified_radius(results: Certifications | RunOrPath, labels: ArrayLike | None = None) -> float:
    """The mean certified radius, where wrong answers and abstentions count as 0; see :func:`certified_accuracy`."""
    if isinstance(results, Run | str | Path):
        return records.average_certified_radius(_run(results, labels).records)
    return results.acr(_labels(labels))


def compare(
    first: RunOrPath,
    second: RunOrPath,
    radii: Sequence[float] | None = None,
    *,
    confidence: float = 0.95,
    common: bool = False,
) -> comparison.Comparison:
    """Whether one of two runs on the same inputs certifies more, with intervals and tests; ``str`` gives sentences.

    ``radii`` are best fixed before the runs; by default those that tables show. ``common`` restricts runs to the inputs
    they share.
    """
    one, other = _all([first, second])
    asked = [float(text) for text in default_radii([one, other])] if radii is None else radii
    return comparison.compare(one, other, asked, confidence=confidence, common=common)


def attack(
    run: RunOrPath,
    model: Any,
    dataset: Dataset,
    radii: Sequence[float],
    plan: AttackPlan | None = None,
    *,
    execution: Execution | None = None,
    batch: int = 16,
) -> AttackReport:
    """Attack every input of a run at ascending ℓ2 ``radii``, with the model and data it was made with.

    The report has the accuracy that is left (an upper bound of what an attack can't take), and contradictions of
    certificates, of which there should be none.
    """
    from smoothcert.empirical.attacker import attack_run

    return attack_run(load_run(run), model, dataset, radii, plan, execution=execution, batch=batch)


def train(
    model: nn.Module,
    loader: Iterable[tuple[Tensor, Tensor]],
    *,
    sigma: float,
    method: str | Objective = "gaussian",
    epochs: int = 10,
    optimizer: Optimizer | None = None,
    scheduler: LRScheduler | None = None,
    noise: str = DEFAULT_NOISE,
    ramps: str | Ramp | Sequence[str | Ramp] = (),
    seed: int | None = None,
    after_epoch: Callable[[int, float], None] | None = None,
    **options: Any,
) -> list[float]:
    """Train ``model`` under noise, in place, on your own loader; the mean loss of each epoch comes back.

    ``loader`` gives (inputs, labels) without noise, such as a torch ``DataLoader``. The model and its inputs meet on
    the model's device. ``optimizer`` is Adam by default; ``scheduler`` takes a step after each epoch.
    ``method``, ``ramps``, ``seed`` and further options are those of :class:`SmoothingLoss`. ``after_epoch`` gets the
    epoch, counted from 1, and its loss. A loss that is not finite ends training with an error.
    """
    import torch

    from smoothcert.objectives import SmoothingLoss
    from smoothcert.training.loop import TrainingDivergedError

    check_count("epochs", epochs)
    if scheduler is not None and optimizer is None:
        raise InvalidValueError("scheduler needs the optimizer that it was made for: give optimizer as well")
    criterion = SmoothingLoss(method, sigma=sigma, noise=noise, seed=seed, ramps=ramps, **options)
    optimizer = optimizer or torch.optim.Adam(model.parameters())
    device = next(model.parameters()).device
    losses = []
    for epoch in range(epochs):
        criterion.set_epoch(epoch)
        model.train()
        total, inputs = 0.0, 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model, x.to(device), y.to(device))
            if not bool(torch.isfinite(loss)):
                raise TrainingDivergedError(
                    f"the loss became {loss.item()} in epoch {epoch + 1}: lower the learning rate"
                )
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            total, inputs = total + loss.item() * len(y), inputs + len(y)
        if not inputs:
            raise InvalidValueError(
                "loader must give batches in every epoch, got none: pass a DataLoader or a list, not an iterator"
            )
        losses.append(total / inputs)
        if scheduler is not None:
            scheduler.step()
        if after_epoch is not None:
            after_epoch(epoch + 1, losses[-1])
    model.eval()
    return losses


def fit_noise(
    model: Any,
    dataset: Dataset,
    out: str | Path,
    plan: FitPlan | float,
    *,
    execution: Execution | None = None,
) -> Fit:
    """Find one σ for each coordinate that makes certified regions large, resuming in ``out``.

    ``plan`` may be a number: the σ to begin with. The noise found is the result's ``noise``, for
    ``CertifyPlan(fit.noise)``. Certify other inputs than those it was fitted on.
    """
    from smoothcert.models.adapt import adapt
    from smoothcert.models.torch_module import TorchClassifier
    from smoothcert.smoothing.fits.fit import fit_into
    from smoothcert.smoothing.fits.plan import FitPlan

    base = adapt(model, "hard")
    if not isinstance(plan, FitPlan):
        plan = FitPlan(init=plan, route="gradient" if isinstance(base, TorchClassifier) else "votes")
    return fit_into(Path(out), base, dataset, plan, execution=execution)


def verify_run(run: RunOrPath, digest: str | None = None, *, memory: str | Path | None = None) -> Report:
    """Recompute a run from its votes by independent arithmetic: what follows, what doesn't, what must be believed.

    ``report.exit_code`` is 0 if everything follows, 4 if something does not, 5 if something could not be recomputed.
    ``digest`` is the SHA-256 that the results should have.
    """
    import smoothcert_verify

    path = run.path if isinstance(run, Run) else local_run(str(run))
    try:
        return smoothcert_verify.verify_run(
            path, digest, memory=None if memory is None else Path(memory)
        ).report
    except smoothcert_verify.RunError as error:
        raise RunError(str(error)) from None


def recertify(
    run: RunOrPath, out: str | Path, *, alpha: float | None = None, bound: str | None = None
) -> Run:
    """Write the run that another α or bound makes of a run's votes.

    Its certificates hold if α and bound were chosen without looking at the votes.
    """
    from smoothcert.evaluation import recertification

    return recertification.recertify(load_run(run), Path(out), alpha=alpha, bound=bound)


def load_run(path: RunOrPath) -> Run:
    """A run's statement and records, checked while they are read; finished or not, or published (``s3://…``)."""
    if isinstance(path, Run):
        return path
    return read_run(path if isinstance(path, Path) else local_run(path))


def load_dataset(
    spec: str, split: Literal["test", "train"] = "test", root: str | Path | None = None
) -> Dataset:
    """A data set by name (``mnist``), or a form and a path (``npz:mine.npz``, ``folder:images``)."""
    from smoothcert import datasets

    return datasets.load(spec, split, None if root is None else Path(root))


def load_model(
    model_name: str,
    *,
    dataset: str | None = None,
    threat_model: str | None = None,
    model_dir: str | Path | None = None,
    architecture: str | None = None,
    normalisation: Normalisation | None = None,
    trust_pickle: bool = False,
) -> nn.Module:
    """The torch module of a training run or a published checkpoint, in eval mode on the CPU, as RobustBench has it.

    Its inputs lie in [0, 1] and it returns logits. ``model_dir`` is where ``model_name`` lies. ``dataset`` and
    ``threat_model`` (``L1`` or ``L2``) reject a model that was trained for others, where the run says.
    """
    from smoothcert.analysis.facts import read_recipe_file
    from smoothcert.architectures.weights import load_model as read_model

    path = Path(model_name) if model_dir is None else Path(model_dir) / model_name
    module, _ = read_model(
        path, architecture=architecture, trust_pickle=trust_pickle, normalisation=normalisation
    )
    trained = read_recipe_file(path)
    if dataset is not None and trained.get("dataset") not in (None, dataset):
        raise ModelError(f"{path} was trained on {trained['dataset']}, got dataset={dataset!r}")
    norm = NOISES[str(trained.get("noise", DEFAULT_NOISE))].norm
    if threat_model is not None and threat_model.lower() != norm:
        raise ModelError(f"{path} was trained for {norm.upper()}, got threat_model={threat_model!r}")
    return module


def report(
    runs: RunOrPath | Sequence[RunOrPath],
    out: str | Path,
    *,
    radius: float | None = None,
    inputs: int = 200,
    title: str | None = None,
    names: Sequence[str] = (),
    dataset: str | None = None,
    split: str | None = None,
    data_dir: str | Path | None = None,
) -> Path:
    """Write one HTML page that states what runs prove, shows it, and loads nothing from outside; its path comes back.

    ``radius`` is the headline's, best fixed before the run; ``inputs`` how many are shown one by one; ``dataset``,
    ``split`` and ``data_dir`` where their pictures are, if the runs do not say.
    """
    from smoothcert.analysis.report import DataPlace, ReportOptions, write_report

    place = DataPlace(dataset, split, None if data_dir is None else Path(data_dir))
    options = ReportOptions(radius, inputs, place, title, tuple(names))
    return write_report([run.path for run in _all(runs)], Path(out), options).path


def model_card(run: RunOrPath) -> str:
    """A section of a model card in Markdown: what a run proves, under which statement, and how to check it."""
    from smoothcert.analysis.report.statements import guarantee

    read = load_run(run)
    plan = read.manifest.plan
    facts = [
        ("classifier", f"{read.manifest.model.name}, smoothed with {plan.noise} noise, σ = {plan.sigma}"),
        ("data", f"{read.manifest.data.name}, {len(read.records)} inputs"),
        ("votes", f"{plan.n0} + {plan.n} an input, α = {plan.alpha}, {plan.bound} bound, seed {plan.seed}"),
        ("results (SHA-256)", f"`{read.records.digest}`"),
    ]
    lines = "\n".join(f"- {name}: {value}" for name, value in facts)
    check = f"Recompute it from its votes: `smoothcert verify {read.path.name}`.\n"
    return "\n\n".join(["## Certified robustness", guarantee(read), lines, table(read).strip(), check])


def table(
    runs: RunOrPath | Sequence[RunOrPath],
    radii: Sequence[float] | str | None = None,
    *,
    layout: Literal["runs", "paper", "best", "training"] = "runs",
    format: str = "markdown",
) -> str:
    """Certified accuracies and ACR as text, as ``smoothcert table`` prints them."""
    read = _all(runs)
    if radii is None:
        typed = default_radii(read)
    else:
        typed = parse_radii(
            radii if isinstance(radii, str) else ",".join(f"{radius:.15g}" for radius in radii)
        )
    return render_table(read, typed, layout, format)


def plot_curves(
    runs: RunOrPath | Sequence[RunOrPath], out: str | Path, *, width: str = "page", band: bool | None = None
) -> Path:
    """Certified accuracy against the radius, drawn into ``out`` (.png, .svg or .pdf), whose path comes back."""
    plot_certified_accuracy(_all(runs), Path(out), width, band)
    return Path(out)


def _run(run: RunOrPath, labels: ArrayLike | None) -> Run:
    if labels is not None:
        raise InvalidValueError("a run has its labels: leave labels out")
    return load_run(run)


def _labels(labels: ArrayLike | None) -> ArrayLike:
    if labels is None:
        raise InvalidValueError("answers of certify need labels=, one for each input")
    return labels


def _all(runs: RunOrPath | Sequence[RunOrPath]) -> list[Run]:
    listed = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    if not listed:
        raise InvalidValueError("give at least one run, or its path")
    read = [load_run(run) for run in listed]
    names = unique_names([run.path for run in read])
    return [
        run if run is given else replace(run, alias=name) for run, given, name in zip(read, listed, names)
    ]
