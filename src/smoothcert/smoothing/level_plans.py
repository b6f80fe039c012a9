"""The plans that a plan with σ levels is made of, and what its votes prove together."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from smoothcert.bounds import BOUNDS
from smoothcert.errors import InvalidValueError
from smoothcert.noise import NOISES
from smoothcert.regions import BALLS
from smoothcert.rounding import down
from smoothcert.sampling import Numerics
from smoothcert.sigma_levels import CHOOSER_BOUND, LevelEvidence, SigmaLevels, median_level, reaches
from smoothcert.sigma_levels.median import beyond_all, combined_radius
from smoothcert.smoothing.answers import Certification
from smoothcert.smoothing.level_rules import Enough
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide, placed
from smoothcert.stopping import Wrong
from smoothcert.tally import ABSTAIN, Phase, Tally

ONE_SIDED = "clopper-pearson"


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
    return replace(
        home_plan(plan, level),
        bound="mixture" if plan.bound == ONE_SIDED else "mixture-top-two",
        stop=(Wrong(), Enough(target, reach)),
    )


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
        return beyond_all(len(levels.sigmas), home)
    if votes is None:
        return [0.0] * len(levels.sigmas)
    own = chooser_plan(plan)
    return reaches(votes, home, own.noise, BOUNDS[CHOOSER_BOUND], own.alpha, own.sampler_error)


def decide_levels(x: ArrayLike, plan: CertifyPlan, evidence: LevelEvidence) -> Certification:
    """What the votes prove of G, the classifier whose σ is the median level: class, radius and region.

    With probability at least 1−α over the votes, G answers ``predicted`` everywhere in ``region``. The radius is the
    minimum over levels of max(reach, radius there): at a point closer than that G has some level k; if its reach isn't
    smaller than the radius, the median can't be k, so the level's own radius is, and it answers the class. Only the
    one level for which max(reach, radius) is truly smallest has to be bounded correctly, so levels don't share α.
    """
    plan, levels = plan.for_shape(np.shape(x)), levels_of(plan)
    _check_evidence(plan, evidence)
    point, shift, _ = placed(x, plan, 0.0)
    first, *others = evidence.votes
    home = decide(point, home_plan(plan, first.level), first.selection, first.estimation)
    radii = [0.0] * len(levels.sigmas)
    radii[first.level] = home.radius
    for one in others:
        sigma = levels.sigmas[one.level]
        there = decide(point, other_plan(plan, one.level, sigma, 0.0), one.selection, one.estimation)
        radii[one.level] = there.radius if there.predicted == home.candidate else 0.0
    reached = reaches_of(plan, evidence.chooser, evidence.home)
    radius = combined_radius(reached, radii)
    between = placed(x, plan, radius)[2]
    return replace(
        home,
        predicted=home.candidate if radius > 0 else ABSTAIN,
        radius=radius,
        region=BALLS[plan.certificate.norm](point, radius) if radius > 0 else None,
        stopped=first.stopped,
        shift=shift,
        radius_off_grid=max(0.0, down(radius - between)),
        levels=replace(evidence, reaches=tuple(reached), radii=tuple(radii)),
        plan_seed=plan.seed,
    )


def _check_evidence(plan: CertifyPlan, evidence: LevelEvidence) -> None:
    """Refuse votes of other streams than the plan's, or a level that the votes didn't choose."""
    levels = levels_of(plan)
    looked = [one.level for one in evidence.votes]
    if not looked or looked[0] != evidence.home or len(set(looked)) < len(looked):
        raise InvalidValueError(
            f"the votes must be of the home level {evidence.home} first, and of each level once"
        )
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
            raise InvalidValueError(
                f"{tally.n} {phase.name.lower()} votes of the chooser are more than planned"
            )
