"""`smoothcert plot`: pictures of what runs certified."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_type_hints

from cyclopts import Parameter
from numpy.typing import NDArray

from smoothcert.analysis.plots.drawing import check_picture_path, titled
from smoothcert.analysis.plots.kinds import PLOTS, PlotKind
from smoothcert.cli.arguments import RunPath
from smoothcert.cli.console import View, emit, note, progress_bar
from smoothcert.cli.options import Names, OutputOptions
from smoothcert.cli.plan_options import given, merged, option, options, sentence
from smoothcert.errors import InvalidValueError
from smoothcert.knobs import Knob
from smoothcert.perturb.diagonal import load_sigmas
from smoothcert.plain_text import shown_name, usage
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.run import Run, read_run, unique_names
from smoothcert.runs.side_files import read_epochs, trained_on

if TYPE_CHECKING:
    import numpy as np


def _options_of(kind: PlotKind) -> list[Knob]:
    kinds, parameters = get_type_hints(kind.draw), inspect.signature(kind.draw).parameters
    return [
        Knob(name, kinds[name], dataclasses.MISSING if default is inspect.Parameter.empty else default, help)
        for name, help in kind.options.items()
        for default in [parameters[name].default]
    ]


KNOBS = {name: _options_of(PLOTS[name]) for name in PLOTS}

_KINDS_IN_WORDS = f"What to draw. {'; '.join(f'`{name}`: {PLOTS[name].words}' for name in PLOTS)}."

if TYPE_CHECKING:
    KindName: TypeAlias = str
else:
    KindName = Literal[tuple(PLOTS)]


@options(option(sentence(knob)) for knob in merged(KNOBS))
class PlotOptions:
    """The options of all kinds, each None unless given."""


def plot(
    *runs: RunPath,
    out: Path,
    kind: Annotated[KindName, Parameter(help=_KINDS_IN_WORDS)] = "accuracy",
    width: Literal["page", "column"] = "page",
    labels: Names = (),
    title: str | None = None,
    plot_options: PlotOptions = PlotOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Draw runs. docs/read-results.md shows every kind and how to read it.

    Example: `smoothcert plot runs/a runs/b --out curve.pdf`

    Example: `smoothcert plot runs/n* --kind ablation --over n --width column --out acr.pdf`

    Parameters
    ----------
    runs
        Runs of certify or run import; of fit noise (clean-accuracy, noise) or train (training).
    out
        Picture to write: .png, .svg or .pdf.
    width
        Of a page (6.4 inches) or a column (3.3 inches) of a paper.
    title
        A title above the picture.
    """
    from smoothcert.analysis.seeds import coverage

    chosen, values = PLOTS[kind], given(plot_options)
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
    things = []
    with progress_bar("reading runs", "runs", len(runs), patient=True) as bar:
        for path, name in zip(runs, unique_names(runs)):
            things += _read(path, chosen.reads, name)
            bar.one()
    if labels:
        if not chosen.names_each:
            raise InvalidValueError(f"--kind {kind} draws a line for a method, not a run: leave --name out")
        if len(labels) != len(things):
            raise InvalidValueError(
                f"--name has {len(labels)} names for {len(things)} lines or pictures: give each its own, in order"
            )
        things = [_called(thing, label) for thing, label in zip(things, labels)]
    with titled(title), progress_bar("drawing", "pictures", patient=True):
        chosen.draw(things, out=out, width=width, **values)
    for thing in things:
        if isinstance(thing, Run) and (told := coverage(thing)) is not None:
            note(told)
    emit(View({"picture": str(out), "kind": kind, "runs": [str(path) for path in runs]}), output)


def _called(thing: Any, label: str) -> Any:
    if isinstance(thing, Run):
        return dataclasses.replace(thing, alias=label)
    return (shown_name(label), *thing[1:])


def _read(path: Path, reads: str, name: str) -> list[Any]:
    from smoothcert.cli.fit import split_of
    from smoothcert.smoothing.fits.fit import front_points, read_fits

    if reads == "trainings":
        return [(name, read_epochs(path), trained_on(path))]
    if reads == "ladders":
        fits = read_fits(path)
        return [(f"{name}, {split_of(fits[0])}", front_points(fits))]
    return _sigmas_of(path) if reads == "scales" else [dataclasses.replace(read_run(path), alias=name)]


def _sigmas_of(path: Path) -> list[tuple[str, NDArray[np.float64]]]:
    """The σ vector of a fit, of each point of a ladder, or of a run that was certified with one; or a file's own."""
    from smoothcert.smoothing.fits.fit import read_fits

    if path.is_file():
        return [(path.stem, load_sigmas(path))]
    if (sigmas := RunFiles(path).sigmas).exists():
        return [(path.resolve().name, load_sigmas(sigmas))]
    fits = read_fits(path)
    return [(f"init {fit.init:g}", fit.noise.sigmas) for fit in fits if fit.noise is not None]
