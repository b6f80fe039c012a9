from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets import load
from smoothcert.errors import DataError

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")


def write_image(path: Path, mode: str = "RGB", size: tuple[int, int] = (5, 4), seed: int = 0) -> np.ndarray:
    width, height = size
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


def test_classes_are_sorted_folders(tmp_path):
    dog = write_image(tmp_path / "dog" / "1.png", seed=1)
    cats = [write_image(tmp_path / "cat" / name, seed=seed) for seed, name in enumerate(["a.PNG", "b.bmp"])]
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / ".cache").mkdir()
    (tmp_path / "README").write_text("not a class")
    dataset = load(f"folder:{tmp_path}")
    assert dataset.name == f"folder:{tmp_path}"
    assert dataset.classes == ("cat", "dog")
    assert dataset.labels.tolist() == [0, 0, 1]
    assert dataset.input_shape == (3, 4, 5)
    assert dataset.scale == 1 / 255
    np.testing.assert_array_equal(dataset.stored.transpose(0, 2, 3, 1), [*cats, dog])
    assert load(str(tmp_path), "train").fingerprint() == dataset.fingerprint()
    assert load(dataset.name).fingerprint() == dataset.fingerprint()


def test_common_formats_are_read(tmp_path):
    for suffix in ("png", "jpg", "jpeg", "bmp", "webp"):
        write_image(tmp_path / suffix / "a" / f"image.{suffix}")
        assert load(f"folder:{tmp_path / suffix}").input_shape == (3, 4, 5)


def test_all_grey_images_keep_one_channel_and_one_in_colour_makes_all_rgb(tmp_path):
    grey = write_image(tmp_path / "a" / "1.png", "L")
    Image.new("1", (5, 4), 1).save(tmp_path / "a" / "2.png")
    dataset = load(f"folder:{tmp_path}")
    assert dataset.input_shape == (1, 4, 5)
    np.testing.assert_array_equal(dataset.stored[0, 0], grey)
    assert (dataset.stored[1] == 255).all()
    write_image(tmp_path / "a" / "3.png", "RGBA")
    palette = Image.fromarray(write_image(tmp_path / "a" / "4.png")).quantize(4)
    palette.save(tmp_path / "a" / "4.png", transparency=bytes([0, 128, 255, 255]))
    dataset = load(f"folder:{tmp_path}")
    assert dataset.input_shape == (3, 4, 5)
    for channel in range(3):
        np.testing.assert_array_equal(dataset.stored[0, channel], grey)


@pytest.mark.parametrize("test_folder", ["test", "val"])
def test_split_folders(tmp_path, test_folder):
    write_image(tmp_path / "train" / "a" / "1.png", seed=1)
    write_image(tmp_path / "train" / "b" / "1.png", seed=2)
    write_image(tmp_path / "train" / "c" / "1.png", seed=3)
    only = write_image(tmp_path / test_folder / "c" / "1.png", seed=4)
    train, test = load(f"folder:{tmp_path}", "train"), load(f"folder:{tmp_path}", "test")
    assert train.labels.tolist() == [0, 1, 2]
    assert train.classes == test.classes == ("a", "b", "c")
    assert test.labels.tolist() == [2], "a class keeps its label when the split lacks the classes before it"
    np.testing.assert_array_equal(test.stored[0].transpose(1, 2, 0), only)


def test_images_of_other_sizes_of_16_bits_or_damaged_are_named(tmp_path):
    write_image(tmp_path / "a" / "1.png", size=(5, 4))
    other = tmp_path / "b" / "2.png"
    write_image(other, size=(4, 5))
    with pytest.raises(DataError, match=r"2\.png: .*5x4.*1\.png.*4x5"):
        load(f"folder:{tmp_path}")
    Image.fromarray(np.full((4, 5), 40000, np.uint16)).save(other)
    with pytest.raises(DataError, match=r"2\.png: .*I;16"):
        load(f"folder:{tmp_path}")
    write_image(other)
    content = other.read_bytes()
    for kept in (0, 10, 60, -20):
        other.write_bytes(content[:kept])
        with pytest.raises(DataError, match=r"2\.png: "):
            load(f"folder:{tmp_path}")


def test_wrong_layouts_are_explained(tmp_path):
    with pytest.raises(DataError, match=f"folder:{tmp_path / 'absent'}"):
        load(f"folder:{tmp_path / 'absent'}")
    with pytest.raises(DataError, match=f"folder:{tmp_path}"):
        load(f"folder:{tmp_path}")
    write_image(tmp_path / "test" / "a" / "1.png")
    with pytest.raises(DataError, match=rf"{tmp_path}/test: .*\.png.*PATH/CLASS/image"):
        load(f"folder:{tmp_path}")
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match=f"folder:{tmp_path}"):
        load(f"folder:{tmp_path}", "train")
