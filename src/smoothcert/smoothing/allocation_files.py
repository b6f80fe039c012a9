"""The files of a run that spreads a total: ``pilots.jsonl``, a line for each input, and ``allocation.json``.

The allocation is on disk before the first certifying vote is drawn, so that n is a constant to those votes however
often the run is killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from smoothcert.checksums import sealed, unsealed
from smoothcert.errors import DataError, RunError
from smoothcert.files import MOST_TEXT, parse_json, read_file, write_atomically
from smoothcert.runs.json_lines import append_sealed, read_parsed
from smoothcert.runs.layout import RunFiles
from smoothcert.smoothing.adaptive import Piloted, shares_of, total_of
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.stopping import allocate
from smoothcert.tally import Tally


def append_pilot(directory: Path, index: int, piloted: Piloted) -> None:
    """Add a line and wait until it is on disk."""
    pilot = None if piloted.pilot is None else piloted.pilot.as_json()
    fields = {"index": index, "selection": piloted.selection.as_json(), "pilot": pilot}
    append_sealed(RunFiles(directory).pilots, fields)


def read_pilots(directory: Path) -> dict[int, Piloted]:
    """The pilots by index; one whose line was cut off by a kill, or damaged, is cast again, with the same votes."""
    return dict(read_parsed(RunFiles(directory).pilots, _piloted))


def _piloted(fields: dict[str, Any]) -> tuple[int, Piloted]:
    if fields.keys() != {"index", "selection", "pilot"}:
        raise ValueError("it has other fields")
    pilot = None if fields["pilot"] is None else Tally.from_json(fields["pilot"])
    return int(fields["index"]), Piloted(Tally.from_json(fields["selection"]), pilot)


def check_allocation(directory: Path, indices: Iterable[int]) -> None:
    """Refuse other inputs than those that a total was spread over, before any vote is cast for them."""
    path = RunFiles(directory).allocation
    if path.exists():
        _read(path, list(indices))


def settled_votes(
    plan: CertifyPlan, directory: Path, indices: Iterable[int], piloted: Mapping[int, Piloted]
) -> dict[int, int]:
    """Votes for each input: as the run's file says, or allocated now and written before they are used."""
    path, wanted = RunFiles(directory).allocation, list(indices)
    if path.exists():
        return _read(path, wanted)
    spent = sum(one.selection.n + (0 if one.pilot is None else one.pilot.n) for one in piloted.values())
    votes = dict.fromkeys(wanted, 0) | allocate(shares_of(plan, piloted), total_of(plan) - spent)
    content = {"total": total_of(plan), "spent_before": spent, "votes": votes}
    # As it is read again: keys are texts.
    content = sealed(parse_json(json.dumps(content)))
    write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())
    return votes


def _read(path: Path, indices: list[int]) -> dict[int, int]:
    try:
        stated = unsealed(parse_json(read_file(path, MOST_TEXT, links=False)))
        if stated.keys() != {"total", "spent_before", "votes"}:
            raise ValueError("it has other fields")
        votes = {int(index): int(n) for index, n in stated["votes"].items()}
    except (OSError, DataError, ValueError, KeyError, TypeError, AttributeError):
        raise RunError(
            f"{path} is damaged; restore it, or delete it and give the same command again: "
            f"{RunFiles.pilots.name} gives the same numbers"
        ) from None
    if sorted(votes) != sorted(indices):
        raise RunError(
            f"{path} spreads the votes over {len(votes)} inputs, and not over the {len(indices)} asked for: a total is "
            "for the inputs it was spread over; give the same --skip and --max, or another --out"
        )
    return votes
