"""Numerics: validation and how open fields are settled."""

import pytest
import torch

from smoothcert.errors import InvalidValueError
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics, settle_arithmetic


def test_settling():
    for asked, rows, votes, chunk, block, slots, passes in [
        (Numerics(), 1024, 64, 1024, 64, 16, 1),
        (Numerics(), 9999, 64, 1024, 64, 16, 1),
        (Numerics(), 64, 64, 64, 64, 1, 1),
        (Numerics(), 64, 256, 64, 256, 1, 4),
        (Numerics(), 8, 64, 8, 64, 1, 8),
        (Numerics(chunk=100), 64, 64, 100, 50, 2, 1),
        (Numerics(chunk=50), 64, 64, 50, 50, 1, 1),
        (Numerics(chunk=96, block=32), 64, 64, 96, 32, 3, 1),
        (Numerics(chunk=32, block=96), 64, 64, 32, 96, 1, 3),
        (Numerics(chunk=1), 64, 64, 1, 64, 1, 64),
    ]:
        settled = asked.settled("eager", rows, votes)
        layout = settled.layout()
        assert (layout.chunk, layout.block, layout.slots, layout.passes) == (chunk, block, slots, passes)
        assert layout.rows == slots * block == passes * chunk


def test_bad_fields_are_refused():
    for fields, message in [
        ({"dtype": "int8"}, "dtype.*'int8'.*float32"),
        ({"route": "fast"}, "route.*'fast'.*eager"),
        ({"generator": "mersenne"}, "generator.*'mersenne'.*philox"),
        ({"chunk": 0}, r"chunk.*\b0\b"),
        ({"chunk": 100, "block": 64}, r"block.*chunk.*\b100\b.*\b64\b"),
        ({"block": 64}, r"block.*chunk.*None.*\b64\b"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            Numerics(**fields)  # type: ignore[arg-type]


def test_the_generator_follows_the_device_unless_one_was_asked_for():
    for asked, device, taken in (
        ("auto", "cpu", "sfc64"),
        ("auto", "cuda:1", "philox"),
        ("auto", "xpu", "philox"),
        ("auto", "mps", "sfc64"),  # no 64-bit floats there
        ("philox", "cpu", "philox"),
        ("sfc64", "cuda", "sfc64"),
    ):
        settled = Numerics(generator=asked).settled("eager", 64, 64)
        assert settled.drawn_on(device).generator == taken
        assert settled.drawn_on(device).drawn_on("cpu").generator == taken  # settled once


def test_what_is_stated_comes_back_and_completes_what_is_open():
    for generator in ("auto", "sfc64", "philox"):
        numerics = Numerics("autocast-float16", "folded", 32, 64, generator)
        assert Numerics.from_json(numerics.as_json() | {"n": 100}) == numerics
        assert ("generator" in numerics.as_json()) is (generator != "sfc64")  # runs of before don't state it
    settled = Numerics("float32", "folded", 32, 64)
    assert Numerics().completed(settled) == settled
    assert Numerics(route="eager").completed(settled) == Numerics("float32", "eager", 32, 64)
    assert Numerics(dtype="float64", chunk=16).completed(settled) == Numerics("float64", "folded", 16)
    assert Numerics().completed(Numerics()) == Numerics()  # a log that doesn't say
    with pytest.raises(InvalidValueError, match=r"chunk.*block"):
        Numerics().layout()


def test_float32_on_cuda_is_not_tf32(monkeypatch):
    """Never run on CUDA here: the settings are torch's own, on any machine, and torch.export reads them."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark
    try:
        matmul.allow_tf32 = cudnn.allow_tf32 = cudnn.benchmark = True
        settle_arithmetic("cpu")
        assert (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark) == (True, True, True)
        settle_arithmetic("cuda:1")
        assert (matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark) == (False, False, False)
        torch.export.export(torch.nn.Linear(2, 2), (torch.zeros(3, 2),), strict=False)
        settled: list[str] = []
        monkeypatch.setattr("smoothcert.models.torch_module.settle_arithmetic", settled.append)
        adapt(torch.nn.Linear(2, 2), "hard").prepare(Numerics(), (2,))
        assert set(settled) == {"cpu"}, "before anything is evaluated"
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark = before
