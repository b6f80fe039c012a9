"""Runs with votes, and data sets, whose pages can be worked out by hand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert.bounds.base import BOUNDS
from smoothcert.perturb.base import NOISES
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run
from smoothcert.tally import ABSTAIN, Phase, Stream, Tally

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def voted(
    index: int,
    label: int,
    counts: Sequence[int],
    sigma: float = 0.5,
    noise: str = "gaussian",
    alpha: float = 0.001,
    base: int | None = None,
) -> Record:
    """An input certified from these estimation votes; the class ahead is the chosen one."""
    estimation = Tally(Stream(0, index, Phase.ESTIMATION), 0, sum(counts), tuple(counts))
    first = estimation.top()
    chosen = tuple(10 if c == first else 0 for c in range(len(counts)))
    selection = Tally(Stream(0, index, Phase.SELECTION), 0, 10, chosen)
    certificate = NOISES[noise](sigma).certificate  # type: ignore[call-arg]
    radius = certificate.radius(BOUNDS["two-class"](estimation, first, alpha))
    answer = first if radius > 0 else ABSTAIN
    return Record(index, label, answer, radius, sigma, 1.0, selection, estimation, base)


def statement(
    data: dict[str, Any] | None = None, kind: str = "certify", model: str = "a", **plan: Any
) -> Manifest:
    stated = {"noise": "gaussian", "sigma": 0.5, "norm": "l2", "bound": "two-class", "votes": "hard"}
    whole = {**stated, "n0": 10, "n": 1000, "alpha": 0.001, "seed": 0, **plan}
    return Manifest.of(
        kind,
        whole,
        {"name": "toy", "sha256": model * 64},
        data if data is not None else {"name": "toys", "sha256": "b" * 64, "inputs": 40, "skip": 1},
        {"smoothcert": "1", "torch": "2"},
        "2026-01-01T00:00:00+00:00",
    )


def toy_records(count: int = 40, classes: int = 4, seed: int = 0, **options: Any) -> list[Record]:
    """Mostly right answers of all radii; the 7th, 14th … are wrong and the 10th, 20th … abstained."""
    generator = np.random.default_rng(seed)
    records = []
    for index in range(count):
        label = index % classes
        share = 500 + int(generator.integers(50, 500))
        votes = [0] * classes
        if index % 10 == 9:
            votes[label], votes[(label + 1) % classes] = 500, 500
        elif index % 7 == 6:
            votes[(label + 1) % classes], votes[label] = share, 1000 - share
        else:
            votes[label], votes[(label + 2) % classes] = share, 1000 - share
        records.append(voted(index, label, votes, base=label, **options))
    return records


def pictures_file(
    path: Path, count: int = 40, shape: tuple[int, ...] = (8, 8), names: Sequence[str] = ()
) -> Path:
    """An .npz data set whose labels are those of :func:`toy_records`."""
    generator = np.random.default_rng(1)
    labels = np.arange(count) % 4
    named = np.array(list(names) or ["north", "east", "south", "west"])
    np.savez(path, x=generator.random((count, *shape), dtype=np.float32), y=labels, classes=named)
    return path


def toy_run(path: Path, records: Sequence[Record], manifest: Manifest | None = None) -> Path:
    create_run(path, manifest or statement(), list(records))
    return path
