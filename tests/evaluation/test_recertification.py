"""Recertification: the same votes under another alpha or bound, of levels too, and nothing that needs other votes."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.analysis.evidence import radius_ceiling
from smoothcert.bounds.base import BOUNDS
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.recertification import as_if_certified, recertified, recertify
from smoothcert.experimental.levels.choosers import ConstantChooser
from smoothcert.perturb.base import largest_radius
from smoothcert.perturb.diagonal import DIAGONAL_NOISES
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.statement import Choice
from smoothcert_verify import verify_run
from tests.analysis.made_runs import made_run
from tests.levelled_runs import certified as certified_levels
from tests.levelled_runs import edit_line, lines, write_lines
from tests.runs.sealing import without_checksums

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 3))
DATA = Dataset("made-up", X, np.argmax(X, axis=1).astype(np.int64), ("a", "b", "c"))


def scores(batch: np.ndarray) -> np.ndarray:
    return 2.0 * batch


def certified(out: Path, **options: Any) -> Run:
    plan = {"sigma": 0.5, "n": 400, "seed": 7, "alpha": 0.01} | options
    classifier = SmoothedClassifier(scores, outputs="scores", classes=3, **plan)
    return certify_dataset(classifier, DATA, out, Choice(skip=2))


@pytest.mark.parametrize("bound", ["top-two", "two-class", "clopper-pearson", "hoeffding", "bernstein"])
@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_the_same_plan_gives_the_same_bits(tmp_path, bound, noise):
    source = certified(tmp_path / "source", bound=bound, noise=noise)
    again = recertify(source, tmp_path / "again")
    assert results_digest(again.records) == results_digest(source.records)
    assert [r.seconds for r in again.records] == [r.seconds for r in source.records]
    assert any(r.radius > 0 for r in again.records)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"bound": "clopper-pearson"}, {"bound": "two-class"}),
        ({"bound": "two-class"}, {"bound": "clopper-pearson", "alpha": 0.2}),
        ({"bound": "two-class"}, {"alpha": 0.0001}),
        ({"bound": "hoeffding"}, {"bound": "bernstein"}),
        ({"bound": "bernstein"}, {"bound": "two-class"}),
    ],
)
def test_it_equals_certifying_so_in_the_first_place(tmp_path, old, new):
    source = certified(tmp_path / "source", **old)
    made = recertify(source, tmp_path / "made", **new)
    direct = certified(tmp_path / "direct", **(old | new))
    assert results_digest(made.records) == results_digest(direct.records)
    assert results_digest(made.records) != results_digest(source.records)
    stated = {key: value for key, value in made.manifest.plan.items() if key != "recertified_from"}
    assert stated == direct.manifest.plan.as_json()


def test_the_new_run_says_what_it_was_made_from_and_certify_does_not_continue_it(tmp_path):
    source = certified(tmp_path / "source", bound="clopper-pearson")
    made = recertify(source, tmp_path / "made", bound="two-class")
    origin = {"results_sha256": results_digest(source.records), "bound": "clopper-pearson", "alpha": 0.01}
    assert made.manifest.plan.recertified_from == origin
    assert made.manifest.origin.value("recertified_from") == str(tmp_path / "source")
    assert (made.manifest.model, made.manifest.data) == (source.manifest.model, source.manifest.data)
    twice = recertify(made, tmp_path / "twice", alpha=0.05)
    assert twice.manifest.plan.recertified_from["recertified_from"] == origin
    with pytest.raises(RunError, match="recertified_from"):
        certified(tmp_path / "made", bound="two-class")


def test_what_would_need_other_votes_or_makes_no_sense_is_refused(tmp_path):
    source = certified(tmp_path / "source")
    for name, value in {"sigma": 0.25, "n": 100, "n0": 10, "noise": "uniform", "seed": 8}.items():
        with pytest.raises(InvalidValueError, match=rf"\b{name}\b.*\b{value}\b"):
            recertified(source, **{name: value})
        recertified(source, **{name: source.manifest.plan.value(name)})
    with pytest.raises(RunError, match=r"hard.*--bound bernstein"):
        recertified(source, bound="bernstein")
    for changes, named in (
        ({"alpha": 2.0}, r"alpha.*2\.0"),
        ({"bound": "two-clas"}, r"'two-clas'.*'two-class'"),
        ({"alfa": 0.1}, r"'alfa'.*'alpha'"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            recertified(source, **changes)
    with pytest.raises(RunError, match=r"source.*--out"):
        recertify(source, source.path)
    log = made_run()
    for other in (replace(log, manifest=replace(log.manifest, kind="import")), log, made_run(records=())):
        with pytest.raises(RunError, match="made"):
            recertified(other, alpha=0.1)
    plan = source.manifest.plan.but(sigma_search="ladder")
    with pytest.raises(RunError, match=r"source\b.*σ.*\bladder\b"):
        recertify(replace(source, manifest=source.manifest.stating(plan=plan)), tmp_path / "out", alpha=0.01)


def test_results_that_do_not_follow_from_their_votes_are_refused(tmp_path):
    source = certified(tmp_path / "source")
    position = next(i for i, r in enumerate(source.records) if r.radius > 0)
    record = source.records[position]
    tally = record.estimation
    for altered in (
        replace(record, radius=record.radius * 1.001),
        replace(record, predicted=(record.predicted + 1) % 3),
        replace(record, sigma=0.4),
        replace(record, estimation=replace(tally, start=1, stop=tally.stop + 1)),
        replace(record, estimation=replace(tally, stream=replace(tally.stream, seed=8))),
    ):
        records = (*source.records[:position], altered, *source.records[position + 1 :])
        with pytest.raises(RunError, match=rf"\b{record.index}\b.*{altered.radius:.6g}"):
            recertified(replace(source, records=records), alpha=0.1)


def test_a_run_under_way_is_taken_as_far_as_it_is(tmp_path):
    source = certified(tmp_path / "source")
    part = replace(source, records=source.records[:5])
    made = recertify(part, tmp_path / "made", alpha=0.1)
    assert len(read_run(tmp_path / "made").records) == len(made.records) == 5
    assert list(made.planned or ()) == list(range(0, 24, 2))
    assert not made.complete


@pytest.mark.parametrize(
    ("stop", "same"),
    [((), True), (("wrong",), True), (("pilot:5%",), False), (("decide:0.1",), False), (("gain:5%",), False)],
)
def test_for_which_plans_the_bits_are_those_of_certify(tmp_path, stop, same):
    """Where α or the bound decide how many votes there are, certify at another α casts others."""

    def with_alpha(out: Path, alpha: float) -> Run:
        plan = CertifyPlan(Gaussian(0.5), n=4000, seed=7, alpha=alpha, stop=stop)
        classifier = SmoothedClassifier(scores, plan, outputs="scores", classes=3)
        return certify_dataset(classifier, DATA, out, Choice(skip=2))

    source, wanted = with_alpha(tmp_path / "source", 0.001), with_alpha(tmp_path / "wanted", 0.2)
    made = recertify(source, tmp_path / "made", alpha=0.2)
    assert as_if_certified(source, made.manifest.plan.bound) == same
    assert (results_digest(made.records) == results_digest(wanted.records)) == same


@pytest.mark.parametrize("noise", DIAGONAL_NOISES.names())
def test_noise_with_a_scale_for_each_dimension(tmp_path, noise):
    vector = DIAGONAL_NOISES[noise](np.array([0.2, 0.5, 0.8]))

    def with_alpha(out: Path, alpha: float) -> Run:
        plan = CertifyPlan(vector, n=400, seed=7, alpha=alpha)
        classifier = SmoothedClassifier(scores, plan, outputs="scores", classes=3)
        return certify_dataset(classifier, DATA, out, Choice(skip=2))

    source = with_alpha(tmp_path / "source", 0.01)
    assert any(record.radius > 0 for record in source.records)
    again = recertify(source, tmp_path / "again")
    assert results_digest(again.records) == results_digest(source.records)
    assert radius_ceiling(source) == largest_radius(vector, BOUNDS["top-two"], 400, 0.01)
    assert again.manifest.plan.noise_in(again.path) == vector
    # From the copy as well, and equal to certifying so in the first place.
    changed = recertify(again, tmp_path / "changed", alpha=0.2)
    assert results_digest(changed.records) == results_digest(with_alpha(tmp_path / "direct", 0.2).records)
    altered = [replace(record, volume_radius=9.0) for record in source.records]
    with pytest.raises(RunError, match=rf"\b0\b.*{altered[0].radius:.6g}"):
        recertified(replace(source, records=tuple(altered)))
    np.save(RunFiles(source.path).sigmas, np.array([0.2, 0.5, 0.9]))
    with pytest.raises(RunError, match=r"sigmas\.npy"):
        recertified(source)


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Run:
    return read_run(certified_levels(tmp_path_factory.mktemp("source") / "run"))


def test_the_same_levels_give_the_same_bits(source, tmp_path):
    again = recertify(source, tmp_path / "run")
    assert again.records.digest == source.records.digest
    assert (again.path / "levels.jsonl").read_bytes() == (source.path / "levels.jsonl").read_bytes()
    assert again.manifest.plan.chooser == source.manifest.plan.chooser
    assert verify_run(again.path).report.problems == []


@pytest.mark.parametrize(
    "changes",
    [
        {"alpha": 0.2},
        {"alpha": 1e-6},
        {"bound": "clopper-pearson"},
        {"bound": "mixture-top-two", "alpha": 0.01},
        {"bound": "two-class"},
    ],
)
def test_another_alpha_or_bound_follows_from_the_same_votes(source, tmp_path, changes):
    """Recomputed by verify's own arithmetic, the chooser's share of α included; and back to where it came from."""
    made = recertify(source, tmp_path / "run", **changes)
    assert verify_run(made.path).report.problems == []
    chooser = made.manifest.plan.chooser
    assert chooser["alpha"] == made.manifest.plan.alpha / 32
    assert made.records.digest != source.records.digest
    back = recertify(made, tmp_path / "back", alpha=0.001, bound="top-two")
    assert back.records.digest == source.records.digest


def test_a_smaller_alpha_never_certifies_more(source, tmp_path):
    made = recertify(source, tmp_path / "run", alpha=1e-5)
    assert (made.records.radius <= source.records.radius).all()
    assert (made.records.radius < source.records.radius).any()


def test_whether_certifying_so_would_have_cast_these_votes(source, tmp_path):
    assert not as_if_certified(source, "top-two")
    constant = read_run(certified_levels(tmp_path / "constant", ConstantChooser(1)))
    assert as_if_certified(constant, "top-two")
    made = recertify(constant, tmp_path / "made", alpha=0.01)
    direct = read_run(certified_levels(tmp_path / "direct", ConstantChooser(1), alpha=0.01))
    assert made.records.digest == direct.records.digest


def test_the_command_says_what_it_means_and_soft_bounds_are_refused(source, tmp_path, capsys):
    main(["run", "recertify", str(source.path), "--alpha", "0.01", "--out", str(tmp_path / "run")])
    shown = " ".join(capsys.readouterr().err.split())
    assert re.search(r"\balpha 0\.01\b.*chooser.*\balpha 0\.001\b", shown)
    with pytest.raises(InvalidValueError, match="soft"):
        recertify(source, tmp_path / "soft", bound="bernstein")


def altered(source: Run, out: Path) -> Path:
    shutil.copytree(source.path, out)
    return without_checksums(out)


def test_a_line_that_is_missing_or_of_other_votes_is_refused(source, tmp_path):
    run = altered(source, tmp_path / "missing")
    write_lines(run, {index: line for index, line in lines(run).items() if index != 4})
    with pytest.raises(RunError, match=r"levels\.jsonl.*\b4\b.*missing"):
        recertify(read_run(run), tmp_path / "new")
    radius = f"{source.records[7].radius:.6g}"
    for name, index, edit, named in (
        ("home", 4, lambda line: line["votes"][0]["estimation"]["counts"].reverse(), r"\b4\b.*levels\.jsonl"),
        ("counts", 7, lambda line: line["chooser"].update(counts=[0, 0, 1000]), rf"\b7\b.*{radius}.*\d\.\d"),
        ("seed", 7, lambda line: line["chooser"].update(seed=3), r"\b7\b.*\b3\b.*chooser"),
    ):
        run = altered(source, tmp_path / name)
        edit_line(run, index, edit)
        with pytest.raises(RunError, match=rf"{name}.*{named}"):
            recertify(read_run(run), tmp_path / "new")
