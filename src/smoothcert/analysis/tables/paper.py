"""The papers' table: methods grouped by data set and σ, with ACR and certified accuracy at each radius."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from smoothcert.analysis.about import dataset_of
from smoothcert.analysis.metrics import check_same_norm
from smoothcert.analysis.seeds import SeedGroup, SeedSummary, summarise_seeds
from smoothcert.analysis.tables.naming import check_same_inputs, differ_in_seed_alone, method_of
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Run


@dataclass(frozen=True)
class SigmaBlock:
    """The methods of one σ; their figures compare if they are of the same inputs."""

    sigma: float | None
    rows: tuple[SeedSummary, ...]

    @property
    def same_inputs(self) -> bool:
        """Whether all rows are of the same inputs."""
        return len({row.indices for row in self.rows}) == 1

    def best(self) -> tuple[tuple[bool, ...], ...]:
        """For each row and figure, whether none of the block is printed higher.

        Zeros, lone rows, and rows on different inputs or of other certainty (bound, n, α) are no best.
        """
        means = [[float(cell.partition("±")[0]) for cell in row.printed()] for row in self.rows]
        highest = [max(column) for column in zip(*means)]
        alike = len({(row.bound, row.n, row.alpha) for row in self.rows}) == 1
        rivals = len(self.rows) > 1 and self.same_inputs and alike
        return tuple(tuple(rivals and value == top > 0 for value, top in zip(row, highest)) for row in means)


@dataclass(frozen=True)
class DatasetBlock:
    """All that was certified on one data set; None if the runs don't name it."""

    dataset: str | None
    sigmas: tuple[SigmaBlock, ...]

    @property
    def split(self) -> str | None:
        """The split, where no two rows state different ones."""
        stated = {row.split for row in self.rows} - {None}
        return stated.pop() if len(stated) == 1 else None

    @property
    def rows(self) -> list[SeedSummary]:
        """Every row."""
        return [row for block in self.sigmas for row in block.rows]


@dataclass(frozen=True)
class PaperTable:
    """What a paper's table shows, before it is put in words."""

    norm: str
    radii: tuple[str, ...]
    datasets: tuple[DatasetBlock, ...]


def paper_table(runs: Sequence[Run], radii_as_typed: Sequence[str]) -> PaperTable:
    """Sort runs into data sets, σ and methods. Norms don't mix; data sets never share a block.

    Runs of one method and σ that differ in their seed alone (distinct models, the same inputs) are averaged (mean ±
    standard deviation); others of one name are told apart by the names of their directories.
    """
    if not runs or not radii_as_typed:
        raise InvalidValueError(
            f"a table needs at least one run and one radius, got {len(runs)} and {len(radii_as_typed)}"
        )
    norms = [(str(run.path), run.norm) for run in runs]
    check_same_norm(norms)
    by_dataset: dict[str | None, list[Run]] = {}
    for run in runs:
        by_dataset.setdefault(dataset_of(run), []).append(run)
    for members in by_dataset.values():
        check_same_inputs(members)
    radii = [float(radius) for radius in radii_as_typed]
    blocks = tuple(
        DatasetBlock(dataset, tuple(_sigma_blocks(members, radii))) for dataset, members in by_dataset.items()
    )
    return PaperTable(norms[0][1], tuple(radii_as_typed), blocks)


def _sigma_blocks(runs: Sequence[Run], radii: Sequence[float]) -> list[SigmaBlock]:
    by_sigma: dict[float | None, dict[str, list[Run]]] = {}
    for run in runs:
        methods = by_sigma.setdefault(run.manifest.plan.sigma, {})
        methods.setdefault(method_of(run), []).append(run)
    blocks = []
    for sigma in sorted(by_sigma, key=lambda value: (value is None, value or 0.0)):
        rows = [
            summarise_seeds(SeedGroup(name, sigma or 0.0, tuple(members)), radii)
            for method, alike in by_sigma[sigma].items()
            for name, members in _told_apart(method, alike)
        ]
        blocks.append(SigmaBlock(sigma, tuple(rows)))
    return blocks


def _told_apart(method: str, runs: list[Run]) -> list[tuple[str, list[Run]]]:
    if len(runs) == 1 or differ_in_seed_alone(runs):
        return [(method, runs)]
    unique = len({run.name for run in runs}) == len(runs)
    return [(f"{method} ({run.name if unique else run.path})", [run]) for run in runs]
