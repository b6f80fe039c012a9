"""The layout of a run's directory knows every file that is written to one."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.errors import DataError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.experimental.levels.choosers import write_chooser_statement
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.publishing import publish
from tests.guarantees.damages import _classifier, certified_specimens, other_specimens, points

WEIGHTS = {"model.json", "model.safetensors"}
"""Of any directory that a model is saved to."""


@pytest.mark.slow
def test_every_file_of_every_kind_of_run_is_in_the_layout(tmp_path: Path) -> None:
    names = {one.name for one in vars(RunFiles).values() if hasattr(one, "name")} | WEIGHTS
    seen = set()
    for specimen in (*certified_specimens(tmp_path), *other_specimens(tmp_path)):
        found = {path.name.removesuffix("-wal") for path in specimen.path.iterdir()}
        assert found <= names, specimen.path
        seen |= found
    (tmp_path / "chooser").mkdir()
    certify_dataset(_classifier("plain"), points(), tmp_path / "finished")
    publish(tmp_path / "finished", f"file://{tmp_path / 'store'}")
    published = {path.name for path in (tmp_path / "store").iterdir()}
    write_chooser_statement(tmp_path / "chooser", (0.25, 0.5), 0.5, {})
    seen |= {path.name for path in (tmp_path / "chooser").iterdir()}
    assert published <= names
    RunFiles(tmp_path / "finished").mark_void("its model failed the check")
    seen |= {path.name for path in (tmp_path / "finished").iterdir()}
    assert seen | published == names


@pytest.mark.parametrize("name", ["sigmas.npy", "sigma_search.jsonl", "sigmas/12.npy", "pilots.jsonl"])
def test_what_a_run_keeps_beside_its_journal(name: str, tmp_path: Path) -> None:
    assert RunFiles.keeps(name)
    (tmp_path / "sigmas").mkdir()
    for other in (name, "run.json", "journal.sqlite", "mine.txt", "sigmas/x.npy"):
        (tmp_path / other).write_text("")
    assert dict(RunFiles(tmp_path).kept()) == {name: b""}


def test_links_to_what_is_elsewhere_are_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "1.npy").write_text("secret")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "sigmas").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="run/sigmas"):
        list(RunFiles(tmp_path / "run").kept())
    (tmp_path / "run" / "sigmas").unlink()
    (tmp_path / "run" / "pilots.jsonl").symlink_to(tmp_path / "elsewhere" / "1.npy")
    with pytest.raises(DataError, match=r"run/pilots\.jsonl"):
        list(RunFiles(tmp_path / "run").kept())


@pytest.mark.parametrize(
    "name", ["run.json", "journal.sqlite", "../sigmas.npy", "sigmas/../1.npy", "sigmas", "sigmas/1.npy/", ""]
)
def test_what_it_does_not_keep(name: str) -> None:
    assert not RunFiles.keeps(name)
