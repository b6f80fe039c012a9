"""Two runs on the same inputs: which certifies more, by how much, and could it be chance?

Chance is over the inputs (drawn independently from one distribution) and their votes. Both runs see the same inputs,
so everything is paired: only inputs on which they differ say anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis import evidence, intervals
from smoothcert.analysis.facts import spreads_a_total
from smoothcert.analysis.metrics import check_same_data, check_same_norm
from smoothcert.errors import InvalidValueError, check_not_negative, check_probability
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.plain_text import command, norm_name, shown_name
from smoothcert.rounding import down
from smoothcert.runs.run import Run
from smoothcert.runs.statement import PlanStatement, Stated

_ROUNDING = 1e-9  # radii that differ by less, as by a sampler's error alone, make no run the better one
_FIELD_STEP, _FEWEST_STEPS, _MOST_STEPS = 0.25, 3, 12
_STATED: dict[Stated[Any], str] = {
    PlanStatement.bound: "bound",
    PlanStatement.n: "n",
    PlanStatement.alpha: "alpha",
    PlanStatement.sigma: "sigma",
    PlanStatement.noise: "noise",
    PlanStatement.sigmas_sha256: "scales of the noise (SHA-256)",
    PlanStatement.sigma_search: "σ search",
    PlanStatement.sigma_levels: "σ levels",
    PlanStatement.chooser: "chooser",
    PlanStatement.stop: "stopping rules",
    PlanStatement.stream: "stream version",
    PlanStatement.levels: "levels of the grid",
}
_ALWAYS = list(_STATED)[:5]  # a plan that doesn't state one of the others has none


@dataclass(frozen=True)
class RadiusComparison:
    """Certified accuracy at one radius. ``difference`` is second − first and lies in [``low``, ``high``].

    ``only_first`` inputs are certified by the first run alone, ``only_second`` by the second alone. ``p_value`` is
    this radius' own, ``p_holm`` corrected for all radii of the comparison.
    """

    radius: float
    first: float
    second: float
    only_first: int
    only_second: int
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float


@dataclass(frozen=True)
class AcrComparison:
    """Average certified radii; the difference is second − first. No interval without known ranges of the radii."""

    first: float
    second: float
    difference: float
    low: float | None
    high: float | None
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """Two runs compared. With probability at least ``confidence`` the intervals of *all* radii hold together;
    the ACR's interval and p-value stand by themselves.

    ``notes`` say in which parts of the plan the runs differ and what couldn't be checked.
    """

    first: str
    second: str
    norm: str
    inputs: int
    confidence: float
    radii: tuple[RadiusComparison, ...]
    acr: AcrComparison
    notes: tuple[str, ...]

    def __str__(self) -> str:
        """The outcome in a sentence or two."""
        return in_words(self)


def compare(
    first: Run, second: Run, radii: Sequence[float], *, confidence: float = 0.95, common: bool = False
) -> Comparison:
    """Compare two runs at ``radii`` fixed in advance; ``common`` restricts them to the inputs they share.

    Refused: different data, different inputs (unless ``common``), different norms, a run that isn't complete.
    """
    confidence = check_probability("confidence", confidence)
    if not radii:
        raise InvalidValueError("a comparison needs at least one radius")
    radii = [check_not_negative("radius", radius) for radius in radii]
    for run in (first, second):
        evidence.check_complete(run)
        if run.stateful:
            raise InvalidValueError(
                f"{run.path} comes out of a region memory: its answers depend on one another, and no test or interval "
                "allows for that; compare the run it was made from"
            )
        if spreads_a_total(run.manifest.plan):
            raise InvalidValueError(
                f"{run.path} spread one total of votes over its inputs: its results depend on one another, and no test "
                "or interval allows for that; compare runs with --stop pilot:1% or a fixed n"
            )
    check_same_norm([(run.name, run.norm) for run in (first, second)])
    notes = check_same_data(first, second)
    ceilings = (_known_ceiling(first), _known_ceiling(second))
    first, second, left_out = _paired(first, second, common)
    told_apart = first.name != second.name
    return Comparison(
        first.name if told_apart else str(first.path),
        second.name if told_apart else str(second.path),
        first.norm,
        len(first.records),
        confidence,
        _compare_radii(_counted(first), _counted(second), radii, confidence),
        _compare_acr(first, second, ceilings, confidence),
        (
            *notes,
            *left_out,
            *(
                f"radii of {run.name} count as its log prints them, rounded to {printed.digits} digits"
                for run in (first, second)
                if (printed := evidence.printed_radii(run)) is not None
            ),
            *_plan_notes(first, second),
            *_region_notes(first, second),
        ),
    )


def planned_radii(*runs: Run) -> list[float] | None:
    """Radii to look at that follow from the plans alone, since radii must be chosen without looking.

    They are the multiples of 0.25 that the larger ceiling allows where those are 4 to 12, else of 0.25 halved or
    doubled as often as it takes. None where a plan isn't known.
    """
    ceilings = [evidence.planned_ceiling(run.manifest.plan) for run in runs]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    if len(known) < len(runs) or max(known) <= 0:
        return None
    step, reach = _FIELD_STEP, max(known)
    while reach / step >= _MOST_STEPS:
        step *= 2
    while reach / step < _FEWEST_STEPS:
        step /= 2
    return [k * step for k in range(int(reach / step) + 1)]


def in_words(comparison: Comparison, level: float = 0.05) -> str:
    """The outcome in a sentence or two. No difference shown is never called equality."""
    level = check_probability("level", level)
    first, second = comparison.first, comparison.second
    norm = norm_name(comparison.norm)
    parts = []
    for better, worse, sign in ((second, first, 1), (first, second, -1)):
        shown = [c for c in comparison.radii if c.p_holm <= level and sign * c.difference > 0]
        if shown:
            where = ", ".join(intervals.all_digits(c.radius) for c in shown)
            parts.append(f"{better} certifies more inputs than {worse} at {norm} radius {where}")
    if parts:
        undecided = [intervals.all_digits(c.radius) for c in comparison.radii if c.p_holm > level]
        rest = f"; at {', '.join(undecided)} no difference was shown" if undecided else ""
        text = f"{' and '.join(parts)} (chance of any such finding without a difference: at most {level:g}){rest}."
    else:
        text = (
            f"At none of the radii was a difference between {first} and {second} shown at level {level:g}; that "
            "doesn't prove them equal, and the intervals say how large a difference remains possible."
        )
    acr = comparison.acr
    if acr.p_value <= level and acr.difference != 0:
        larger = second if acr.difference > 0 else first
        proved = acr.low is not None and acr.high is not None and not acr.low <= 0 <= acr.high
        doubt = "" if proved else ", though no interval that assumes less excludes 0"
        return f"{text} {larger} has the larger ACR (p = {shown_p(acr.p_value)}{doubt})."
    return f"{text} No difference in ACR was shown (p = {shown_p(acr.p_value)})."


def shown_p(p_value: float) -> str:
    """A p-value with two digits, never rounded down."""
    text = f"{p_value:.1e}"
    if float(text) < p_value:
        mantissa, exponent = text.split("e")
        text = f"{float(mantissa) + 0.1:.1f}e{exponent}"
    return f"{min(1.0, float(text)):.2g}"


def _compare_radii(
    first: NDArray[np.float64], second: NDArray[np.float64], radii: Sequence[float], confidence: float
) -> tuple[RadiusComparison, ...]:
    total = len(first)
    # All intervals of the table are read together, so each fails more rarely (Bonferroni).
    level = 1.0 - down((1.0 - confidence) / len(radii))
    rows = []
    for radius in radii:
        in_first, in_second = first >= radius, second >= radius
        alone = int((in_first & ~in_second).sum()), int((in_second & ~in_first).sum())
        p_value, accuracy = intervals.mcnemar(*alone), (float(in_first.mean()), float(in_second.mean()))
        low, high = intervals.difference_interval(*alone, total, level)
        change = (alone[1] - alone[0]) / total
        rows.append(RadiusComparison(float(radius), *accuracy, *alone, change, low, high, p_value, p_value))
    corrected = intervals.holm([row.p_value for row in rows])
    return tuple(replace(row, p_holm=p) for row, p in zip(rows, corrected))


def _compare_acr(
    first: Run, second: Run, ceilings: tuple[float | None, float | None], confidence: float
) -> AcrComparison:
    first_radii, second_radii = (np.maximum(_counted(run), 0.0) for run in (first, second))
    differences = second_radii - first_radii
    low = high = None
    if ceilings[0] is not None and ceilings[1] is not None:
        least, most = -evidence.at_most(ceilings[0]), evidence.at_most(ceilings[1])
        doubt = _doubts(first) + _doubts(second)
        low = intervals.mean_interval(np.maximum(differences - doubt, least), least, most, confidence)[0]
        high = intervals.mean_interval(np.minimum(differences + doubt, most), least, most, confidence)[1]
    alike = np.abs(differences) <= _ROUNDING * np.maximum(first_radii, second_radii)
    return AcrComparison(
        float(first_radii.mean()),
        float(second_radii.mean()),
        float(differences.mean()),
        low,
        high,
        intervals.sign_flip_p_value(np.where(alike, 0.0, differences)),
    )


def _known_ceiling(run: Run) -> float | None:
    """The plan's ceiling; None where inputs have σ of their own or a log has radii that its plan can't give."""
    ceiling = evidence.radius_ceiling(run)
    if ceiling is None or (evidence.certain_radii(run) > evidence.at_most(ceiling)).any():
        return None
    return ceiling


def _doubts(run: Run) -> NDArray[np.float64]:
    """How far each input's share of the ACR may be from the certified one: half a unit of what a log prints."""
    return np.where(run.records.correct, evidence.possible_radii(run) - run.records.radius, 0.0)


def _counted(run: Run) -> NDArray[np.float64]:
    """Radii of the correct answers; −1, which is below every radius, for the others."""
    return np.where(run.records.correct, run.records.radius, -1.0)


def _paired(first: Run, second: Run, common: bool) -> tuple[Run, Run, list[str]]:
    first_indices, second_indices = (set(run.records.index.tolist()) for run in (first, second))
    shared = first_indices & second_indices
    if first_indices == second_indices:
        return first, second, []
    if not shared:
        raise InvalidValueError(f"{first.path} and {second.path} share no input; certify the same inputs")
    if not common:
        raise InvalidValueError(
            f"{first.path} certifies {len(first_indices)} inputs and {second.path} {len(second_indices)}, of which "
            f"they share {len(shared)}; compare the shared ones (--common, common=True)"
        )
    one, other = (
        replace(run, records=run.records.take(np.isin(run.records.index, list(shared))))
        for run in (first, second)
    )
    note = f"compared on the {len(shared)} shared inputs, of {len(first_indices)} and {len(second_indices)}"
    return one, other, [note]


def _plan_notes(first: Run, second: Run) -> list[str]:
    first_plan, second_plan = first.manifest.plan, second.manifest.plan
    different = []
    for field, words in _STATED.items():
        values = first_plan.value(field), second_plan.value(field)
        shown = [_stated(value, field) for value in values]
        # Of choosers, whose part of α follows from α, as they are called; of numbers all digits where fewer are alike.
        if (
            shown[0] == shown[1]
            and field is not PlanStatement.chooser
            and values[0] != values[1]
            and any(values)
        ):
            shown = list(map(str, values))
        if shown[0] != shown[1]:
            different.append(f"{words} {' and '.join(shown)}")
    return [f"the runs differ in {', '.join(different)}"] if different else []


def _region_notes(first: Run, second: Run) -> list[str]:
    """That radii say little of regions that aren't balls."""
    stretched = [
        run
        for run in (first, second)
        if run.manifest.plan.noise in DIAGONAL_NOISES or (run.records.volume_radius > 0).any()
    ]
    if not stretched:
        return []
    whose = "of both runs" if len(stretched) == 2 else f"of {stretched[0].name}"
    return [
        f"regions {whose} are stretched along the axes, and their radii are those of the largest ball inside, which a "
        "single small σ decides. By volume: "
        f"`{command('plot', first.path, second.path, kind='area', out='area.png')}`"
    ]


def _stated(value: Any, field: Stated[Any]) -> str:
    if not value and field not in _ALWAYS:
        return "none"
    if value is None:
        return "unknown"
    if field is PlanStatement.sigmas_sha256:
        return f"{value:.8}…"
    if field is PlanStatement.sigma_levels:
        return " ".join(f"{sigma:g}" for sigma in value)
    if field is PlanStatement.chooser:
        return _chooser(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    return " + ".join(value) if field is PlanStatement.stop else str(value)


def _chooser(stated: Mapping[str, Any]) -> str:
    """What it is called and its noise; which function it is, where names would be the same."""
    if "constant" in stated:
        return f"constant:{stated['constant']}"
    named = (
        f"{stated.get('name')} (σ {stated.get('sigma')}, n ≤ {stated.get('n')}, {stated.get('sha256')!s:.8})"
    )
    return shown_name(named)
