from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets import Dataset, load
from smoothcert.datasets.image_folders import KITTI_CLASSES as CLASSES
from smoothcert.datasets.images import LazyImages
from smoothcert.errors import DataError

from .pictures import assert_nearly, picture, resized, write_picture

BOX = "0.00 0 -1.57 614.24 181.78 727.31 284.77 1.57 1.73 4.15 1.00 1.75 13.22 -1.62"
NOWHERE = "-1 -1 -10 503.89 169.71 590.61 190.13 -1 -1 -1 -1000 -1000 -1000 -10"


def label_text(*kinds: str) -> str:
    return "".join(f"{kind} {NOWHERE if kind == 'DontCare' else BOX}\n" for kind in kinds)


def write_scene(root: Path, index: int, *kinds: str, size: tuple[int, int] = (62, 19)) -> np.ndarray:
    labels = root / "training" / "label_2" / f"{index:06}.txt"
    labels.parent.mkdir(parents=True, exist_ok=True)
    labels.write_text(label_text(*kinds), encoding="utf-8")
    return write_picture(root / "training" / "image_2" / f"{index:06}.png", picture(*size, seed=index))


def ids_of(dataset: Dataset) -> list[int]:
    assert isinstance(dataset.stored, LazyImages)
    return [int(Path(name).stem) for name in dataset.stored.names]


def labels_by_id(root: Path) -> dict[int, str]:
    splits = [load("kitti", split, root) for split in ("train", "test")]
    return {name: CLASSES[label] for data in splits for name, label in zip(ids_of(data), data.labels)}


@pytest.mark.parametrize("subfolder", [".", "kitti", "KITTI", "Kitti/raw"])
def test_whole_image_is_resized(tmp_path, subfolder):
    pixels = {
        index: write_scene(tmp_path / subfolder, index, "Car", size=(1242, 375 - index)) for index in (0, 1)
    }
    dataset = load("kitti", "test", tmp_path)
    assert (dataset.name, dataset.input_shape, dataset.scale) == ("kitti", (3, 224, 224), 1 / 255)
    assert dataset.classes == CLASSES
    (index,) = ids_of(dataset)
    assert_nearly(dataset.input(0).transpose(1, 2, 0) * 255, resized(pixels[index], 224, 224))


def test_label_is_the_dominant_class(tmp_path):
    write_scene(tmp_path, 1, "Pedestrian", "Car", "Pedestrian", "Car", "Pedestrian", "Pedestrian")
    write_scene(tmp_path, 2, "Cyclist", "DontCare", "DontCare", "DontCare")
    write_scene(tmp_path, 3, "Misc", "Tram", "Tram", "Person_sitting")
    write_scene(tmp_path, 4, "DontCare")
    write_scene(tmp_path, 5)
    assert labels_by_id(tmp_path) == {1: "Pedestrian", 2: "Cyclist", 3: "Tram"}


def test_a_tie_goes_to_the_earlier_class(tmp_path):
    assert CLASSES == ("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Cyclist", "Tram", "Misc")
    tied = [("Cyclist", "Pedestrian"), ("Misc", "Van", "Truck", "Misc", "Truck"), CLASSES[::-1]]
    for index, kinds in enumerate([*tied, ("Pedestrian", "Cyclist")]):
        write_scene(tmp_path, index, *kinds)
    assert labels_by_id(tmp_path) == {0: "Pedestrian", 1: "Truck", 2: "Car", 3: "Pedestrian"}


def test_split_is_disjoint_complete_and_fixed(tmp_path):
    for index in range(43):
        write_scene(tmp_path, index, "DontCare" if index in (5, 20, 30) else "Car")
    train, test = (ids_of(load("kitti", split, tmp_path)) for split in ("train", "test"))
    assert (len(train), len(test)) == (36, 4)
    assert sorted(train + test) == [index for index in range(43) if index not in (5, 20, 30)]
    assert train == sorted(train)
    # Written down: another split would put images that older models were trained on into the test.
    assert test == [0, 3, 10, 41]
    assert ids_of(load("kitti", "test", tmp_path)) == test


def test_both_splits_have_images(tmp_path):
    for index in range(11):
        write_scene(tmp_path, index, "Car")
        count = index + 1
        if count > 1:
            train, test = (len(load("kitti", split, tmp_path)) for split in ("train", "test"))
            assert (train, test) == (count * 9 // 10, count - count * 9 // 10)
            assert min(train, test) > 0


def test_missing_files_and_too_few_images_are_explained(tmp_path):
    with pytest.raises(DataError, match=r"kitti: .*training/image_2/.*training/label_2/.*--data-dir"):
        load("kitti", "test", tmp_path)
    labels = tmp_path / "training" / "label_2"
    for kind, found in (("Car", 1), ("DontCare", 0)):
        write_scene(tmp_path, 0, kind)
        with pytest.raises(DataError, match=rf"image_2: .*\b{found}\b"):
            load("kitti", "train", tmp_path)
    (labels / "000000.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match=r"000000\.txt: "):
        load("kitti", "train", tmp_path)
    write_scene(tmp_path, 0, "Car")
    write_scene(tmp_path, 1, "Car")
    (labels / "000001.txt").unlink()
    with pytest.raises(DataError, match=r"000001\.txt: .*000001\.png"):
        load("kitti", "test", tmp_path)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("Car 0.00 0", r"\b15\b.*'Car 0\.00 0'"),
        (f"Car {BOX} 0.98", rf"\b15\b.*'Car {BOX} 0\.98'"),
        (f"Car {BOX.replace('614.24', 'wide')}", r"\b15\b.*\b14\b.* wide "),
        (f"Bus {BOX}", "Car, .*Misc, DontCare.*'Bus'"),
        (f"car {BOX}", "Car, .*Misc, DontCare.*'car'"),
    ],
)
def test_malformed_line_is_named(tmp_path, line, named):
    write_scene(tmp_path, 0, "Car")
    write_scene(tmp_path, 1, "Car")
    text = label_text("Car", "Van") + line + "\n"
    (tmp_path / "training" / "label_2" / "000001.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=rf"000001\.txt.*\b3\b.*{named}"):
        load("kitti", "train", tmp_path)


def test_fingerprint(tmp_path):
    for index in range(3):
        write_scene(tmp_path, index, "Car")
    original = load("kitti", "train", tmp_path).fingerprint()
    assert load("kitti", "train", tmp_path).fingerprint() == original
    index = ids_of(load("kitti", "train", tmp_path))[0]
    write_scene(tmp_path, index, "Van")
    other_label = load("kitti", "train", tmp_path).fingerprint()
    write_picture(tmp_path / "training" / "image_2" / f"{index:06}.png", picture(62, 19, seed=99))
    other_pixels = load("kitti", "train", tmp_path).fingerprint()
    assert len({original, other_label, other_pixels}) == 3
    write_scene(tmp_path, index, "Car", "DontCare")
    assert load("kitti", "train", tmp_path).fingerprint() == original, "what can't change a label isn't in it"
