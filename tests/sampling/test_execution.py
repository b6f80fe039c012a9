"""Execution: widths and devices."""

from __future__ import annotations

import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.sampling import Execution
from smoothcert.sampling.execution import check_device, usable_cores


def test_defaults_follow_the_machine() -> None:
    assert Execution().worker_count() == usable_cores() >= 1
    assert Execution(device="cuda").worker_count() == 1
    assert Execution(workers=3).worker_count() == 3
    assert Execution().rounds_per_task(256, 784) == 5
    assert Execution().rounds_per_task(64, 150_528) == 1
    assert Execution(batch=1000).rounds_per_task(64, 784) == 15
    assert Execution(batch=1).rounds_per_task(64, 784) == 1


@pytest.mark.parametrize("fields", [{"workers": 0}, {"batch": -5}])
def test_nonsense_is_refused(fields: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match="at least 1"):
        Execution(**fields)  # type: ignore[arg-type]


def test_an_unreachable_device_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="device 'quantum' can't be used"):
        check_device("quantum")
