"""`smoothcert sensitivity`: which features a model relies on, according to a fit of its noise."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.commands.options import OutputOptions
from smoothcert.commands.run_argument import RunPath

if TYPE_CHECKING:
    from smoothcert.noise_fit import Fit
    from smoothcert.noise_fit.features import Feature

_SHOWN = 40


def sensitivity(
    fit: Path, *, run: RunPath | None = None, out: Path | None = None, output: OutputOptions = OutputOptions()
) -> None:
    """Show which features the model is sensitive to: those that tolerate little noise.

    Where the fit made σ smaller, or let it grow least, a small change may change the answer; where it grew most, the
    model is least sensitive. Features are ranked by σ over where it started (with `fit-noise --scale std`: in standard
    deviations), because σ itself is in each feature's own units. With `--run`, a run certified with this fit, the table
    also says how far each feature may change *alone* without changing a typical answer: the half-width of the certified
    region of median size. Several may change at once as long as the input stays inside the region.

    Example: `smoothcert sensitivity fits/cancer --run runs/cancer --out features.png`

    Parameters
    ----------
    fit
        Directory made by fit-noise (of a ladder: one of its rungs).
    run
        A run made by `certify --noise FIT`.
    out
        Picture to write (.png, .svg, .pdf): bars, or a heat map for images.
    """
    from smoothcert.analysis.figures import check_picture_path
    from smoothcert.analysis.plots import plot_features, plot_noise
    from smoothcert.commands.console import note
    from smoothcert.noise_fit import finished_fit, group_labels, step_sigmas
    from smoothcert.noise_fit.features import ranked_features, ranked_groups
    from smoothcert.noise_fit.groups import group_names

    if out is not None:
        check_picture_path(out)
    found = finished_fit(fit)
    assert found.noise is not None
    sigmas = found.noise.sigmas
    reach = None if run is None else _median_reach(run, found)
    features = ranked_features(sigmas, step_sigmas(found.path, 0), found.feature_names, reach)
    groups = str(found.manifest.plan.value("groups"))
    if (names := group_names(groups, sigmas.shape)) is not None:
        features = ranked_groups(features, group_labels(groups, sigmas.shape), names)
    if output.json:
        rows = [asdict(feature) for feature in features]
        print(json.dumps({"fit": str(fit), "median_volume_radius": reach, "features": rows}))
    elif not output.quiet:
        _show_table(fit, features)
    if out is not None:
        if sigmas.ndim == 3:
            plot_noise([(f"{fit.resolve().name}: σ", sigmas)], out)
        else:
            values = [feature.factor for feature in features]
            meaning = "σ over where the fit started it: short bars are features that the model relies on"
            plot_features([feature.name for feature in features], values, meaning, out)
        note(str(out), output.silent)


def _median_reach(path: Path, fit: Fit) -> float:
    """The median equal-volume radius of the run's right answers."""
    from smoothcert.errors import RunError
    from smoothcert.runs import read_run

    run = read_run(path)
    assert fit.noise is not None
    if run.stateful:
        raise RunError(
            f"{path} comes out of a region memory, which cuts regions to other sizes: name the run it was made from"
        )
    if run.manifest.plan.sigmas_sha256 != fit.noise.sha256:
        raise RunError(
            f"{path} wasn't certified with the noise of {fit.path}: name a run of certify --noise {fit.path}"
        )
    radii = [record.volume_radius or record.radius for record in run.records if record.correct]
    if not radii:
        raise RunError(f"{path}: no right answer is certified, so there is no typical region")
    return statistics.median(radii)


def _show_table(path: Path, features: list[Feature]) -> None:
    from rich.table import Table

    from smoothcert.commands.console import print_figures
    from smoothcert.rounding import decimal_down

    with_width = features[0].half_width is not None
    table = Table(title=f"{path.resolve().name}: from the most sensitive feature on", title_justify="left")
    table.add_column("rank", justify="right")
    table.add_column("feature")
    table.add_column("σ", justify="right")
    table.add_column("σ / start", justify="right")
    if with_width:
        table.add_column("alone it may change by", justify="right")
    half = _SHOWN // 2
    rows = features if len(features) <= _SHOWN else [*features[:half], *features[-half:]]
    for place, feature in enumerate(rows):
        if len(rows) < len(features) and place == half:
            table.add_row("…", f"{len(features) - len(rows)} more", "")
        cells = [str(feature.rank), feature.name, f"{feature.sigma:.4g}", f"{feature.factor:.2f}"]
        if feature.half_width is not None:
            digits = max(0, 2 - math.floor(math.log10(feature.half_width)))  # that show three of a number
            cells.append(f"± {decimal_down(feature.half_width, digits)}")
        table.add_row(*cells)
    print_figures(table)
