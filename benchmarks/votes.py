"""Ways to stop voting, and to share α between two bounds, compared on the same votes.

``python -m benchmarks.votes tape MODEL --out TAPE.npz`` records the papers' 100 000 votes of each input in blocks.
``rules TAPE.npz…`` feeds the library's procedures from them: the v-th vote of an input's stream is always the same
draw, so a rule sees exactly the votes it would have had. Where a checkpoint falls inside a block, its first votes
are drawn from the block's counts without replacement, which is how they are distributed. ``rules LOG.tsv.gz --sigma S``
draws votes with the p_A that a published log's radii imply instead, all votes against for one rival: the worst case.
``shares`` tells which part of α the rival's bound should get.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta

from benchmarks.timing import command_line, narrow_table
from smoothcert import SmoothedClassifier
from smoothcert.bounds.fixed import clopper_pearson_lower
from smoothcert.cli.arguments import load_named_model
from smoothcert.cli.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.engine.schedule import Draw, Procedure
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.runs.field_log import read_field_log
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import Choice
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.planned_model import noisy_model
from smoothcert.smoothing.procedures import (
    allocated_procedure,
    forecast_for,
    piloting_procedure,
    shares_of,
    stopping_procedure,
)
from smoothcert.smoothing.stopping.forecasts import allocate
from smoothcert.tally import Phase, Stream, Tally

R = TypeVar("R")
Counts = NDArray[np.int64]
N0, PILOT_VOTES, N, ALPHA = 100, 1000, 100_000, 0.001
RADII = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25)
"""The papers'."""
BOUNDS = {
    "clopper-pearson": ("mixture", "looks"),
    "two-class": ("mixture-two-class", "looks-two-class"),
}
"""Bounds at a fixed n, and their partners that hold at every checkpoint."""
SHARES = (0.5, 0.2, 0.1, 0.07, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002)
SHARE_VOTES = (10**3, 10**4, 10**5, 10**6)

app = command_line("votes", __doc__)


class Voters:
    """Answers one input's draws."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._drawn: dict[Phase, int] = {}

    @property
    def votes(self) -> int:
        """All that were asked for."""
        return sum(self._drawn.values())

    def counts(self, phase: Phase, votes: int) -> Sequence[int]:
        """The next votes of a phase."""
        raise NotImplementedError

    def run(self, procedure: Procedure[R]) -> R:
        """The procedure's answer."""
        try:
            draw = next(procedure)
            while True:
                start = self._drawn.get(draw.phase, 0)
                stop = self._drawn[draw.phase] = start + draw.votes
                counts = tuple(int(count) for count in self.counts(draw.phase, draw.votes))
                draw = procedure.send(Tally(Stream(0, self.index, draw.phase), start, stop, counts))
        except StopIteration as stopped:
            answer: R = stopped.value
            return answer


class TapedVoters(Voters):
    """The recorded votes of an input."""

    def __init__(self, tapes: Tapes, row: int) -> None:
        super().__init__(int(tapes.indices[row]))
        self._whole = {Phase.SELECTION: tapes.selection[row], Phase.PILOT: tapes.pilot[row]}
        self._blocks = iter(tapes.blocks[row].astype(np.int64))
        self._rng = np.random.default_rng(self.index)
        self._rest = np.zeros(tapes.blocks.shape[2], dtype=np.int64)

    def counts(self, phase: Phase, votes: int) -> Sequence[int]:
        """The next votes of a phase."""
        if phase in self._whole:
            return list(self._whole[phase])
        total = np.zeros_like(self._rest)
        while votes:
            if not self._rest.sum():
                self._rest = next(self._blocks)
            part = self._rest
            if votes < part.sum():
                part = self._rng.multivariate_hypergeometric(part, votes)
            total, votes, self._rest = total + part, votes - int(part.sum()), self._rest - part
        return list(total)


class SimulatedVoters(Voters):
    """Votes for class 0 with probability p, for class 1 otherwise."""

    def __init__(self, p: float, index: int) -> None:
        super().__init__(index)
        self._p, self._rng = p, np.random.default_rng(index)

    def counts(self, phase: Phase, votes: int) -> Sequence[int]:  # noqa: ARG002
        """The next votes of a phase."""
        first = int(self._rng.binomial(votes, self._p))
        return first, votes - first


@dataclass(frozen=True)
class Votes:
    """Inputs with voters and labels."""

    sigma: float
    block: int
    labels: Counts

    def voters(self, place: int) -> Voters:
        """Those of an input."""
        raise NotImplementedError


@dataclass(frozen=True)
class Tapes(Votes):
    """``blocks[i, b, c]``: votes for class c in block b of input i; the last block may be cut off at n."""

    indices: Counts
    selection: Counts
    pilot: Counts
    blocks: NDArray[np.uint16]

    def voters(self, place: int) -> Voters:
        """Those of an input."""
        return TapedVoters(self, place)

    def save(self, path: Path) -> None:
        """Write all of it."""
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **vars(self))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it back."""
        with np.load(path) as file:
            arrays = (file[name] for name in ("labels", "indices", "selection", "pilot", "blocks"))
            return cls(float(file["sigma"]), int(file["block"]), *arrays)


@dataclass(frozen=True)
class Population(Votes):
    """Inputs with the probability of their likeliest class, which is 0; the label is 2 where that is wrong."""

    p: NDArray[np.float64]

    def voters(self, place: int) -> Voters:
        """Those of an input."""
        return SimulatedVoters(float(self.p[place]), place)

    @classmethod
    def of_log(cls, log: Path, sigma: float, most: int) -> Self:
        """The inputs of a log of the papers' protocol, thinned out evenly to ``most``."""
        records = read_field_log(log, sigma).records
        records = records[:: max(1, len(records) // most)]
        p = [_p_of(record.radius / sigma) if record.radius > 0 else 0.45 for record in records]
        right = [record.correct or record.radius == 0 for record in records]
        return cls(sigma, 128, np.where(right, 0, 2), np.array(p))


def _p_of(scaled: float) -> float:
    """The share of N votes whose lower bound is Φ(radius/σ), by halving."""
    goal, low, high = float(ndtr(scaled)), N // 2, N
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if clopper_pearson_lower(middle, N, ALPHA) <= goal else (low, middle)
    return min(low / N, 1 - 0.3 / N)


@app.command
def tape(
    model: str, *, out: Path, data_dir: Path | None = None, skip: int = 100, most: int | None = None
) -> None:
    """Record the votes of a training run's test inputs. Rerun the same command to resume."""
    named = load_named_model(model, ModelOptions(), "hard")
    data = load(named.dataset_or(None), "test", data_dir)
    sigma = named.sigma_or(None)
    classifier = SmoothedClassifier(named.classifier, sigma=sigma, seed=0, levels=data.levels)
    plan = classifier.prepare(data.input_shape)
    block, kept = plan.numerics.layout().block, {}
    if out.exists():
        done = Tapes.load(out)
        kept = {
            int(i): (done.selection[k], done.pilot[k], done.blocks[k]) for k, i in enumerate(done.indices)
        }
    chosen = Choice(skip, most).indices(len(data))
    voting = noisy_model(plan, classifier.prepared(data.input_shape), classifier.engine)
    jobs = (voting.job(i, data.input(i), plan.noise, _taping(block)) for i in chosen if i not in kept)
    saved = time.monotonic()
    for finished in voting.run(jobs):
        kept[finished.job.index] = finished.answer
        if time.monotonic() - saved > 60 or len(kept) == len(chosen):
            order = sorted(kept)
            parts = (np.stack([kept[i][part] for i in order]) for part in range(3))
            Tapes(sigma, block, data.labels[order], np.array(order), *parts).save(out)
            saved = time.monotonic()
            print(f"{len(kept)} of {len(chosen)}", flush=True)


def _taping(block: int) -> Procedure[tuple[Counts, Counts, NDArray[np.uint16]]]:
    """All votes of one input, a tally for each block."""
    selection = yield Draw(Phase.SELECTION, N0)
    pilot = yield Draw(Phase.PILOT, PILOT_VOTES)
    rows = []
    for start in range(0, N, block):
        tally = yield Draw(Phase.ESTIMATION, min(block, N - start))
        rows.append(tally.counts)
    return np.array(selection.counts), np.array(pilot.counts), np.array(rows, dtype=np.uint16)


@dataclass(frozen=True)
class Outcome:
    """What one way of stopping made of the inputs: radii of right answers, votes in all, abstentions."""

    name: str
    bound: str
    radii: NDArray[np.float64]
    votes: int
    abstained: int

    @classmethod
    def of(
        cls, name: str, bound: str, answers: Sequence[Certification], votes: Votes, cast: Sequence[Voters]
    ) -> Self:
        """Of every input's answer."""
        pairs = zip(answers, votes.labels, strict=True)
        radii = np.array([answer.radius if answer.predicted == label else 0.0 for answer, label in pairs])
        abstained = sum(answer.abstained for answer in answers)
        return cls(name, bound, radii, sum(voters.votes for voters in cast), abstained)

    def accuracy(self) -> NDArray[np.float64]:
        """Certified accuracy in percent at the papers' radii."""
        return np.array([100 * np.mean((self.radii > 0) & (self.radii >= r)) for r in RADII])

    def lost(self, fixed: Outcome) -> float:
        """The most certified accuracy lost at the radii that the rule is asked about."""
        gap = fixed.accuracy() - self.accuracy()
        if self.name.startswith("decide:"):
            return float(gap[RADII.index(float(self.name.removeprefix("decide:")))])
        return float(gap.max())


@app.command
def rules(
    sources: list[Path],
    /,
    *,
    sigma: float | None = None,
    inputs: int = 1000,
    decide: tuple[float, ...] = (0.25, 0.5, 1.0),
    total_share: float = 0.2,
) -> None:
    """Print the votes, the ACR and the accuracy of every rule with every bound, as parts of the fixed protocol's.

    Parameters
    ----------
    sources:
        Tapes, or logs of the papers' protocol.
    sigma:
        Of logs.
    inputs:
        As many of a log's inputs, spread evenly.
    decide:
        Of the papers' radii.
    total_share:
        Of the protocol's votes: a total to spread over a log's inputs. A tape has no votes beyond n for that.
    """
    table: dict[tuple[str, str], list[str]] = {}
    heads = ["stop", "bound"]
    for source in sources:
        votes: Votes
        if source.suffix == ".npz":
            votes = Tapes.load(source)
        elif sigma is None:
            raise SystemExit(f"{source}: a log does not state its σ, add --sigma")
        else:
            votes = Population.of_log(source, sigma, inputs)
        heads.append(f"{source.stem}: σ = {votes.sigma:g}, {len(votes.labels)} inputs")
        for bound, sequences in BOUNDS.items():
            fixed = _replayed(votes, bound)
            grid = "grid:" + ",".join(f"{r:g}" for r in RADII)
            stops = [*(f"decide:{r:g}" for r in decide), grid, "gain:1%"]
            outcomes = [fixed, _replayed(votes, bound, "wrong")]
            outcomes += [_replayed(votes, anytime, stop) for stop in stops for anytime in sequences]
            outcomes += [_replayed(votes, bound, "pilot:1%")]
            outcomes += [_replayed(votes, bound, pilot, "wrong") for pilot in ("pilot:1%", "pilot:0.8%")]
            if isinstance(votes, Population) and total_share:
                total = int(total_share * fixed.votes)
                outcomes += [_spread(votes, bound, total)]
                outcomes += [_replayed(votes, bound, n=total // len(votes.labels) - N0)]
            for outcome in outcomes:
                table.setdefault(_row(outcome), []).append(_cell(outcome, fixed))
    rows = [[*row, *cells] for row, cells in table.items()]
    print(narrow_table(heads, rows, text_columns={*range(len(heads))}), flush=True)


def _plan(votes: Votes, bound: str, stop: tuple[str, ...], n: int = N) -> CertifyPlan:
    numerics = Numerics("float32", "eager", votes.block, votes.block)
    return CertifyPlan(Gaussian(votes.sigma), bound, n=n, alpha=ALPHA, stop=stop, numerics=numerics)


def _replayed(votes: Votes, bound: str, *stop: str, n: int = N) -> Outcome:
    """Certify every input by one plan."""
    plan = _plan(votes, bound, stop, n)
    forecast, cast, answers = forecast_for(plan), [], []
    for place, label in enumerate(votes.labels.tolist()):
        cast.append(votes.voters(place))
        answers.append(cast[-1].run(stopping_procedure(np.zeros(1), plan, label=label, forecast=forecast)))
    return Outcome.of(" + ".join(stop) or f"fixed n = {n}", bound, answers, votes, cast)


def _spread(votes: Votes, bound: str, total: int) -> Outcome:
    """Certify every input where one total of votes is spread over all."""
    plan, labels = _plan(votes, bound, (f"total:{total}",)), votes.labels.tolist()
    cast = [votes.voters(place) for place in range(len(labels))]
    piloted = {place: cast[place].run(piloting_procedure(plan, label)) for place, label in enumerate(labels)}
    shared = allocate(shares_of(plan, piloted), total - sum(voters.votes for voters in cast))
    answers = [
        cast[place].run(allocated_procedure(np.zeros(1), plan, piloted[place], label, shared.get(place, 0)))
        for place, label in enumerate(labels)
    ]
    return Outcome.of("total", bound, answers, votes, cast)


def _row(outcome: Outcome) -> tuple[str, str]:
    return outcome.name if len(outcome.name) < 30 else "grid", outcome.bound


def _cell(outcome: Outcome, fixed: Outcome) -> str:
    """Of the fixed protocol its ACR and abstentions; of a rule its votes, the ACR it keeps, and the points it loses."""
    acr = outcome.radii.mean()
    if outcome is fixed:
        return f"ACR {acr:.4f}, {outcome.abstained} abstain"
    return f"{outcome.votes / fixed.votes:.1%}, {acr / fixed.radii.mean():.1%}, {outcome.lost(fixed):.1f}"


@app.command
def shares(runs: list[Path] | None = None, /, *, log: Path | None = None, sigma: float = 0.25) -> None:
    """Which part of α the rival's bound should get: the change of ``clopper-pearson``'s average radius by each part.

    Of votes for one class alone and of closed-form votes, of certified runs, and of a log with all other votes for one
    rival, where its bound can only cost; also with the same shares of other numbers of votes.
    """
    one = np.ones(1)
    groups = [
        (f"({p}, {q}), n = {n}", p * n * one, q * n * one, n, one)
        for n in SHARE_VOTES
        for p, q in ((1.0, 0.0), (0.9, 0.05), (0.45, 0.1))
    ]
    for name, first, second, right in _of_runs(runs or []) + ([] if log is None else [_of_log(log, sigma)]):
        groups += [
            (f"{name}, n = {n}", np.round(first * n), np.round(second * n), n, right) for n in SHARE_VOTES
        ]
    rows = []
    for name, first, second, n, right in groups:
        base = _mean_radius(first, second, n, right, None)
        means = [_mean_radius(first, second, n, right, share) for share in SHARES]
        cells = [f"{100 * (mean / base - 1):+.3f} %" if base else f"{mean:.4f}" for mean in means]
        rows.append([name, f"{base:.4f}", *cells])
    heads = ["votes", "clopper-pearson, σ", *(f"{share:g}" for share in SHARES)]
    print(narrow_table(heads, rows, text_columns={0}))


Ranked = tuple[str, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]
"""A name, the shares of the first and of the second class, and 1 where the first is right."""


def _of_runs(runs: Sequence[Path]) -> list[Ranked]:
    ranked = []
    for path in runs:
        records = [record for record in read_run(path).records if record.estimation is not None]
        counts = np.array([record.estimation.counts for record in records if record.estimation], dtype=float)
        order = np.sort(counts, axis=1) / counts.sum(1, keepdims=True)
        right = counts.argmax(axis=1) == [record.label for record in records]
        ranked.append((str(path), order[:, -1], order[:, -2], right.astype(float)))
    return ranked


def _of_log(log: Path, sigma: float) -> Ranked:
    found = Population.of_log(log, sigma, most=2000)
    return log.name, found.p, 1 - found.p, (found.labels == 0).astype(float)


def _mean_radius(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    n: int,
    right: NDArray[np.float64],
    share: float | None,
) -> float:
    """In σ, 0 for abstentions and wrong answers; without a share: the papers' bound."""

    def lower(counts: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
        return np.where(counts > 0, beta.ppf(alpha, np.maximum(counts, 1), n - counts + 1), 0.0)

    low = lower(first, ALPHA * (1 - (share or 0)))
    high = 1 - low
    if share is not None:
        high = np.minimum(high, 1 - lower(n - second, ALPHA * share))
    radius = (ndtri(np.maximum(low, 1e-300)) - ndtri(np.maximum(high, 1e-300))) / 2
    return float((np.where(low > high, radius, 0) * right).mean())


if __name__ == "__main__":
    app()
