"""``python -m tests.mutants``: breaks the code in one line at a time and says which breaks the default suite notices.

Every mutant is applied to a copy of the tree. The test files named beside it run first; if they pass, the whole default
suite runs (not with ``--named``). ``--only NAME`` takes the mutants whose name contains it, ``--list`` prints them. Exit code 1 if more than
two survive.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT = 1800  # seconds for the whole suite
MOST_SURVIVORS = 2


@dataclass(frozen=True)
class Mutant:
    """``old`` stands once in ``file`` and becomes ``new``; ``tests`` are the files that should notice."""

    name: str
    file: str
    old: str
    new: str
    tests: str


BOUNDS = "tests/bounds tests/guarantees/test_bounds_hold.py tests/guarantees/test_anytime.py"
REGIONS = "tests/regions tests/test_rounding.py tests/test_certificates.py"
SAMPLER = "tests/perturb tests/engine tests/guarantees/test_certificates_hold.py tests/guarantees/test_arithmetic.py"
DECIDE = "tests/guarantees/test_prediction.py tests/guarantees/test_certificates_hold.py tests/guarantees/test_selection_and_estimation.py"
STOP = "tests/smoothing/stopping tests/smoothing tests/guarantees/test_stopping.py"
RUNS = "tests/runs tests/guarantees/test_damage.py tests/evaluation"
MEMORY = "tests/smoothing/memory tests/guarantees/test_region_memory.py"
MASKS = "tests/guarantees/test_hybrid.py tests/guarantees/test_masked_votes.py"
VERIFY = "tests/verification tests/guarantees/test_safe_to_verify.py"

MUTANTS = [
    # bounds
    Mutant("clopper-pearson: one success more", "bounds/fixed.py",
           "betaincinv(successes, n - successes + 1, alpha)", "betaincinv(successes + 1, n - successes, alpha)", BOUNDS),
    Mutant("clopper-pearson: unanimous by one vote fewer", "bounds/fixed.py",
           "return max(0.0, down(1.0 - up(-math.expm1(math.log(alpha) / n)), 0.0))",
           "return max(0.0, down(1.0 - up(-math.expm1(math.log(alpha) / (n + 1))), 0.0))", BOUNDS),
    Mutant("clopper-pearson: near one, α doubled", "bounds/fixed.py",
           "betainccinv(n - successes + 1, successes, alpha)", "betainccinv(n - successes + 1, successes, 2 * alpha)", BOUNDS),
    Mutant("top-two: the rival gets all of α", "bounds/fixed.py",
           "clopper_pearson_upper(max(rivals), tally.n, alpha / part)", "clopper_pearson_upper(max(rivals), tally.n, alpha)", BOUNDS),
    Mutant("top-two: the weakest rival", "bounds/fixed.py",
           "clopper_pearson_upper(max(rivals)", "clopper_pearson_upper(min(rivals)", BOUNDS),
    Mutant("top-two: p_A's bound ignores the rival's part of α", "bounds/fixed.py",
           "    rest = alpha - alpha / part\n", "    rest = alpha\n", BOUNDS),
    Mutant("predict: one-sided p-value", "bounds/fixed.py",
           "up(2.0 * float(betainc(more, fewer + 1, 0.5))", "up(float(betainc(more, fewer + 1, 0.5))", BOUNDS),
    Mutant("mixture: loss without π", "bounds/anytime.py",
           "0.5 * math.log(math.pi / 2 * n)", "0.5 * math.log(0.5 * n)", BOUNDS),
    Mutant("mixture: the rival's part of α is forgotten", "bounds/anytime.py",
           "upper = _upper(rival, tally.n, log_inverse + math.log(part))", "upper = _upper(rival, tally.n, log_inverse)", BOUNDS),
    Mutant("looks: every look gets more than its share", "bounds/anytime.py",
           "return down(576 * (2 * k + 1)", "return down(1152 * (2 * k + 1)", BOUNDS),
    Mutant("anytime prediction: evidence counted double", "bounds/anytime.py",
           "log = (a + b - 1) * math.log(2)", "log = (a + b) * math.log(2)", "tests/bounds tests/guarantees/test_prediction.py"),
    Mutant("anytime bounds accept a later start", "bounds/base.py",
           "if self.anytime and tally.start != 0:", "if False and tally.start != 0:", BOUNDS),
    Mutant("sampler's error is not paid", "bounds/base.py",
           "down(self.lower - error, 0.0)", "down(self.lower, 0.0)", "tests/bounds tests/smoothing tests/guarantees/test_arithmetic.py"),
    # regions and rounding
    Mutant("radii are rounded to nearest", "rounding.py",
           "return math.nextafter(value - abs(value) * relative, -math.inf)", "return value", REGIONS),
    Mutant("gaussian gap without ½", "perturb/gaussian.py",
           "(normal_quantile_down(lower) - normal_quantile_up(upper)) / 2", "normal_quantile_down(lower) - normal_quantile_up(upper)",
           "tests/perturb tests/test_certificates.py"),
    Mutant("uniform half-width 2σ", "perturb/uniform.py",
           "semi_axis: ClassVar[float] = math.sqrt(3.0)", "semi_axis: ClassVar[float] = 2.0", "tests/perturb tests/test_certificates.py"),
    Mutant("radius of the largest scale", "perturb/base.py",
           "self.noise.smallest_sigma * self.noise.semi_axis", "self.noise.sigma * self.noise.semi_axis",
           "tests/test_certificates.py tests/guarantees/test_nonuniform.py"),
    Mutant("a ball contains its edge", "regions/bodies.py",
           "return up(*self._norm_of(point)) < self.radius", "return down(*self._norm_of(point)) <= self.radius", REGIONS),
    Mutant("balls outside each other may touch by a hair too much", "regions/bodies.py",
           "return self._around(center, down(down(*self._norm_of(center)) - self.radius))",
           "return self._around(center, up(up(*self._norm_of(center)) - self.radius))", REGIONS),
    Mutant("ellipsoid: distance in its own units", "regions/bodies.py",
           "return geometry.outside_scale(offset, 1.0 / self.axes, self.order)",
           "return geometry.outside_scale(offset * self.axes, 1.0 / self.axes, self.order)", REGIONS),
    # masks
    Mutant("masks: β is rounded to the next multiple above", "perturb/hybrid.py",
           "max(1, round(float(beta) * UNIT))", "max(1, 1 + round(float(beta) * UNIT))", MASKS),
    Mutant("masks: shown with probability β", "perturb/hybrid.py",
           "torch.where(drawn == 0, row.new_tensor(self.mask), row)", "torch.where(drawn == 0, row, row.new_tensor(self.mask))", MASKS),
    Mutant("masks: one changed category stands for all", "perturb/hybrid.py",
           "        v = shared_mass(self.beta, changes)\n        if not", "        v = shared_mass(self.beta, min(changes, 1))\n        if not", MASKS),
    Mutant("masks: what a rival wins outside the shared masks is free", "perturb/hybrid.py",
           "return down(kept - gained, 0.0) > up(missing / v, 0.0)", "return down(kept - gained, 0.0) > 0.0", MASKS),
    Mutant("masks: the rival's share is not of the shared masks", "perturb/hybrid.py",
           "behind = min(1.0, up(bounds.upper / v, 0.0))", "behind = min(1.0, up(bounds.upper, 0.0))", MASKS),
    # tally
    Mutant("tallies of other streams add", "tally.py", "if later.stream != self.stream:", "if False:", "tests/test_tally.py"),
    Mutant("votes may be counted twice", "tally.py", "if later.start != self.stop:", "if later.start > self.stop:", "tests/test_tally.py"),
    Mutant("soft sums are rounded up", "models/outputs.py",
           "(shares * SOFT_UNIT).floor()", "(shares * SOFT_UNIT).ceil()", "tests/models/test_outputs.py tests/engine"),
    # streams
    Mutant("phases share a stream", "engine/schedule.py",
           "{stream.index}/{int(stream.phase)}/{block}", "{stream.index}/{block}",
           "tests/engine/test_streams.py tests/guarantees/test_selection_and_estimation.py"),
    Mutant("inputs share a stream", "engine/schedule.py",
           "|{stream.seed}/{stream.index}/", "|{stream.seed}/", "tests/engine/test_streams.py tests/guarantees/test_selection_and_estimation.py"),
    # grid sampler
    Mutant("sampler: a threshold belongs to the cell above", "perturb/sampler.py",
           "(rest >= self._cut.take(bucket))", "(rest > self._cut.take(bucket))", SAMPLER),
    Mutant("sampler: one table for all coordinates", "perturb/sampler.py",
           "bucket += self._first.take(places % self._first.size)", "bucket += 0", SAMPLER),
    Mutant("sampler: variance off by one per mille", "perturb/sampler.py",
           "    step = _ONE * rho.denominator // rho.numerator\n", "    step = _ONE * rho.denominator * 1001 // (rho.numerator * 1000)\n", SAMPLER),
    Mutant("grid: sampler error of one coordinate", "perturb/base.py",
           "        dimension * cells[0]\n", "        cells[0]\n", SAMPLER),
    Mutant("grid: inputs are cut off to the grid, not rounded", "perturb/grid.py",
           "steps = np.rint(exact * self.steps_per_unit)", "steps = np.floor(exact * self.steps_per_unit)", SAMPLER),
    # decide
    Mutant("decide: estimation votes choose the class", "smoothing/procedures.py",
           "    candidate = selection.top()\n", "    candidate = estimation.top()\n", DECIDE),
    Mutant("decide: any phase will do", "smoothing/procedures.py", "if tally.stream.phase != phase:", "if False:", DECIDE),
    Mutant("decide: votes of another input", "smoothing/procedures.py",
           "if selection.stream.index != estimation.stream.index:", "if False:", DECIDE),
    Mutant("decide: any number of votes", "smoothing/procedures.py", "if not plan.allows_votes(estimation.n):", "if False:", DECIDE),
    Mutant("predict: the sampler's error is free", "smoothing/procedures.py",
           "(tally, candidate) + n * error)", "(tally, candidate))", DECIDE),
    # stop rules
    Mutant("decide: stops before it is reached", "smoothing/stopping/rules.py",
           "if state.radius >= self.radius:", "if state.radius >= 0.9 * self.radius:", STOP),
    Mutant("a fixed-n bound is watched", "smoothing/procedures.py",
           "        n, reason = yield from _fixed_beforehand(plan, start, forecast)\n        estimation = yield Draw(Phase.ESTIMATION, n)\n",
           "        estimation, reason = yield from _sequence(plan, selection, label, watch)\n", STOP),
    Mutant("pilot votes certify", "smoothing/procedures.py",
           "    pilot = yield Draw(Phase.PILOT, budget.pilot_votes)\n    n =", "    pilot = yield Draw(Phase.ESTIMATION, budget.pilot_votes)\n    n =", STOP),
    # journal
    Mutant("journal: checksums leave the votes out", "runs/journal.py",
           'checksum.update("\\n".join([str(value) for value in row[7:12]]).encode())', "pass", RUNS),
    Mutant("journal: lost records are not missed", "runs/journal.py",
           "return Damage(damaged, max(0, written - len(rows)))", "return Damage(damaged, 0)", RUNS),
    Mutant("journal: totals are not compared", "runs/journal.py",
           "if totals != sound.plus([row[-1] for row in rows]):", "if False:", RUNS),
    Mutant("journal: a record need not reach the disk", "runs/journal.py",
           'connection.execute("PRAGMA synchronous = FULL")', 'connection.execute("PRAGMA synchronous = OFF")', RUNS),
    # resume
    Mutant("resume: another statement is accepted", "runs/run.py",
           "        if differences:\n            raise RunError(\n                f\"{path} can't be continued",
           "        if False:\n            raise RunError(\n                f\"{path} can't be continued", RUNS),
    Mutant("resume: another model is accepted", "evaluation/certification.py",
           "        if done and missing:\n", "        if False:\n", "tests/evaluation tests/guarantees/test_same_model.py"),
    Mutant("resume: a search that was lost is not made again", "evaluation/certification.py",
           "journal.drop(lost := done - (found or evidence).keys())", "journal.drop(lost := set())", RUNS),
    # memory
    Mutant("memory: no cut against other classes", "smoothing/memory.py",
           "left = _computable(stored.region.outside(left))", "left = _computable(left)", MEMORY),
    Mutant("memory: nothing stored meanwhile is looked at", "smoothing/memory.py",
           "later, left = self._recall(point, (certified.predicted, region), seen)",
           "later, left = self._recall(point, (certified.predicted, region), seen + 10**9)", MEMORY),
    Mutant("memory: a changed record is read", "smoothing/stores/base.py",
           "if link(previous, number, row.payload) != row.hash:", "if False:", MEMORY),
    Mutant("memory: sketches rule out what is near", "smoothing/memory_ledger.py",
           "radii[position] = header.radius", "radii[position] = header.radius / 2", MEMORY),
    # verification
    Mutant("verify: a larger radius passes", "../smoothcert_verify/records.py",
           "    if Decimal(stated) > exact.low:\n", "    if Decimal(stated) > 2 * exact.low:\n", VERIFY),
    Mutant("verify: α of the rival", "../smoothcert_verify/bounds.py",
           "lower = find(count, n, level * (1 - kind.rival))", "lower = find(count, n, level)", VERIFY),
    Mutant("verify: votes of another seed pass", "../smoothcert_verify/records.py",
           "    if votes.seed != seed:\n", "    if False:\n", VERIFY),
    Mutant("verify: the class need not be the chosen one", "../smoothcert_verify/records.py",
           "    if record.predicted != chosen:\n", "    if False:\n", VERIFY),
    Mutant("verify: more votes than the plan states", "../smoothcert_verify/records.py",
           "            if n != plan.n:\n", "            if n < plan.n:\n", VERIFY),
    Mutant("verify: a changed record of a memory passes", "../smoothcert_verify/run.py",
           "        if digest != link:\n", "        if False:\n", VERIFY),
]  # fmt: skip


def copy_tree(folder: Path) -> Path:
    """What git knows of the tree, and what is new in it."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def failing(tree: Path, files: list[str], workers: str) -> str | None:
    """The first test that fails, or None; a suite that does not end counts as failing."""
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-n",
        workers,
        "-p",
        "no:cacheprovider",
        "--tb=no",
        *files,
    ]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return "no end"
    if done.returncode in (0, 5):
        return None
    assert done.returncode not in (3, 4), done.stdout + done.stderr  # pytest itself failed, or misses a file
    named = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return named[0] if named else f"exit code {done.returncode}"


def judged(tree: Path, mutant: Mutant, only_named: bool) -> str | None:
    """Which test notices the mutant; None if none does. A test that fails without the mutant, too, is an error."""
    path = tree / "src" / "smoothcert" / mutant.file
    whole = path.read_text(encoding="utf-8")
    assert whole.count(mutant.old) == 1, (
        f"{mutant.name}: {mutant.file} has {whole.count(mutant.old)} such places"
    )
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        noticed = failing(tree, mutant.tests.split(), "0")
        if noticed is None and not only_named:
            noticed = failing(tree, [], "2")
    finally:
        path.write_text(whole, encoding="utf-8")
    assert noticed is None or "::" not in noticed or failing(tree, [noticed], "0") is None, (
        f"{noticed} fails without a mutant"
    )
    return noticed


def main() -> int:
    """Judge the mutants that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument(
        "--named", action="store_true", help="run the named files alone, never the whole suite"
    )
    parser.add_argument("--list", action="store_true", help="print the mutants and end")
    options = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    if options.list:
        print("\n".join(f"{mutant.file}: {mutant.name}" for mutant in chosen))
        return 0
    survivors = []
    with tempfile.TemporaryDirectory(prefix="smoothcert-mutants-") as folder:
        tree = copy_tree(Path(folder))
        for number, mutant in enumerate(chosen, 1):
            begun = time.monotonic()
            noticed = judged(tree, mutant, options.named)
            seconds = time.monotonic() - begun
            print(
                f"{number}/{len(chosen)} {mutant.name}: {noticed or 'SURVIVES'} ({seconds:.0f} s)", flush=True
            )
            if noticed is None:
                survivors.append(mutant.name)
    print(
        f"{len(chosen) - len(survivors)} of {len(chosen)} noticed; survivors: {', '.join(survivors) or 'none'}"
    )
    return int(len(survivors) > MOST_SURVIVORS)


if __name__ == "__main__":
    sys.exit(main())
