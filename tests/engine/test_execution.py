"""Execution: widths and devices."""

import subprocess
import sys

import pytest
import torch

from smoothcert.engine.execution import Execution, usable_cores
from smoothcert.errors import InvalidValueError
from smoothcert.models.numerics import check_device


def test_defaults_follow_the_machine():
    assert Execution().worker_count() == usable_cores() >= 1
    assert Execution(device="cuda").worker_count() == 1
    assert Execution(workers=3).worker_count() == 3
    assert Execution().rounds_per_task(256, 784) == 5
    assert Execution().rounds_per_task(64, 150_528) == 1
    assert Execution(batch=1000).rounds_per_task(64, 784) == 15
    assert Execution(batch=1).rounds_per_task(64, 784) == 1
    far = Execution(backend="ray")
    assert far.rounds_per_task(256, 784, far=True) == 5
    assert 64 * far.rounds_per_task(64, 150_528, far=True) >= 4 * 150_528 / 4000
    assert 64 * Execution("cuda:0", backend="ray").rounds_per_task(64, 150_528, far=True) >= 4 * 150_528 / 100


@pytest.mark.parametrize("fields", [{"workers": 0}, {"batch": -5}])
def test_nonsense_is_refused(fields):
    ((name, value),) = fields.items()
    with pytest.raises(InvalidValueError, match=f"{name}.*{value}"):
        Execution(**fields)  # type: ignore[arg-type]


def test_an_unreachable_device_is_refused():
    with pytest.raises(InvalidValueError, match=r"'quantum'.*--device"):
        check_device("quantum")


def test_devices_are_those_named_or_all_there_are(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    for device, devices in {
        "cpu": ("cpu",),
        "cpu,cpu": ("cpu", "cpu"),
        "mps": ("mps",),
        "cuda": ("cuda:0", "cuda:1", "cuda:2"),
        "cuda:1": ("cuda:1",),
        "cuda:2, cuda:0": ("cuda:2", "cuda:0"),
    }.items():
        execution = Execution(device)
        assert execution.devices() == devices
        assert execution.main_device == devices[0]
        assert execution.device_kind == devices[0].partition(":")[0]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert Execution("cuda").devices() == ("cuda",)  # so that check_device says why not


@pytest.mark.parametrize(
    ("device", "named"),
    [
        ("cuda:0,cpu", "'cuda:0,cpu'.*--device cuda:0"),
        ("cuda:0,cuda:0", "'cuda:0,cuda:0'"),
        ("cpu,", "'cpu,'.*--device cpu"),
        ("cuda:0,cuda:99", r"'cuda:\d+'.*--device"),
    ],
)
def test_devices_that_cannot_be_are_refused(device, named):
    with pytest.raises(InvalidValueError, match=named):
        Execution(device).check_devices()


def test_who_needs_one_device_gets_no_list():
    with pytest.raises(InvalidValueError, match=r"'cpu,cpu'.*--device"):
        check_device("cpu,cpu")


def test_tasks_of_accelerators_are_longer():
    assert Execution("cuda:0").rounds_per_task(4096, 784) == 10
    assert Execution("cuda:0").rounds_per_task(4096, 2) == 32
    assert Execution("cuda:0,cuda:1", batch=8192).rounds_per_task(4096, 784) == 2


def test_options_are_known_without_torch():
    """Help is made from these dataclasses."""
    code = (
        "import sys, smoothcert.engine.execution, smoothcert.models.numerics, smoothcert.perturb.gaussian\n"
        "print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout
        == b"False\n"
    )
