"""What a verification found, and what it had to take on trust."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Problem:
    """Something that doesn't follow; ``index`` is the input's, None for the run as a whole."""

    index: int | None
    message: str


@dataclass
class Report:
    """The outcome for one run."""

    run: str
    records: int = 0
    recomputed: int = 0
    """Records whose answer was held against the input's own votes."""
    expected: int | None = None
    verified: list[str] = field(default_factory=list)
    believed: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    results_sha256: str | None = None
    replayed: int = 0
    data_known: bool = False
    """Whether the data were at hand, and are called what the run calls them."""

    @property
    def holds(self) -> bool:
        """Whether everything that could be checked follows."""
        return not self.problems

    @property
    def rests_on_trust(self) -> bool:
        """Whether there are answers that couldn't be recomputed from votes: a memory's, an imported log's, or none."""
        return self.recomputed < self.records or not self.records

    @property
    def finished(self) -> bool | None:
        """Whether every input that the data allow has its record; None where a log doesn't say how many there are."""
        return None if self.expected is None else self.records >= self.expected

    @property
    def inputs(self) -> list[int]:
        """The inputs with problems."""
        return sorted({problem.index for problem in self.problems if problem.index is not None})

    def problem(self, index: int | None, message: str) -> None:
        """Something doesn't follow."""
        self.problems.append(Problem(index, message))

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "run": self.run,
            "holds": self.holds,
            "records": self.records,
            "recomputed": self.recomputed,
            "replayed": self.replayed,
            "expected": self.expected,
            "finished": self.finished,
            "inputs_with_problems": self.inputs,
            "problems": [asdict(problem) for problem in self.problems],
            "verified": self.verified,
            "believed": self.believed,
            "notes": self.notes,
            "results_sha256": self.results_sha256,
        }
