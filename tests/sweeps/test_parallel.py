"""Cells side by side, or as shards: the bits of one after another, whatever is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from smoothcert import datasets
from smoothcert.commands import main
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation import Choice
from smoothcert.runs import read_run
from smoothcert.sampling import Execution
from smoothcert.sweeps import Trial, plan_cells, run_cells
from smoothcert.sweeps.parallel import _Job

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


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, bytes]]:
    out = tmp_path_factory.mktemp("one-by-one")
    train_set, test_set = (datasets.load("digits", split) for split in ("train", "test"))
    for cell in CELLS:
        TRIAL.train(cell, out, train_set, test_set)
        TRIAL.certify(cell, out, test_set)
    return results(out)


def killing(
    out: Path, victims: Callable[[], list[psutil.Process]], when: str
) -> tuple[threading.Thread, list[int]]:
    """A thread that kills a worker once something was written."""
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not killed and time.monotonic() < deadline:
            if list(out.glob(when)) and (found := victims()):
                os.kill(found[0].pid, signal.SIGKILL)
                killed.append(found[0].pid)
            time.sleep(0.005)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, killed


def spawned() -> list[psutil.Process]:
    mine = psutil.Process().children()
    return [one for one in mine if "spawn_main" in " ".join(one.cmdline())]


@pytest.mark.slow
@pytest.mark.campaign
def test_processes_have_the_bits_of_one_after_another_though_one_is_killed(
    expected: dict[str, tuple[str, bytes]], tmp_path: Path
) -> None:
    trial = replace(TRIAL, execution=Execution(workers=2, backend="processes"))
    thread, killed = killing(tmp_path, spawned, "*/model/checkpoint.pt")
    told: list[str] = []
    assert run_cells(CELLS, trial, tmp_path, lambda cell: told.append(cell.folder)) == {}
    thread.join()
    assert killed
    assert sorted(told) == sorted(expected)
    assert results(tmp_path) == expected
    assert not spawned()


def test_a_worker_that_dies_over_and_over_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smoothcert.sweeps import parallel

    losses = parallel._Losses()
    job = _Job(CELLS[0], TRIAL, tmp_path, str(tmp_path), 1)
    for _ in range(3):
        losses.note(job, "exit code -9")
    with pytest.raises(
        RunError, match=r"gaussian-sigma0.25-seed0: .*lost 4 times \(exit code -9\).*--workers 1"
    ):
        losses.note(job, "exit code -9")


def test_what_a_cell_refuses_ends_the_sweep_with_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smoothcert.sweeps import parallel

    monkeypatch.setattr(parallel, "_processes", lambda jobs, _: ((job, job()) for job in jobs))
    trial = replace(TRIAL, execution=Execution(workers=2, backend="processes"))
    path = CELLS[1].model(tmp_path)
    path.mkdir(parents=True)
    (path / "checkpoint.pt").write_bytes(b"somebody's")
    with pytest.raises(
        RunError, match=r"^consistency-lam=1-sigma0.25-seed0: .*holds checkpoint.pt but no run.json"
    ):
        run_cells(CELLS, trial, tmp_path)
    with pytest.raises(InvalidValueError, match="side by side"):
        run_cells(CELLS, TRIAL, tmp_path)


def test_workers_elsewhere_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from smoothcert.sweeps import parallel

    monkeypatch.setattr(parallel, "_ray", lambda jobs, _: ((job, ("done", "")) for job in jobs))
    with pytest.raises(RunError, match="file system that all of them share"):
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


def test_on_ray_no_more_cells_at_once_than_workers_and_lost_ones_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smoothcert.sweeps import parallel

    fake = _FakeRay()
    monkeypatch.setattr(parallel, "require", lambda *_: fake)
    cells = plan_cells(["gaussian"], [0.25], [0, 1, 2], {"dataset": "digits"})
    jobs = [_Job(cell, TRIAL, tmp_path, str(tmp_path), 1) for cell in cells]
    done = [job.cell for job, _ in parallel._ray(jobs, Execution(workers=2, backend="ray"))]
    assert sorted(cell.seed for cell in done) == [0, 1, 2]
    assert (fake.most, fake.lost) == (2, 1)


def test_shards_make_the_table_that_one_command_makes(tmp_path: Path) -> None:
    words = [
        "sweep",
        "digits",
        "--methods",
        "gaussian",
        "consistency:lam=1",
        "--sigmas",
        "0.25",
        "--epochs",
        "1",
    ]
    words += ["--train-inputs", "200", "--n", "200", "--skip", "100", "--quiet", "--out"]
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


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_on_ray_too(expected: dict[str, tuple[str, bytes]], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}

    def tasks() -> list[Any]:
        return [
            one
            for one in psutil.process_iter(["cmdline"])
            if "_work_remotely" in "".join(one.info["cmdline"] or [])
        ]

    thread, killed = killing(tmp_path, tasks, "*/model/checkpoint.pt")
    trial = replace(TRIAL, execution=Execution(workers=2, backend="ray"))
    assert run_cells(CELLS, trial, tmp_path) == {}
    thread.join()
    assert killed
    assert results(tmp_path) == expected
