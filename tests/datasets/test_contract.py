"""Every registered data set keeps the same promises, here on small files in its true format."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from smoothcert import datasets
from smoothcert.datasets import DATASETS, SPLITS, load
from smoothcert.errors import DataError, MissingExtraError

from .files import write_cifar_binary, write_mnist

PACKAGE = Path(datasets.__file__).parent


def _mnist(root: Path, _: pytest.MonkeyPatch) -> None:
    for split in SPLITS:
        write_mnist(root, split)


def _cifar10(root: Path, _: pytest.MonkeyPatch) -> None:
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        write_cifar_binary(root / f"{name}.bin")


def _svhn(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from .test_small_images import write_svhn

    for split in SPLITS:
        write_svhn(root / f"{split}_32x32.mat", monkeypatch)


def _imagenet(root: Path, _: pytest.MonkeyPatch) -> None:
    from .test_imagenet import CRANE, TENCH, write_image

    for folder in ("train", "val"):
        for seed, name in enumerate((TENCH, CRANE)):
            write_image(root / folder / name / f"{seed}.JPEG", seed=seed)


def _kitti(root: Path, _: pytest.MonkeyPatch) -> None:
    from .test_kitti import write_scene

    for index in range(12):
        write_scene(root, index, ("Car", "Pedestrian", "Cyclist")[index % 3])


def _bank(root: Path, _: pytest.MonkeyPatch) -> None:
    rows = (f'{age};"{"abc"[age % 3]}";"{("no", "yes")[age % 2]}"' for age in range(60))
    (root / "bank.csv").write_text("\n".join(['"age";"job";"y"', *rows]))


WRITERS: dict[str, Callable[[Path, pytest.MonkeyPatch], None]] = {
    "mnist": _mnist,
    "fashion-mnist": _mnist,
    "cifar10": _cifar10,
    "svhn": _svhn,
    "imagenet": _imagenet,
    "kitti": _kitti,
    "bank": _bank,
}
"""How a small data set is written; one that needs no files, as digits, has none."""


@pytest.fixture(params=DATASETS.names())
def loaded(request, tmp_path, monkeypatch) -> Callable[[str], datasets.Dataset]:
    if request.param in WRITERS:
        WRITERS[request.param](tmp_path, monkeypatch)

    def read(split: str) -> datasets.Dataset:
        try:
            return load(request.param, split, tmp_path)
        except MissingExtraError as error:
            pytest.skip(str(error))

    return read


@pytest.mark.parametrize("split", SPLITS)
def test_inputs_have_one_shape_and_labels_name_classes(loaded, split):
    data = loaded(split)
    assert data.name in DATASETS
    assert len(data) == len(data.stored) == len(data.labels) > 0
    assert data.labels.dtype == np.int64
    assert 0 <= data.labels.min() <= data.labels.max() < len(data.classes)
    assert len(set(data.classes)) == len(data.classes)
    batch = data.inputs([0, len(data) - 1])
    assert batch.shape == (2, *data.input_shape)
    assert batch.dtype == np.float32
    assert np.array_equal(batch[0], data.input(0).astype(np.float32))
    low, high = data.value_range()
    assert low <= batch.min()
    assert batch.max() <= high * (1 + 1e-6)
    if data.levels is not None:
        steps = batch.astype(np.float64) * data.levels
        assert np.abs(steps - np.rint(steps)).max() < 1e-4


def test_splits_mean_the_same_classes_and_are_told_apart(loaded):
    train, test = (loaded(split) for split in ("train", "test"))
    assert (train.classes, train.input_shape, train.scale) == (test.classes, test.input_shape, test.scale)


@pytest.mark.parametrize("split", SPLITS)
def test_the_fingerprint_is_that_of_the_content(loaded, split):
    data = loaded(split)
    assert data.fingerprint() == loaded(split).fingerprint()
    fewer = data.first(len(data) - 1)
    assert len(fewer) == len(data) - 1
    assert fewer.fingerprint() != data.fingerprint()
    assert np.array_equal(fewer.input(0), data.input(0))


def test_what_is_handed_out_can_be_written_on_without_harm(loaded):
    data = loaded("test")
    before = data.fingerprint()
    data.inputs([0])[...] = -1.0
    data.input(0)[...] = -1.0
    assert data.fingerprint() == before


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_missing_files_are_named_with_where_they_were_sought(name, tmp_path, monkeypatch):
    with pytest.raises(DataError, match=str(tmp_path)):
        load(name, "test", tmp_path)


@pytest.mark.parametrize(
    ("spec", "packages", "named"),
    [
        ("imagenet", ("PIL", "PIL.Image"), r"imagenet.*Pillow.*smoothcert\[images\]"),
        ("kitti", ("PIL", "PIL.Image"), r"kitti.*Pillow.*smoothcert\[images\]"),
        ("folder:{}/train", ("PIL", "PIL.Image"), r"Pillow.*smoothcert\[images\]"),
        ("digits", ("sklearn",), r"digits.*scikit-learn.*smoothcert\[quickstart\]"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(spec, packages, named, tmp_path, monkeypatch):
    if packages != ("sklearn",):
        pytest.importorskip("PIL")
        WRITERS["kitti" if spec == "kitti" else "imagenet"](tmp_path, monkeypatch)
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=named):
        load(spec.format(tmp_path), "train", tmp_path)
