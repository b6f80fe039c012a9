"""`smoothcert plot`: pictures of what runs certified."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from smoothcert.commands.made_options import given
from smoothcert.commands.plot_options import KINDS_IN_WORDS, KNOBS, KindName, PlotOptions
from smoothcert.commands.run_argument import RunPath

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def plot(
    *runs: RunPath,
    out: Path,
    kind: Annotated[KindName, Parameter(help=f"What to draw. {KINDS_IN_WORDS}.")] = "accuracy",
    width: Literal["page", "column"] = "page",
    labels: Annotated[tuple[str, ...], Parameter(consume_multiple=True)] = (),
    title: str | None = None,
    options: PlotOptions = PlotOptions(),
) -> None:
    """Draw runs. docs/plots.md shows every kind and how to read it.

    Example: `smoothcert plot runs/a runs/b --out curve.pdf`

    Example: `smoothcert plot runs/n* --kind ablation --over n --width column --out acr.pdf`

    Parameters
    ----------
    runs
        Runs of certify or import-log; of fit-noise (clean-accuracy, noise) or train (training).
    out
        Picture to write: .png, .svg or .pdf.
    width
        Of a page (6.4 inches) or a column (3.3 inches) of a paper.
    labels
        What to call the runs, in order (default: by directory).
    title
        A title above the picture.
    """
    from smoothcert.analysis.figures import check_picture_path, titled
    from smoothcert.analysis.plots import PLOTS
    from smoothcert.analysis.tables.naming import coverage
    from smoothcert.commands.console import note
    from smoothcert.errors import InvalidValueError
    from smoothcert.hints import usage
    from smoothcert.report.page import unique_names
    from smoothcert.runs import Run

    chosen, values = PLOTS[kind], given(options)
    for name in values:
        if name not in chosen.options:
            owners = " or ".join(
                owner for owner, knobs in KNOBS.items() if name in {knob.name for knob in knobs}
            )
            raise InvalidValueError(f"--{name} belongs to --kind {owners}, got --kind {kind}: leave it out")
    if len(runs) < chosen.fewest:
        raise InvalidValueError(f"name at least one run; `{usage('plot')}` shows how")
    for knob in KNOBS[kind]:
        if knob.default is dataclasses.MISSING and knob.name not in values:
            raise InvalidValueError(f"--{knob.name} is missing: {knob.help}, such as --{knob.name} n")
    check_picture_path(out)
    names = unique_names(runs)
    things = [thing for path, name in zip(runs, names) for thing in _read(path, chosen.reads, name)]
    if labels:
        if not chosen.names_each:
            raise InvalidValueError(
                f"--kind {kind} draws a line for each method, not for each run: leave --labels out"
            )
        if len(labels) != len(things):
            raise InvalidValueError(
                f"--labels has {len(labels)} names for {len(things)} lines or pictures: give each its own, in order"
            )
        things = [_called(thing, label) for thing, label in zip(things, labels)]
    with titled(title):
        chosen.draw(things, out=out, width=width, **values)
    for thing in things:
        if isinstance(thing, Run) and (told := coverage(thing)) is not None:
            note(told)


def _called(thing: Any, label: str) -> Any:
    """The same under another name; a run that came out of a memory stays marked."""
    from smoothcert.plain_text import shown_name
    from smoothcert.runs import Run

    if isinstance(thing, Run):
        named = f"{shown_name(label)} (stateful)" if thing.stateful else shown_name(label)
        return dataclasses.replace(thing, alias=named)
    return (shown_name(label), *thing[1:])


def _read(path: Path, reads: str, name: str) -> list[Any]:
    """What a kind of plot is drawn from, called ``name``; a ladder's says also the split that its figures are of."""
    from smoothcert.commands.fit_noise import split_of
    from smoothcert.noise_fit import ladder_points, read_ladder
    from smoothcert.runs import read_run
    from smoothcert.runs.epochs import read_epochs, trained_on

    if reads == "trainings":
        return [(name, read_epochs(path), trained_on(path))]
    if reads == "ladders":
        fits = read_ladder(path)
        return [(f"{name}, {split_of(fits[0])}", ladder_points(fits))]
    return _sigmas_of(path) if reads == "scales" else [read_run(path)]


def _sigmas_of(path: Path) -> list[tuple[str, NDArray[np.float64]]]:
    """The σ vector of a fit, of each rung of a ladder, or of a run that was certified with one; or a file's own."""
    from smoothcert.noise import load_sigmas
    from smoothcert.noise_fit import read_ladder
    from smoothcert.runs.layout import RunFiles

    if path.is_file():
        return [(path.stem, load_sigmas(path))]
    if (sigmas := RunFiles(path).sigmas).exists():
        return [(path.resolve().name, load_sigmas(sigmas))]
    fits = read_ladder(path)
    return [(f"init {fit.init:g}", fit.noise.sigmas) for fit in fits if fit.noise is not None]
