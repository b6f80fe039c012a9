from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets import Dataset, load
from smoothcert.datasets.images import LazyImages
from smoothcert.errors import DataError

from .pictures import assert_nearly, picture, resized, write_picture

TENCH, CRANE, MACHINE = "n01440764", "n02012849", "n03126707"
MAPPING = f"{TENCH} tench, Tinca tinca\n{CRANE} crane\n{MACHINE} crane\nn02123045 tabby, tabby cat\n"


def write_image(path: Path, width: int = 40, height: int = 30, seed: int = 0) -> np.ndarray:
    return write_picture(path, picture(width, height, seed), format="JPEG")


@pytest.fixture
def root(tmp_path) -> Path:
    """Two classes to train on, and a validation set that lacks the first but has a third."""
    for seed, name in enumerate([f"{TENCH}/b.JPEG", f"{TENCH}/a.JPEG", f"{CRANE}/c.JPEG"]):
        write_image(tmp_path / "train" / name, seed=seed)
    for seed, name in enumerate([f"{MACHINE}/v2.JPEG", f"{CRANE}/v1.jpg"]):
        write_image(tmp_path / "val" / name, seed=seed)
    return tmp_path


def names_of(dataset: Dataset) -> list[str]:
    assert isinstance(dataset.stored, LazyImages)
    return list(dataset.stored.names)


@pytest.mark.parametrize("subfolder", [".", "imagenet"])
def test_pixels_are_those_of_the_middle(tmp_path, subfolder):
    pixels = write_image(tmp_path / subfolder / "val" / TENCH / "1.JPEG", 500, 375)
    dataset = load("imagenet", "test", tmp_path)
    assert (dataset.name, dataset.input_shape, dataset.scale) == ("imagenet", (3, 224, 224), 1 / 255)
    assert dataset.value_range() == (0, 1)
    expected = resized(pixels, 341, 256)[16 : 16 + 224, 58 : 58 + 224]
    assert_nearly(dataset.input(0).transpose(1, 2, 0) * 255, expected)


def test_labels_mean_the_same_in_both_splits(root):
    train, test = load("imagenet", "train", root), load("imagenet", "test", root)
    assert train.classes == test.classes == (TENCH, CRANE, MACHINE)
    assert names_of(train) == [f"train/{TENCH}/a.JPEG", f"train/{TENCH}/b.JPEG", f"train/{CRANE}/c.JPEG"]
    assert train.labels.tolist() == [0, 0, 1]
    assert names_of(test) == [f"val/{CRANE}/v1.jpg", f"val/{MACHINE}/v2.JPEG"]
    assert test.labels.tolist() == [1, 2]


def test_mapping_names_and_numbers_the_classes(root):
    (root / "LOC_synset_mapping.txt").write_text(MAPPING + "\n", encoding="utf-8")
    test = load("imagenet", "test", root)
    assert test.classes == ("tench", f"crane ({CRANE})", "tabby", f"crane ({MACHINE})")
    assert test.labels.tolist() == [1, 3], "a class that isn't on disk keeps its number"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (f"{TENCH} tench\nn123 crane\n", r"\b2\b.*'n123 crane'"),
        (f"{TENCH}\n", rf"\b1\b.*'{TENCH}'"),
        (f"{TENCH} , tench\n", rf"\b1\b.*'{TENCH} , tench'"),
        (f"{TENCH} tench\n{TENCH} fish\n", rf"\b2\b.*{TENCH}"),
        (f"{TENCH} tench\n{CRANE} caf\xe9\n", "UTF-8"),
    ],
)
def test_damaged_mapping_is_explained(root, text, named):
    (root / "LOC_synset_mapping.txt").write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=rf"LOC_synset_mapping\.txt.*{named}"):
        load("imagenet", "test", root)


def test_class_outside_the_mapping_is_named(root):
    (root / "LOC_synset_mapping.txt").write_text(f"{TENCH} tench\n{CRANE} crane\n", encoding="utf-8")
    assert load("imagenet", "train", root).classes == ("tench", "crane")
    with pytest.raises(DataError, match=rf"val: .*LOC_synset_mapping\.txt.*{MACHINE}"):
        load("imagenet", "test", root)


def test_other_files_are_passed_over(root):
    (root / "val" / CRANE / "notes.txt").write_text("no image")
    (root / "val" / CRANE / ".hidden.JPEG").write_text("no image")
    (root / "val" / ".cache").mkdir()
    (root / "val" / "list.txt").write_text("no class")
    assert len(load("imagenet", "test", root)) == 2


def test_one_split_is_enough(root, tmp_path_factory):
    alone = tmp_path_factory.mktemp("alone")
    (root / "val").rename(alone / "val")
    assert load("imagenet", "test", alone).classes == (CRANE, MACHINE)
    (alone / "train").mkdir()
    assert len(load("imagenet", "test", alone)) == 2, "an empty folder of the other split is no obstacle"
    with pytest.raises(DataError, match=rf"imagenet: .*\bval/.*{root / 'imagenet'}.*--data-dir"):
        load("imagenet", "test", root)


def test_folders_that_are_no_classes_are_named(root, tmp_path_factory):
    (root / "val" / "cats").mkdir()
    with pytest.raises(DataError, match=r"val: .*'cats'"):
        load("imagenet", "test", root)
    (root / "val" / "cats").rmdir()
    (root / "val" / TENCH).mkdir()
    (root / "val" / TENCH / f"{TENCH}.tar").write_bytes(b"packed")
    with pytest.raises(DataError, match=f"val/{TENCH}: "):
        load("imagenet", "test", root)
    unsorted = tmp_path_factory.mktemp("unsorted")
    write_image(unsorted / "val" / "ILSVRC2012_val_00000001.JPEG")
    with pytest.raises(DataError, match=r"val: "):
        load("imagenet", "test", unsorted)
