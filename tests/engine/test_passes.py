"""Noisy passes: one shape, real padding, one place for threads and for noise."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import smoothcert
from smoothcert.engine.execution import Execution
from smoothcert.engine.passes import Passes, checked_input
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.adapt import adapt
from smoothcert.models.base import Prepared
from smoothcert.models.numerics import Numerics
from smoothcert.threads import worker_threads

SOURCE = Path(smoothcert.__file__).parent


def prepared(seen: list[np.ndarray], chunk: int = 8) -> Prepared:
    def model(batch: np.ndarray) -> np.ndarray:
        seen.append(batch.copy())
        if (batch == 0).all(1).any():
            raise ValueError("zeros")
        return (batch[:, 0] > 1).astype(np.int64)

    base = adapt(model, "hard", outputs="labels", classes=2)
    found = base.prepare(Numerics(chunk=chunk), (2,))
    seen.clear()
    return found


def test_every_pass_has_the_same_shape_and_is_padded_with_a_real_row():
    for rows in (1, 7, 8, 9, 31):
        seen: list[np.ndarray] = []
        passes = Passes(prepared(seen), "hard", Execution(workers=2))
        values = torch.arange(1, rows + 1).float()[:, None].expand(rows, 2) / 2
        with passes.threads() as pool:
            labels = passes.labels(pool, values)
        assert labels.tolist() == [int(value > 1) for value in values[:, 0]]
        assert {batch.shape for batch in seen} == {(8, 2)}


def test_a_failing_pass_ends_with_its_reason():
    passes = Passes(prepared([]), "hard", Execution(workers=2), "fitting")
    with passes.threads() as pool, pytest.raises(ModelError, match=r"^fitting: ValueError: zeros$"):
        passes.labels(pool, torch.zeros((20, 2)))


def test_bad_inputs_are_named():
    for x, named in (
        (np.zeros(3), r"\b4\b.*\(3,\).*\(2,\)"),
        (np.array([0.0, np.inf]), r"\b4\b.*\binf\b.*\(1,\)"),
        (np.array([1j, 0]), r"\b4\b.*complex128"),
        (np.array(["a", "b"]), r"\b4\b.*<U1"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            checked_input(4, x, (2,))


def test_threads_end_and_the_openmp_setting_comes_back():
    before, threads = torch.get_num_threads(), threading.active_count()
    with worker_threads(3) as pool:
        assert list(pool.map(lambda _: torch.get_num_threads(), range(9))) == [1] * 9
    assert torch.get_num_threads() == before
    assert threading.active_count() == threads


@pytest.mark.system
def test_an_interpreter_ends_though_a_stream_of_votes_was_left_open():
    script = """
import numpy as np
from smoothcert import SmoothedClassifier
model = lambda batch: (batch[:, 0] > 0).astype(np.int64)
smoothed = SmoothedClassifier(model, sigma=0.5, n=10**7, outputs="labels", classes=2, bound="looks", seed=0)
states = smoothed.certify_stream(np.array([0.3, 0.1]))
print(next(states).votes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def places_with(pattern: str) -> set[str]:
    found = (path for path in SOURCE.rglob("*.py") if re.search(pattern, path.read_text(encoding="utf-8")))
    return {str(path.relative_to(SOURCE)) for path in found}


def test_noise_for_a_model_is_drawn_in_one_place():
    assert places_with(r"\bdraw_unit\(|sampler\.draw\(") == {"perturb/grid.py", "engine/samples.py"}


def test_threads_that_evaluate_a_model_are_started_in_one_place():
    readers = {"datasets/images.py"}  # they evaluate nothing
    # Nor do these, who wait for workers elsewhere or hand votes to the passes.
    watchers = {"engine/backends/processes.py", "engine/backends/ray.py", "sweeps.py"}
    watchers |= {"client.py", "service/engine.py", "service/service.py"}
    found = places_with(r"ThreadPoolExecutor\(|threading\.Thread\(")
    assert found - readers - watchers == {"threads.py"}
