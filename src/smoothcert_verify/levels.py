"""Whether one record of a classifier with σ levels follows from the votes of its chooser and of its levels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import reduce

from smoothcert_verify import records
from smoothcert_verify.intervals import ZERO, Interval
from smoothcert_verify.noise import INFINITE, Noise
from smoothcert_verify.reading import UnreadableError
from smoothcert_verify.statement import CHOOSER_BOUND, CHOOSER_PART, Chooser, Levels
from smoothcert_verify.votes import LEVELS, LevelLine, LevelVotes, StatedRecord, Votes


@dataclass
class LevelJudge(records.Judge):
    """Recomputes records whose σ follows the input by levels: the radius is min over levels of max(reach, radius)."""

    lines: Mapping[int, LevelLine] = field(default_factory=dict)

    @property
    def levels(self) -> Levels:
        """As the plan states them."""
        assert self.plan.levels is not None
        return self.plan.levels

    def problems(self, record: StatedRecord) -> Iterator[str]:
        """Everything about a record and its line that doesn't follow."""
        yield from records.shape_problems(record, stretched=False)
        if record.selection is None or record.estimation is None:
            yield "keeps no votes"
            return
        line = self.lines.get(record.index)
        if line is None:
            yield f"{LEVELS} has no line for it: how its level was chosen isn't stated"
            return
        wrong = [*self._home_problems(record, line)]
        if not wrong:
            seed = self.seed_of(line.home)
            wrong += self._vote_problems(record, record.selection, record.estimation, seed)
            wrong += self._chooser_problems(record.index, line)
            for one in line.votes[1:]:
                problems = self._other_problems(record.index, record.selection.top, one)
                wrong += [f"level {one.level}: {problem}" for problem in problems]
        yield from wrong
        if wrong or self.plan.unknown is not None:
            return
        try:
            yield from self._radius_problems(record, line)
        except UnreadableError as error:
            yield str(error)

    def noise_of(self, record: StatedRecord) -> Noise:
        """The noise of its home level."""
        line = self.lines.get(record.index)
        if line is None or not 0 <= line.home < len(self.levels.sigmas):
            raise UnreadableError(f"{LEVELS} doesn't say which level it has")
        return Noise(self.plan.noise, (self.levels.sigmas[line.home],))

    def seed_of(self, level: int) -> int:
        """The seed of a level's streams: the plan's own where there is but one level."""
        constant = self.levels.chooser is None
        return self.plan.seed if constant else stage_seed(self.plan.seed, f"level {level}")

    def _home_problems(self, record: StatedRecord, line: LevelLine) -> Iterator[str]:
        """A home level that the chooser didn't give, or of which record and line say different things."""
        levels, first = self.levels, line.votes[0]
        looked = [one.level for one in line.votes]
        if not all(0 <= level < len(levels.sigmas) for level in looked) or len(set(looked)) < len(looked):
            yield f"{LEVELS} has votes at the levels {looked}, the plan has 0 to {len(levels.sigmas) - 1}, once each"
            return
        if first.level != line.home:
            yield f"{LEVELS} calls level {line.home} its home, and has votes of level {first.level} first"
        voted = None if line.chosen is None else median(line.chosen)
        chosen = levels.constant if levels.chooser is None else voted
        if chosen != line.home:
            yield f"{LEVELS} calls level {line.home} its home, the chooser's votes say {chosen}"
        stated = record.selection, record.estimation, record.stopped
        if (first.selection, first.estimation, first.stopped) != stated:
            yield f"{LEVELS} has other votes of its home level than the journal"
        if 0 <= line.home < len(levels.sigmas) and record.sigma != levels.sigmas[line.home]:
            yield f"σ = {record.sigma!r}, where level {line.home} has {levels.sigmas[line.home]!r}"

    def _chooser_problems(self, index: int, line: LevelLine) -> Iterator[str]:
        """Votes of the chooser that aren't its own, or that it can't have."""
        chooser, levels = self.levels.chooser, len(self.levels.sigmas)
        if chooser is None:
            if line.chosen is not None or line.chooser is not None:
                yield "votes of a chooser, where the plan states a constant one"
            return
        seed = stage_seed(self.plan.seed, "chooser")
        for votes, phase in ((line.chosen, "selection"), (line.chooser, "estimation")):
            if votes is None:
                continue
            for problem in records.stream_problems(votes, phase, index, seed, "hard"):
                yield f"chooser: {problem}"
            if len(votes.counts) != levels:
                yield f"chooser: {phase} votes for {len(votes.counts)} levels, the plan has {levels}"
        if line.chosen is not None and line.chosen.n != chooser.n0:
            yield f"chooser: {line.chosen.n} selection votes, the plan states {chooser.n0}"
        if line.chooser is not None and not 1 <= line.chooser.n <= chooser.n:
            yield f"chooser: {line.chooser.n} estimation votes, the plan allows 1 to {chooser.n}"

    def _other_problems(self, index: int, candidate: int, one: LevelVotes) -> Iterator[str]:
        """Votes of a level that isn't home: they end at once where its class is another than the home level's."""
        seed = self.seed_of(one.level)
        for votes, phase in ((one.selection, "selection"), (one.estimation, "estimation")):
            yield from records.stream_problems(votes, phase, index, seed, "hard")
            if len(votes.counts) != self.classes:
                yield f"{phase} votes for {len(votes.counts)} classes, others have {self.classes}"
        if one.selection.n != self.plan.n0:
            yield f"{one.selection.n} selection votes, the plan states n0 = {self.plan.n0}"
        if one.estimation.n > self.plan.n or (one.estimation.n > 0) != (one.selection.top == candidate):
            yield (
                f"{one.estimation.n} estimation votes for class {one.selection.top}, where the home level chose "
                f"{candidate} and the plan allows {self.plan.n}"
            )

    def _radius_problems(self, record: StatedRecord, line: LevelLine) -> Iterator[str]:
        assert record.selection is not None
        candidate, levels = record.selection.top, self.levels
        radii = [ZERO] * len(levels.sigmas)
        for one in line.votes:
            radii[one.level] = self._radius(candidate, one, home=one.level == line.home)
        reached = self._reaches(line)
        each = [reach.at_least(radius) for reach, radius in zip(reached, radii)]
        widest = max(levels.sigmas if levels.chooser is None else (*levels.sigmas, levels.chooser.sigma))
        scale = Noise(self.plan.noise, (widest,))
        yield from records.answer_problems(record, candidate, reduce(Interval.at_most, each), None, scale)
        if "recertified_from" not in self.plan.fields:  # whose votes were cast for another α or bound
            yield from self._left_out(line, radii, each, records.OF_SIGMA * scale.mean.high)

    def _radius(self, candidate: int, one: LevelVotes, home: bool) -> Interval:
        """How far a level answers the candidate; 0 where it chose another class."""
        if one.selection.top != candidate:
            return ZERO
        noise = Noise(self.plan.noise, (self.levels.sigmas[one.level],))
        anytime = "mixture" if self.plan.bound == "clopper-pearson" else "mixture-top-two"
        alpha = self.levels.level_alpha(self.plan.alpha)
        radius, _ = self.radii(candidate, one.estimation, noise, self.plan.bound if home else anytime, alpha)
        return radius.at_least(ZERO)

    def _reaches(self, line: LevelLine) -> list[Interval]:
        """Within which distance the median isn't each level: nothing is known of the home level."""
        levels, chooser = len(self.levels.sigmas), self.levels.chooser
        if chooser is None:
            return [ZERO if level == line.home else INFINITE for level in range(levels)]
        if line.chooser is None:
            return [ZERO] * levels
        votes, home = line.chooser, line.home
        return [ZERO if k == home else self._reach(chooser, votes, k, k > home) for k in range(levels)]

    def _reach(self, chooser: Chooser, votes: Votes, level: int, above: bool) -> Interval:
        """How far the median stays on the home level's side: the certificate of that event, as of any class."""
        there = sum(votes.counts[:level] if above else votes.counts[level + 1 :])
        event = Votes(votes.seed, votes.index, votes.phase, votes.start, (there, votes.n - there))
        noise = Noise(self.plan.noise, (chooser.sigma,))
        radius, _ = self.radii(0, event, noise, CHOOSER_BOUND, self.plan.alpha * CHOOSER_PART)
        return radius.at_least(ZERO)

    def _left_out(
        self, line: LevelLine, radii: list[Interval], each: list[Interval], spare: Decimal
    ) -> Iterator[str]:
        """Votes that certify would have cast: of the chooser, and at a level that alone keeps the radius small."""
        home, looked = radii[line.home], {one.level for one in line.votes}
        if self.levels.chooser is not None:
            if line.chooser is None and home.low > spare:
                yield "no votes of the chooser, where its home level certifies a radius"
            if line.chooser is not None and home.low <= 0:
                yield "votes of the chooser, where its home level certifies nothing"
        for level in range(len(radii)):
            if level in looked:
                continue
            others = reduce(Interval.at_most, (one for k, one in enumerate(each) if k != level))
            if line.chooser is not None and each[level].high < others.low - others.low * records.RELATIVE:
                yield f"no votes at level {level}, which isn't out of reach"


def stage_seed(seed: int, stage: str) -> int:
    """The seed of a stage's streams: of SHAKE-128 of its name and the plan's, the first eight bytes without a bit."""
    name = f"smoothcert stage {stage}|{seed}"
    first = hashlib.shake_128(name.encode()).digest(8)
    return sum(byte << 8 * place for place, byte in enumerate(first)) // 2


def median(chosen: Votes) -> int | None:
    """The smallest level that at least half of the votes don't exceed; None without votes, or where counts can't be."""
    if chosen.n < 1 or min(chosen.counts) < 0:
        return None
    counts = chosen.counts
    return next(level for level in range(len(counts)) if 2 * sum(counts[: level + 1]) >= chosen.n)
