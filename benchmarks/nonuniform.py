"""``python -m benchmarks.nonuniform --dataset mnist --data-dir DIR --work DIR``: what non-uniform noise brings.

What Tecot et al. did, at any size: train their CNN, fit σ from a ladder of constants on training inputs, certify test
inputs with each fitted σ and with each constant of a finer ladder (n0 = 100, α = .001), and write a table and pictures
of clean accuracy against certified area. Rerun the same command to resume.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cyclopts import Parameter

from benchmarks.timing import command_line, narrow_table
from smoothcert import Execution, SmoothedClassifier
from smoothcert.analysis.intervals import percent_down, percent_up, rate_interval
from smoothcert.analysis.plots.curves import plot_area
from smoothcert.analysis.plots.sigma import plot_noise
from smoothcert.analysis.plots.training import plot_clean_accuracy
from smoothcert.architectures.weights import load_model
from smoothcert.datasets import load
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.perturb.base import Noise
from smoothcert.perturb.diagonal import DiagonalNoise
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.runs.run import Run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.fits.fit import (
    Fit,
    FitPoint,
    fit_into,
    pareto_front,
    starting_constants,
)
from smoothcert.smoothing.fits.objective import FitProgress
from smoothcert.smoothing.fits.plan import FitPlan
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.training.plan import TrainPlan
from smoothcert.training.recipe import Recipe
from smoothcert.training.runs import train_into

DIMENSION = 28 * 28

app = command_line("nonuniform", __doc__)


@Parameter(name="*")
@dataclass(frozen=True)
class Size:
    """Data, and how much of everything; the defaults are the paper's where it states them, in pixels (× 0.3081)."""

    dataset: Literal["mnist", "fashion-mnist"] = "mnist"
    train_sigma: float = 0.0
    """Noise of training."""
    train_inputs: int = 60_000
    epochs: int = 4
    ladder: str = "0.03081:0.46215:0.03081"
    """Starting constants."""
    constants: str = "0.015405:0.46215:0.015405"
    """Single σ to compare with."""
    fit_inputs: int = 60_000
    sub_epochs: int = 5
    n0: int = 8
    """Samples of each input in a step of the fit."""
    lr: float = 3.081e-4
    validation: int = 256
    skip: int = 10
    """Certify every so many-th test input."""
    n: int = 1000


PAPER = Size()


@app.default
def measure(
    size: Size = PAPER,
    *,
    data_dir: Path,
    work: Path,
    results: Path = Path("docs/results"),
    workers: int | None = None,
) -> None:
    """Train, fit, certify, tabulate, draw.

    Parameters
    ----------
    work:
        Where models, fits and runs are.
    results:
        Where the table and pictures go.
    """
    train_set, test_set = (load(size.dataset, split, data_dir) for split in ("train", "test"))
    execution = Execution(workers=workers)
    if not (work / "model" / "model.safetensors").exists():
        plan = TrainPlan(
            sigma=size.train_sigma, epochs=size.epochs, batch_size=128, lr=0.05, schedule="cosine"
        )
        recipe = Recipe(size.dataset, plan, "nonuniform-cnn", inputs=size.train_inputs)
        train_into(work / "model", recipe, train_set, test_set=test_set)
    module, spec = load_model(work / "model")
    base = TorchClassifier(module, spec.architecture)

    def certified(noise: Noise, name: str, init: float) -> _Certified:
        plan = CertifyPlan(noise, bound="clopper-pearson", n0=100, n=size.n, alpha=0.001)
        classifier = SmoothedClassifier(base, plan, execution=execution)
        return _Certified(
            init, certify_dataset(classifier, test_set, work / "runs" / name, Choice(size.skip))
        )

    def fitted(init: float) -> Fit:
        plan = FitPlan(
            init=init, sub_epochs=size.sub_epochs, n0=size.n0, lr=size.lr, validation=size.validation
        )
        places = range(len(train_set))[: size.fit_inputs]
        out = work / "fits" / f"{init:g}"
        return fit_into(out, base, train_set, plan, places, execution, FitProgress(epoch=print))

    constant = [
        certified(Gaussian(sigma), f"constant-{sigma:g}", sigma)
        for sigma in starting_constants(size.constants)
    ]
    fits, of_fits = [], []
    for init in starting_constants(size.ladder):
        fits.append(fitted(init))
        of_fits.append(certified(_noise_of(fits[-1]), f"fitted-{init:g}", init))
    _write(size, results, fits, [c for c in of_fits if c.radii], [c for c in constant if c.radii])


def _noise_of(fit: Fit) -> DiagonalNoise:
    assert fit.noise is not None
    return fit.noise


@dataclass(frozen=True)
class _Certified:
    """One certified run and what the paper's picture shows of it."""

    init: float
    run: Run

    @property
    def accuracy(self) -> float:
        """Share that n0 votes put in the right class."""
        return self.right / len(self.run.records)

    @property
    def right(self) -> int:
        """How many those are; the paper's code counts abstentions as wrong."""
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
        return statistics.fmean(DIMENSION * math.log(radius) for radius in self.radii)


def _write(
    size: Size, results: Path, fits: list[Fit], fitted: list[_Certified], constant: list[_Certified]
) -> None:
    name = size.dataset.replace("fashion-mnist", "fashion")
    results.mkdir(parents=True, exist_ok=True)
    kept = set(pareto_front([(one.area, one.accuracy) for one in fitted]))
    points = [FitPoint("", c.init, 1, c.area, c.accuracy, 0.0, k in kept) for k, c in enumerate(fitted)]
    points += [FitPoint("", c.init, 0, c.area, c.accuracy, 0.0) for c in constant]
    plot_clean_accuracy([(size.dataset, points)], results / f"nonuniform-{name}.png")
    middle = [c for c in fitted if c.accuracy >= fitted[0].accuracy - 0.05][-1:] or fitted[:1]
    beside = [*middle, *_around(constant, middle[0].accuracy)]
    plot_area([c.run for c in beside], results / f"nonuniform-{name}-area.png")
    plot_noise(
        [(f"from {fit.init:g}", _noise_of(fit).sigmas) for fit in fits],
        results / f"nonuniform-{name}-sigma.png",
    )
    text = _table(size, fits, fitted, constant)
    shown = (
        ("", "clean accuracy against mean area"),
        ("-area", "certified accuracy against area"),
        ("-sigma", "fitted σ"),
    )
    text += "".join(f"\n![{what}](nonuniform-{name}{which}.png)\n" for which, what in shown)
    (results / f"nonuniform-{name}.md").write_text(text, encoding="utf-8")
    print(text)


def _ratio(area: float, other: float | None) -> str:
    """Of equal-volume radii."""
    return "–" if other is None else f"{math.exp((area - other) / DIMENSION):.2f}"


def _around(constant: list[_Certified], accuracy: float) -> list[_Certified]:
    """The constants whose accuracy is next above and next below."""
    above = [c for c in constant if c.accuracy >= accuracy][-1:]
    below = [c for c in constant if c.accuracy < accuracy][:1]
    return above + below


def _table(size: Size, fits: list[Fit], fitted: list[_Certified], constant: list[_Certified]) -> str:
    sigmas = {fit.manifest.plan.init: _noise_of(fit) for fit in fits}
    rows = []
    for one in fitted:
        noise = sigmas[one.init]
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
            f"# Non-uniform noise, {size.dataset}\n",
            "For readers of [non-uniform noise](../nonuniform.md): what a σ for each pixel gained over one for all, by "
            f"`python -m benchmarks.nonuniform --dataset {size.dataset}`.\n",
            f"The paper's CNN trained {size.epochs} epochs by SGD on {size.train_inputs} inputs with noise of σ = "
            f"{size.train_sigma:g}; fitted on {size.fit_inputs} of them ({size.sub_epochs} sub-epochs, n0 = "
            f"{size.n0}, lr {size.lr:g}); every {size.skip}th test input certified with n0 = 100, n = "
            f"{size.n}, α = .001, Clopper–Pearson. Clean accuracy: the share that n0 votes put in the right class, "
            "abstentions included. Area, in pixels: mean of Σ ln σ + 784 ln gap over the right answers that are "
            "certified. *Best area of one σ as accurate*: of those tried "
            f"({size.constants}) with a clean accuracy at least as high; *radius ratio*: of the equal-volume radii; "
            "the last column compares with the largest area of any σ. Accuracies are of "
            f"{len(fitted[0].run.records)} inputs, with 95 % intervals: where those overlap, which σ is as accurate "
            "is not known.\n",
            narrow_table(header, rows, {1}),
            "\nOne σ for all pixels:\n",
            narrow_table(["σ", "clean accuracy (%)", "mean area", "median radius"], plain, set()),
            "",
        ]
    )


if __name__ == "__main__":
    app()
