"""Reading ahead keeps order, bounds, errors and no thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.read_ahead import read_ahead


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


def test_the_order_is_that_of_the_keys_however_long_each_takes() -> None:
    for threads in (1, 4):
        found = list(
            read_ahead([3, 1, 2, 0], lambda key: Slow()[slice(key, None)].max(), ahead=3, threads=threads)
        )
        assert found == [(3, 3), (1, 1), (2, 2), (0, 0)]
    assert list(read_ahead([], str, ahead=2, threads=2)) == []
    assert reading_threads() == []


@pytest.mark.parametrize(("ahead", "threads"), [(0, 1), (1, 1), (3, 2), (5, 8)])
def test_no_more_is_begun_than_allowed(ahead: int, threads: int) -> None:
    stored, handed = Slow(), 0
    reading = read_ahead(range(20), lambda key: stored[slice(key, key + 1)], ahead=ahead, threads=threads)
    for _ in reading:
        handed += 1
        time.sleep(0.001)
        assert len(stored.asked) <= handed + ahead
    assert handed == 20


def test_keys_are_taken_no_earlier_than_needed() -> None:
    taken = []

    def keys() -> Iterator[int]:
        for key in range(10):
            taken.append(key)
            yield key

    reading = read_ahead(keys(), str, ahead=2, threads=1)
    next(reading)
    assert taken == [0, 1, 2]
    reading.close()


def test_an_error_comes_at_its_own_place_and_threads_end() -> None:
    reading = pictures(Slow(torn=7)).each(range(20))
    for index in range(7):
        assert next(reading)[0] == index
    with pytest.raises(OSError, match="picture 7"):
        next(reading)
    assert reading_threads() == []


def test_threads_end_when_the_consumer_leaves() -> None:
    reading = pictures(Slow()).each(range(20))
    next(reading)
    assert reading_threads()
    reading.close()
    assert reading_threads() == []


def test_inputs_are_the_same_as_one_by_one() -> None:
    data = pictures(Slow())
    for index, x in data.each([5, 19, 0]):
        assert np.array_equal(x, data.input(index))
        assert x.dtype == data.input(index).dtype
    kept = Dataset("kept", np.zeros((3, 2)), np.zeros(3, np.int64), ("a", "b"))
    assert [index for index, _ in kept.each([2, 0])] == [2, 0]
    assert reading_threads() == []
