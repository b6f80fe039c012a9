"""A chooser in its directory: a model of levels once it is finished, and nothing before."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothcert.architectures.weights import load_model
from smoothcert.errors import InvalidValueError, ModelError, RunError
from smoothcert.level_fit import LevelFitPlan, Progress, fit, fit_levels_into
from smoothcert.runs import read_run
from smoothcert.runs.layout import RunFiles
from smoothcert.sampling import adapt
from smoothcert.sigma_levels.fitted import read_chooser_fields, read_chooser_statement
from tests.level_fit.toys import Half, pictures

PLAN = LevelFitPlan(
    sigmas=(0.5, 1.0), chooser_sigma=0.75, inputs=40, validation=10, votes=32, epochs=2, copies=2
)


def fitted(out: Path, plan: LevelFitPlan = PLAN, progress: Progress | None = None):
    return fit_levels_into(out, [adapt(Half(), "hard")], pictures(60), plan, progress=progress)


def test_a_chooser_is_a_model_that_says_what_it_chooses_among(tmp_path: Path) -> None:
    report = fitted(tmp_path / "chooser")
    _, spec = load_model(tmp_path / "chooser")
    assert spec.classes == ("0.5", "1")
    assert read_chooser_statement(tmp_path / "chooser") == ((0.5, 1.0), 0.75)
    fields = read_chooser_fields(tmp_path / "chooser")
    assert fields is not None
    assert fields["models"][0]["sha256"] == adapt(Half(), "hard").fingerprint((1, 4, 4))
    assert report.inputs == 10


def test_the_same_again_does_nothing_and_another_plan_is_refused(tmp_path: Path) -> None:
    first = fitted(tmp_path / "chooser")
    before = (tmp_path / "chooser" / "model.safetensors").stat().st_mtime_ns
    assert fitted(tmp_path / "chooser") == first
    assert (tmp_path / "chooser" / "model.safetensors").stat().st_mtime_ns == before
    other = LevelFitPlan(sigmas=(0.5, 1.0), chooser_sigma=0.75, inputs=40, validation=10, votes=33)
    with pytest.raises(RunError, match=r"plan\.votes: the run has 32, now 33"):
        fitted(tmp_path / "chooser", other)


def test_damaged_weights_are_made_again(tmp_path: Path) -> None:
    first = fitted(tmp_path / "chooser")
    weights = tmp_path / "chooser" / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    assert fitted(tmp_path / "chooser") == first
    assert weights.read_bytes() == whole


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_kill_leaves_nothing_that_looks_finished(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "chooser")
    monkeypatch.undo()
    assert writes == ["chooser.json", "model.safetensors"][:written]
    with pytest.raises(ModelError):
        load_model(tmp_path / "chooser")
    assert fitted(tmp_path / "chooser") == fitted(tmp_path / "undisturbed")
    for name in ("model.safetensors", "model.json", "chooser.json"):
        assert (tmp_path / "chooser" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()


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
    with pytest.raises(InvalidValueError, match="--validation 10, say"):
        fitted(tmp_path / "chooser", LevelFitPlan(sigmas=(0.5, 1.0), inputs=40, validation=40))
    two = [adapt(Half(), "hard")] * 2
    with pytest.raises(InvalidValueError, match="one for each of 3, got 2"):
        fit_levels_into(tmp_path, two, pictures(), LevelFitPlan(sigmas=(0.5, 1.0, 2.0)))
    with pytest.raises(InvalidValueError, match="increasing numbers"):
        LevelFitPlan(sigmas=(1.0, 0.5))
    with pytest.raises(InvalidValueError, match="two levels or more"):
        LevelFitPlan(sigmas=(1.0,))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").write_bytes(b"somebody's")
    with pytest.raises(RunError, match="of something else"):
        fitted(tmp_path / "other")
    assert not (tmp_path / "chooser").exists()


def test_a_chooser_is_no_run_to_be_tabled(tmp_path: Path) -> None:
    fitted(tmp_path / "chooser")
    with pytest.raises(RunError, match="is a chooser of levels: certify with it first"):
        read_run(tmp_path / "chooser")


def test_the_kind_is_what_runs_are_told_apart_by() -> None:
    assert fit.KIND == "fit-levels"
