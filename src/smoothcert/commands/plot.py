"""`smoothcert plot`: pictures of what runs certified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from smoothcert.noise_fit import Point

KindName = Literal[
    "accuracy", "envelope", "ablation", "sigma", "samples", "confidence", "area", "clean-accuracy", "noise"
]


def plot(
    *runs: Path,
    out: Path,
    kind: KindName = "accuracy",
    width: Literal["page", "column"] = "page",
    band: bool | None = None,
    over: str | None = None,
    dimension: int | None = None,
    against: Path | None = None,
) -> None:
    """Draw runs. docs/plots.md shows every kind and how to read it.

    `accuracy`: certified accuracy against radius, one curve per run. `envelope`: the best run at each radius, over the
    runs. `ablation`: ACR against the field of the plan, or of the models' training, that differs between the runs
    (`--over n`, `--over lam`). `sigma`: how σ is
    spread over the inputs, for runs that choose it for each. `samples`: the radius that n votes can reach, with or
    without runs. `confidence`: how the lower bounds of p_A are spread, right and wrong answers apart. `area`: certified
    accuracy against the size of the certified region. Of `fit-noise`: `clean-accuracy`: clean accuracy against mean
    certified area, a line for each ladder. `noise`: σ vectors as pictures, of fits or of runs certified with one.

    Example: `smoothcert plot runs/a runs/b --out curve.pdf`

    Example: `smoothcert plot runs/n* --kind ablation --over n --width column --out acr.pdf`

    Parameters
    ----------
    runs
        Run directories made by certify or import-log; an unfinished one is drawn as far as it goes. For clean-accuracy
        and noise: directories made by fit-noise.
    out
        Picture to write: .png, .svg or .pdf.
    kind
        What to draw.
    width
        page (6.4 inches) or column (3.3 inches, of a two-column paper); type is legible at that size.
    band
        accuracy: 95 % confidence band over the test set, for each radius alone (default: for up to four runs).
    over
        ablation: the field on the horizontal axis: of the plan (n, n0, alpha, sigma, bound, …), or of the models'
        training (training.objective.lam, in short lam; training.epochs, …).
    dimension
        area: how many numbers an input has (default: from the name of the data set).
    against
        sigma: a run on the same inputs; the inputs whose radius is larger than there are drawn apart.
    """
    from smoothcert.analysis import plots
    from smoothcert.analysis.tables.naming import coverage
    from smoothcert.commands.console import note
    from smoothcert.errors import InvalidValueError
    from smoothcert.runs import read_run

    for name, value, owner in (
        ("band", band, "accuracy"),
        ("over", over, "ablation"),
        ("dimension", dimension, "area"),
        ("against", against, "sigma"),
    ):
        if value is not None and kind != owner:
            raise InvalidValueError(f"--{name} belongs to --kind {owner}, got --kind {kind}: leave it out")
    if not runs and kind != "samples":
        raise InvalidValueError("name at least one run: smoothcert plot RUN… --out FILE")
    if kind == "clean-accuracy":
        plots.plot_clean_accuracy([_ladder_points(path) for path in runs], out, width)
        return
    if kind == "noise":
        plots.plot_noise([named for path in runs for named in _sigmas_of(path)], out, width)
        return
    read = [read_run(path) for path in runs]
    if kind == "ablation":
        if over is None:
            raise InvalidValueError(
                "--over is missing: name the field of the plan that differs, such as --over n"
            )
        plots.plot_ablation(read, over, out, width)
    elif kind == "accuracy":
        plots.plot_certified_accuracy(read, out, width, band)
    elif kind == "sigma":
        fixed = None if against is None else read_run(against)
        plots.plot_sigma(read, out, width, fixed)
    elif kind == "area":
        plots.plot_area(read, out, width, dimension)
    else:
        draw = {
            "envelope": plots.plot_envelope,
            "samples": plots.plot_samples,
            "confidence": plots.plot_confidence,
        }[kind]
        draw(read, out, width)
    for run in read:
        if (sentence := coverage(run)) is not None:
            note(sentence)


def _ladder_points(path: Path) -> tuple[str, list[Point]]:
    """A ladder's name, with the split that its figures are of, and its points."""
    from smoothcert.commands.fit_noise import split_of
    from smoothcert.noise_fit import ladder_points, read_ladder

    fits = read_ladder(path)
    return f"{path.resolve().name}, {split_of(fits[0])}", ladder_points(fits)


def _sigmas_of(path: Path) -> list[tuple[str, NDArray[np.float64]]]:
    """The σ vector of a fit, of each rung of a ladder, or of a run that was certified with one; or a file's own."""
    from smoothcert.noise import SIGMAS_FILE, load_sigmas
    from smoothcert.noise_fit import read_ladder

    if path.is_file():
        return [(path.stem, load_sigmas(path))]
    if (path / SIGMAS_FILE).exists():
        return [(path.resolve().name, load_sigmas(path / SIGMAS_FILE))]
    fits = read_ladder(path)
    return [(f"init {fit.init:g}", fit.noise.sigmas) for fit in fits if fit.noise is not None]
