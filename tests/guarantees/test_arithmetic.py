"""Certificates hold for the arithmetic that ran: no classifier gets two that contradict each other.

A machine's sum x + ε rounds in a way that depends on x. A classifier that reads low-order bits can tell x from x′ by
it, whatever ε was, and would be certified for two classes in overlapping balls (Voráček & Hein 2023). Noise on a
grid leaves nothing to read: what the model sees is a function of whole numbers that add exactly.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.datasets import load
from smoothcert.engine.execution import Execution
from smoothcert.engine.schedule import BlockBits
from smoothcert.errors import InvalidValueError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.numerics import Numerics
from smoothcert.perturb.base import Noise
from smoothcert.perturb.gaussian import DiagonalGaussian, Gaussian
from smoothcert.perturb.grid import Grid, NoisyCopies, on_grid
from smoothcert.perturb.uniform import DiagonalUniform, Uniform
from smoothcert.tally import Phase, Stream, Tally
from tests.guarantees.closed_forms import HalfSpace

pytestmark = pytest.mark.filterwarnings("ignore::smoothcert.smoothing.inputs.SmallNoiseWarning")

D = 784
Batch = NDArray[np.floating]
Reader = Callable[[Batch], NDArray[np.bool_]]


def _bits(batch: Batch) -> NDArray[np.uint64]:
    kind = np.uint32 if batch.dtype == np.float32 else np.uint64
    return np.ascontiguousarray(batch).view(kind).astype(np.uint64)


@dataclass(frozen=True)
class Reads:
    """Class 1 where the reader says so, else class 0."""

    reader: Reader

    def __call__(self, batch: Batch) -> NDArray[np.int64]:
        return self.reader(batch).astype(np.int64)


def small_and_fine(power: int) -> Reader:
    """Some number near 0 is no multiple of 2^−power: true of noise about a black image, not of sums with a grey one."""

    def reader(batch: Batch) -> NDArray[np.bool_]:
        scaled = batch.astype(np.float64) * 2.0**power
        return ((np.abs(batch) < 2.0**-7) & (scaled != np.rint(scaled))).any(1)

    return reader


def odd_mantissas(batch: Batch) -> NDArray[np.bool_]:
    """More odd than even last bits."""
    return (_bits(batch) & np.uint64(1)).mean(1) > 0.5


def odd_near_zero(batch: Batch) -> NDArray[np.bool_]:
    """Odd last bits among the smaller numbers."""
    near = np.abs(batch) < 0.2
    return ((_bits(batch) & np.uint64(1)).astype(bool) & near).sum(1) * 4 > near.sum(1)


def small_exponents(batch: Batch) -> NDArray[np.bool_]:
    """A number below the resolution of sums with anything that isn't 0."""
    return ((batch != 0) & (np.abs(batch) < 2.0**-24)).any(1)


def negative_zero(batch: Batch) -> NDArray[np.bool_]:
    return (np.signbit(batch) & (batch == 0)).any(1)


def parity_of_sum(batch: Batch) -> NDArray[np.bool_]:
    return _bits(batch).sum(1) % np.uint64(2) == 1


def trailing_zeros(batch: Batch) -> NDArray[np.bool_]:
    """Many numbers whose last three bits are 0, as sums with a larger number tend to have."""
    return ((_bits(batch) & np.uint64(7)) == 0).mean(1) > 0.15


READERS: dict[str, Reader] = {
    "no multiple of 2^-29": small_and_fine(29),
    "no multiple of 2^-27": small_and_fine(27),
    "no multiple of 2^-58": small_and_fine(58),
    "odd mantissas": odd_mantissas,
    "odd near zero": odd_near_zero,
    "small exponents": small_exponents,
    "negative zero": negative_zero,
    "parity of the sum": parity_of_sum,
    "trailing zeros": trailing_zeros,
}

_uneven = np.where(np.arange(D) % 2 == 0, 0.5, 0.25)
NOISES: dict[str, Noise] = {
    "gaussian": Gaussian(0.5),
    "uniform": Uniform(0.5),
    "diagonal-gaussian": DiagonalGaussian(_uneven),
    "diagonal-uniform": DiagonalUniform(_uneven),
}


def _digit() -> NDArray[np.float64]:
    picture = np.zeros(D)
    picture[200:320] = np.arange(120) % 256 / 255
    return picture


PAIRS = {
    "black and grey": (np.zeros(D), np.full(D, 0.03)),
    "a digit on black and on 5/255": (_digit(), np.maximum(_digit(), 5 / 255)),
    "grey and one step more": (np.full(D, 128 / 255), np.full(D, 129 / 255)),
    "signs": (np.full(D, -1e-30), np.full(D, 1 / 255)),
}


def contradict(first: object, second: object, distance: float) -> bool:
    """Two classes for one point: it lies in both balls."""
    a, b = first, second
    return (
        not a.abstained and not b.abstained and a.predicted != b.predicted and a.radius + b.radius > distance
    )


# By default each noise meets both types and both grids once.
EVERY_WAY = [
    pytest.param(noise, dtype, levels, marks=[] if by_default else pytest.mark.slow)
    for noise in NOISES
    for dtype in ("float32", "float64")
    for levels in (255, None)
    for by_default in [(dtype == "float32") ^ (levels is None) ^ noise.startswith("diagonal")]
]


@pytest.mark.parametrize(("noise", "dtype", "levels"), EVERY_WAY)
def test_no_two_certificates_contradict_each_other(noise, dtype, levels):
    plan = CertifyPlan(NOISES[noise], n=300, n0=50, seed=1, numerics=Numerics(dtype), levels=levels)
    order = 1 if "uniform" in noise else 2
    for name, reader in READERS.items():
        smoothed = SmoothedClassifier(
            Reads(reader), plan, outputs="labels", classes=2, execution=Execution(workers=1)
        )
        answers = iter(smoothed.certify(np.concatenate([*PAIRS.values()])))
        for pair, (one, other) in PAIRS.items():
            first, second = next(answers), next(answers)
            distance = float(np.linalg.norm(one - other, ord=order))
            assert not contradict(first, second, distance), (
                name,
                pair,
                first.radius,
                second.radius,
                distance,
            )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_drawn_and_added_in_floating_point_would_contradict_itself(dtype, monkeypatch):
    """The readers above do find what they look for where it is."""

    def draw(self: NoisyCopies, out: torch.Tensor, bits: np.random.SFC64) -> None:
        seed = int(bits.random_raw(1)[0] >> np.uint64(1))
        out.normal_(0.0, 0.5, generator=torch.Generator().manual_seed(seed)).add_(self.steps / self.divisor)

    monkeypatch.setattr(NoisyCopies, "draw", draw)
    plan = CertifyPlan(Gaussian(0.5), n=600, n0=50, seed=1, numerics=Numerics(dtype), levels=255)
    found = 0
    for reader in READERS.values():
        smoothed = SmoothedClassifier(Reads(reader), plan, outputs="labels", classes=2)
        first, second = (smoothed.certify(x) for x in PAIRS["black and grey"])
        found += contradict(first, second, 0.03 * D**0.5)
    assert found >= 2


def test_what_the_model_sees_is_a_function_of_whole_numbers():
    """Two inputs whose noisy copies fall on the same steps give the same bits, in both types and signs."""
    for dtype in (torch.float32, torch.float64):
        for noise in NOISES.values():
            grid = on_grid(noise, Grid.of(255), (D,))
            divisor = grid.divisor(dtype)
            drawn = torch.empty((64, D), dtype=dtype)
            grid.sampler.draw(drawn.numpy(), BlockBits().seek(Stream(0, 0, Phase.ESTIMATION), 0))
            for x in (np.zeros(D), np.full(D, -0.0), np.full(D, 77 / 255), _digit()):
                steps = torch.from_numpy(grid.point(x).steps).to(dtype)
                whole = drawn.long() + steps.long()
                expected = whole.to(dtype) / divisor
                found = (drawn + steps) / divisor
                assert torch.equal(found, expected)
                assert not bool((torch.signbit(found) & (found == 0)).any())


def test_pictures_are_points_of_the_grid_and_reach_the_model_as_they_are():
    pictures = np.arange(256)
    for sigma in (0.05, 0.12, 0.25, 0.5, 1.0, 2.0):
        for levels in (255, None):
            grid = on_grid(Gaussian(sigma), Grid.of(levels), (256,))
            for x in (
                pictures / 255,
                (pictures / 255).astype(np.float32),
                pictures.astype(np.float32) * np.float32(1 / 255),
            ):
                point = grid.point(x)
                assert point.shift == 0.0
                values = (torch.from_numpy(point.steps).float() / grid.divisor(torch.float32)).numpy()
                assert np.array_equal(values, pictures.astype(np.float32) / np.float32(255))


def test_an_answer_says_which_point_it_is_about():
    smoothed = SmoothedClassifier(HalfSpace(3.0), sigma=0.5, n=1000, seed=0, outputs="labels", classes=2)
    on = smoothed.certify(np.full(4, 17 / 255))
    assert on.shift == 0.0
    x = np.full(4, 0.1234567)
    off = smoothed.certify(x)
    moved = np.linalg.norm(off.region.center - x)
    assert 0 < moved <= off.shift <= moved * (1 + 1e-6)
    step = 1 / on_grid(Gaussian(0.5), Grid.of(None), (4,)).steps_per_unit
    assert moved <= step  # half a step in each of four coordinates
    assert off.radius_off_grid <= off.radius - off.shift - step * (1 - 1e-9)
    # Any input that near is answered as its own grid point, which lies in the region.
    rng = np.random.default_rng(0)
    for _ in range(200):
        direction = rng.normal(size=4)
        near = x + direction / np.linalg.norm(direction) * off.radius_off_grid
        assert off.region.contains(on_grid(Gaussian(0.5), Grid.of(None), (4,)).point(near).values)


@pytest.mark.parametrize(
    ("x", "sigma"),
    [(1e39, 0.5), (0.0, 1e39), (1.0, 1e-9), (1.7e7, 0.5), (1.7e9, 10.0), (3e38, 1.0), (0.0, 1e-42)],
)
def test_what_float32_cannot_add_exactly_is_refused_with_the_remedy(x, sigma):
    smoothed = SmoothedClassifier(HalfSpace(3.0), sigma=sigma, n=100, outputs="labels", classes=2)
    with pytest.raises(InvalidValueError, match=rf"sigma.* {re.escape(f'{sigma:g}')}\b"):
        smoothed.certify(np.full(3, x))


@pytest.mark.parametrize(("scale", "sigma"), [(1.7e7, 0.5), (1.7e9, 10.0)])
def test_a_data_set_far_from_zero_gets_the_type_it_needs(tmp_path, scale, sigma):
    """By itself: inputs and noise in float32 were 83 false certificates of 100 here."""
    offsets = np.random.default_rng(3).uniform(0.01, 2.0, size=60) * sigma
    np.savez(
        tmp_path / "far.npz", x=np.stack([scale - offsets, np.zeros(60)], axis=1), y=np.zeros(60, np.int64)
    )
    data = load(f"npz:{tmp_path / 'far.npz'}", "test", None)
    smoothed = SmoothedClassifier(HalfSpace(scale), sigma=sigma, n=1000, outputs="labels", classes=2)
    run = certify_dataset(smoothed, data, tmp_path / "run")
    assert run.manifest.plan.dtype == "float64"
    assert run.manifest.plan.seed == 0  # fixed: the inputs were there before
    certified = ~run.records.abstained
    assert certified.sum() > 40
    assert not (run.records.predicted[certified] != 0).any()
    assert not (run.records.radius > offsets).any()
    with pytest.raises(InvalidValueError, match=rf"\b{sigma:g}\b.*float32.*--dtype float64"):
        certify_dataset(
            SmoothedClassifier(
                HalfSpace(scale),
                sigma=sigma,
                n=1000,
                outputs="labels",
                classes=2,
                numerics=Numerics("float32"),
            ),
            data,
            tmp_path / "other",
        )


def test_grid_noise_is_checked_for_exactness_at_the_very_edge():
    grid = on_grid(Gaussian(0.5), Grid.of(255), (1,))
    inside = (2**24 - grid.sampler.reach) / float(grid.steps_per_unit)
    grid.check_exact(grid.point(np.array([inside])), "float32", 0)
    with pytest.raises(InvalidValueError, match=r"\b0\b.*\b0\.5\b.*float32"):
        grid.check_exact(grid.point(np.array([inside + 1 / 127.5])), "float32", 0)


@pytest.mark.parametrize("bound", ["clopper-pearson", "top-two", "mixture"])
def test_certificates_pay_the_samplers_error(bound):
    """In so many dimensions that it is not lost in rounding."""
    plan = CertifyPlan(Gaussian(0.5), n=1000, bound=bound, seed=0, dimension=10**12)
    error = plan.sampler_error
    assert 0.01 < error < 0.1
    votes = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 1000, (900, 60, 40))
    free = plan.confidence_bound(votes, 0, plan.alpha)
    paid = plan.bounds_of(votes, 0)
    assert paid.lower == pytest.approx(free.lower - error, abs=1e-12)
    assert paid.lower <= free.lower - error
    assert paid.upper == pytest.approx(free.upper + error, abs=1e-12)
    assert paid.upper >= free.upper + error
