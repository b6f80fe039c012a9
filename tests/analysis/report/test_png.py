"""Pictures decode to the bytes they were made of."""

import base64
import io
import re

import numpy as np
import pytest

from smoothcert.analysis.report.inputs import Gallery, encode_png
from smoothcert.datasets.base import Dataset
from tests.analysis.texts import numbers


@pytest.mark.parametrize("shape", [(1, 1), (7, 5), (28, 28), (32, 32, 3), (3, 50, 3)])
def test_another_program_reads_the_same_pixels(shape):
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with image.open(io.BytesIO(encode_png(pixels))) as read:
        assert read.mode == ("L" if len(shape) == 2 else "RGB")
        assert np.array_equal(np.asarray(read), pixels)


def made(inputs: np.ndarray, scale: float = 1.0) -> Gallery:
    labels = np.zeros(len(inputs), dtype=np.int64)
    return Gallery.of(Dataset("made", inputs, labels, ("a",), scale))


def pixels_of(uri: str) -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    head, _, body = uri.partition(",")
    assert head == "data:image/png;base64"
    return np.asarray(image.open(io.BytesIO(base64.b64decode(body))))


def test_values_from_0_to_1_are_shown_as_they_are():
    stored = np.arange(2 * 3 * 4 * 4, dtype=np.uint8).reshape(2, 3, 4, 4)
    gallery = made(stored, 1 / 255)
    assert np.array_equal(pixels_of(gallery.shown(1)), np.moveaxis(stored[1], 0, -1))


def test_other_units_run_from_black_to_white():
    gallery = made(np.linspace(-3, 5, 32, dtype=np.float32).reshape(2, 4, 4))
    assert (gallery.low, gallery.high) == (-3, 5)
    assert re.search(r"-3\b.*\b5\b", gallery.note())
    assert pixels_of(gallery.shown(0))[0, 0] == 0
    assert pixels_of(gallery.shown(1))[3, 3] == 255


def test_large_pictures_are_averaged_down():
    picture = np.zeros((1, 1, 200, 120), dtype=np.float32)
    picture[0, 0, :3, :3] = 1
    shown = pixels_of(made(picture).shown(0))
    assert shown.shape == (66, 40)
    assert shown[0, 0] == 255
    assert shown[1:].max() == 0


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_noise_has_the_runs_sigma_and_is_always_the_same(noise):
    gallery = made(np.full((2, 10_000), 5.0, dtype=np.float32))
    assert not gallery.pictures
    first = gallery.shown_noisy(0, 0.5, noise)
    assert first == gallery.shown_noisy(0, 0.5, noise)
    assert first != gallery.shown_noisy(1, 0.5, noise)
    assert len(first) == 64
    assert numbers(gallery.note()) == ["64", "10000"]
    wide = made(np.full((2, 100, 90), 5.0, dtype=np.float32))
    assert wide.pictures
    from smoothcert.analysis.report.inputs import _drawn

    drawn = _drawn((20_000,), 3, noise)
    assert abs(float(drawn.std()) - 1.0) < 0.02
    assert abs(float(drawn.mean())) < 0.04
    if noise == "uniform":
        assert abs(drawn).max() <= 3**0.5


def test_noise_has_the_runs_sigma_and_may_have_a_scale_for_each_number():
    gallery = made(np.full((2, 4), 5.0, dtype=np.float32))
    one = np.array(gallery.shown_noisy(0, 1.0, "diagonal-gaussian")) - 5.0
    stretched = np.array(gallery.shown_noisy(0, np.array([0.0, 1.0, 2.0, 3.0]), "diagonal-gaussian")) - 5.0
    np.testing.assert_allclose(stretched, one * [0.0, 1.0, 2.0, 3.0], atol=5e-3)  # shown to four digits
