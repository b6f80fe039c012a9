import numpy as np
import pytest
import torch

from smoothcert.datasets.base import Dataset
from smoothcert.datasets.lazy_images import LazyImages, Squeeze
from smoothcert.errors import InvalidValueError
from smoothcert.training import train
from smoothcert.training.augmentation import Changes, change, check_augmentable, draw_changes
from smoothcert.training.batches import EpochBatches
from tests.training.toys import flat, halves, new_model, numbers, plan


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


@pytest.mark.parametrize(("flip", "shift"), [(True, 0), (False, 2), (True, 4), (True, 1)])
def test_images_change_as_numpy_changes_them(flip, shift):
    x, changes = images(40), drawn(40, flip, shift)
    expected = [
        by_hand(image, bool(mirrored), int(top), int(left), shift)
        for image, mirrored, top, left in zip(x, changes.mirrored, changes.top, changes.left)
    ]
    np.testing.assert_array_equal(change(torch.from_numpy(x), changes).numpy(), np.stack(expected))


def test_a_mark_moves_down_and_right_and_zeros_follow():
    x = torch.full((1, 1, 3, 3), 0.5)
    x[0, 0, 0, 0] = 1.0
    moved = change(x, Changes(torch.tensor([False]), torch.tensor([0]), torch.tensor([1]), shift=1))
    assert moved[0, 0].tolist() == [[0.0, 0.0, 0.0], [1.0, 0.5, 0.5], [0.5, 0.5, 0.5]]


def test_nothing_asked_nothing_changed():
    x = torch.from_numpy(images(10))
    assert torch.equal(change(x, drawn(10, False, 0)), x)


def test_half_of_the_images_are_mirrored():
    share = drawn(10_000, True, 0).mirrored.float().mean().item()
    assert abs(share - 0.5) < 0.02  # four standard deviations
    assert not drawn(10_000, False, 4).mirrored.any()


def test_every_shift_is_drawn_as_often_as_any_other():
    changes = drawn(9 * 9 * 200, False, 4)
    counts = torch.bincount(changes.top * 9 + changes.left, minlength=81)
    assert len(counts) == 81
    assert counts.min() > 200 - 5 * 200**0.5
    assert counts.max() < 200 + 5 * 200**0.5


def test_a_part_keeps_its_images_changes():
    x, changes = torch.from_numpy(images(9)), drawn(9, True, 2)
    assert torch.equal(change(x[3:7], changes.part(slice(3, 7))), change(x, changes)[3:7])


def test_labels_stay_with_their_images():
    dataset = halves(30)
    batches = EpochBatches(dataset, np.arange(30), plan(flip=True, shift=2, batch_size=10), 0, 1)
    untouched = EpochBatches(dataset, np.arange(30), plan(batch_size=10), 0, 1)
    device = torch.device("cpu")
    for (changed,), (kept,) in zip(batches.read([0], device), untouched.read([0], device)):
        assert torch.equal(changed.y, kept.y)
        assert not torch.equal(changed.x, kept.x)
        assert changed.x.shape == kept.x.shape


@pytest.mark.parametrize("shards", [2, 3])
def test_changes_do_not_depend_on_the_shards(shards):
    def inputs(number):
        batches = EpochBatches(halves(20), np.arange(20), plan(flip=True, shift=2, batch_size=7), 3, number)
        return torch.cat(
            [shard.x for batch in batches.read(range(number), torch.device("cpu")) for shard in batch]
        )

    whole, parts = inputs(1), inputs(shards)
    assert torch.equal(parts, whole[: len(parts)])


def test_an_epoch_changes_images_in_its_own_way():
    def first(epoch):
        batches = EpochBatches(halves(1), np.arange(1), plan(flip=True, shift=3), epoch, 1)
        return next(iter(batches.read([0], torch.device("cpu"))))[0].x

    assert len({tuple(first(epoch).flatten().tolist()) for epoch in range(8)}) > 4


@pytest.mark.parametrize("asked", [{"flip": True}, {"shift": 1}])
def test_vectors_are_no_images(asked):
    with pytest.raises(InvalidValueError, match=r"flip.*shift.*\(1,\)"):
        train(torch.nn.Linear(1, 3), numbers(10), plan(**asked))


def test_a_shift_must_leave_something_of_the_image():
    check_augmentable((1, 8, 8), False, 7)
    with pytest.raises(InvalidValueError, match=r"shift.*\(8, 8\).*\b8\b"):
        train(new_model(), halves(), plan(shift=8))


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


def test_random_parts_of_what_is_no_file_are_refused_before_training():
    with pytest.raises(InvalidValueError, match=r"random_crops.*halves"):
        train(new_model(), halves(), plan(random_crops=True))
