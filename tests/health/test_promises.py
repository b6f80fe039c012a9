"""A machine on which a promise fails is told from one on which all hold."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from smoothcert.health.networks import RandomNetwork
from smoothcert.health.promises import LEAST_P, noise_fits, same_bits
from smoothcert.noise.sampler import CellSampler
from smoothcert.sampling.streams import BlockBits

TINY = RandomNetwork("tiny", "small-cnn", (1, 8, 8))


def test_bits_are_the_same_on_every_route() -> None:
    found, failures = same_bits(TINY, "cpu", votes=300)
    assert {one.route for one in found} >= {"eager", "channels-last"}
    assert all(one.same for one in found)
    assert failures == [] or all("onnx" in failure for failure in failures)


def test_noise_that_depends_on_the_worker_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    seek = BlockBits.seek

    def by_thread(self: BlockBits, stream: object, block: int) -> np.random.SFC64:
        return seek(self, stream, block + threading.get_ident() % 1000)  # type: ignore[arg-type]

    monkeypatch.setattr(BlockBits, "seek", by_thread)
    found, _ = same_bits(TINY, "cpu", votes=300)
    assert not any(one.same for one in found)


def test_noise_fits_its_distribution() -> None:
    found = noise_fits("cpu", 20_000)
    assert [one.noise for one in found] == ["gaussian"] * 2 + ["uniform"] * 2
    assert len({(one.noise, one.what) for one in found}) == 4
    assert all(one.fits and one.p > 0.001 for one in found)


@pytest.mark.parametrize("fault", ["scaled", "shifted", "coordinates alike"])
def test_wrong_noise_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = CellSampler.draw

    def wrong(self: CellSampler, out: np.ndarray, bits: np.random.BitGenerator) -> None:
        draw(self, out, bits)
        if fault == "scaled":
            out *= 1.05
        elif fault == "shifted":
            out += 0.05 * np.abs(out).max() / 4
        else:
            out[:, 1] = out[:, 0]

    monkeypatch.setattr(CellSampler, "draw", wrong)
    worst = min(one.p for one in noise_fits("cpu", 40_000))
    assert worst < LEAST_P
