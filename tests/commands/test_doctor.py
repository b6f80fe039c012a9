"""`smoothcert doctor`: every step is taken whatever happens to the others, and a broken promise ends with 4."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothcert.commands import main
from smoothcert.health import checkup
from smoothcert.health.checkup import Thoroughness, check_up
from smoothcert.health.networks import RandomNetwork
from smoothcert.health.promises import NoiseFit

TINY = RandomNetwork("tiny", "small-cnn", (1, 8, 8))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkup, "QUICK", Thoroughness(((TINY, 64),), 2000, (TINY,), 0.001))


def test_a_healthy_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    main(["doctor", "--quick"])
    shown = capsys.readouterr()
    for words in (
        "torch",
        "cores",
        "same bits",
        "p = ",
        "votes/s",
        "channels-last (default)",
        "All promises hold",
    ):
        assert words in shown.out
    assert "1/3 same bits, tiny on cpu" in shown.err
    assert "3/3 speed, tiny on cpu" in shown.err
    assert list(tmp_path.iterdir()) == []


def test_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--quick", "--format", "json"])
    shown = capsys.readouterr()
    assert shown.err == ""
    found = json.loads(shown.out)
    assert found["healthy"] is True
    assert found["broken"] == []
    assert {"environment", "same_bits", "noise", "speed", "failures", "advice"} <= found.keys()
    assert found["environment"]["devices"][0] == "cpu"


def test_a_broken_promise_ends_with_four_and_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        checkup,
        "noise_fits",
        lambda device, votes: [NoiseFit("gaussian", "one coordinate", device, votes, 99.0, 1e-9)],
    )
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--quick", "--quiet"])
    assert caught.value.code == 4
    assert "gaussian noise on cpu, one coordinate: χ² = 99.0, p = 1e-09" in capsys.readouterr().out


def test_a_step_that_fails_keeps_no_other_from_being_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("driver is gone")

    for step in ("look_around", "same_bits", "noise_fits"):
        monkeypatch.setattr(checkup, step, fails)
    taken = []
    found = check_up(
        tmp_path, quick=True, on_step=lambda words, number, total: taken.append((words, number, total))
    )
    assert [number for _, number, _ in taken] == [0, 1, 2]
    assert found.rates
    assert found.failures[:3] == [
        "surroundings: RuntimeError: driver is gone",
        "same bits, tiny on cpu: RuntimeError: driver is gone",
        "noise on cpu: RuntimeError: driver is gone",
    ]
    assert found.broken == []


def test_ctrl_c_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(checkup, "same_bits", pressed)
    with pytest.raises(KeyboardInterrupt):
        check_up(tmp_path, quick=True)


def test_nothing_is_sent_anywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import socket

    def refuse(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert check_up(tmp_path, quick=True).failures == []
