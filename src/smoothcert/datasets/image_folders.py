"""``folder:PATH``: images in one subfolder per class."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.datasets.base import DATASETS, PATH_FORMS, Dataset
from smoothcert.datasets.images import (
    GREY_MODES,
    SUFFIXES,
    CentreCrop,
    LazyImages,
    Squeeze,
    channels_first,
    check_eight_bits,
    class_folders,
    converted,
    image_names,
    opened,
    read_header,
)
from smoothcert.datasets.published import candidate_places, missing_files
from smoothcert.errors import DataError
from smoothcert.extras import require
from smoothcert.files import MOST_TEXT, check_expansion, read_file


@PATH_FORMS.register("folder")
def load_image_folder(path: Path, split: str) -> Dataset:
    """Images from ``path/CLASS/``, classes in order of their names; inputs are CHW in [0, 1].

    With ``path/train/`` and ``path/test/`` (or ``val/``) those hold the class folders of the splits, and the
    classes are those of either, so that a label means the same in both; otherwise ``path`` itself serves as
    the split asked for. Files whose suffix isn't that of an image are passed over. All images must have
    one size. If every one is grey there is one channel, else all become RGB; transparency is dropped.
    """
    if not path.is_dir():
        raise DataError(f"folder:{path}: expected a folder with a subfolder per class, found no such folder")
    train, test = (
        next((path / folder for folder in folders if (path / folder).is_dir()), None)
        for folders in (("train",), ("test", "val"))
    )
    folder, siblings = path, [path]
    if train is not None and test is not None:
        folder, siblings = train if split == "train" else test, [train, test]
    classes = tuple(sorted({entry.name for sibling in siblings for entry in class_folders(sibling)}))
    if not classes:
        raise DataError(f"folder:{path}: expected one subfolder per class in {folder}, found none")
    files: list[Path] = []
    labels: list[int] = []
    for class_folder in class_folders(folder):
        images = image_names(class_folder)
        if not images:
            raise DataError(
                f"{class_folder}: expected images ({', '.join(sorted(SUFFIXES))}) of one class, found none; "
                "the layout is PATH/CLASS/image, or PATH/train/CLASS/image with PATH/test/CLASS/image"
            )
        files += [class_folder / name for name in images]
        labels += [classes.index(class_folder.name)] * len(images)
    return Dataset(f"folder:{path}", _read_images(files), np.array(labels, np.int64), classes, scale=1 / 255)


def _read_images(files: Sequence[Path]) -> NDArray[np.uint8]:
    if not files:
        return np.empty((0, 1, 1, 1), np.uint8)
    require("PIL.Image", "a folder of images")
    headers = [read_header(file) for file in files]
    width, height = expected = headers[0].size
    for file, header in zip(files, headers):
        if header.size != expected:
            raise DataError(
                f"{file}: expected {width}x{height} like {files[0]}, found {header.size[0]}x{header.size[1]}; "
                "all images must have one size, so resize or crop them first"
            )
        check_eight_bits(file, header.mode)
    mode = "L" if all(header.mode in GREY_MODES for header in headers) else "RGB"
    claimed, stored = len(files) * len(mode) * height * width, sum(file.stat().st_size for file in files)
    check_expansion(f"{files[0].parent} and its like", claimed, stored)
    images = np.empty((len(files), len(mode), height, width), np.uint8)
    for index, file in enumerate(files):
        with opened(file) as image:
            images[index] = channels_first(converted(image, mode))
    return images


IMAGENET_RECIPE = CentreCrop(shorter=256, side=224)
NAMES_FILE = "LOC_synset_mapping.txt"

_FOLDERS = {"train": "train", "test": "val"}
_WNID = re.compile(r"n\d{8}")


@DATASETS.register("imagenet")
def load_imagenet(split: str, root: Path | None) -> Dataset:
    """ImageNet; inputs are 3x224x224 in [0, 1]: shorter side to 256, then the middle.

    Looks for ``train/nXXXXXXXX/`` and ``val/nXXXXXXXX/`` in ``imagenet/`` and the root itself; the test split
    is ``val``. Labels count the WordNet ids in order: those in ``LOC_synset_mapping.txt``, if it lies beside
    the two folders, else those that are a folder of either split. So with that file labels agree with
    published networks even where only some of the classes are on disk. The file names the classes as well.
    """
    require("PIL.Image", "the imagenet data set")
    folder = _FOLDERS[split]
    places = candidate_places(root, ("imagenet",))
    place = next((place for place in places if (place / folder).is_dir()), None)
    if place is None:
        raise missing_files("imagenet", f"folder {folder}/ with one folder per class", places)
    present = {name: _wnids(place / name) for name in _FOLDERS.values() if (place / name).is_dir()}
    if not present[folder]:
        raise DataError(
            f"{place / folder}: expected one folder per class, such as n01440764, found none; "
            "sort the images into folders named by the WordNet id of their class"
        )
    readable = _read_names(place / NAMES_FILE)
    wnids = sorted(readable or {wnid for folder_wnids in present.values() for wnid in folder_wnids})
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    files: list[str] = []
    labels: list[int] = []
    for wnid in present[folder]:
        if wnid not in label_of:
            raise DataError(
                f"{place / folder}: expected the classes listed in {place / NAMES_FILE}, "
                f"found {wnid}, which isn't; add it there, or remove its folder"
            )
        images = image_names(place / folder / wnid)
        if not images:
            raise DataError(
                f"{place / folder / wnid}: expected images of one class, found none; unpack them or remove the folder"
            )
        files += [f"{folder}/{wnid}/{image}" for image in images]
        labels += [label_of[wnid]] * len(images)
    # ImageNet has two cranes, the bird and the machine: names that several classes share carry the id.
    uses = Counter(readable.values())
    named = ((wnid, readable.get(wnid)) for wnid in wnids)
    classes = tuple(wnid if n is None else n if uses[n] == 1 else f"{n} ({wnid})" for wnid, n in named)
    stored = LazyImages.of(place, files, IMAGENET_RECIPE)
    return Dataset("imagenet", stored, np.array(labels, np.int64), classes, scale=1 / 255)


def _wnids(folder: Path) -> list[str]:
    names = [entry.name for entry in class_folders(folder)]
    odd = next((name for name in names if not _WNID.fullmatch(name)), None)
    if odd is not None:
        raise DataError(
            f"{folder}: expected folders named by WordNet ids, such as n01440764, found {odd!r}; "
            "rename it or move it elsewhere"
        )
    return names


def _read_names(file: Path) -> dict[str, str]:
    """The first readable name of each WordNet id in a file of lines such as ``n02012849 crane``."""
    if not file.is_file():
        return {}
    try:
        lines = read_file(file, MOST_TEXT).decode().splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected text in UTF-8, found {error}; fetch it again") from error
    names: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        wnid, _, synonyms = line.strip().partition(" ")
        name = synonyms.partition(",")[0].strip()
        if not _WNID.fullmatch(wnid) or not name:
            raise DataError(
                f"{file}, line {number}: expected a WordNet id and names, such as 'n01440764 tench', "
                f"found {line!r}; fix the line or remove the file"
            )
        if wnid in names:
            raise DataError(f"{file}, line {number}: expected each WordNet id once, found {wnid} twice")
        names[wnid] = name
    return names


KITTI_CLASSES = ("Car", "Van", "Truck", "Pedestrian", "Person_sitting", "Cyclist", "Tram", "Misc")
KITTI_RECIPE = Squeeze(side=224)

_IMAGES, _LABELS = "training/image_2", "training/label_2"
_IGNORED = "DontCare"
_COLUMNS = 15
_SPLIT_SEED = 0
_FILE_NAME = re.compile(r"(\d{6})\.png")


@DATASETS.register("kitti")
def load_kitti(split: str, root: Path | None) -> Dataset:
    """KITTI by dominant class, as in the paper on non-uniform noise; inputs are 3x224x224 in [0, 1].

    Looks for ``training/image_2/`` and ``training/label_2/`` in ``kitti/``, ``KITTI/``, ``Kitti/raw/`` and the
    root itself. The label of an image is the type that most of its objects have; of types that occur equally
    often, the one earlier in ``KITTI_CLASSES``. Images without an object (DontCare is none) are left out. The paper
    says only that images are resized to 224x224: the whole image is, bilinear with antialiasing, which
    distorts it. KITTI's own test images have no labels, so a fixed tenth of the training ones is the test
    split; it depends on nothing but which images are there and have an object.
    """
    require("PIL.Image", "the kitti data set")
    places = candidate_places(root, ("kitti", "KITTI", "Kitti/raw"))
    place = next((place for place in places if (place / _IMAGES).is_dir()), None)
    if place is None:
        raise missing_files("kitti", f"{_IMAGES}/ beside {_LABELS}/", places)
    matches = filter(None, (_FILE_NAME.fullmatch(entry.name) for entry in (place / _IMAGES).iterdir()))
    labels = {name: _dominant_class(place, name) for name in sorted(match[1] for match in matches)}
    usable = [name for name, label in labels.items() if label is not None]
    if len(usable) < 2:
        raise DataError(
            f"{place / _IMAGES}: expected two or more images with an object, to split into train and test, "
            f"found {len(usable)}; unpack both the images and the labels of the object detection task"
        )
    # RandomState, unlike Generator, is promised to give the same numbers in every version of numpy.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(usable))
    train = len(usable) * 9 // 10
    chosen = [usable[place] for place in sorted(order[:train] if split == "train" else order[train:])]
    stored = LazyImages.of(place, [f"{_IMAGES}/{name}.png" for name in chosen], KITTI_RECIPE)
    chosen_labels = np.array([labels[name] for name in chosen], np.int64)
    return Dataset("kitti", stored, chosen_labels, KITTI_CLASSES, scale=1 / 255)


def _dominant_class(place: Path, name: str) -> int | None:
    file = place / _LABELS / f"{name}.txt"
    try:
        lines = read_file(file, MOST_TEXT).decode().splitlines()
    except FileNotFoundError as error:
        raise DataError(
            f"{file}: expected the labels of image {name}.png, found no such file; "
            f"unpack the labels into {_LABELS}/"
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: expected lines of text, found {error}; fetch it again") from error
    types = [_type_of(file, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    counts = Counter(KITTI_CLASSES.index(kind) for kind in types if kind != _IGNORED)
    return min(counts, key=lambda label: (-counts[label], label), default=None)


def _type_of(file: Path, number: int, line: str) -> str:
    kind, *values = line.split()
    try:
        columns = 1 + len(np.array(values, dtype=np.float64))
    except ValueError:
        columns = 0
    if columns != _COLUMNS:
        raise DataError(
            f"{file}, line {number}: expected {_COLUMNS} columns, a type and {_COLUMNS - 1} numbers, "
            f"found {line!r}; fetch the labels again"
        )
    if kind not in (*KITTI_CLASSES, _IGNORED):
        raise DataError(
            f"{file}, line {number}: expected a type among {', '.join((*KITTI_CLASSES, _IGNORED))}, found {kind!r}; "
            "fix the line or fetch the labels again"
        )
    return kind
