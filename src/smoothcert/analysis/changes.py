"""What runs of masked tables certify over d, the categories that may change, and ρ, how far numbers may move.

The table of each input is computed from its votes, as the certificate was: runs keep ρ(0) alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.analysis.facts import data_in_words, dataset_of, split_of
from smoothcert.analysis.tables import Section, Table, markdown_escaped, percentage
from smoothcert.bounds.base import ClassBounds
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.hybrid import MaskTheorem
from smoothcert.regions.changes import ChangeRegion
from smoothcert.runs.run import Run
from smoothcert.smoothing.plan import CertifyPlan

RHOS = ("0", "0.25", "0.5", "1", "1.5", "2")
"""In units of σ."""
_MOST_ROWS = 12


def is_of_changes(run: Run) -> bool:
    """Whether the run's certificates are about changed categories."""
    return run.manifest.plan.norm in ("l0", "l2/sigma")


@dataclass(frozen=True)
class CertifiedChanges:
    """ρ(0), ρ(1), … of every input of a run, as long as they are above 0; nothing of an input that abstained."""

    run: Run
    theorem: MaskTheorem
    tables: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, run: Run) -> CertifiedChanges:
        """Computed from the votes; refused for a run without masks."""
        run.check_begun()
        if not is_of_changes(run):
            raise InvalidValueError(f"{run.path} masks no categories: leave it out")
        plan = CertifyPlan.from_statement(run.manifest.plan, run.path)
        theorem = plan.certificate
        assert isinstance(theorem, MaskTheorem)
        table_of = cache(theorem.table)

        def bounds(place: int) -> ClassBounds | None:
            record = run.records[place]
            if not record.radius > 0 or record.estimation is None:
                return None
            return plan.bounds_of(record.estimation, record.predicted)

        found = map(bounds, range(len(run.records)))
        return cls(run, theorem, tuple(() if one is None else table_of(one) for one in found))

    @cached_property
    def most(self) -> int:
        """The most categories whose change is certified for any input that is right; −1 if there is none."""
        right = self.run.records.correct.tolist()
        return max((len(table) - 1 for table, correct in zip(self.tables, right) if correct), default=-1)

    def reached(self, changes: int) -> NDArray[np.float64]:
        """ρ(d) of every input, 0 where nothing is certified or the class is wrong."""
        found = [table[changes] if changes < len(table) else 0.0 for table in self.tables]
        return np.where(self.run.records.correct, np.array(found), 0.0)

    def count(self, changes: int, rho: float, label: int | None = None) -> int:
        """Inputs that are right, and stay so after so many changes and numbers that moved by less than ``rho``."""
        reached = self.reached(changes)
        whose = True if label is None else self.run.records.label == label
        return int(np.count_nonzero((reached > 0) & (reached >= rho) & whose))

    def share(self, changes: int, rho: float) -> float:
        """The same as a share of all inputs."""
        return self.count(changes, rho) / len(self.tables)

    def rows(self) -> range:
        """The numbers of changes worth a row of a table: up to the first at which nothing is left, at least to 4."""
        return range(min(max(self.most + 1, 4), self.theorem.most, _MOST_ROWS) + 1)

    def rhos(self, typed: Sequence[str] = ()) -> tuple[str, ...]:
        """How far numbers move in the columns of a table; not at all where there are none."""
        return ("0",) if self.theorem.scales is None else tuple(typed) or RHOS

    def units(self, rho: str) -> str | None:
        """What a ρ is in the numbers' own units."""
        if self.theorem.scales is None or not float(rho) > 0:
            return None
        moves = ", ".join(
            f"{name} {most:.3g}" for name, most in self.theorem.scales.budgets(float(rho)).items()
        )
        return f"ρ = {rho} lets one number alone move by: {moves}"

    def regions(self, places: Sequence[int]) -> list[list[str]]:
        """For each of these inputs what may happen to it without another answer, a sentence for every d."""
        width = self.theorem.most if self.theorem.scales is None else len(self.theorem.scales.names)
        center = np.zeros(min(width, self.run.manifest.plan.dimension or width))
        return [
            [str(row["sentence"]) for row in ChangeRegion(center, table, self.theorem.scales).rows()]
            for table in (self.tables[place] for place in places)
        ]

    def as_json(self, rhos: Sequence[str]) -> dict[str, Any]:
        """The share of inputs that are right and certified, by d and ρ, and by class."""
        labels = np.unique(self.run.records.label).tolist()
        members = {label: int(np.count_nonzero(self.run.records.label == label)) for label in labels}
        return {
            "beta": self.theorem.beta,
            "rhos": list(rhos),
            "certified": {str(d): [self.share(d, float(rho)) for rho in rhos] for d in self.rows()},
            "by_class": {
                str(label): {
                    str(d): [self.count(d, float(rho), label) / members[label] for rho in rhos]
                    for d in self.rows()
                }
                for label in labels
            },
        }


def changes_table(runs: Sequence[Run], radii: Sequence[str]) -> Table:
    """For each run a row for every d: the share that is right and certified where numbers move by less than each ρ."""
    found = [CertifiedChanges.of(run) for run in runs]
    rhos = tuple(radii) if any(one.theorem.scales is not None for one in found) else ("0",)
    sections, records, values = [], [], []
    for one in found:
        run, plan = one.run, one.run.manifest.plan
        where = data_in_words(dataset_of(run), split_of(run)) or "data not stated"
        note = (
            f"{markdown_escaped(run.name)} ({markdown_escaped(where)}, {len(run.records)} inputs, β = "
            f"{one.theorem.beta:g}, {plan.bound} bound, n = {plan.n}, α = {plan.alpha:g}): certified accuracy (%) "
            "after d changed categories and numbers that move by less than ρ, in units of σ:"
        )
        rows = [(str(d), *(percentage(one.share(d, float(rho))) for rho in rhos)) for d in one.rows()]
        sections.append(Section(note, (tuple(rows),), run.name))
        records += [
            {"run": run.name, "inputs": len(run.records)} | dict(zip(("d", *rhos), row)) for row in rows
        ]
        values.append({"run": run.name, "inputs": len(run.records)} | one.as_json(rhos))
    columns = ("d", *rhos)
    return Table(columns, tuple(sections), records, {"rhos": list(rhos), "runs": values}, "ρ", len(rhos))
