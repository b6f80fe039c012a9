"""`smoothcert compare`: is one run better than another, or is it chance?"""

from __future__ import annotations

import json as json_format
import math
from typing import TYPE_CHECKING

from smoothcert.commands.run_argument import RunPath

if TYPE_CHECKING:
    from smoothcert.analysis.comparison import Comparison


def compare(
    a: RunPath,
    b: RunPath,
    *,
    radii: str | None = None,
    confidence: float = 0.95,
    common: bool = False,
    json: bool = False,
) -> None:
    """Compare two runs on the same inputs: certified accuracies, their difference, and whether it could be chance.

    Two runs saw the same inputs, so only inputs on which they differ count: `only A` and `only B`. The difference
    (B − A, in points) comes with an interval, and the intervals of all radii hold together with the probability
    `--confidence`. p is the exact McNemar test after Holm's correction for the number of radii: if every
    radius with p ≤ 0.05 is called a difference, any false call in the table has probability at most 0.05. The ACR has
    its own sign-flip test. A large p never proves two runs equal: look at how wide the interval is.

    Choose the radii before you look; dropping the disappointing ones undoes the correction. It compares two
    *runs*: whether a training method is better in general takes several training seeds of each.

    Example: `smoothcert compare runs/gaussian runs/smoothmix --radii 0.25,0.5,0.75`

    Parameters
    ----------
    a
        Run directory made by certify or import-log.
    b
        Another, on the same data.
    radii
        Radii to compare at, with commas or spaces between them (default: up to the largest that the runs' n and alpha
        allow; logs that don't state them need it).
    confidence
        Probability with which the intervals of all radii hold together.
    common
        Compare on the inputs that both runs have, where one has more. Both must be complete.
    json
        One JSON object with full precision on standard output.
    """
    from dataclasses import asdict

    from smoothcert.analysis.comparison import compare as compare_runs
    from smoothcert.analysis.comparison import in_words
    from smoothcert.commands.radii import chosen_beforehand
    from smoothcert.errors import InvalidValueError
    from smoothcert.runs import read_run

    runs = [read_run(path) for path in (a, b)]
    typed = chosen_beforehand(radii, runs)
    if typed is None:
        raise InvalidValueError(
            "--radii is missing: the runs don't state how large radii could be, and radii that the results choose void "
            "the tests; give the radii of interest, such as --radii 0.25,0.5"
        )
    found = compare_runs(runs[0], runs[1], [float(r) for r in typed], confidence=confidence, common=common)
    if json:
        print(json_format.dumps({**asdict(found), "in_words": in_words(found)}, ensure_ascii=False))
    else:
        _show(found, typed)


def _show(found: Comparison, typed: list[str]) -> None:
    from smoothcert.analysis.comparison import in_words, shown_p
    from smoothcert.analysis.intervals import percent_down, percent_up
    from smoothcert.commands.console import figure_table, print_figures, say
    from smoothcert.plain_text import norm_name

    say(
        f"A = {found.first}, B = {found.second}: certified accuracy (%) of {found.inputs} inputs at "
        f"{norm_name(found.norm)} radius",
    )
    table = figure_table("radius", "A", "B", "only A", "only B", "B − A", "interval", "p (Holm)")
    for radius, row in zip(typed, found.radii):
        table.add_row(
            radius,
            f"{100 * row.first:.1f}",
            f"{100 * row.second:.1f}",
            str(row.only_first),
            str(row.only_second),
            f"{100 * row.difference:+.1f}",
            f"{percent_down(row.low)} to {percent_up(row.high)}",
            shown_p(row.p_holm),
        )
    print_figures(table)
    acr = found.acr
    between = (
        "its range is unknown, so there is no interval"
        if acr.low is None or acr.high is None
        else f"{math.floor(1e4 * acr.low) / 1e4:.4f} to {math.ceil(1e4 * acr.high) / 1e4:.4f}"
    )
    say(
        f"ACR: A {acr.first:.3f}, B {acr.second:.3f}, B − A {acr.difference:+.4f} ({between}), "
        f"p = {shown_p(acr.p_value)}",
    )
    for remark in found.notes:
        say(f"Note: {remark}")
    say(in_words(found))
