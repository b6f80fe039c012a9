"""Cells side by side, or as shards: the bits of one after another, whatever is killed."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from smoothcert import datasets, sweeps
from smoothcert.cli import main
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import Choice
from smoothcert.sweeps import Trial, _Job, plan_cells, run_cells

pytest.importorskip("sklearn")

CELLS = plan_cells(
    ["gaussian", "consistency:lam=1"], [0.25], [0], {"dataset": "digits", "epochs": 3, "inputs": 200}
)
TRIAL = Trial({"n": 500}, Choice(90), Execution(workers=1))


def results(out: Path) -> dict[str, tuple[str, bytes]]:
    return {
        cell.folder: (
            read_run(cell.certified(out)).records.digest,
            (cell.model(out) / "model.safetensors").read_bytes(),
        )
        for cell in CELLS
    }


@pytest.fixture(scope="session")
def expected(build_once) -> dict[str, tuple[str, bytes]]:
    def one_by_one(out: Path) -> None:
        train_set, test_set = (datasets.load("digits", split) for split in ("train", "test"))
        for cell in CELLS:
            TRIAL.train(cell, out, train_set, test_set)
            TRIAL.certify(cell, out, test_set)

    return results(build_once("sweep-one-by-one", one_by_one))


@contextmanager
def killing(out: Path, kind: str) -> Iterator[None]:
    """Kills a worker of this process, one whose command line says its kind, once a checkpoint was written."""
    killed: list[int] = []
    over = threading.Event()

    def kill() -> None:
        while not killed and not over.wait(0.005):
            if list(out.glob("*/model/checkpoint.pt")) and (found := workers(kind)):
                with suppress(psutil.Error):  # it may have ended since
                    found[0].kill()
                    killed.append(found[0].pid)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(60)
    assert killed


def workers(kind: str) -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it may have ended since
            if kind in " ".join(process.cmdline()):
                found.append(process)
    return found


@pytest.mark.campaign
def test_processes_have_the_bits_of_one_after_another_though_one_is_killed(expected, tmp_path):
    trial = replace(TRIAL, execution=Execution(workers=2, backend="processes"))
    told: list[str] = []
    with killing(tmp_path, "spawn_main"):
        assert run_cells(CELLS, trial, tmp_path, lambda cell: told.append(cell.folder)) == {}
    assert sorted(told) == sorted(expected)
    assert results(tmp_path) == expected
    assert not workers("spawn_main")


def test_a_worker_that_dies_over_and_over_is_an_error(tmp_path):
    losses: Counter[str] = Counter()
    job = _Job(CELLS[0], TRIAL, tmp_path, str(tmp_path), 1)
    for _ in range(3):
        sweeps._count_loss(losses, job, "-9")
    with pytest.raises(RunError, match=r"gaussian-sigma0\.25-seed0.*\b4\b.*\(-9\).*--workers 1"):
        sweeps._count_loss(losses, job, "-9")


def test_what_a_cell_refuses_ends_the_sweep_with_its_message(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "_processes", lambda jobs, _: ((job, job()) for job in jobs))
    trial = replace(TRIAL, execution=Execution(workers=2, backend="processes"))
    path = CELLS[1].model(tmp_path)
    path.mkdir(parents=True)
    (path / "checkpoint.pt").write_bytes(b"somebody's")
    with pytest.raises(RunError, match=r"^consistency-lam=1-sigma0\.25-seed0.*checkpoint\.pt.*run\.json"):
        run_cells(CELLS, trial, tmp_path)
    with pytest.raises(InvalidValueError, match="'threads'"):
        run_cells(CELLS, TRIAL, tmp_path)


def test_workers_elsewhere_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "_ray", lambda jobs, _: ((job, ("done", "")) for job in jobs))
    with pytest.raises(RunError, match=r"gaussian-sigma0\.25-seed0/certified.*--out"):
        run_cells(CELLS, replace(TRIAL, execution=Execution(backend="ray")), tmp_path)


class _Sent:
    def __init__(self, job: _Job) -> None:
        self.job = job


class _FakeRay:
    """Does tasks when they are waited for, and loses the first of them."""

    class exceptions:  # noqa: N801
        class RayError(Exception): ...

    def __init__(self) -> None:
        self.most, self.lost = 0, 0

    def is_initialized(self) -> bool:
        return True

    def remote(self, **_: Any) -> Callable[[Any], Any]:
        return lambda _: SimpleNamespace(remote=_Sent)

    def wait(self, references: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        self.most = max(self.most, len(references))
        return references[:1], references[1:]

    def get(self, reference: Any) -> Any:
        if not self.lost:
            self.lost = 1
            raise self.exceptions.RayError("a node died")
        return "done", reference.job.cell.folder


def test_on_ray_no_more_cells_at_once_than_workers_and_lost_ones_again(tmp_path, monkeypatch):
    fake = _FakeRay()
    monkeypatch.setattr(sweeps, "require", lambda *_: fake)
    cells = plan_cells(["gaussian"], [0.25], [0, 1, 2], {"dataset": "digits"})
    jobs = [_Job(cell, TRIAL, tmp_path, str(tmp_path), 1) for cell in cells]
    done = [job.cell for job, _ in sweeps._ray(jobs, Execution(workers=2, backend="ray"))]
    assert sorted(cell.seed for cell in done) == [0, 1, 2]
    assert (fake.most, fake.lost) == (2, 1)


@pytest.mark.slow
def test_shards_make_the_table_that_one_command_makes(tmp_path):
    words = ["sweep", "digits", "--methods", "gaussian", "consistency:lam=1", "--sigmas", "0.25"]
    words += ["--epochs", "1", "--train-inputs", "64", "--n", "100", "--every", "200", "--quiet", "--out"]
    main([*words, str(tmp_path / "whole")])
    for number in (2, 1):
        main([*words, str(tmp_path / "parts"), "--shard", f"{number}/2"])
        assert not (tmp_path / "parts" / "table.json").exists()
        assert len(list((tmp_path / "parts").iterdir())) == 3 - number
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts").glob("*/*/*.*")}
    main([*words, str(tmp_path / "parts")])
    assert (tmp_path / "parts" / "table.json").read_bytes() == (
        tmp_path / "whole" / "table.json"
    ).read_bytes()
    weights = [path for path in before if path.name == "checkpoint.pt"]
    assert {path: path.stat().st_mtime_ns for path in weights} == {path: before[path] for path in weights}


@pytest.mark.system
@pytest.mark.filterwarnings("ignore")
def test_on_ray_too(expected, tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    trial = replace(TRIAL, execution=Execution(workers=2, backend="ray"))
    with killing(tmp_path, "_work_remotely"):
        assert run_cells(CELLS, trial, tmp_path) == {}
    assert results(tmp_path) == expected
