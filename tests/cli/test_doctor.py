"""`smoothcert doctor`: every step is taken whatever happens to the others, and a broken promise ends with 4."""

import json
import re
import socket
from dataclasses import replace

import pytest
import torch

from smoothcert.cli import main
from smoothcert.health import checkup, trials
from smoothcert.health.checkup import Thoroughness, check_up
from smoothcert.health.trials import (
    KNOWN,
    BesideCpu,
    KnownAnswer,
    NoiseFit,
    RandomNetwork,
    Rates,
    SameBits,
)

from .output import names, rows

TINY = RandomNetwork("tiny", "small-cnn", (1, 8, 8))


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(checkup, "QUICK", Thoroughness(((TINY, 64),), 2000, (TINY,), 0.001))


@pytest.mark.slow
def test_a_healthy_machine(capsys, monkeypatch, tmp_path):
    def refuse(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)  # nothing is sent anywhere
    monkeypatch.setenv("COLUMNS", "140")
    main(["doctor", "--quick"])
    shown = capsys.readouterr()
    assert re.search(r"\btorch \d", shown.out)
    assert re.search(r"p = 0\.\d", shown.out)
    speeds = [row for row in rows(shown.out) if row[0] == "tiny"]
    assert any(row[2].startswith("channels-last") for row in speeds)
    assert all(float(row[-1]) > 0 for row in speeds)
    assert "AssertionError" not in shown.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_broken_promise_ends_with_four_and_is_named(capsys, monkeypatch):
    fit = NoiseFit("gaussian", "pairs", "cpu", 2000, 99.0, 1e-9)
    monkeypatch.setattr(trials, "noise_fits", lambda device, votes: ([fit], []))
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--quick", "--json"])
    assert caught.value.code == 4
    shown = capsys.readouterr()
    assert shown.err == ""
    found = json.loads(shown.out)
    assert found["healthy"] is False
    assert found["environment"]["devices"][0] == "cpu"
    assert found["failures"] == []
    assert found.keys() >= {"noise", "advice"}
    assert all(one["same"] for one in found["same_bits"])
    assert {one["network"] for one in found["same_bits"] + found["speed"]} == {"tiny"}
    (broken,) = found["broken"]
    assert names(broken, "gaussian", "cpu", "pairs", 99.0, 1e-9)
    for step in ("same_bits", "measure"):
        monkeypatch.setattr(trials, step, lambda *_: ([], []))
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--quick", "--quiet"])
    assert caught.value.code == 4
    assert broken in capsys.readouterr().out
    monkeypatch.setattr(trials, "noise_fits", lambda device, votes: ([replace(fit, p=0.5)], []))
    main(["doctor", "--quick", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (found["healthy"], found["broken"]) == (True, [])


def test_a_step_that_fails_keeps_no_other_from_being_taken_but_ctrl_c_ends_it(monkeypatch, tmp_path):
    def fails(*_: object) -> None:
        raise RuntimeError("driver")

    for where, step in ((checkup, "look_around"), (trials, "same_bits"), (trials, "noise_fits")):
        monkeypatch.setattr(where, step, fails)
    taken = []
    found = check_up(
        tmp_path, quick=True, on_step=lambda words, number, total: taken.append((words, number, total))
    )
    assert [number for _, number, _ in taken] == [0, 1, 2]
    assert found.rates
    assert all("RuntimeError: driver" in failure for failure in found.failures)
    assert [re.findall("tiny|cpu", failure) for failure in found.failures] == [[], ["tiny", "cpu"], ["cpu"]]
    assert found.broken == []

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(trials, "same_bits", pressed)
    with pytest.raises(KeyboardInterrupt):
        check_up(tmp_path, quick=True)


@pytest.mark.slow
def test_one_device_beside_the_cpu(capsys):
    """Known votes and votes of every route, as a table for an issue; a device that isn't there is refused at once."""
    main(["doctor", "--quick", "--device", "cpu"])
    shown = capsys.readouterr()
    table = [line.strip("|").split("|") for line in shown.out.splitlines() if line.startswith("| tiny")]
    assert len(table) >= 2
    assert any("(default)" in row[1] for row in table)
    for row in table:
        assert row[2].strip() == "yes"
        assert int(row[3].split(" of ")[0]) <= 2
        assert float(row[4]) > 0
    assert "known votes, gaussian: yes" in shown.out
    assert "known votes, uniform: yes" in shown.out
    assert "broken" not in shown.out
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--quick", "--device", "cuda:77"])
    assert caught.value.code == 2
    shown = capsys.readouterr()
    assert "cuda:77" in shown.err
    assert shown.out == ""


def test_one_card_is_examined_alone_and_its_table_printed(capsys, monkeypatch):
    """Never run on CUDA: the trials themselves are played."""
    asked = []

    def play(step: str, *results: object) -> None:
        def played(*given: object) -> tuple[list[object], list[str]]:
            asked.append((step, next(each for each in given if isinstance(each, str))))
            return list(results), [f"{step}: left out"]

        monkeypatch.setattr(trials, step, played)

    card = "cuda:1"
    monkeypatch.setattr(checkup, "check_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    play("known_answers", KnownAnswer("gaussian", card, KNOWN["gaussian"]))
    play("beside_cpu", BesideCpu("tiny", card, "graphs", 200, 1))
    play("same_bits", SameBits("tiny", card, "graphs", True))
    play("noise_fits", NoiseFit("gaussian", "one coordinate", card, 2000, 9.0, 0.5))
    play("measure", Rates("tiny", card, "graphs", True, 900.0, 1000.0))
    main(["doctor", "--quick", "--device", card])
    out = capsys.readouterr().out
    assert "devices cpu, cuda:0, cuda:1" in out
    assert "| tiny | graphs (default) | yes | 1 of 200 | 900 | 1000 | 0.90 |" in out
    assert asked == [
        (step, card) for step in ("known_answers", "beside_cpu", "same_bits", "noise_fits", "measure")
    ]
    assert out.count("left out") == len(asked)
    asked.clear()
    main(["doctor", "--quick", "--json"])
    assert {device for _, device in asked} == {"cpu", "cuda:0", "cuda:1"}
    assert "known_answers" not in dict(asked)


@pytest.mark.slow
def test_a_device_that_votes_otherwise_ends_with_four(capsys, monkeypatch):
    answer = KnownAnswer("gaussian", "cpu", (1, 2))
    votes = BesideCpu("tiny", "cpu", "eager", 100, 2)
    monkeypatch.setattr(trials, "known_answers", lambda device: ([answer], []))
    monkeypatch.setattr(trials, "beside_cpu", lambda network, device, count: ([votes], []))
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--quick", "--device", "cpu"])
    assert caught.value.code == 4
    out = capsys.readouterr().out
    assert re.search(r"broken: .*\(1, 2\)", out)
    assert re.search(r"broken: .*2 of 100", out)
