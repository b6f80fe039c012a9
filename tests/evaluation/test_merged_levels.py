"""Runs with σ levels as shards, and published: their votes go with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.errors import RunError
from smoothcert.evaluation import Choice
from smoothcert.evaluation.merging import merge
from smoothcert.runs import read_run
from smoothcert.runs.publishing import local_run, publish
from smoothcert.runs.shards import Shard
from smoothcert.sigma_levels.evidence import read_evidence
from smoothcert.verification import verify_run
from tests.levelled_runs import INPUTS, certified


def test_shards_together_are_the_run_of_one_process(tmp_path: Path) -> None:
    whole = read_run(certified(tmp_path / "whole"))
    parts = [certified(tmp_path / f"{k}", choice=Choice(shard=Shard(k, 3))) for k in (3, 1, 2)]
    assert all(verify_run(part).report.problems == [] for part in parts)
    merged = merge(parts, tmp_path / "merged")
    assert merged.records.digest == whole.records.digest
    assert merged.manifest.identity() == whole.manifest.identity()
    assert read_evidence(merged.path) == read_evidence(whole.path)
    assert len(read_evidence(merged.path)) == INPUTS
    assert verify_run(merged.path).report.problems == []


def test_shards_of_other_choosers_are_refused(tmp_path: Path) -> None:
    first = certified(tmp_path / "1", choice=Choice(shard=Shard(1, 2)))
    second = certified(tmp_path / "2", choice=Choice(shard=Shard(2, 2)), chooser_sigma=0.9)
    with pytest.raises(RunError, match="chooser"):
        merge([first, second], tmp_path / "merged")


def test_a_published_run_keeps_its_votes(tmp_path: Path) -> None:
    run = certified(tmp_path / "run")
    publish(run, f"file://{tmp_path / 'store'}")
    found = local_run(f"file://{tmp_path / 'store'}")
    assert read_evidence(found) == read_evidence(run)
    assert verify_run(found).report.problems == []
