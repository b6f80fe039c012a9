"""Runs with σ levels from strangers: odd values with the right checksums are refused or reported, never a traceback."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smoothcert.analysis.levels import levels_used
from smoothcert.analysis.metrics import summarise
from smoothcert.analysis.plots.levels import ranked_radii
from smoothcert.checksums import sealed
from smoothcert.errors import SmoothcertError
from smoothcert.evaluation.recertification import recertified
from smoothcert.report.payload import ReportOptions, make_payload
from smoothcert.runs import read_run
from smoothcert.verification import verify_run
from tests.levelled_runs import certified
from tests.runs.sealing import without_checksums

ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1, 2, 1.5, 64, 2**63, 10**30, 10**400, 1e308, -1e-320, float("nan"), float("inf")),
    *(
        "",
        "cat",
        "constant",
        [],
        [0],
        [1, 2, 3],
        [-5, 3, 1],
        [10**9, 0, 0],
        {},
        {"constant": 1},
        {"constant": "x"},
    ),
)

READERS: tuple[Callable[[Path], object], ...] = (
    lambda run: verify_run(run),
    lambda run: recertified(read_run(run)),
    lambda run: recertified(read_run(run), alpha=0.01),
    lambda run: levels_used(read_run(run)),
    lambda run: summarise(read_run(run), [0.25]),
    lambda run: ranked_radii(read_run(run)),
    lambda run: make_payload([read_run(run)], ReportOptions(inputs=0)),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something can be put in the place of something else."""
    if path:
        yield path
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield from places(one, (*path, key))


def with_odd_value(fields: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    changed = copy.deepcopy(fields)
    changed.pop("checksum", None)
    *way, last = chance.choice(list(places(changed)))
    parent: Any = changed
    for key in way:
        parent = parent[key]
    if chance.random() < 0.15:
        del parent[last]
    else:
        parent[last] = chance.choice(ODD)
    return sealed(changed)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certified(tmp_path_factory.mktemp("hostile") / "run", n=100, chooser_n=100)


@pytest.mark.parametrize("name", ["levels.jsonl", "run.json"])
@pytest.mark.parametrize("tries", [40, pytest.param(600, marks=pytest.mark.campaign)])
def test_odd_values_are_refused_or_reported(whole: Path, tmp_path: Path, name: str, tries: int) -> None:
    run = without_checksums(Path(shutil.copytree(whole, tmp_path / "run")))
    path = run / name
    text = (whole / name).read_text()
    for number in range(tries):
        chance = random.Random(f"{name} {number}")
        if name == "run.json":
            fields = json.loads(text)
            part = chance.choice(["sigma_levels", "chooser", "chooser", "chooser", "plan"])
            plan = fields["plan"]
            chosen = plan if part == "plan" else {part: plan[part]}
            fields.pop("checksum")
            changed = with_odd_value(chosen, chance)
            changed.pop("checksum")
            fields["plan"] = {**({} if part == "plan" else plan), **changed}
            path.write_text(json.dumps(sealed(fields)))
        else:
            lines = [json.loads(line) for line in text.splitlines()]
            place = chance.randrange(len(lines))
            lines[place] = with_odd_value(lines[place], chance)
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        for read in READERS:
            try:
                read(run)
            except SmoothcertError:
                continue
            except BaseException:
                print(f"try {number}: {path.read_text()[:3000]}")
                raise
