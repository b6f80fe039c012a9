"""What a memory answered, input by input, on disk before the next is asked: a kill loses no answer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

from smoothcert.errors import RunError
from smoothcert.region_memory.answers import Source
from smoothcert.region_memory.chain import Head
from smoothcert.runs import Record
from smoothcert.runs.json_lines import append_sealed, read_sealed
from smoothcert.runs.layout import RunFiles


@dataclass(frozen=True)
class Answered:
    """One answer, to the last bit."""

    index: int
    predicted: int
    radius: float
    volume_radius: float | None
    source: Source
    held: int
    """How many regions the memory held then."""

    def of(self, record: Record) -> Record:
        """The record of the input with this answer."""
        return replace(record, predicted=self.predicted, radius=self.radius, volume_radius=self.volume_radius)


class AnswerLog:
    """The answers to a run's inputs, in their order, from one memory.

    ``stored`` is how many regions the memory held after the last of them, ``head`` what names it at the end.
    """

    def __init__(self, directory: Path, results_sha256: str, memory: str, order: list[int]) -> None:
        self._path = RunFiles(directory).answers
        self._about = {"results_sha256": results_sha256, "memory": memory}
        self.answers: dict[int, Answered] = {}
        self.stored = 0
        self.head = ""
        lines = list(read_sealed(self._path, always=True))
        self.resumed = bool(lines)
        if not lines:
            if RunFiles(directory).statement.exists():
                raise RunError(f"{directory} holds a run already; choose another --out")
            return
        first, *rest = lines
        if {name: first.get(name) for name in self._about} != self._about or "stored" not in first:
            raise RunError(
                f"{self._path} is damaged, or holds answers about another run or of another memory; choose another "
                "--out"
            )
        self.stored = first["stored"]
        for line in rest:
            if "head" in line:
                self.head = line["head"]
            else:
                self._take(Answered(**line))
        if list(self.answers) != order[: len(self.answers)] or (self.head and len(self.answers) < len(order)):
            raise RunError(
                f"{self._path} is damaged: answers are missing between others, and a memory that has grown would "
                "give others; restore it, or choose another --out"
            )

    def begin(self, head: Head) -> None:
        """Called before the memory is asked."""
        if not self.resumed:
            self.stored = head.count
            append_sealed(self._path, self._about | {"stored": head.count})

    def append(self, answer: Answered) -> None:
        """Note an answer and wait until it is on disk."""
        append_sealed(self._path, asdict(answer))
        self._take(answer)

    def end(self, head: Head) -> None:
        """Every input is answered."""
        if not self.head:
            self.head = str(head)
            append_sealed(self._path, {"head": self.head})

    def _take(self, answer: Answered) -> None:
        self.answers[answer.index] = answer
        self.stored = answer.held
