import dataclasses
import threading

import numpy as np
import pytest
import torch

from smoothcert.errors import InvalidValueError
from smoothcert.training.batches import EpochBatches, split_holdout, tensors
from smoothcert.training.streams import Purpose, stream, stream_seed
from tests.training.toys import numbers, plan

CPU = torch.device("cpu")


def batches(size=23, batch_size=6, shards=1, epoch=0, seed=0):
    return EpochBatches(numbers(size), np.arange(size), plan(batch_size=batch_size, seed=seed), epoch, shards)


def values(shards):
    return [x for shard in shards for x in shard.x.flatten().tolist()]


@pytest.mark.parametrize(
    ("shards", "taken"),
    [(1, 23), (2, 23), (3, 23), (5, 23), (6, 18)],  # the last batch has 5 inputs, too few for 6 shards
)
def test_an_epoch_takes_every_input_once(shards, taken):
    epoch = batches(shards=shards)
    seen = [value for batch in epoch.read(range(shards), CPU) for value in values(batch)]
    assert len(seen) == len(set(seen)) == taken
    assert set(seen) <= set(range(23))


def test_inputs_bring_their_labels():
    for (shard,) in batches().read([0], CPU):
        assert shard.y.tolist() == [int(x) % 3 for x in shard.x.flatten()]


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


@pytest.mark.parametrize(
    ("size", "batch_size", "shards", "number"),
    [
        (23, 6, 1, 4),
        (24, 6, 1, 4),
        (25, 6, 1, 5),
        (25, 6, 2, 4),
        (26, 6, 2, 5),
        (5, 6, 1, 1),
        (5, 6, 6, 0),
        (9, 2, 3, 0),
    ],
)
def test_length_is_the_number_of_batches(size, batch_size, shards, number):
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


def test_only_the_chosen_inputs_are_taken():
    chosen = np.array([3, 5, 8, 13, 21])
    epoch = EpochBatches(numbers(23), chosen, plan(batch_size=2), 0, 1)
    assert sorted(v for batch in epoch.read([0], CPU) for v in values(batch)) == chosen.tolist()


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


@pytest.mark.parametrize("seed", [0, 1])
def test_the_holdout_is_apart_and_the_same_every_time(seed):
    training, held_out = split_holdout(100, 30, seed)
    assert len(held_out) == 30
    assert sorted([*training, *held_out]) == list(range(100))
    again = split_holdout(100, 30, seed)
    assert np.array_equal(training, again[0])
    assert np.array_equal(held_out, again[1])
    assert not np.array_equal(held_out, split_holdout(100, 30, seed + 1)[1])
    assert held_out.tolist() != list(range(30))


def test_no_holdout_trains_on_everything():
    training, held_out = split_holdout(5, 0, 0)
    assert training.tolist() == [0, 1, 2, 3, 4]
    assert len(held_out) == 0


@pytest.mark.parametrize("holdout", [5, 6])
def test_a_holdout_leaves_something_to_train_on(holdout):
    with pytest.raises(InvalidValueError, match=rf"holdout.*\b5\b.*\b{holdout}\b"):
        split_holdout(5, holdout, 0)


def test_each_stream_has_a_seed_of_its_own():
    seeds = {
        stream_seed(seed, epoch, purpose, shard)
        for seed in range(3)
        for epoch in range(3)
        for purpose in Purpose
        for shard in range(3)
    }
    assert len(seeds) == 3 * 3 * len(Purpose) * 3
    first, second = (torch.rand(3, generator=stream(1, 2, Purpose.NOISE, 3)) for _ in range(2))
    assert torch.equal(first, second)


def test_on_cuda_batches_go_by_way_of_pinned_memory_and_nobody_waits(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: calls.append("pinned") or self)
    monkeypatch.setattr(
        torch.Tensor, "to", lambda self, device, **how: calls.append((str(device), how)) or self
    )
    tensors(numbers(4), np.arange(2), torch.device("cuda"))
    assert calls == ["pinned", ("cuda", {"non_blocking": True})] * 2
