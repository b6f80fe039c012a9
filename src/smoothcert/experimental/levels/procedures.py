"""CERTIFY and PREDICT with σ levels: the plan of each stage, which votes an input gets, and what they prove."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothcert.bounds.base import BOUNDS, Bound
from smoothcert.engine.schedule import Draw, Procedure, asking
from smoothcert.errors import InvalidValueError
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import NOISES, Noise, real_noise
from smoothcert.regions.bodies import BALLS
from smoothcert.rounding import down
from smoothcert.runs.side_files import LevelEvidence, LevelVotes
from smoothcert.sigma_levels import CHOOSER_BOUND, SigmaLevels
from smoothcert.smoothing.answers import Certification, Prediction
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide, placed, predict_procedure, stopping_procedure
from smoothcert.smoothing.stopping.base import FUTILITY, FutilityRule
from smoothcert.smoothing.stopping.forecasts import VotingState, checkpoints
from smoothcert.smoothing.stopping.rules import Wrong
from smoothcert.tally import ABSTAIN, Phase, Tally


def median_level(votes: Tally) -> int:
    """The smallest level that half of the votes don't exceed."""
    return next(level for level, below in enumerate(accumulate(votes.counts)) if 2 * below >= votes.n)


def reaches(votes: Tally, home: int, noise: Noise, bound: Bound, alpha: float, error: float) -> list[float]:
    """For each level a distance within which the median isn't that level; 0 for ``home``, of which nothing is shown.

    For any *one* level it is wrong with probability at most ``alpha`` over the votes, if ``home`` was chosen without
    them. Level k > home: the median is below k wherever P[h < k] ≥ ½, and the certificate of the noise for the event
    h < k, as of any class, says how far that lasts. Level k < home: the same with h > k and P[h > k] > ½.
    ``error`` is the sampler's.
    """

    def reach(level: int) -> float:
        if level == home or not votes.n:
            return 0.0
        elsewhere = sum(votes.counts[:level] if level > home else votes.counts[level + 1 :])
        event = Tally(votes.stream, votes.start, votes.stop, (elsewhere, votes.n - elsewhere))
        return noise.certificate.radius(bound(event, 0, alpha).paying(error))

    return [reach(level) for level in range(len(votes.counts))]


def combined_radius(reached: list[float], radii: list[float]) -> float:
    """min over levels of max(reach, radius): where the median can't come to a level, that level needn't agree."""
    return min(map(max, reached, radii))


@dataclass(frozen=True)
class Enough(FutilityRule, example="enough", goal="decision"):
    """Stop at the radius that the other levels leave, or once this level can hardly come beyond the chooser's reach.

    Between the two every vote counts: where a level falls short of the others, its own radius is the answer's. It is
    no rule of a plan but of what a plan's other levels need, and stated nowhere.
    """

    radius: float
    """More than this is of no use."""
    reach: float
    """As far as this the median can't come to the level: less is of no use, either."""
    futility: float = FUTILITY

    def reason(self, state: VotingState) -> str | None:
        """Enough, useless, or not yet."""
        if state.radius >= self.radius:
            return f"enough: radius at least {self.radius:g}"
        if state.best_radius(self.futility) <= self.reach:
            return f"useless: radius not beyond {self.reach:g}"
        return None


def levels_of(plan: CertifyPlan) -> SigmaLevels:
    """The plan's σ levels."""
    if plan.sigma_levels is None:
        raise InvalidValueError("the plan has no sigma levels")
    return plan.sigma_levels


def stage_seed(seed: int, stage: str) -> int:
    """The seed of a stage's streams: 63 bits of SHAKE-128, so that stages have nothing in common."""
    digest = hashlib.shake_128(f"smoothcert stage {stage}|{seed}".encode()).digest(8)
    return int.from_bytes(digest, "little") >> 1


def home_plan(plan: CertifyPlan, level: int) -> CertifyPlan:
    """CERTIFY at the level that the chooser gives: the plan's own bound, votes and rules."""
    levels, seed = levels_of(plan), plan.seed
    if seed is not None and levels.constant is None:  # a constant chooser's level is an ordinary certificate
        seed = stage_seed(seed, f"level {level}")
    return replace(
        plan,
        noise=NOISES[plan.noise.name](levels.sigmas[level]),
        alpha=levels.level_alpha(plan.alpha),
        seed=seed,
        sigma_levels=None,
    )


def other_plan(plan: CertifyPlan, level: int, target: float, reach: float) -> CertifyPlan:
    """CERTIFY at another level, until it has the radius that the others leave or can't come beyond its ``reach``.

    Its streams are those of :func:`home_plan`, of which an input sees one or the other.
    """
    stop = Wrong(), Enough(target, reach)
    return replace(home_plan(plan, level), bound=plan.confidence_bound.partner, stop=stop)


def chooser_plan(plan: CertifyPlan) -> CertifyPlan:
    """The chooser's noise, votes and part of α."""
    levels = levels_of(plan)
    return CertifyPlan(
        NOISES[plan.noise.name](levels.noise_sigma),
        CHOOSER_BOUND,
        levels.chooser_n0,
        levels.chooser_n,
        levels.chooser_alpha(plan.alpha),
        None if plan.seed is None else stage_seed(plan.seed, "chooser"),
        levels.chooser_numerics or Numerics(plan.numerics.dtype),
        levels=plan.levels,
        dimension=plan.dimension,
    )


def reaches_of(plan: CertifyPlan, votes: Tally | None, home: int) -> list[float]:
    """How far away the median can't become each level."""
    levels = levels_of(plan)
    if levels.constant is not None:
        return [0.0 if level == home else math.inf for level in range(len(levels.sigmas))]
    if votes is None:
        return [0.0] * len(levels.sigmas)
    own = chooser_plan(plan)
    noise = real_noise(own.noise, "a chooser")
    return reaches(votes, home, noise, BOUNDS[CHOOSER_BOUND], own.alpha, own.sampler_error)


def decide_levels(x: ArrayLike, plan: CertifyPlan, evidence: LevelEvidence) -> Certification:
    """What the votes prove of G, the classifier whose σ is the median level: class, radius and region.

    With probability at least 1−α over the votes, G answers ``predicted`` everywhere in ``region``. The radius is the
    minimum over levels of max(reach, radius there): at a point closer than that G has some level k; if its reach isn't
    smaller than the radius, the median can't be k, so the level's own radius is, and it answers the class. Only the
    one level for which max(reach, radius) is truly smallest has to be bounded correctly, so levels don't share α.
    """
    plan, levels = plan.for_shape(np.shape(x)), levels_of(plan)
    _check_evidence(plan, evidence)
    place = placed(x, plan, 0.0)
    point = place.center
    first, *others = evidence.votes
    home = decide(point, home_plan(plan, first.level), first.selection, first.estimation)
    radii = [0.0] * len(levels.sigmas)
    radii[first.level] = home.radius
    for one in others:
        own = other_plan(plan, one.level, levels.sigmas[one.level], 0.0)
        there = decide(point, own, one.selection, one.estimation)
        radii[one.level] = there.radius if there.predicted == home.evidence.candidate else 0.0
    reached = reaches_of(plan, evidence.chooser, evidence.home)
    radius = combined_radius(reached, radii)
    return replace(
        home,
        predicted=home.evidence.candidate if radius > 0 else ABSTAIN,
        radius=radius,
        region=BALLS[plan.certificate.norm](point, radius) if radius > 0 else None,
        evidence=replace(
            home.evidence,
            stopped=first.stopped,
            shift=place.shift,
            radius_off_grid=max(0.0, down(radius - placed(x, plan, radius).between)),
            levels=replace(evidence, reaches=tuple(reached), radii=tuple(radii)),
            plan_seed=plan.seed,
        ),
    )


def _check_evidence(plan: CertifyPlan, evidence: LevelEvidence) -> None:
    """Refuse votes of other streams than the plan's, or a level that the votes didn't choose."""
    levels = levels_of(plan)
    looked = [one.level for one in evidence.votes]
    if not looked or looked[0] != evidence.home or len(set(looked)) < len(looked):
        raise InvalidValueError(f"votes must be of home level {evidence.home} first, and of each level once")
    if max(looked) >= len(levels.sigmas):
        raise InvalidValueError(f"there is no level {max(looked)}: the plan has {len(levels.sigmas)}")
    if levels.constant is not None:
        if evidence.home != levels.constant or evidence.chosen is not None or evidence.chooser is not None:
            raise InvalidValueError(f"the level is always {levels.constant}, without votes of a chooser")
        return
    own = chooser_plan(plan)
    if evidence.chosen is None or median_level(evidence.chosen) != evidence.home:
        raise InvalidValueError(f"the chooser's votes don't have their median at level {evidence.home}")
    for tally, phase in ((evidence.chosen, Phase.SELECTION), (evidence.chooser, Phase.ESTIMATION)):
        if tally is None:
            continue
        if tally.stream.phase != phase or tally.start != 0 or len(tally.counts) != len(levels.sigmas):
            raise InvalidValueError(f"the chooser's {phase.name.lower()} votes aren't those of the plan")
        if own.seed is not None and tally.stream.seed != own.seed:
            raise InvalidValueError(f"votes of seed {tally.stream.seed} aren't the chooser's")
        if tally.stream.index != evidence.index:
            raise InvalidValueError(f"the chooser's votes are of input {tally.stream.index}")
        if tally.n > (own.n0 if phase == Phase.SELECTION else own.n):
            raise InvalidValueError(f"{tally.n} {phase.name.lower()} votes of the chooser exceed the plan")


def certify_levels(
    plan: CertifyPlan, index: int, point: NDArray[np.float64], label: int | None
) -> Procedure[LevelEvidence]:
    """Chooser, home level, chooser again, other levels: each only as far as the answer needs it."""
    chosen, home = yield from _chosen(plan)
    answer = yield from asking(home, stopping_procedure(point, home_plan(plan, home), label=label))
    candidate, radius, chooser = answer.evidence.candidate, answer.radius, None
    votes = [_level_votes(home, answer)]
    if radius > 0:
        chooser = yield from _reaching(plan, home, radius)
        for level, reach in enumerate(reaches_of(plan, chooser, home)):
            if level == home or not reach < radius:
                continue
            own = other_plan(plan, level, radius, reach)
            answer = yield from asking(level, stopping_procedure(point, own, label=candidate))
            radius = min(radius, max(reach, answer.radius if answer.predicted == candidate else 0.0))
            votes.append(_level_votes(level, answer))
    return LevelEvidence(index, home, chosen, chooser, tuple(votes))


def _level_votes(level: int, answer: Certification) -> LevelVotes:
    return LevelVotes(level, answer.evidence.selection, answer.evidence.estimation, answer.evidence.stopped)


def predict_levels(plan: CertifyPlan, n: int, alpha: float) -> Procedure[Prediction]:
    """Chooser, then every level that may be the median: one answer of all of them, or an abstention."""
    plan = replace(plan, alpha=alpha)
    _, home = yield from _chosen(plan)
    votes = None
    if levels_of(plan).constant is None:
        votes = yield Draw(Phase.ESTIMATION, n, _chooser(plan))
    answers = []
    for level, reach in enumerate(reaches_of(plan, votes, home)):
        if not reach > 0:
            own = home_plan(plan, level)
            answers.append((yield from asking(level, predict_procedure(n, own.alpha, own.sampler_error))))
    first = max(answers, key=lambda answer: answer.p_value)
    same = len({answer.predicted for answer in answers}) == 1
    if not same:
        first = replace(first, predicted=ABSTAIN, p_value=1.0)
    return replace(first, plan_seed=plan.seed)


def choose_again(plan: CertifyPlan, evidence: LevelEvidence) -> Procedure[list[tuple[str, Tally, Tally]]]:
    """The votes that chose an input's level and its classes: whose they are, as they were and as they are now."""
    again = []
    if evidence.chosen is not None and levels_of(plan).constant is None:
        now = yield Draw(Phase.SELECTION, levels_of(plan).chooser_n0, _chooser(plan))
        again.append(("its chooser", evidence.chosen, now))
    for votes in evidence.votes:
        if votes.level < _chooser(plan):
            now = yield Draw(Phase.SELECTION, plan.n0, votes.level)
            again.append((f"the model of level {votes.level}", votes.selection, now))
    return again


def _chooser(plan: CertifyPlan) -> int:
    """The chooser's place among the voters."""
    return len(levels_of(plan).sigmas)


def _chosen(plan: CertifyPlan) -> Generator[Draw, Tally, tuple[Tally | None, int]]:
    """The likeliest level, by votes that prove nothing; a constant chooser isn't asked."""
    levels = levels_of(plan)
    if levels.constant is not None:
        return None, levels.constant
    votes = yield Draw(Phase.SELECTION, levels.chooser_n0, _chooser(plan))
    return votes, median_level(votes)


def _reaching(plan: CertifyPlan, home: int, radius: float) -> Generator[Draw, Tally, Tally | None]:
    """Votes of the chooser until the median can't become any other level within ``radius``, or there are no more."""
    if levels_of(plan).constant is not None:
        return None
    own = chooser_plan(plan)
    votes: Tally | None = None
    for checkpoint in checkpoints(BOUNDS[CHOOSER_BOUND], own.n, own.numerics.layout().block):
        more = yield Draw(Phase.ESTIMATION, checkpoint - (0 if votes is None else votes.n), _chooser(plan))
        votes = more if votes is None else votes + more
        if all(reach >= radius or level == home for level, reach in enumerate(reaches_of(plan, votes, home))):
            break
    return votes
