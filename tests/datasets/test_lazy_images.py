"""Images on disk: decoded when they are taken, or a little ahead of it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.images import TRIES, CentreCrop, LazyImages, Squeeze, random_part, read_ahead
from smoothcert.errors import DataError, InvalidValueError
from tests.guarantees.hostile import process_within

from .pictures import Image, assert_nearly, picture, resized, write_picture

NAMES = [f"{index}.png" for index in range(5)]


@pytest.fixture
def folder(tmp_path) -> Path:
    for seed, name in enumerate(NAMES):
        write_picture(tmp_path / name, picture(20 + seed, 14, seed))
    return tmp_path


def images(folder: Path, side: int = 8, names: list[str] | None = None) -> LazyImages:
    return LazyImages.of(folder, NAMES if names is None else names, Squeeze(side))


def dataset(folder: Path, **changes: object) -> Dataset:
    fields = {"name": "lazy", "stored": images(folder), "labels": np.arange(5) % 2, "classes": ("a", "b")}
    return Dataset(**{**fields, "scale": 1 / 255, **changes})  # type: ignore[arg-type]


def test_it_looks_like_the_array_it_stands_for(folder):
    lazy = images(folder)
    whole = lazy[:]
    assert len(lazy) == len(whole)
    for name in ("shape", "ndim", "size", "dtype"):
        assert getattr(lazy, name) == getattr(whole, name), name
    assert len(np.unique(whole.reshape(5, -1), axis=0)) == 5


def test_indexing_is_that_of_an_array(folder):
    lazy = images(folder)
    slices = [slice(1, 4), slice(None, None, -2), slice(3, 100), slice(2, 2)]
    places = [np.array([4, 0, 0, -1]), np.array([True, False, True, False, False]), [3, 1], [2], []]
    for indices in (*slices, *places, 2, -1, np.int64(3)):
        np.testing.assert_array_equal(lazy[indices], lazy[:][indices], str(indices))
    for indices, outside in ((5, 5), ([0, 5], 5), (np.array([-6]), -6)):
        with pytest.raises(IndexError, match=rf"{outside}\b"):
            lazy[indices]


def test_threads_change_nothing(folder, monkeypatch):
    one_by_one = np.stack([images(folder)[index] for index in range(5)])
    for processors in (None, 1, 64):
        monkeypatch.setattr("os.cpu_count", lambda processors=processors: processors)
        np.testing.assert_array_equal(images(folder)[:], one_by_one)


def test_squeeze_keeps_the_whole_image(tmp_path):
    for width, height in ((1242, 375), (100, 300), (224, 224)):
        pixels = write_picture(tmp_path / "1.png", picture(width, height))
        stored = images(tmp_path, 224, ["1.png"])[0]
        assert_nearly(stored.transpose(1, 2, 0), resized(pixels, 224, 224))


@pytest.mark.parametrize(
    ("size", "resized_to", "corner"),
    [
        ((500, 375), (341, 256), (58, 16)),  # 117 / 2 = 58.5 goes to the even 58
        ((375, 500), (256, 341), (16, 58)),
        ((343, 256), (343, 256), (60, 16)),  # 119 / 2 = 59.5 goes to the even 60
        ((256, 256), (256, 256), (16, 16)),
        ((100, 60), (426, 256), (101, 16)),  # small images are enlarged
    ],
)
def test_centre_crop_geometry(tmp_path, size, resized_to, corner):
    pixels = write_picture(tmp_path / "1.png", picture(*size))
    stored = LazyImages.of(tmp_path, ["1.png"], CentreCrop(256, 224))[0].transpose(1, 2, 0)
    left, top = corner
    assert_nearly(stored, resized(pixels, *resized_to)[top : top + 224, left : left + 224])
    if size == resized_to:
        np.testing.assert_array_equal(stored, pixels[top : top + 224, left : left + 224])


def test_every_mode_of_8_bits_becomes_rgb(tmp_path):
    colours = Image.fromarray(picture(8, 8))
    colours.convert("L").save(tmp_path / "grey.png")
    colours.convert("RGBA").save(tmp_path / "clear.png")
    colours.convert("CMYK").save(tmp_path / "print.jpg")
    colours.quantize(4).save(tmp_path / "palette.png", transparency=bytes([0, 128, 255, 255]))
    stored = images(tmp_path, 8, ["grey.png", "clear.png", "print.jpg", "palette.png"])[:]
    np.testing.assert_array_equal(stored[0], np.repeat(np.asarray(colours.convert("L"))[None], 3, axis=0))
    np.testing.assert_array_equal(stored[1], np.asarray(colours).transpose(2, 0, 1))


def test_more_than_8_bits_are_refused(tmp_path):
    Image.fromarray(np.full((4, 5), 40000, np.uint16)).save(tmp_path / "1.png")
    with pytest.raises(DataError, match=r"1\.png: .*I;16"):
        images(tmp_path, 8, ["1.png"])[0]


def test_a_content_that_belies_its_suffix_is_read(tmp_path):
    """ImageNet has such files."""
    names = [f"{index}.JPEG" for index in range(8)]
    for name in names:
        Image.fromarray(picture(8, 8)).save(tmp_path / name, format="WEBP", lossless=True)
    assert (images(tmp_path, 8, names)[:] == picture(8, 8).transpose(2, 0, 1)).all()


@pytest.mark.parametrize("kept", [0, 10, 60, -20])
def test_damage_is_seen_only_when_the_image_is_taken(folder, kept):
    damaged = folder / "3.png"
    damaged.write_bytes(damaged.read_bytes()[:kept])
    data = dataset(folder)
    assert data.inputs([0, 4]).shape == (2, 3, 8, 8)
    assert data.value_range() == (0, 1)
    assert len(data.first(4)) == 4
    for indices in ([3], [0, 3, 1], slice(None)):
        with pytest.raises(DataError, match=r"3\.png: "):
            data.inputs(indices)
    with pytest.raises(DataError, match=r"3\.png"):
        data.input(3)


def test_truncated_jpeg_is_refused_and_a_file_that_has_gone_is_named(folder):
    write_picture(folder / "1.jpg", picture(64, 64))
    content = (folder / "1.jpg").read_bytes()
    (folder / "1.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"1\.jpg: "):
        images(folder, 8, ["1.jpg"])[0]
    data = dataset(folder)
    (folder / "2.png").unlink()
    for take in (lambda: data.input(2), data.fingerprint):
        with pytest.raises(DataError, match=r"2\.png: ") as caught:
            take()
        assert isinstance(caught.value.__cause__, FileNotFoundError)


def test_a_data_set_of_them(folder):
    data = dataset(folder)
    assert data.input_shape == (3, 8, 8)
    assert data.value_range() == (0, 1)
    batch = data.inputs(np.array([4, 2]))
    assert batch.dtype == np.float32
    np.testing.assert_array_equal(batch, images(folder)[[4, 2]] / np.float32(255))
    np.testing.assert_array_equal(data.input(2), batch[1])
    with pytest.raises(DataError, match=r"lazy.*\b5\b.*\b4\b"):
        dataset(folder, labels=np.zeros(4, np.int64))
    with pytest.raises(DataError, match="lazy"):
        dataset(folder, stored=images(folder, names=[]), labels=np.zeros(0, np.int64))


def test_the_first_ones_decode_nothing(folder, monkeypatch):
    data = dataset(folder)
    expected = data.inputs([0, 1])
    with monkeypatch.context() as patch:
        patch.setattr(LazyImages, "_decoded", lambda self, name: pytest.fail(f"decoded {name}"))
        first = data.first(2)
        assert isinstance(first.stored, LazyImages)
        assert (len(first), len(first.stored), len(data.first(99)), data.first(None)) == (2, 2, 5, data)
    np.testing.assert_array_equal(first.inputs(slice(None)), expected)


def test_fingerprint_is_stable_and_of_the_contents(folder, tmp_path_factory):
    original = dataset(folder).fingerprint()
    assert dataset(folder).fingerprint() == original
    moved = tmp_path_factory.mktemp("moved")
    for name in NAMES:
        (moved / name).write_bytes((folder / name).read_bytes())
    assert dataset(moved).fingerprint() == original, "where the files lie doesn't matter"

    (moved / "other.png").write_bytes((folder / "4.png").read_bytes())
    different = [
        dataset(folder, labels=np.array([0, 1, 0, 1, 1])),
        dataset(folder, stored=images(folder, side=9)),
        dataset(folder, stored=LazyImages.of(folder, NAMES, CentreCrop(9, 8))),
        dataset(folder, stored=LazyImages.of(folder, NAMES, CentreCrop(10, 8))),
        dataset(folder, stored=images(folder, names=NAMES[::-1])),
        dataset(moved, stored=images(moved, names=[*NAMES[:4], "other.png"])),
        dataset(folder).first(4),
        dataset(folder, scale=1.0),
    ]
    seen = {original, *(data.fingerprint() for data in different)}
    pixels = picture(20, 14, 0)
    pixels[0, 0, 0] ^= 1
    write_picture(folder / "0.png", pixels)
    seen.add(dataset(folder).fingerprint())
    assert len(seen) == 2 + len(different)


def test_random_parts_have_the_published_sizes_shapes_and_places():
    generator = np.random.default_rng(0)
    width, height = 400, 300
    found = np.array([random_part(width, height, generator.random((TRIES, 4))) for _ in range(4000)])
    left, top, right, bottom = found.T
    wide, tall = right - left, bottom - top
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= width).all()
    assert (bottom <= height).all()
    share, aspect = wide * tall / (width * height), wide / tall
    assert share.min() > 0.078
    assert share.max() < 1.002
    assert aspect.min() > 0.73
    assert aspect.max() < 1.37
    # Even on [0.08, 1] but for the large ones that don't fit; as often high as wide but for those.
    assert 0.42 < np.mean(share) < 0.54
    assert 0.9 < np.exp(np.mean(np.log(aspect))) < 1.15
    room = (width - wide) > 50
    assert 0.45 < np.mean(left[room] / (width - wide)[room]) < 0.55


def test_a_part_that_never_fits_is_the_middle_of_a_near_shape():
    large = np.full((TRIES, 4), 0.999)
    assert random_part(1000, 10, large) == (493, 0, 506, 10)
    assert random_part(10, 1000, large) == (0, 493, 10, 506)
    for width, height in [(1, 1), (1, 500), (500, 1)]:
        left, top, right, bottom = random_part(width, height, large)
        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_parts_are_cut_from_the_file_and_made_to_size(folder):
    draws = np.random.default_rng(1).random((5, TRIES, 4))
    found = images(folder, 6).parts(slice(None), draws)
    for seed in range(5):
        pixels = picture(20 + seed, 14, seed)
        left, top, right, bottom = random_part(20 + seed, 14, draws[seed])
        expected = resized(pixels[top:bottom, left:right], 6, 6)
        assert_nearly(found[seed].transpose(1, 2, 0), expected)
    given = dataset(folder).parts(np.array([3, 1]), draws[:2])
    assert given.dtype == np.float32
    assert np.array_equal(given, images(folder).parts(np.array([3, 1]), draws[:2]).astype(np.float32) / 255)
    arrays = Dataset("arrays", np.zeros((2, 3, 8, 8), np.uint8), np.zeros(2, np.int64), ("a",))
    with pytest.raises(InvalidValueError, match=r"random_crops.*arrays"):
        arrays.parts([0], np.zeros((1, TRIES, 4)))


def test_a_strip_takes_little_memory_and_longer_ones_are_refused(tmp_path):
    """Resized whole, the first took gigabytes: a header of 100 bytes is enough to claim it."""
    for size in ((1, 60_000), (60_000, 1)):
        Image.new("L", size, 77).save(tmp_path / "strip.png")
        for recipe in (CentreCrop(256, 224), Squeeze(224)):
            with process_within(300):
                batch = LazyImages.of(tmp_path, ["strip.png"] * 4, recipe)[:]
            assert (batch == 77).all()
    Image.new("1", (2**16 + 1, 1)).save(tmp_path / "strip.png")
    with pytest.raises(DataError, match=rf"strip\.png.*\b{2**16 + 1}x1\b.*\b{2**16}\b"):
        LazyImages.of(tmp_path, ["strip.png"], Squeeze(8))[:]


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reading")]


class Slow:
    """Stands for pictures on disk: each takes its own time, and one may be torn."""

    shape, dtype, ndim, size = (20, 1, 2, 2), np.dtype(np.uint8), 4, 80

    def __init__(self, torn: int | None = None) -> None:
        self.torn, self.asked = torn, []
        self.lock = threading.Lock()

    def __len__(self) -> int:
        return 20

    def __getitem__(self, indices: slice) -> np.ndarray:
        with self.lock:
            self.asked.append(indices.start)
        time.sleep(0.002 * (indices.start * 7 % 5))
        if indices.start == self.torn:
            raise OSError(f"picture {self.torn}")
        return np.full((1, 1, 2, 2), indices.start, np.uint8)

    def fingerprint_parts(self) -> Iterator[bytes]:
        yield bytes(range(20))

    def bounds(self) -> tuple[float, float]:
        return 0.0, 255.0


def pictures(stored: Slow) -> Dataset:
    return Dataset("pictures", stored, np.zeros(20, np.int64), ("a", "b"), 1 / 255)


def test_the_order_is_that_of_the_keys_however_long_each_takes():
    for threads in (1, 4):
        found = list(
            read_ahead([3, 1, 2, 0], lambda key: Slow()[slice(key, None)].max(), ahead=3, threads=threads)
        )
        assert found == [(3, 3), (1, 1), (2, 2), (0, 0)]
    assert list(read_ahead([], str, ahead=2, threads=2)) == []
    assert reading_threads() == []


def test_no_more_is_begun_than_allowed():
    for ahead, threads in ((0, 1), (1, 1), (3, 2), (5, 8)):
        stored, handed = Slow(), 0
        ranges = [slice(key, key + 1) for key in range(20)]
        for _ in read_ahead(ranges, stored.__getitem__, ahead=ahead, threads=threads):
            handed += 1
            time.sleep(0.001)
            assert len(stored.asked) <= handed + ahead
        assert handed == 20


def test_keys_are_taken_no_earlier_than_needed():
    taken = []

    def keys() -> Iterator[int]:
        for key in range(10):
            taken.append(key)
            yield key

    reading = read_ahead(keys(), str, ahead=2, threads=1)
    next(reading)
    assert taken == [0, 1, 2]
    reading.close()


def test_an_error_comes_at_its_own_place_and_threads_end():
    reading = pictures(Slow(torn=7)).each(range(20))
    for index in range(7):
        assert next(reading)[0] == index
    with pytest.raises(OSError, match="picture 7"):
        next(reading)
    assert reading_threads() == []


def test_threads_end_when_the_consumer_leaves():
    reading = pictures(Slow()).each(range(20))
    next(reading)
    assert reading_threads()
    reading.close()
    assert reading_threads() == []


def test_inputs_are_the_same_as_one_by_one():
    data = pictures(Slow())
    for index, x in data.each([5, 19, 0]):
        assert np.array_equal(x, data.input(index))
        assert x.dtype == data.input(index).dtype
    kept = Dataset("kept", np.zeros((3, 2)), np.zeros(3, np.int64), ("a", "b"))
    assert [index for index, _ in kept.each([2, 0])] == [2, 0]
    assert reading_threads() == []
