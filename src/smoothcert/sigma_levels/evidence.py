"""Evidence: every vote that an answer of a classifier with σ levels rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothcert.errors import RunError
from smoothcert.runs.json_lines import append_sealed, read_parsed
from smoothcert.runs.layout import RunFiles
from smoothcert.tally import Tally


@dataclass(frozen=True)
class LevelVotes:
    """The votes cast at one level: those that chose its class, and those that bounded it."""

    level: int
    selection: Tally
    estimation: Tally
    stopped: str | None = None


@dataclass(frozen=True)
class LevelEvidence:
    """One input's votes: of the chooser (None where it is constant), and at each level that was looked at.

    ``home`` is the level that the chooser's selection votes gave; its votes are the first of ``votes``. ``chooser`` is
    None where there was nothing left to find out: the home level itself certified nothing.
    """

    index: int
    home: int
    chosen: Tally | None
    chooser: Tally | None
    votes: tuple[LevelVotes, ...]
    reaches: tuple[float, ...] = ()
    """How far away the median can't become each level; 0 where nothing is known, inf where it never is."""
    radii: tuple[float, ...] = ()
    """How far each level answers the class; 0 for levels that weren't looked at."""

    @property
    def limit(self) -> str:
        """What keeps the radius from being larger: ``home``, another ``level``, or the ``chooser``."""
        bounded = list(map(max, self.reaches, self.radii))
        level = bounded.index(min(bounded))
        if bounded[self.home] == bounded[level]:
            return "home"
        return "level" if self.radii[level] > self.reaches[level] else "chooser"

    @property
    def certified(self) -> tuple[int, ...]:
        """The levels that were looked at."""
        return tuple(sorted(one.level for one in self.votes))

    @property
    def n(self) -> int:
        """All votes, the chooser's included."""
        tallies = [self.chosen, self.chooser]
        tallies += [tally for one in self.votes for tally in (one.selection, one.estimation)]
        return sum(tally.n for tally in tallies if tally is not None)

    def as_json(self) -> dict[str, Any]:
        """In plain values, without what follows from the votes."""
        return {
            "index": self.index,
            "home": self.home,
            "chosen": _stated(self.chosen),
            "chooser": _stated(self.chooser),
            "votes": [
                {
                    "level": one.level,
                    "selection": one.selection.as_json(),
                    "estimation": one.estimation.as_json(),
                    "stopped": one.stopped,
                }
                for one in self.votes
            ],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> LevelEvidence:
        """The inverse of :meth:`as_json`; ValueError, KeyError, TypeError or AttributeError for what isn't."""
        index, home = _whole(fields["index"]), _whole(fields["home"])
        votes = tuple(
            LevelVotes(
                _whole(one["level"]),
                Tally.from_json(one["selection"]),
                Tally.from_json(one["estimation"]),
                one["stopped"],
            )
            for one in fields["votes"]
        )
        return cls(index, home, _tally(fields["chosen"]), _tally(fields["chooser"]), votes)


def append_evidence(directory: Path, evidence: LevelEvidence) -> None:
    """Add a line beside a run's journal and wait until it is on disk: a record that counts has its line."""
    append_sealed(RunFiles(directory).levels, evidence.as_json())


def read_evidence(directory: Path) -> dict[int, LevelEvidence]:
    """Every input's evidence by index, without lines that were cut off or damaged."""
    lines = read_parsed(RunFiles(directory).levels, LevelEvidence.from_json, always=True)
    return {one.index: one for one in lines}


def missing_line(directory: Path, index: int) -> RunError:
    """What readers say of a record whose votes are lost or damaged."""
    return RunError(
        f"{RunFiles(directory).levels.name} has no intact line of input {index} in {directory}: give the command that "
        "made the run again, it casts those votes anew, or restore the file"
    )


def _stated(tally: Tally | None) -> dict[str, Any] | None:
    return None if tally is None else tally.as_json()


def _tally(fields: dict[str, Any] | None) -> Tally | None:
    return None if fields is None else Tally.from_json(fields)


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"an index or a level must be a whole number, got {value!r}")
    return value
