"""``--noise hybrid:…`` and other perturbations that are no noise on real numbers: what they are, on which data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np

from smoothcert.errors import InvalidValueError

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.table import Table

    from smoothcert.cli.arguments import NamedModel
    from smoothcert.datasets.base import Dataset
    from smoothcert.perturb.base import Perturbation
    from smoothcert.perturb.columns import Columns
    from smoothcert.runs.run import Run


@dataclass(frozen=True)
class TrainingSplit:
    """Rows of the training split, read only where a σ is relative to them."""

    columns: Columns | None
    load: Callable[[], Dataset]

    def rows(self) -> NDArray[Any]:
        """As the model has them."""
        found = self.load()
        return np.asarray((found if self.columns is None else found.encoded_by(self.columns)).stored)


def perturbation_of(
    named: NamedModel, text: str | None, sigma: float | None, table: TrainingSplit | None
) -> Perturbation | None:
    """What ``--noise`` names or the model was trained for; None for noise on real numbers.

    ``table`` is None where there is no data set: then only the model can say what σ is relative to.
    """
    from smoothcert.perturb.base import PERTURBATIONS

    trained_for = named.trained_for
    name, _, rest = (text or "").partition(":")
    if text is None or name not in PERTURBATIONS:
        if text is not None or trained_for is None:
            return None
        if sigma is None:
            return trained_for
        name, rest = trained_for.name, f"beta={trained_for.beta!r}"
    options = {}
    for part in filter(None, rest.split(",")):
        option, equals, value = part.rpartition("=")
        if not equals:
            raise InvalidValueError(f"--noise {text}: options are NAME=VALUE, got {part!r}")
        options[unquote(option)] = value
    if table is None:
        raise InvalidValueError(
            f"--noise {name} needs rows that σ is relative to: serve a model of fit_masked, which has its noise, or "
            "give --plan-from a run"
        )
    if name == getattr(trained_for, "name", None) and not options and sigma is None:
        return trained_for
    return PERTURBATIONS[name].asked(options, sigma, table)


def perturbed(
    named: NamedModel,
    text: str | None,
    sigma: float | None,
    inputs: Dataset,
    training: Callable[[], Dataset],
    *,
    held: bool,
) -> tuple[Perturbation | None, Dataset]:
    """The perturbation, and the inputs as its columns have them; categories are not given noise on numbers."""
    trained_for = named.trained_for
    columns = inputs.columns if trained_for is None else trained_for.columns
    found = perturbation_of(named, text, sigma, TrainingSplit(columns, training))
    if found is None and not held and inputs.columns is not None and inputs.columns.categorical:
        categories = ", ".join(inputs.columns.categories)
        raise InvalidValueError(
            f"{inputs.name}: noise on numbers means nothing to categories ({categories}): give --noise hybrid, which "
            "masks them, or --hold them"
        )
    columns = getattr(found, "columns", None)
    return found, inputs if columns is None else inputs.encoded_by(columns)


def changes_parts(run: Run) -> Iterator[str | Table]:
    """The share that is right and certified over d and ρ, and what that means for one row of the table."""
    from smoothcert.analysis.changes import CertifiedChanges
    from smoothcert.analysis.tables import percentage
    from smoothcert.cli.console import figure_table

    found = CertifiedChanges.of(run)
    rhos = found.rhos()
    table = figure_table(
        *("d", *(f"ρ = {rho}" for rho in rhos)),
        title="certified accuracy (%) after d changed categories, numbers moved by less than ρ",
    )
    for d in found.rows():
        table.add_row(str(d), *(percentage(found.share(d, float(rho))) for rho in rhos))
    yield table
    yield from filter(None, map(found.units, rhos[1:2]))
    right = [
        place for place, correct in enumerate(run.records.correct.tolist()) if correct and found.tables[place]
    ]
    if right:
        median = sorted(right, key=lambda place: found.tables[place])[len(right) // 2]
        (sentences,) = found.regions([median])
        yield f"The median right answer (input {run.records.index[median]}) holds though its row"
        yield from (f"  {sentence}" for sentence in sentences)
