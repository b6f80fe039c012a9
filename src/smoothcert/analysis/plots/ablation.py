"""ACR against one field of the plan, all else equal."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.analysis.facts import SECONDS, stated_training, training_difference
from smoothcert.analysis.metrics import average_certified_radius
from smoothcert.analysis.plots.drawing import GREY, check_picture_path, line_style, marker_style, new_sheet
from smoothcert.analysis.plots.kinds import checked, partial_inputs, register
from smoothcert.analysis.seeds import INCIDENTAL, Spread, check_one_dataset, method_of, reason_not_to_average
from smoothcert.errors import InvalidValueError
from smoothcert.plain_text import norm_name
from smoothcert.runs.run import Run

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_SEED = "seed"
_FOLLOWS = {"votes": "bound", "norm": "noise"}
_LOGARITHMIC_FROM = 20.0
_ASIDE = 0.012
_NAMES = {"sigma": "σ", "alpha": "α"}
_TRAINING = "training."
_OF_A_TRAINING = {f"{_TRAINING}{name}" for name in ("seed", "shards", SECONDS)}
_CHANGES = re.compile(r":[^ ]*")


@dataclass(frozen=True)
class AblationLine:
    """One method's ACR at each value of the field, over the seeds that were certified at it."""

    method: str
    values: tuple[object, ...]
    acr: tuple[Spread, ...]


def ablation_lines(runs: Sequence[Run], over: str) -> list[AblationLine]:
    """A line for each method. Refused if the runs differ in the plan by more than ``over`` and their seeds.

    Fields of the training of their models, as the runs state it, begin with ``training.``; over one of them the models
    differ, and nothing else of their training may. ``steps`` stands for ``sigma_search.steps`` and ``lam`` for
    ``training.objective.lam`` where that is the only field it can mean.
    """
    fields = {name for run in runs for name in _fields(run, _TRAINING)}
    meant = [name for name in fields if name.endswith(f".{over}")]
    over = meant[0] if over not in fields and len(meant) == 1 else over
    _check_only(runs, over)
    grouped: dict[str, dict[object, list[Run]]] = {}
    for run, name in zip(runs, _line_names(runs, over)):
        grouped.setdefault(name, {}).setdefault(_fields(run, over)[over], []).append(run)
    lines = []
    for method, by_value in grouped.items():
        values = sorted(by_value, key=_order)
        _check_models(by_value, over)
        for value in values:
            _check_seeds(by_value[value], over, value)
        acr = [Spread.of([average_certified_radius(r.records) for r in by_value[value]]) for value in values]
        lines.append(AblationLine(method, tuple(values), tuple(acr)))
    return lines


@register(
    "ablation",
    "ACR against the field of the plan that differs between the runs (`--over n`)",
    options={
        "over": "the field on the horizontal axis: of the plan (n, n0, alpha, sigma, bound, …), or of the models' "
        "training (training.objective.lam, in short lam; training.epochs, …)"
    },
    names_each=False,
)
def plot_ablation(runs: Sequence[Run], over: str, out: Path, width: str = "page") -> None:
    """Draw ACR against the plan's field ``over``; with several seeds, bars span one standard deviation."""
    check_picture_path(out)
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    summaries = checked(runs)
    check_one_dataset(runs)
    lines = ablation_lines(runs, over)
    seeded = any(spread.sd is not None for line in lines for spread in line.acr)
    partial = ", ".join(sorted({text for run in runs if (text := partial_inputs(run))}))
    differ = len({tuple(run.records.index) for run in runs}) > 1
    notes = {
        "bars: one standard deviation over seeds": seeded,
        f"some runs have {partial}": bool(partial),
        "runs are on different inputs": differ and not partial,
    }
    axis = _Axis(sorted({value for line in lines for value in line.values}, key=_order))
    with new_sheet(out, width) as sheet:
        (axes,) = sheet.panels
        entries: list[tuple[Artist, str]] = []
        thick = sheet.size.line
        sizes = {"linewidth": 0.8 * thick, "elinewidth": 0.7 * thick, "capsize": 2.2 * thick}
        for k, line in enumerate(lines):
            deviations = [math.nan if spread.sd is None else spread.sd for spread in line.acr]
            style = line_style(k) | marker_style(k) | ({} if axis.numeric else {"linestyle": "none"})
            container = axes.errorbar(
                axis.places(line.values, k - (len(lines) - 1) / 2),
                [spread.mean for spread in line.acr],
                yerr=deviations if seeded else None,
                **style | sizes,
            )
            entries.append((container.lines[0], line.method))
        axis.dress(axes)
        axes.set_xlabel(_NAMES.get(over, over.removeprefix(_TRAINING).removeprefix("objective.")))
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
        axes.set_ylabel(f"ACR ({norm_name(summaries[0].norm)})")
        for words in (words for words, holds in notes.items() if holds):
            marker = "|" if words.startswith("bars") else "none"
            entries.append((Line2D([], [], color=GREY, linestyle="none", marker=marker, markersize=7), words))
        sheet.add_legend(entries)


@dataclass(frozen=True)
class _Axis:
    """Where the field's values stand: numbers to scale, linear or logarithmic; others side by side."""

    values: list[object]

    @property
    def numeric(self) -> bool:
        return all(map(_is_number, self.values))

    @property
    def logarithmic(self) -> bool:
        if not self.numeric:
            return False
        low, high = (float(str(self.values[k])) for k in (0, -1))
        return low > 0 and high / low >= _LOGARITHMIC_FROM

    def places(self, values: Sequence[object], line: float) -> list[float]:
        """``line`` steps aside of the true places: bars of several lines would hide one another."""
        if not self.numeric:
            return [self.values.index(value) + 5 * _ASIDE * line for value in values]
        low, high, *numbers = (float(str(value)) for value in (self.values[0], self.values[-1], *values))
        if self.logarithmic:
            return [number * (high / low) ** (_ASIDE * line) for number in numbers]
        return [number + _ASIDE * line * (high - low) for number in numbers]

    def dress(self, axes: Axes) -> None:
        """Ticks at the values themselves."""
        if not self.numeric:
            axes.set_xticks(range(len(self.values)), [str(value) for value in self.values])
            axes.set_xlim(-0.5, len(self.values) - 0.5)
            return
        if self.logarithmic:
            axes.set_xscale("log")
        numbers = [float(str(value)) for value in self.values]
        axes.set_xticks(numbers, [_short(number) for number in numbers])
        axes.minorticks_off()


def _short(number: float) -> str:
    """100000 as 100k: ticks stand at the runs' own values, often close together."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size and (number / size).is_integer():
            return f"{number / size:g}{letter}"
    return f"{number:g}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(value: object) -> tuple[bool, float, str]:
    return not _is_number(value), float(str(value)) if _is_number(value) else 0.0, str(value)


def _fields(run: Run, over: str) -> dict[str, object]:
    """The fields of the run's plan, and those of its model's training where ``over`` is one."""
    plan = run.manifest.plan.as_json()
    if not over.startswith(_TRAINING):
        return plan
    trained = stated_training(run.manifest.origin)
    return plan | {f"{_TRAINING}{name}": value for name, value in trained.items()}


def _check_only(runs: Sequence[Run], over: str) -> None:
    plans = [_fields(run, over) for run in runs]
    unstated = [str(run.path) for run, plan in zip(runs, plans) if plan.get(over) is None]
    if unstated:
        stated = [_fields(run, _TRAINING).items() for run in runs]
        fields = sorted({name for plan in stated for name, value in plan if value is not None})
        raise InvalidValueError(
            f"{', '.join(unstated)}: the plan states no {over!r}; fields that are stated: {', '.join(fields)}"
        )
    varying = {
        name
        for name in {name for plan in plans for name in plan} - INCIDENTAL - _OF_A_TRAINING - {over}
        if len({str(plan.get(name)) for plan in plans}) > 1 and _FOLLOWS.get(name) != over
    }
    if varying:
        seen = "; ".join(
            f"{name}: {', '.join(sorted({str(plan.get(name)) for plan in plans}))}"
            for name in sorted(varying)
        )
        raise InvalidValueError(
            f"an ablation over {over!r} needs runs alike otherwise, these differ in {seen}"
        )
    values = {str(plan.get(over)) for plan in plans}
    if len(values) == 1:
        raise InvalidValueError(
            f"{over!r} is {values.pop()} in every run, so there is nothing to compare; name runs that differ in it"
        )


def _line_names(runs: Sequence[Run], over: str) -> list[str]:
    """The runs' methods; one name for all where none is stated and directories are named after values (``n1000``)."""
    names = [method_of(run) for run in runs]
    if over.startswith(_TRAINING):
        names = [_CHANGES.sub("", name) for name in names]  # a sweep names its methods with their values
    seen: dict[str, set[str]] = {}
    for run, name in zip(runs, names):
        seen.setdefault(name, set()).add(str(_fields(run, over)[over]))
    if all(len(values) > 1 for values in seen.values()) or any(r.manifest.origin.method for r in runs):
        return names
    models = {run.manifest.model.name for run in runs}
    return [str(models.pop() or "runs") if len(models) == 1 else "runs"] * len(runs)


def _check_models(by_value: dict[object, list[Run]], over: str) -> None:
    """Each σ, and each way of training, has its own model; whatever else is varied must be varied on one."""
    if over.startswith(_TRAINING):
        return
    models: dict[object, tuple[object, Run]] = {}
    for run in (run for runs in by_value.values() for run in runs):
        digest = run.manifest.model.sha256
        first, where = models.setdefault(run.manifest.plan.value(_SEED), (digest, run))
        if over == "sigma":
            differ = training_difference(where.manifest.origin, run.manifest.origin, but=(over,))
            if differ is not None:
                raise InvalidValueError(
                    f"the models of {where.path} and {run.path} were trained otherwise ({differ}), not with another σ "
                    "alone; name runs of models trained alike"
                )
        elif first != digest:
            raise InvalidValueError(
                f"{where.path} and {run.path} differ in their model, not in {over} alone; name runs of one model"
            )


def _check_seeds(runs: Sequence[Run], over: str, value: object) -> None:
    """A spread is over seeds: two runs of one seed would count it twice."""
    seeds = [run.manifest.plan.value(_SEED) for run in runs]
    if over != _SEED and len(set(seeds)) < len(seeds):
        named = ", ".join(str(run.path) for run in runs)
        raise InvalidValueError(
            f"{named}: the same method, {over} = {value} and seed; leave one out, or name their methods apart "
            "(run import --method)"
        )
    if over != _SEED and (reason := reason_not_to_average(runs)) is not None:
        raise InvalidValueError(f"{reason}: only runs that differ in seed alone are averaged; leave one out")
