"""`smoothcert quickstart`: from nothing to a certified-accuracy curve and a page of digits with their radii."""

from __future__ import annotations

import sys
from pathlib import Path

from smoothcert import datasets
from smoothcert.analysis.plots.drawing import require_matplotlib
from smoothcert.architectures.base import WEIGHTS_NAME
from smoothcert.cli.certification import certify_with_bar
from smoothcert.cli.console import note, progress_bar
from smoothcert.cli.options import OutputOptions
from smoothcert.plain_text import command, usage
from smoothcert.runs.run import Run
from smoothcert.runs.statement import Choice
from smoothcert.training.plan import TrainPlan
from smoothcert.training.recipe import Recipe

_SIGMAS = (0.25, 0.5)
_EPOCHS = 40
_EVERY = 5  # of the 500 test digits: a hundred make a page


def quickstart(
    *, out: Path = Path("smoothcert-quickstart"), n: int = 5_000, output: OutputOptions = OutputOptions()
) -> None:
    """Train two small networks on scikit-learn's digits under noise, certify them, and draw what was proved.

    Takes half a minute on two idle cores and downloads nothing. Stopped, rerun it to resume.

    Parameters
    ----------
    out
        Directory for the models, runs and pictures.
    n
        Votes per certified input.
    """
    from smoothcert.analysis.layouts import render_table
    from smoothcert.analysis.plots.curves import plot_certified_accuracy
    from smoothcert.analysis.plots.gallery import plot_gallery
    from smoothcert.analysis.tables import default_radii
    from smoothcert.architectures.weights import load_model
    from smoothcert.models.torch_module import TorchClassifier
    from smoothcert.smoothing.classifier import SmoothedClassifier
    from smoothcert.training.runs import train_into

    require_matplotlib()
    train_set, test_set = datasets.load("digits", "train"), datasets.load("digits", "test")
    runs = []
    for sigma in _SIGMAS:
        model_dir = out / f"model-sigma{sigma}"
        note(f"σ = {sigma}: a small CNN sees digits with noise, then unseen digits are certified")
        if not (model_dir / WEIGHTS_NAME).exists():
            plan = TrainPlan(sigma=sigma, epochs=_EPOCHS, batch_size=64, lr=0.05, schedule="cosine")
            recipe = Recipe("digits", plan, "small-cnn")
            with progress_bar("training", "steps") as bar:
                train_into(model_dir, recipe, train_set, test_set=test_set, on_step=bar.step)
        module, spec = load_model(model_dir)
        classifier = SmoothedClassifier(TorchClassifier(module, spec.architecture), sigma=sigma, n=n)
        choice = Choice(skip=_EVERY)
        origin = {"model": str(model_dir), "dataset": "digits", "split": "test", "method": "gaussian"}
        folder = out / f"digits-sigma{sigma}"
        runs.append(certify_with_bar(classifier, test_set, folder, choice, origin))
    radii = default_radii(runs)
    curve, gallery = out / "certified-accuracy.png", out / "digits.png"
    plot_certified_accuracy(runs, curve)
    shown = runs[0].records
    plot_gallery(
        test_set.inputs(shown.index.tolist()),
        list(shown),
        test_set.classes,
        gallery,
        f"{len(shown)} digits and the ℓ2 radius inside which no attack changes the answer (σ = {_SIGMAS[0]})",
    )
    if output.json or not output.quiet:
        sys.stdout.write(render_table(runs, radii, format="json" if output.json else "markdown"))
    note(
        f"\nHow to read a column: at radius {radii[1]}, that many % of the digits are classified correctly and no "
        f"change of the picture with ℓ2 norm below {radii[1]} can alter it, each with probability 99.9 %.\n"
        f"\nLook at  {curve}\n         {gallery}\n\n"
        + "\n".join(f"{'Next' if not k else '':<9}{line}" for k, line in enumerate(_next(out, runs)))
    )


def _next(out: Path, runs: list[Run]) -> list[str]:
    model, other = out / f"model-sigma{_SIGMAS[0]}", out / "model-consistency"
    like = {"sigma": _SIGMAS[0], "epochs": _EPOCHS, "batch_size": 64, "lr": 0.05, "schedule": "cosine"}
    return [
        command("report", *(run.path for run in runs), out=out / "report"),
        command("certify", model, n=100_000, max=20, out=out / "more-votes"),
        command("train", "digits", objective="consistency", **like, out=other),
        usage("train"),
    ]
