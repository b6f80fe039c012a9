"""The layout of a run's directory knows every file that is written to one."""

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
def test_every_file_of_every_kind_of_run_is_in_the_layout(tmp_path):
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


def test_what_a_run_keeps_beside_its_journal(tmp_path):
    for name in ("sigmas.npy", "sigma_search.jsonl", "sigmas/12.npy", "pilots.jsonl"):
        assert RunFiles.keeps(name)
        run = tmp_path / name.replace("/", "-")
        (run / "sigmas").mkdir(parents=True)
        for other in (name, "run.json", "journal.sqlite", "mine.txt", "sigmas/x.npy"):
            (run / other).write_text("")
        assert dict(RunFiles(run).kept()) == {name: b""}
    for name in (
        *("run.json", "journal.sqlite", "../sigmas.npy", "sigmas/../1.npy", "sigmas", "sigmas/1.npy/", ""),
    ):
        assert not RunFiles.keeps(name)


def test_links_to_what_is_elsewhere_are_refused(tmp_path):
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
