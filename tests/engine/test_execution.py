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
    assert Execution().rounds_per_task(256, 784) == 10
    assert Execution().rounds_per_task(64, 150_528) == 1
    assert Execution(batch=1000).rounds_per_task(64, 784) == 15
    assert Execution(batch=1).rounds_per_task(64, 784) == 1
    assert Execution("cuda:0").rounds_per_task(4096, 784) == 10  # tasks of accelerators are longer
    assert Execution("cuda:0").rounds_per_task(4096, 2) == 32
    assert Execution("cuda:0,cuda:1", batch=8192).rounds_per_task(4096, 784) == 2
    far = Execution(backend="ray")
    assert far.rounds_per_task(256, 784, far=True) == 10
    assert 64 * far.rounds_per_task(64, 150_528, far=True) >= 4 * 150_528 / 4000
    assert 64 * Execution("cuda:0", backend="ray").rounds_per_task(64, 150_528, far=True) >= 4 * 150_528 / 100


def test_nonsense_is_refused():
    for name, value in (("workers", 0), ("batch", -5)):
        with pytest.raises(InvalidValueError, match=f"{name}.*{value}"):
            Execution(**{name: value})
    for device in ("quantum", "cpu,cpu"):  # who needs one device gets no list
        with pytest.raises(InvalidValueError, match=rf"'{device}'.*--device"):
            check_device(device)
    for device, named in {
        "cuda:0,cpu": "'cuda:0,cpu'.*--device cuda:0",
        "cuda:0,cuda:0": "'cuda:0,cuda:0'",
        "cpu,": "'cpu,'.*--device cpu",
        "cuda:0,cuda:99": r"'cuda:\d+'.*--device",
    }.items():
        with pytest.raises(InvalidValueError, match=named):
            Execution(device).check_devices()


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
