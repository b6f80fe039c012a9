"""Runs of every kind that the library makes are verified, to the last record."""

import pytest

from smoothcert.bounds.base import BOUNDS
from smoothcert.evaluation.recertification import recertify
from smoothcert.evaluation.remembering import remember
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record
from smoothcert.runs.run import create_run, read_run
from smoothcert.smoothing.answers import record_of
from smoothcert.smoothing.plan import CertifyPlan
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert.tally import Phase, Stream, Tally
from smoothcert_verify import bounds, verify_run
from tests.analysis.texts import numbers
from tests.runs.unfinished import forget, forget_what_was_asked_for
from tests.verification.runs import (
    INPUTS,
    STRETCHED,
    Linear,
    bands,
    certified,
    dataset,
    scores,
    stretched,
    verified,
    whole_points,
)


def test_every_bound_of_the_library_is_known_with_what_it_needs():
    assert sorted(bounds.BOUNDS) == BOUNDS.names()
    for name, kind in bounds.BOUNDS.items():
        assert (kind.votes, kind.anytime) == (BOUNDS[name].votes, BOUNDS[name].anytime)
        assert kind.looks == (BOUNDS[name].next_look is not None)


@pytest.mark.parametrize("bound", BOUNDS.names())
@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_bounds(tmp_path, bound, noise):
    model = scores if BOUNDS[bound].votes == "soft" else bands
    verified(certified(tmp_path / "run", model, bound=bound, noise=noise))


@pytest.mark.parametrize("kind", list(STRETCHED))
def test_a_scale_for_each_dimension(tmp_path, kind):
    verified(stretched(tmp_path / "run", kind))


@pytest.mark.parametrize(
    "stop",
    ["decide:0.3", "grid:0,0.25,0.5", "gain:5%", "abstain", "wrong", "pilot:5%,200", "total:12000,100"],
)
def test_stopping_rules(tmp_path, stop):
    verified(certified(tmp_path / "run", stop=(stop,)))
    if stop == "wrong":
        verified(certified(tmp_path / "looks", stop=("decide:0.2", stop), bound="looks-two-class"))


@pytest.mark.parametrize("name", SEARCHES.names())
def test_a_sigma_for_each_input(tmp_path, name):
    knobs = {"steps": 5} if name in ("gradient", "ellipsoid") else {}
    verified(certified(tmp_path / "run", Linear(), search=SEARCHES[name](**knobs)))


def test_ellipsoids_found_for_single_inputs_are_read_from_their_files(tmp_path):
    run = certified(tmp_path / "run", Linear(), search=EllipsoidSearch(steps=30))
    assert any((run / "sigmas").iterdir())
    verified(run)


@pytest.mark.parametrize(("bound", "alpha"), [("clopper-pearson", 0.01), ("mixture", 0.3), (None, None)])
def test_recertified_runs(tmp_path, bound, alpha):
    run = read_run(certified(tmp_path / "run"))
    recertify(run, tmp_path / "new", bound=bound, alpha=alpha)
    verified(tmp_path / "new")
    believed = (set(verify_run(tmp_path / name).report.believed) for name in ("run", "new"))
    first, again = believed
    assert any("α" in text for text in again - first), "how they were chosen must be believed"


def test_soft_votes_recertified_as_hard_ones(tmp_path):
    recertify(
        read_run(certified(tmp_path / "run", scores, bound="bernstein")), tmp_path / "new", bound="two-class"
    )
    verified(tmp_path / "new")


def test_a_memorys_answers_are_told_apart(tmp_path):
    run = read_run(certified(tmp_path / "run"))
    remember(run, dataset(), tmp_path / "memory", tmp_path / "new")
    report = verify_run(tmp_path / "new").report
    assert report.holds
    from_memory = [
        r for r, own in zip(read_run(tmp_path / "new").records, run.records) if r.radius > own.radius
    ]
    assert report.records - report.recomputed >= len(from_memory)
    assert any(str(report.records - report.recomputed) in numbers(text) for text in report.believed)


def test_a_memorys_ellipsoids_must_be_believed(tmp_path):
    data = whole_points()
    run = read_run(certified(tmp_path / "run", Linear(), data=data, search=EllipsoidSearch(steps=30)))
    assert any(record.volume_radius is not None for record in run.records)
    remember(run, data, tmp_path / "memory", tmp_path / "new")
    report = verify_run(tmp_path / "new").report
    assert report.holds
    assert report.recomputed < report.records


def test_an_imported_log_holds_nothing_to_recompute(tmp_path):
    plan = {"noise": "gaussian", "sigma": 0.5, "norm": "l2"} | dict.fromkeys(("bound", "n0", "n", "alpha"))
    create_run(tmp_path / "run", Manifest.of("import", plan, {}, {}), [Record(0, 1, 1, 0.5, 0.5, 0.1)])
    report = verify_run(tmp_path / "run").report
    assert report.holds
    assert (report.records, report.recomputed) == (1, 0)
    assert report.rests_on_trust
    assert report.believed


def test_an_unfinished_run_is_verified_as_far_as_it_goes(tmp_path):
    run = certified(tmp_path / "run")
    forget(run, range(3, INPUTS))
    report = verify_run(run).report
    assert report.holds
    assert report.finished is False
    assert (report.records, report.recomputed, report.expected) == (3, 3, INPUTS)
    assert numbers(report.notes[0]) == ["3", "8"]
    assert "--max" not in report.notes[0]
    forget_what_was_asked_for(run)
    report = verify_run(run).report
    assert report.finished is False
    assert numbers(report.notes[0])[:2] == ["3", "8"]
    assert "--max" in report.notes[0]


def test_a_run_limited_by_max_is_finished_and_says_so(tmp_path):
    run = certified(tmp_path / "run", most=3)
    report = verify_run(run).report
    assert (report.holds, report.finished, report.expected) == (True, True, 3)
    (note,) = report.notes
    assert numbers(note) == ["3", "8"]
    assert "--max" in note
    forget(run, [2])
    report = verify_run(run).report
    assert report.finished is False
    assert numbers(report.notes[1]) == ["2", "3"]


def test_many_classes_and_abstentions(tmp_path):
    """Counts of every size, also below one half, where two-class certifies and others abstain."""
    for bound in ("top-two", "two-class", "mixture-top-two", "clopper-pearson", "looks-top-two"):
        plan = CertifyPlan(Gaussian(0.5), bound, n0=10, n=1000, alpha=0.001, seed=0).for_shape((1,))
        records = []
        for i, share in enumerate((0, 50, 300, 450, 500, 530, 560, 700, 990, 999, 1000)):
            rest = 1000 - share
            votes = (share, rest // 3, rest - 2 * (rest // 3), rest // 3)
            selection = Tally(Stream(0, i, Phase.SELECTION), 0, 10, (10, 0, 0, 0))
            estimation = Tally(Stream(0, i, Phase.ESTIMATION), 0, 1000, votes)
            records.append(record_of(decide([0.0], plan, selection, estimation), i, i % 4))
        data = {"name": "made-up", "sha256": "d" * 64, "inputs": 11, "skip": 1}
        create_run(tmp_path / bound, Manifest.of("certify", plan.as_json(), {}, data), records)
        report = verify_run(tmp_path / bound).report
        assert report.problems == []
        assert 0 < sum(record.abstained for record in records) < len(records)


def test_verification_changes_nothing_in_the_run(tmp_path):
    run = certified(tmp_path / "run", most=3)
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.iterdir()}
    run.chmod(0o555)
    try:
        assert verify_run(run).report.holds
    finally:
        run.chmod(0o755)
    assert {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in run.iterdir()} == before
