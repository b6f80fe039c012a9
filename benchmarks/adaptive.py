"""``python -m benchmarks.adaptive TAPE.npz…``: votes, ACR and certified accuracy of every way to stop, on real votes.

The library's own procedures are fed from tapes (``benchmarks.vote_tapes``): what they get is what the engine would have
given them. Where a look falls inside a block, the first votes of it are drawn from the block's counts without
replacement, which is how they are distributed. ``--total RUN`` compares a run that spread a total (``certify
--total-votes``) over some of the inputs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.vote_tapes import N, Tapes
from smoothcert.analysis.tables import markdown_table
from smoothcert.analysis.votes import votes_used
from smoothcert.noise import Gaussian
from smoothcert.runs import read_run
from smoothcert.sampling import Numerics, Procedure
from smoothcert.smoothing import CertifyPlan
from smoothcert.smoothing.adaptive import forecast_for, stopping_procedure
from smoothcert.tally import Phase, Stream, Tally

R = TypeVar("R")
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25)
"""The papers'."""
DECISIONS = (0.25, 0.5, 1.0)
ONE_SIDED, TWO_CLASS = "clopper-pearson", "two-class"


class TapedVotes:
    """Answers one input's draws from its tape."""

    def __init__(self, tapes: Tapes, row: int) -> None:
        self._tapes, self._row = tapes, row
        self._index = int(tapes.indices[row])
        self._blocks = tapes.blocks[row].astype(np.int64)
        self._rng = np.random.default_rng(self._index)
        self._drawn: dict[Phase, int] = {}
        self._rest = np.zeros(self._blocks.shape[1], dtype=np.int64)
        self._next_block = 0

    @property
    def votes(self) -> int:
        """All that were asked for."""
        return sum(self._drawn.values())

    def run(self, procedure: Procedure[R]) -> R:
        """The procedure's answer."""
        try:
            draw = next(procedure)
            while True:
                start = self._drawn.get(draw.phase, 0)
                self._drawn[draw.phase] = start + draw.votes
                counts = tuple(self._counts(draw.phase, draw.votes).tolist())
                stream = Stream(0, self._index, draw.phase)
                draw = procedure.send(Tally(stream, start, start + draw.votes, counts))
        except StopIteration as stop:
            answer: R = stop.value
            return answer

    def _counts(self, phase: Phase, votes: int) -> NDArray[np.int64]:
        if phase == Phase.SELECTION:
            return np.asarray(self._tapes.selection[self._row])
        if phase == Phase.PILOT:
            return np.asarray(self._tapes.pilot[self._row])
        found = np.zeros_like(self._rest)
        while votes:
            if not self._rest.sum():
                self._rest = self._blocks[self._next_block].copy()
                self._next_block += 1
            whole = int(self._rest.sum())
            taken = self._rest if votes >= whole else self._rng.multivariate_hypergeometric(self._rest, votes)
            found += taken
            votes -= int(taken.sum())
            self._rest = self._rest - taken
        return found


@dataclass(frozen=True)
class Outcome:
    """What one way of stopping made of a tape's inputs: radii that count, and votes in all."""

    name: str
    bound: str
    radii: NDArray[np.float64]
    votes: int
    abstained: int

    def accuracy(self) -> NDArray[np.float64]:
        """Certified accuracy in percent at the papers' radii."""
        return np.array([100 * np.mean((self.radii > 0) & (self.radii >= r)) for r in RADII])


def replay(tapes: Tapes, bound: str, *stop: str) -> Outcome:
    """Certify every input of a tape by one plan."""
    numerics = Numerics("float32", "eager", tapes.block, tapes.block)
    plan = CertifyPlan(Gaussian(tapes.sigma), bound, n=N, stop=stop, numerics=numerics)
    forecast, radii, votes, abstained = forecast_for(plan), [], 0, 0
    for row, label in enumerate(tapes.labels.tolist()):
        taped = TapedVotes(tapes, row)
        answer = taped.run(stopping_procedure(np.zeros(1), plan, label=label, forecast=forecast))
        radii.append(answer.radius if answer.predicted == label else 0.0)
        votes += taped.votes
        abstained += answer.abstained
    return Outcome(" + ".join(stop) or "fixed n", bound, np.array(radii), votes, abstained)


def outcomes(tapes: Tapes) -> dict[str, list[Outcome]]:
    """Every rule with every bound, beside the fixed protocol with the bound of its kind."""
    grid = "grid:" + ",".join(f"{r:g}" for r in RADII)
    found: dict[str, list[Outcome]] = {}
    for fixed, sequences in (
        (ONE_SIDED, ("mixture", "looks")),
        (TWO_CLASS, ("mixture-two-class", "looks-two-class")),
    ):
        rows = [replay(tapes, fixed), replay(tapes, fixed, "wrong")]
        for rule in (*(f"decide:{r:g}" for r in DECISIONS), grid, "gain:1%"):
            rows += [replay(tapes, bound, rule) for bound in sequences]
        rows += [replay(tapes, fixed, "pilot:1%")]
        rows += [replay(tapes, fixed, pilot, "wrong") for pilot in ("pilot:1%", "pilot:0.8%")]
        found[fixed] = rows
    return found


def total_against_fixed(path: Path, tapes: Tapes, fixed: Outcome) -> str:
    """A run that spread a total over some of the tape's inputs, beside the fixed protocol on those."""
    run = read_run(path)
    used = votes_used(run)
    places = np.flatnonzero(np.isin(tapes.indices, [record.index for record in run.records]))
    if used is None or len(places) != len(run.records):
        raise SystemExit(f"{path} spreads no total, or over inputs that the tape doesn't have")
    spread = float(np.mean([record.radius if record.correct else 0.0 for record in run.records]))
    plain = float(fixed.radii[places].mean())
    most = max(record.estimation.n for record in run.records if record.estimation is not None)
    return (
        f"One total of votes ({used.share:.1%} of the fixed protocol's, {len(places)} inputs, "
        f"{run.manifest.plan.bound}): "
        f"ACR {spread:.4f}, fixed n {plain:.4f}, {100 * (spread / plain - 1):+.2f} %; up to {most} votes for an input."
    )


def table(groups: dict[str, list[Outcome]]) -> str:
    """A row for every outcome; what is lost is lost against the fixed protocol at the head of its group."""
    rows = []
    for group in groups.values():
        fixed = group[0]
        for one in group:
            lost = _lost(one, fixed)
            rows.append(
                [
                    one.name if len(one.name) < 30 else "grid: the papers' radii",
                    one.bound,
                    f"{one.votes / len(one.radii):.0f}",
                    f"{one.votes / fixed.votes:.1%}",
                    f"{one.radii.mean():.4f}",
                    f"{one.radii.mean() / fixed.radii.mean():.1%}",
                    f"{lost:.1f}",
                    str(one.abstained),
                    *(f"{value:.1f}" for value in one.accuracy()),
                ]
            )
    header = ["stop", "bound", "votes an input", "votes", "ACR", "kept", "points lost", "abstained"]
    return markdown_table([*header, *(f"{r:g}" for r in RADII)], rows, text_columns={0, 1})


def _lost(one: Outcome, fixed: Outcome) -> float:
    """The most certified accuracy lost at the radii that the rule is asked about."""
    gap = fixed.accuracy() - one.accuracy()
    if one.name.startswith("decide:"):
        return float(gap[RADII.index(float(one.name.removeprefix("decide:")))])
    return float(gap.max())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each tape."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tapes", type=Path, nargs="+")
    parser.add_argument(
        "--total", type=Path, nargs="*", default=[], help="a run for each tape, in their order"
    )
    options = parser.parse_args(arguments)
    for place, path in enumerate(options.tapes):
        tapes = Tapes.load(path)
        groups = outcomes(tapes)
        print(f"\n### {path.stem}: σ = {tapes.sigma:g}, {len(tapes.indices)} inputs, n = {N}, α = .001\n")
        print(table(groups), flush=True)
        if place < len(options.total):
            print(total_against_fixed(options.total[place], tapes, groups[TWO_CLASS][0]), flush=True)


if __name__ == "__main__":
    main()
