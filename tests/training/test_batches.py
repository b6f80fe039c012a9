"""The batches of an epoch, their streams, and what is changed in their images."""

import dataclasses
import threading

import numpy as np
import pytest
import torch

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.images import LazyImages, Squeeze
from smoothcert.errors import InvalidValueError
from smoothcert.training.batches import (
    Changes,
    EpochBatches,
    StreamPurpose,
    change,
    check_augmentable,
    draw_changes,
    split_holdout,
    stream,
    stream_seed,
    tensors,
)
from smoothcert.training.loop import train
from tests.training.toys import flat, halves, new_model, numbers, plan

CPU = torch.device("cpu")


def batches(size=23, batch_size=6, shards=1, epoch=0, seed=0):
    return EpochBatches(numbers(size), np.arange(size), plan(batch_size=batch_size, seed=seed), epoch, shards)


def values(shards):
    return [x for shard in shards for x in shard.x.flatten().tolist()]


def test_an_epoch_takes_every_input_once_with_its_label():
    # The last batch has 5 inputs, too few for 6 shards.
    for shards, taken in ((1, 23), (2, 23), (3, 23), (5, 23), (6, 18)):
        read = [shard for batch in batches(shards=shards).read(range(shards), CPU) for shard in batch]
        seen = values(read)
        assert len(seen) == len(set(seen)) == taken
        assert set(seen) <= set(range(23))
        assert [int(label) for shard in read for label in shard.y] == [int(x) % 3 for x in seen]
    chosen = np.array([3, 5, 8, 13, 21])
    epoch = EpochBatches(numbers(23), chosen, plan(batch_size=2), 0, 1)
    assert sorted(v for batch in epoch.read([0], CPU) for v in values(batch)) == chosen.tolist()


@pytest.mark.parametrize("shards", [1, 2, 3, 4])
def test_shards_are_the_parts_of_the_batch_in_order(shards):
    whole = [values(batch) for batch in batches().read([0], CPU)]
    for batch, expected in zip(batches(shards=shards).read(range(shards), CPU), whole, strict=True):
        assert values(batch) == expected
        assert [shard.number for shard in batch] == list(range(shards))
        sizes = [len(shard.y) for shard in batch]
        assert max(sizes) - min(sizes) <= 1
        assert sum(shard.weight for shard in batch) == pytest.approx(1)
        assert [shard.weight for shard in batch] == pytest.approx([size / len(expected) for size in sizes])


def test_processes_share_what_one_would_do_alone():
    alone = batches(shards=4).read(range(4), CPU)
    first, second = batches(shards=4).read([0, 1], CPU), batches(shards=4).read([2, 3], CPU)
    for everything, here, there in zip(alone, first, second, strict=True):
        for shard, same in zip(everything, here + there, strict=True):
            assert (shard.number, shard.weight) == (same.number, same.weight)
            assert torch.equal(shard.x, same.x)
            assert torch.equal(shard.y, same.y)


def test_length_is_the_number_of_batches():
    for size, batch_size, shards, number in (
        (23, 6, 1, 4), (24, 6, 1, 4), (25, 6, 1, 5), (25, 6, 2, 4), (26, 6, 2, 5), (5, 6, 1, 1), (5, 6, 6, 0),
        (9, 2, 3, 0),
    ):  # fmt: skip
        epoch = batches(size, batch_size, shards)
        assert len(epoch) == number
        assert len(list(epoch.read(range(shards), CPU))) == number


def test_order_depends_on_epoch_and_seed_alone():
    def order(**fields):
        return [value for batch in batches(**fields).read([0], CPU) for value in values(batch)]

    assert order() == order()
    assert order() != order(epoch=1)
    assert order() != order(seed=1)
    assert order() == order(batch_size=9)


@dataclasses.dataclass(frozen=True, eq=False)
class Torn:
    """Inputs of which one can't be read."""

    shape, dtype, ndim, size = (8, 1), np.dtype(np.float32), 2, 8

    def __len__(self):
        return 8

    def __getitem__(self, indices):
        if 5 in np.asarray(indices):
            raise OSError("picture 5 is torn")
        return np.zeros((len(indices), 1), np.float32)


def test_an_error_of_the_reader_comes_to_who_asked():
    dataset = dataclasses.replace(numbers(8), stored=Torn())
    with pytest.raises(OSError, match="picture 5 is torn"):
        list(EpochBatches(dataset, np.arange(8), plan(batch_size=2), 0, 1).read([0], CPU))


def test_one_batch_is_read_ahead_and_no_more():
    asked, second = [], threading.Event()

    class Counting(Torn):
        def __getitem__(self, indices):
            asked.append(len(indices))
            if len(asked) == 2:
                second.set()
            return np.zeros((len(indices), 1), np.float32)

    reading = EpochBatches(
        dataclasses.replace(numbers(8), stored=Counting()), np.arange(8), plan(batch_size=2), 0, 1
    ).read([0], CPU)
    next(reading)
    assert second.wait(60)
    reading.close()  # waits for what is under way
    assert asked == [2, 2]


def test_the_holdout_is_apart_and_the_same_every_time():
    for seed in (0, 1):
        training, held_out = split_holdout(100, 30, seed)
        assert len(held_out) == 30
        assert sorted([*training, *held_out]) == list(range(100))
        again = split_holdout(100, 30, seed)
        assert np.array_equal(training, again[0])
        assert np.array_equal(held_out, again[1])
        assert not np.array_equal(held_out, split_holdout(100, 30, seed + 1)[1])
        assert held_out.tolist() != list(range(30))
    training, held_out = split_holdout(5, 0, 0)
    assert training.tolist() == [0, 1, 2, 3, 4]
    assert len(held_out) == 0
    for holdout in (5, 6):
        with pytest.raises(InvalidValueError, match=rf"holdout.*\b5\b.*\b{holdout}\b"):
            split_holdout(5, holdout, 0)


def test_each_stream_has_a_seed_of_its_own():
    seeds = {
        stream_seed(seed, epoch, purpose, shard)
        for seed in range(3)
        for epoch in range(3)
        for purpose in StreamPurpose
        for shard in range(3)
    }
    assert len(seeds) == 3 * 3 * len(StreamPurpose) * 3
    first, second = (torch.rand(3, generator=stream(1, 2, StreamPurpose.NOISE, 3)) for _ in range(2))
    assert torch.equal(first, second)


def test_on_cuda_batches_go_by_way_of_pinned_memory_and_nobody_waits(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: calls.append("pinned") or self)
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, device, **how: calls.append((str(device), how)) or self
    )
    tensors(numbers(4), np.arange(2), torch.device("cuda"))
    assert calls == ["pinned", ("cuda", {"non_blocking": True})] * 2


def images(number, channels=2, height=5, width=7):
    return np.random.default_rng(1).uniform(0.1, 1, (number, channels, height, width)).astype(np.float32)


def by_hand(image, mirrored, top, left, shift):
    """The same change of one image with np.flip and np.roll on a frame of zeros."""
    if mirrored:
        image = np.flip(image, axis=2)
    frame = np.pad(image, [(0, 0), (shift, shift), (shift, shift)])
    moved = np.roll(frame, (shift - top, shift - left), axis=(1, 2))
    return moved[:, shift : shift + image.shape[1], shift : shift + image.shape[2]]


def drawn(number, flip, shift, seed=0):
    return draw_changes(number, flip, shift, torch.Generator().manual_seed(seed))


def test_images_change_as_numpy_changes_them():
    for flip, shift in ((True, 0), (False, 2), (True, 4), (True, 1), (False, 0)):
        x, changes = images(40), drawn(40, flip, shift)
        expected = [
            by_hand(image, bool(mirrored), int(top), int(left), shift)
            for image, mirrored, top, left in zip(x, changes.mirrored, changes.top, changes.left)
        ]
        found = change(torch.from_numpy(x), changes)
        np.testing.assert_array_equal(found.numpy(), np.stack(expected))
        part = change(torch.from_numpy(x)[3:7], changes.part(slice(3, 7)))
        assert torch.equal(part, found[3:7]), "a part keeps its images' changes"


def test_a_mark_moves_down_and_right_and_zeros_follow():
    x = torch.full((1, 1, 3, 3), 0.5)
    x[0, 0, 0, 0] = 1.0
    moved = change(x, Changes(torch.tensor([False]), torch.tensor([0]), torch.tensor([1]), shift=1))
    assert moved[0, 0].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.5, 0.5], [0.5, 0.5, 0.5]]


def test_every_change_is_drawn_as_often_as_any_other():
    share = drawn(10_000, True, 0).mirrored.float().mean().item()
    assert abs(share - 0.5) < 0.02  # four standard deviations
    assert not drawn(10_000, False, 4).mirrored.any()
    changes = drawn(9 * 9 * 200, False, 4)
    counts = torch.bincount(changes.top * 9 + changes.left, minlength=81)
    assert len(counts) == 81
    assert counts.min() > 200 - 5 * 200**0.5
    assert counts.max() < 200 + 5 * 200**0.5


def test_labels_stay_with_their_images_and_each_epoch_changes_them_in_its_own_way():
    dataset = halves(30)
    batches = EpochBatches(dataset, np.arange(30), plan(flip=True, shift=2, batch_size=10), 0, 1)
    untouched = EpochBatches(dataset, np.arange(30), plan(batch_size=10), 0, 1)
    device = torch.device("cpu")
    for (changed,), (kept,) in zip(batches.read([0], device), untouched.read([0], device)):
        assert torch.equal(changed.y, kept.y)
        assert not torch.equal(changed.x, kept.x)
        assert changed.x.shape == kept.x.shape

    def first(epoch):
        batches = EpochBatches(halves(1), np.arange(1), plan(flip=True, shift=3), epoch, 1)
        return next(iter(batches.read([0], torch.device("cpu"))))[0].x

    assert len({tuple(first(epoch).flatten().tolist()) for epoch in range(8)}) > 4


@pytest.mark.parametrize("shards", [2, 3])
def test_changes_do_not_depend_on_the_shards(shards):
    def inputs(number):
        batches = EpochBatches(halves(20), np.arange(20), plan(flip=True, shift=2, batch_size=7), 3, number)
        return torch.cat(
            [shard.x for batch in batches.read(range(number), torch.device("cpu")) for shard in batch]
        )

    whole, parts = inputs(1), inputs(shards)
    assert torch.equal(parts, whole[: len(parts)])


def test_changes_that_cannot_be_are_refused():
    for asked in ({"flip": True}, {"shift": 1}):
        with pytest.raises(InvalidValueError, match=r"flip.*shift.*\(1,\)"):
            train(torch.nn.Linear(1, 3), numbers(10), plan(**asked))
    check_augmentable((1, 8, 8), False, 7)
    with pytest.raises(InvalidValueError, match=r"shift.*\(8, 8\).*\b8\b"):
        train(new_model(), halves(), plan(shift=8))
    with pytest.raises(InvalidValueError, match=r"random_crops.*halves"):
        train(new_model(), halves(), plan(random_crops=True))


@pytest.fixture
def photographs(tmp_path):
    pictures = pytest.importorskip("tests.datasets.pictures")
    names = [f"{index}.png" for index in range(12)]
    for index, name in enumerate(names):
        pictures.write_picture(tmp_path / name, pictures.picture(30, 20, index))
    stored = LazyImages.of(tmp_path, names, Squeeze(8))
    return Dataset("photographs", stored, np.arange(12) % 2, ("a", "b"), scale=1 / 255)


def parts_read(dataset, shards=1, **changes):
    chosen = plan(**({"random_crops": True, "batch_size": 6} | changes))
    read = EpochBatches(dataset, np.arange(12), chosen, 0, shards).read(range(shards), torch.device("cpu"))
    return torch.cat([shard.x for batch in read for shard in batch])


def test_random_parts_differ_from_the_images_and_not_between_shards(photographs):
    whole = parts_read(photographs)
    assert whole.shape == (12, 3, 8, 8)
    assert not torch.equal(whole, parts_read(photographs, random_crops=False))
    assert torch.equal(whole, parts_read(photographs, shards=2))
    assert not torch.equal(whole, parts_read(photographs, seed=1))


def test_training_on_random_parts_repeats_itself(photographs):
    chosen = plan(random_crops=True, flip=True, epochs=2)
    runs = []
    for _ in range(2):
        model = new_model(shape=(3, 8, 8))
        train(model, photographs, chosen)
        runs.append(flat(model))
    assert torch.equal(*runs)
