"""A run is continued only with the statement it was started with."""

import json
import os
import re
from dataclasses import replace

import pytest

from smoothcert.errors import OutputError, RunError
from smoothcert.runs.manifest import Manifest, current_versions
from smoothcert.runs.run import create_run, open_run, read_run, unique_names
from tests.runs.test_journal import record

MANIFEST = Manifest.of(
    kind="certify",
    plan={"sigma": 0.5, "n": 1000},
    model={"name": "lenet", "sha256": "a" * 64},
    data={"name": "mnist", "sha256": "b" * 64},
    versions=current_versions(),
    created="2026-01-01",
)


def test_a_run_is_made_continued_and_read(tmp_path):
    path = tmp_path / "deep" / "run"
    with open_run(path, MANIFEST) as journal:
        journal.append(record(1))
    with open_run(path, replace(MANIFEST, created="2027-01-01", versions={})) as journal:
        assert journal.indices() == {1}
        journal.append(record(2))
    run = read_run(path)
    assert run.manifest == MANIFEST
    assert run.records == (record(1), record(2))
    assert run.name == "run"


def test_another_statement_is_refused_with_what_differs(tmp_path):
    with open_run(tmp_path, MANIFEST) as journal:
        journal.append(record(1))
    for other, named in [
        (MANIFEST.stating(plan={"sigma": 0.5, "n": 2000}), r"plan\.n\b.*\b1000\b.*\b2000\b"),
        (MANIFEST.stating(plan={"sigma": 0.5}), r"plan\.n\b.*\b1000\b.*\bnull\b"),
        (MANIFEST.stating(model={"name": "lenet", "sha256": "c" * 64}), r'model\.sha256.*"aaaa.*"cccc'),
        (MANIFEST.stating(data={"name": "cifar10", "sha256": "b" * 64}), r'data\.name.*"mnist".*"cifar10"'),
        (replace(MANIFEST, kind="import"), r'\bkind\b.*"certify".*"import"'),
    ]:
        with pytest.raises(RunError, match=named), open_run(tmp_path, other):
            pass
        assert read_run(tmp_path).records == (record(1),)


def test_where_things_were_found_is_kept_but_is_no_part_of_the_statement(tmp_path):
    found = MANIFEST.stating(origin={"model": "runs/lenet"})
    with open_run(tmp_path, found) as journal:
        journal.append(record(1))
    with open_run(tmp_path, MANIFEST.stating(origin={"model": "elsewhere/lenet"})) as journal:
        journal.append(record(2))
    assert read_run(tmp_path).manifest.origin.as_json() == {"model": "runs/lenet"}


def test_a_manifest_from_before_origins_were_kept_is_read_and_continued(tmp_path):
    MANIFEST.save(tmp_path)
    fields = json.loads((tmp_path / "run.json").read_text())
    del fields["origin"], fields["checksum"]
    (tmp_path / "run.json").write_text(json.dumps(fields))
    with open_run(tmp_path, MANIFEST.stating(origin={"model": "lenet"})) as journal:
        journal.append(record(1))
    assert read_run(tmp_path).manifest == MANIFEST
    assert read_run(tmp_path).manifest.origin.as_json() == {}


def test_two_writers_are_refused(tmp_path):
    with open_run(tmp_path, MANIFEST), pytest.raises(RunError, match="--out"), open_run(tmp_path, MANIFEST):
        pass


def test_an_imported_run_is_not_overwritten(tmp_path):
    create_run(tmp_path, MANIFEST, [record(1)])
    with pytest.raises(RunError, match="--out"):
        create_run(tmp_path, MANIFEST, [record(2)])


def test_what_is_no_run_is_said_not_to_be(tmp_path):
    with pytest.raises(RunError, match="nowhere"):
        read_run(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"run\.json"):
        read_run(tmp_path)
    (tmp_path / "journal.sqlite").touch()
    with pytest.raises(RunError, match=r"run\.json.*--out"), open_run(tmp_path, MANIFEST):
        pass
    for content, named in {
        "{": r"run\.json\b.*line 1",
        "[]": r"run\.json\b.*format",
        '{"format": 99}': r"run\.json\b.*format",
        '{"format": 1, "kind": "certify"}': r"run\.json\b",
    }.items():
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(RunError, match=named):
            read_run(tmp_path)


def test_places_that_cannot_be_written_are_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file/run"), open_run(tmp_path / "file" / "run", MANIFEST):
        pass
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere: pretend not to be
    with (
        pytest.raises(RunError, match=re.escape(str(tmp_path / "run"))),
        open_run(tmp_path / "run", MANIFEST),
    ):
        pass


def test_a_full_disk_leaves_no_half_manifest(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match=r"run\.json.*full"):
        MANIFEST.save(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["x/a/certified", "x/b/certified", "x/other"], ["a", "b", "other"]),
        (["a/x/run", "a/y/run", "b/x/run"], ["a/x", "a/y", "b/x"]),
        (["x/a/certified", "x/b/certified", "x/a"], ["a/certified", "b/certified", "a"]),
        (["x/run", "y/run", "other", "other"], ["x", "y", "other (1)", "other (2)"]),
        (["x/run"], ["run"]),
    ],
)
def test_names_are_the_shortest_that_tell_runs_apart(tmp_path, paths, names):
    assert unique_names([tmp_path / path for path in paths]) == names


def test_a_folder_of_runs_names_them(tmp_path):
    for name in ("a", "b"):
        create_run(tmp_path / "runs" / name, Manifest.of("certify", {"sigma": 0.5}, {}, {}), [])
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}/runs/*")):
        read_run(tmp_path / "runs")
    create_run(tmp_path / "sweep" / "cell" / "certified", Manifest.of("certify", {"sigma": 0.5}, {}, {}), [])
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}/sweep/*/certified")):
        read_run(tmp_path / "sweep")
    create_run(tmp_path / "runs" / "trained", Manifest.of("train", {"sigma": 0.5}, {}, {}), [])
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}/runs/a {tmp_path}/runs/b")):
        read_run(tmp_path / "runs")
