"""A chooser in its directory: a model of levels once it is finished, and nothing before."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert.architectures.weights import load_model
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.level_fit import LevelFitPlan, Progress, fit, fit_levels_into
from smoothcert.runs import read_run
from smoothcert.runs.layout import RunFiles
from smoothcert.sampling import adapt
from smoothcert.sigma_levels.fitted import read_chooser_fields, read_chooser_statement
from tests.conftest import BuildOnce
from tests.level_fit.toys import Half, pictures

PLAN = LevelFitPlan(
    sigmas=(0.5, 1.0), chooser_sigma=0.75, inputs=20, validation=6, votes=32, epochs=2, copies=2
)


def fitted(out: Path, plan: LevelFitPlan = PLAN, progress: Progress | None = None):
    return fit_levels_into(out, [adapt(Half(), "hard")], pictures(30), plan, progress=progress)


def contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in ("model.safetensors", "model.json", "chooser.json")}


@pytest.fixture(scope="session")
def undisturbed(build_once: BuildOnce) -> Path:
    """A finished chooser; tests that change it take a copy."""
    return build_once("level-fit-chooser", fitted)


@pytest.fixture
def chooser(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of a finished chooser."""
    return shutil.copytree(undisturbed, tmp_path / "chooser")


def test_a_chooser_is_a_model_that_says_what_it_chooses_among(chooser: Path) -> None:
    _, spec = load_model(chooser)
    assert spec.classes == ("0.5", "1")
    assert read_chooser_statement(chooser) == ((0.5, 1.0), 0.75)
    fields = read_chooser_fields(chooser)
    assert fields is not None
    assert fields["models"][0]["sha256"] == adapt(Half(), "hard").fingerprint((1, 4, 4))
    assert fitted(chooser).inputs == 6


def test_the_same_again_does_nothing_and_another_plan_is_refused(chooser: Path) -> None:
    before = (chooser / "model.safetensors").stat().st_mtime_ns
    rows: list[int] = []
    fitted(chooser, progress=Progress(rows=rows.append))
    assert rows == []
    assert (chooser / "model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunError, match=r"plan\.votes: .*\b32\b.*\b33\b"):
        fitted(chooser, replace(PLAN, votes=33))


def test_damaged_weights_are_made_again(chooser: Path) -> None:
    report, whole = fitted(chooser), contents(chooser)
    (chooser / "model.safetensors").write_bytes(whole["model.safetensors"][:-1])
    assert fitted(chooser) == report
    assert contents(chooser) == whole


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_kill_leaves_nothing_that_looks_finished(
    written: int, undisturbed: Path, chooser: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before the statement, before the weights, and before the description that makes them a model."""
    from smoothcert.architectures import weights
    from smoothcert.runs import json_lines

    writes = []

    def write(path: Path, content: bytes) -> None:
        if path.name != RunFiles.statement.name:
            if len(writes) == written:
                raise KeyboardInterrupt
            writes.append(path.name)
        path.write_bytes(content)

    for module in (weights, json_lines):
        monkeypatch.setattr(module, "write_atomically", write)
    killed = tmp_path / "killed"
    with pytest.raises(KeyboardInterrupt):
        fitted(killed)
    monkeypatch.undo()
    assert writes == ["chooser.json", "model.safetensors"][:written]
    with pytest.raises(ModelError):
        load_model(killed)
    assert fitted(killed) == fitted(chooser)
    assert contents(killed) == contents(undisturbed)


def test_progress_counts_every_row(tmp_path: Path) -> None:
    begun: list[tuple[int, int]] = []
    rows: list[int] = []
    epochs: list[int] = []
    fitted(
        tmp_path / "chooser",
        progress=Progress(lambda *all_: begun.append(all_), rows.append, lambda: epochs.append(1)),
    )
    assert begun == [(sum(rows), 2)]
    assert len(epochs) == 2


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"validation.*\b20\b.*--validation 5\b"):
        fitted(tmp_path / "chooser", replace(PLAN, validation=20))
    two = [adapt(Half(), "hard")] * 2
    with pytest.raises(InvalidValueError, match=r"\b3\b.*\b2\b"):
        fit_levels_into(tmp_path, two, pictures(), LevelFitPlan(sigmas=(0.5, 1.0, 2.0)))
    with pytest.raises(InvalidValueError, match=r"1, 0\.5"):
        LevelFitPlan(sigmas=(1.0, 0.5))
    with pytest.raises(InvalidValueError, match="constant=0"):
        LevelFitPlan(sigmas=(1.0,))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").write_bytes(b"somebody's")
    with pytest.raises(RunError, match=r"/other\b.*model\.safetensors.*--out"):
        fitted(tmp_path / "other")
    assert not (tmp_path / "chooser").exists()


def test_a_chooser_is_no_run_to_be_tabled(undisturbed: Path) -> None:
    with pytest.raises(RunError, match=rf"--chooser {re.escape(str(undisturbed))}"):
        read_run(undisturbed)


def test_the_kind_is_what_runs_are_told_apart_by() -> None:
    assert fit.KIND == "fit-levels"
