"""Shards certified apart, with levels too, and the run that is made of them; a published run keeps its votes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from smoothcert import SmoothedClassifier
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.merging import merge
from smoothcert.files import sealed
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.publishing import local_run, publish
from smoothcert.runs.run import Run, open_run, read_run
from smoothcert.runs.side_files import read_evidence, read_searches
from smoothcert.runs.statement import Choice, Shard
from smoothcert.smoothing.search.base import SEARCHES
from smoothcert_verify import verify_run
from tests.levelled_runs import INPUTS as LEVELLED_INPUTS
from tests.levelled_runs import certified as certified_levels

INPUTS = 23


def halves(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch.sum(1), -batch.sum(1)], axis=1)


@pytest.fixture(scope="module")
def data() -> Dataset:
    x = np.random.default_rng(0).normal(size=(INPUTS, 5)).astype(np.float32)
    return Dataset("made-up", x, (x.sum(1) < 0).astype(np.int64), ("a", "b"))


def certified(
    data: Dataset, out: Path, shard: str | None = None, *, skip: int = 1, most: int | None = None, **plan
):
    fields = {"sigma": 0.5, "n": 300, "n0": 20} | plan
    choice = Choice(skip, most, None if shard is None else Shard.parse(shard))
    return certify_dataset(SmoothedClassifier(halves, **fields), data, out, choice)


def shards(data: Dataset, folder: Path, of: int, **fields) -> list[Path]:
    for number in range(1, of + 1):
        certified(data, folder / f"shard-{number}", f"{number}/{of}", **fields)
    return [folder / f"shard-{number}" for number in range(of, 0, -1)]


def same(run: Run, whole: Run) -> None:
    assert run.records.digest == whole.records.digest
    assert run.manifest.identity() == whole.manifest.identity()
    assert run.manifest.versions == whole.manifest.versions
    assert run.complete


@pytest.mark.parametrize(("of", "skip", "most"), [(1, 1, None), (3, 1, None), (4, 2, 9), (9, 5, None)])
def test_shards_together_are_the_run_of_one_process(data, tmp_path, of, skip, most):
    whole = certified(data, tmp_path / "whole", skip=skip, most=most)
    parts = shards(data, tmp_path, of, skip=skip, most=most)
    merged = merge(parts, tmp_path / "merged")
    same(merged, whole)
    assert sorted(index for part in parts for index in read_run(part).records.index) == list(
        whole.records.index
    )


@pytest.mark.parametrize(
    "plan", [{"stop": ("decide:0.2",)}, {"stop": ("pilot:5%",)}, {"search": SEARCHES["ladder"]()}]
)
def test_rules_and_searches_are_of_one_input_each(data, tmp_path, plan):
    whole = certified(data, tmp_path / "whole", **plan)
    merged = merge(shards(data, tmp_path, 3, **plan), tmp_path / "merged")
    same(merged, whole)
    assert read_searches(merged.path) == read_searches(whole.path)


def test_the_merged_run_and_each_shard_verify(data, tmp_path):
    parts = shards(data, tmp_path, 3)
    merge(parts, tmp_path / "merged")
    for path in (*parts, tmp_path / "merged"):
        report = verify_run(path).report
        assert report.holds
        assert report.finished


def test_a_merged_run_goes_on_as_the_whole_one(data, tmp_path):
    merge(shards(data, tmp_path, 2), tmp_path / "merged")
    again = certified(data, tmp_path / "merged")  # nothing is missing
    assert len(again.records) == INPUTS


def test_merging_again_after_a_kill_goes_on(data, tmp_path):
    parts = shards(data, tmp_path, 2)
    digest = merge(parts, tmp_path / "merged").records.digest
    RunFiles(tmp_path / "merged").journal.unlink()
    RunFiles(tmp_path / "merged").lock.unlink()
    assert merge(parts, tmp_path / "merged").records.digest == digest
    with pytest.raises(RunError, match=r"merged.*--out"):
        merge(parts, tmp_path / "merged")


def test_what_is_missing_doubled_or_unfinished_is_refused(data, tmp_path):
    parts = shards(data, tmp_path, 3)
    with pytest.raises(RunError, match="--shard 1/3"):
        merge(parts[:2], tmp_path / "merged")
    with pytest.raises(RunError, match=r"shard-1 .*shard-1 .*1/3"):
        merge([*parts, parts[-1]], tmp_path / "merged")
    with pytest.raises(RunError, match=r"whole.*--shard"):
        merge([certified(data, tmp_path / "whole").path], tmp_path / "merged")
    with pytest.raises(RunError, match=r"\b3\b.*\b5\b"):
        merge([*parts, certified(data, tmp_path / "fifth", "5/5").path], tmp_path / "merged")
    with pytest.raises(InvalidValueError):
        merge([], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_an_unfinished_shard_is_refused(data, tmp_path):
    parts = shards(data, tmp_path, 2)
    with open_run(parts[0], Manifest.load(parts[0])) as journal:
        journal.drop(sorted(journal.indices())[3:])
    with pytest.raises(RunError, match=r"shard-2\b.*2/2.*\b3\b.*\b11\b"):
        merge(parts, tmp_path / "merged")


def test_shards_of_other_plans_models_data_or_versions_are_refused(data, tmp_path):
    first = certified(data, tmp_path / "1", "1/2").path
    with pytest.raises(RunError, match=r"plan\.n\b.*\b300\b.*\b400\b"):
        merge([first, certified(data, tmp_path / "n", "2/2", n=400).path], tmp_path / "merged")
    with pytest.raises(RunError, match=r"plan\.seed\b.*\b0\b.*\b5\b"):
        merge([first, certified(data, tmp_path / "seed", "2/2", seed=5).path], tmp_path / "merged")
    second = certified(data, tmp_path / "2", "2/2").path
    _state_version(second, "torch", "1.0")
    with pytest.raises(RunError, match=r"versions\.torch\b.*\b2\..*\b1\.0"):
        merge([first, second], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_shard_is_not_continued_as_another(data, tmp_path):
    certified(data, tmp_path / "1", "1/2")
    with pytest.raises(RunError, match=r'data\.shard.*"1/2".*"2/2"'):
        certified(data, tmp_path / "1", "2/2")
    with pytest.raises(RunError, match=r'data\.shard.*"1/2".*null'):
        certified(data, tmp_path / "1")


def test_a_total_of_votes_can_not_be_spread_over_shards(data, tmp_path):
    with pytest.raises(InvalidValueError, match=r"1/2.*--stop total:5000"):
        certified(data, tmp_path / "1", "1/2", stop=("total:5000",))


@pytest.mark.parametrize("text", ["", "1", "0/3", "4/3", "1/0", "a/b", "1/2/3", "-1/3", "1.0/2"])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(InvalidValueError, match=re.escape(text or "''")):
        Shard.parse(text)


def test_parts_are_disjoint_and_all_there():
    indices = range(0, 100, 7)
    parts = [Shard(number, 4).part(indices) for number in range(1, 5)]
    assert sorted(index for part in parts for index in part) == list(indices)


def _state_version(path: Path, name: str, version: str) -> None:
    file = RunFiles(path).statement
    stated = json.loads(file.read_text())
    del stated["checksum"]
    stated["versions"][name] = version
    file.write_text(json.dumps(sealed(stated)))


def test_shards_with_levels_are_the_run_of_one_process(tmp_path):
    whole = read_run(certified_levels(tmp_path / "whole"))
    parts = [certified_levels(tmp_path / f"{k}", choice=Choice(shard=Shard(k, 3))) for k in (3, 1, 2)]
    assert all(verify_run(part).report.problems == [] for part in parts)
    merged = merge(parts, tmp_path / "merged")
    assert merged.records.digest == whole.records.digest
    assert merged.manifest.identity() == whole.manifest.identity()
    assert read_evidence(merged.path) == read_evidence(whole.path)
    assert len(read_evidence(merged.path)) == LEVELLED_INPUTS
    assert verify_run(merged.path).report.problems == []


def test_shards_of_other_choosers_are_refused(tmp_path):
    first = certified_levels(tmp_path / "1", choice=Choice(shard=Shard(1, 2)))
    second = certified_levels(tmp_path / "2", choice=Choice(shard=Shard(2, 2)), chooser_sigma=0.9)
    with pytest.raises(RunError, match="chooser"):
        merge([first, second], tmp_path / "merged")


def test_a_published_run_keeps_its_votes(tmp_path):
    run = certified_levels(tmp_path / "run")
    publish(run, f"file://{tmp_path / 'store'}")
    found = local_run(f"file://{tmp_path / 'store'}")
    assert read_evidence(found) == read_evidence(run)
    assert verify_run(found).report.problems == []
