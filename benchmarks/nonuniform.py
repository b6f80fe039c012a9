"""``python -m benchmarks.nonuniform speed`` and ``… measure``: what a fit costs, and what non-uniform noise brings.

``speed``: rows a second of a fit against a bare forward and backward pass of the same network, turn by turn.
``measure --dataset mnist --data-dir DIR --work DIR``: what Tecot et al. did, at any size: train their CNN, fit σ
from a ladder of constants on training inputs, certify test inputs with each fitted σ and with each constant of a finer
ladder (n0 = 100, n = 1000, α = .001), and write a table and pictures. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from benchmarks.figures import Figure, show
from benchmarks.interleave import interleave, speedup
from smoothcert.analysis.intervals import percent_down, percent_up, rate_interval
from smoothcert.analysis.plots import plot_area, plot_clean_accuracy, plot_noise
from smoothcert.analysis.tables import markdown_table
from smoothcert.architectures import ModelSpec, initialise
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.datasets.base import Dataset
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.noise import Gaussian, Noise
from smoothcert.noise_fit import Fit, FitPlan, SubEpoch, blanket, fit_into, starting_constants
from smoothcert.noise_fit import Progress as FitProgress
from smoothcert.noise_fit.gradient import GradientRoute
from smoothcert.noise_fit.scales import GroupScales, starting_vector
from smoothcert.runs import Run
from smoothcert.sampling import Execution
from smoothcert.sampling.models import TorchClassifier
from smoothcert.smoothing import CertifyPlan, SmoothedClassifier
from smoothcert.training import Recipe, TrainPlan, train_into

_DIMENSION = 28 * 28


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the part that was asked for."""
    options = _parser().parse_args(arguments)
    if options.part == "speed":
        _speed(options)
    else:
        _measure(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nonuniform", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    speed = parts.add_parser("speed")
    speed.add_argument("--n0", type=int, default=8, help="samples of each input in a step")
    speed.add_argument("--inputs", type=int, default=256, help="inputs of a turn")
    speed.add_argument("--repeats", type=int, default=5)
    speed.add_argument("--patience", type=float, default=0.0, help="seconds to wait for a quiet machine")
    measure = parts.add_parser("measure")
    measure.add_argument("--dataset", choices=["mnist", "fashion-mnist"], default="mnist")
    measure.add_argument("--data-dir", type=Path, required=True, help="where its files are")
    measure.add_argument("--work", type=Path, required=True, help="models, fits and runs")
    measure.add_argument("--results", type=Path, default=Path("docs/results"), help="table and pictures")
    measure.add_argument("--train-sigma", type=float, default=0.0, help="noise of training; the paper's is 0")
    measure.add_argument("--train-inputs", type=int, default=60_000)
    measure.add_argument("--epochs", type=int, default=4)
    measure.add_argument("--ladder", default="0.1:1.0:0.1", help="starting constants")
    measure.add_argument("--constants", default="0.05:1.0:0.05", help="single σ to compare with")
    measure.add_argument("--fit-inputs", type=int, default=60_000)
    measure.add_argument("--sub-epochs", type=int, default=5)
    measure.add_argument("--n0", type=int, default=8, help="samples of each input in a step of the fit")
    measure.add_argument("--lr", type=float, default=1e-3)
    measure.add_argument("--validation", type=int, default=256)
    measure.add_argument("--skip", type=int, default=10, help="certify every so many test inputs")
    measure.add_argument("--n", type=int, default=1000)
    measure.add_argument("--workers", type=int)
    return parser


def _speed(options: argparse.Namespace) -> None:
    model = initialise(ModelSpec("nonuniform-cnn", (1, 28, 28), tuple("0123456789")), seed=0)
    base = TorchClassifier(model)
    generator = np.random.default_rng(0)
    stored = generator.random((options.inputs, 1, 28, 28), dtype=np.float32)
    labels = np.array([base.module(torch.from_numpy(x[None])).argmax().item() for x in stored])
    dataset = Dataset("noise", stored, labels, tuple("0123456789"))
    # beta: random weights are sure of nothing, and a batch in which no input counts would be passed over.
    plan = FitPlan(init=0.01, n0=options.n0, beta=1000.0)
    places = np.arange(options.inputs)
    rows: int = options.inputs * options.n0

    def fit(workers: int) -> Callable[[], int]:
        scales = GroupScales(
            starting_vector((1, 28, 28), plan.init, None), np.arange(_DIMENSION).reshape(1, 28, 28)
        )
        route = GradientRoute(base, dataset, plan, scales, Execution(workers=workers))

        def turn() -> int:
            route.sub_epoch(1, places, None)
            return rows

        return turn

    module = base.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    shard = 128 // options.n0

    def bare() -> int:
        """Passes as the fit makes them, on one thread, of rows that are noisy already."""
        torch.set_num_threads(1)
        noisy = torch.from_numpy(stored[:shard]).repeat(options.n0, 1, 1, 1).requires_grad_()
        for _ in range(0, options.inputs, shard):
            torch.autograd.grad(module(noisy).logsumexp(1).sum(), noisy)
        return rows

    rounds = interleave({"fit": fit(1), "bare": bare}, options.repeats, options.patience)
    figure = Figure("fit", "nonuniform-cnn", "rows/s, fit / bare, one thread", speedup(rounds, "fit", "bare"))
    show([figure], Console(width=120))


@dataclass(frozen=True)
class _Certified:
    """One certified run and what the paper's picture shows of it."""

    init: float
    sub_epoch: int
    run: Run
    kept: bool = False

    @property
    def accuracy(self) -> float:
        """Share that n0 votes put in the right class."""
        return self.right / len(self.run.records)

    @property
    def right(self) -> int:
        """How many inputs n0 votes put in the right class."""
        return sum(r.selection is not None and r.selection.top() == r.label for r in self.run.records)

    def accuracy_text(self) -> str:
        """In percent, with its 95 % interval over the choice of inputs."""
        low, high = rate_interval(self.right, len(self.run.records))
        return f"{100 * self.accuracy:.1f} ({percent_down(low)}–{percent_up(high)})"

    @property
    def radii(self) -> list[float]:
        """Equal-volume radii of the right answers that are certified."""
        return [r.volume_radius or r.radius for r in self.run.records if r.correct]

    @property
    def area(self) -> float:
        """Mean certified area of those."""
        return statistics.fmean(_DIMENSION * math.log(radius) for radius in self.radii)


def _measure(options: argparse.Namespace) -> None:
    train_set, test_set = (load(options.dataset, split, options.data_dir) for split in ("train", "test"))
    execution = Execution(workers=options.workers)
    base = _model(options, train_set, test_set)
    fitted, fits = [], []
    constant = [
        _certify(options, base, test_set, Gaussian(sigma), f"constant-{sigma:g}", sigma, 0, execution)
        for sigma in starting_constants(options.constants)
    ]
    for init in starting_constants(options.ladder):
        began = time.perf_counter()
        fit = _fit(options, base, train_set, init, execution)
        assert fit.noise is not None
        fits.append(fit)
        between = time.perf_counter()
        fitted.append(_certify(options, base, test_set, fit.noise, f"fitted-{init:g}", init, 1, execution))
        spent = f"fitted in {between - began:.0f} s, certified in {time.perf_counter() - between:.0f} s"
        print(f"init {init:g}: {spent}", flush=True)
    _write(options, fits, [c for c in fitted if c.radii], [c for c in constant if c.radii])


def _model(options: argparse.Namespace, train_set: Dataset, test_set: Dataset) -> TorchClassifier:
    out = options.work / "model"
    plan = TrainPlan(
        sigma=options.train_sigma, epochs=options.epochs, batch_size=128, lr=0.05, schedule="cosine"
    )
    recipe = Recipe(options.dataset, plan, "nonuniform-cnn", inputs=options.train_inputs)
    if not (out / "model.safetensors").exists():
        history = train_into(out, recipe, train_set, test_set=test_set)
        print(history[-1], flush=True)
    module, spec = load_model(out)
    return TorchClassifier(module, spec.architecture)


def _fit(
    options: argparse.Namespace, base: TorchClassifier, train_set: Dataset, init: float, execution: Execution
) -> Fit:
    plan = FitPlan(
        init=init,
        sub_epochs=options.sub_epochs,
        n0=options.n0,
        lr=options.lr,
        validation=options.validation,
    )

    def told(one: SubEpoch) -> None:
        print(f"init {init:g} {one}", flush=True)

    places = range(len(train_set))[: options.fit_inputs]
    out = options.work / "fits" / f"{init:g}"
    return fit_into(out, base, train_set, plan, places, execution, FitProgress(sub_epoch=told))


def _certify(
    options: argparse.Namespace,
    base: TorchClassifier,
    test_set: Dataset,
    noise: Noise,
    name: str,
    init: float,
    sub_epoch: int,
    execution: Execution,
) -> _Certified:
    plan = CertifyPlan(noise, bound="clopper-pearson", n0=100, n=options.n, alpha=0.001)
    classifier = SmoothedClassifier(base, plan, execution=execution)
    run = certify_dataset(classifier, test_set, options.work / "runs" / name, Choice(options.skip))
    return _Certified(init, sub_epoch, run)


def _write(
    options: argparse.Namespace, fits: list[Fit], fitted: list[_Certified], constant: list[_Certified]
) -> None:
    name = options.dataset.replace("fashion-mnist", "fashion")
    options.results.mkdir(parents=True, exist_ok=True)
    kept = set(blanket([(one.area, one.accuracy) for one in fitted]))
    points = [_Certified(c.init, 1, c.run, k in kept) for k, c in enumerate(fitted)]
    plot_clean_accuracy([(options.dataset, [*points, *constant])], options.results / f"nonuniform-{name}.png")
    middle = [c for c in fitted if c.accuracy >= fitted[0].accuracy - 0.05][-1:] or fitted[:1]
    beside = [*middle, *_around(constant, middle[0].accuracy)]
    plot_area([c.run for c in beside], options.results / f"nonuniform-{name}-area.png")
    plot_noise(
        [(f"from {fit.init:g}", fit.noise.sigmas) for fit in fits if fit.noise],
        options.results / f"nonuniform-{name}-sigma.png",
    )
    text = _table(options, fits, fitted, constant)
    shown = (
        ("", "clean accuracy against mean area"),
        ("-area", "certified accuracy against area"),
        ("-sigma", "fitted σ"),
    )
    text += "".join(f"\n![{what}](nonuniform-{name}{which}.png)\n" for which, what in shown)
    (options.results / f"nonuniform-{name}.md").write_text(text, encoding="utf-8")
    print(text)


def _ratio(area: float, other: float | None) -> str:
    """Of equal-volume radii."""
    return "–" if other is None else f"{math.exp((area - other) / _DIMENSION):.2f}"


def _around(constant: list[_Certified], accuracy: float) -> list[_Certified]:
    """The constants whose accuracy is next above and next below."""
    above = [c for c in constant if c.accuracy >= accuracy][-1:]
    below = [c for c in constant if c.accuracy < accuracy][:1]
    return above + below


def _table(
    options: argparse.Namespace, fits: list[Fit], fitted: list[_Certified], constant: list[_Certified]
) -> str:
    sigmas = {fit.manifest.plan.init: fit.noise for fit in fits}
    rows = []
    for one in fitted:
        noise = sigmas[one.init]
        assert noise is not None
        as_accurate = [c.area for c in constant if c.accuracy >= one.accuracy]
        best = max(as_accurate, default=None)
        widest = max((c.area for c in constant), default=None)
        rows.append(
            [
                f"{one.init:g}",
                f"{noise.sigma:.3f} ({noise.smallest_sigma:.2f} … {noise.largest_sigma:.2f})",
                one.accuracy_text(),
                f"{one.area:.0f}",
                f"{statistics.median(one.radii):.3f}",
                "–" if best is None else f"{best:.0f}",
                _ratio(one.area, best),
                _ratio(one.area, widest),
            ]
        )
    plain = [
        [f"{c.init:g}", c.accuracy_text(), f"{c.area:.0f}", f"{statistics.median(c.radii):.3f}"]
        for c in constant
    ]
    header = [
        "from",
        "σ: geometric mean (range)",
        "clean accuracy (%)",
        "mean area",
        "median equal-volume radius",
        "best area of one σ as accurate",
        "radius ratio",
        "ratio to the widest σ",
    ]
    return "\n".join(
        [
            f"# Non-uniform noise, {options.dataset}\n",
            f"The paper's CNN trained {options.epochs} epochs on {options.train_inputs} inputs with noise of σ = "
            f"{options.train_sigma:g}; fitted on {options.fit_inputs} of them ({options.sub_epochs} sub-epochs, n0 = "
            f"{options.n0}, lr {options.lr:g}); every {options.skip}th test input certified with n0 = 100, n = "
            f"{options.n}, α = .001, Clopper–Pearson. Area: mean of Σ ln σ + 784 ln gap over the right answers that "
            "are certified. Then comes the largest area that one σ for all pixels has at a clean accuracy found at "
            f"least as high ({options.constants} were tried), and the ratio of the equal-volume radii; the last column "
            "compares with the largest area of any σ, accurate or not. Accuracies are of "
            f"{len(fitted[0].run.records)} inputs, with 95 % intervals: where those overlap, which σ is as accurate "
            "isn't known.\n",
            markdown_table(header, rows, {1}),
            "\nOne σ for all pixels:\n",
            markdown_table(["σ", "clean accuracy (%)", "mean area", "median radius"], plain, set()),
            "",
        ]
    )


if __name__ == "__main__":
    main()
