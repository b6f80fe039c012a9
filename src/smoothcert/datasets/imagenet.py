"""ImageNet (ILSVRC 2012): colour photographs in one folder per class, decoded when they are taken."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.datasets.image_files import class_folders, image_names
from smoothcert.datasets.lazy_images import CentreCrop, LazyImages
from smoothcert.datasets.places import candidate_places, missing_files
from smoothcert.errors import DataError
from smoothcert.extras import require
from smoothcert.files import MOST_TEXT, read_file

RECIPE = CentreCrop(shorter=256, side=224)
NAMES_FILE = "LOC_synset_mapping.txt"

_FOLDERS = {"train": "train", "test": "val"}
_WNID = re.compile(r"n\d{8}")


@DATASETS.register("imagenet")
def load_imagenet(split: str, root: Path | None) -> Dataset:
    """ImageNet; inputs are 3x224x224 in [0, 1]: shorter side to 256, then the middle.

    Looks for ``train/nXXXXXXXX/`` and ``val/nXXXXXXXX/`` in ``imagenet/`` and the root itself; the test split
    is ``val``. Labels count the WordNet ids in order: those in ``LOC_synset_mapping.txt``, if it lies beside
    the two folders, else those that are a folder of either split. So with that file labels agree with
    published networks even where only some of the classes are on disk. The file names the classes too.
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
    wnids = sorted(readable or {wnid for found in present.values() for wnid in found})
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
    classes = _unique_names(wnids, readable) if readable else tuple(wnids)
    stored = LazyImages.of(place, files, RECIPE)
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
                f"found {line!r}; mend the line or remove the file"
            )
        if wnid in names:
            raise DataError(
                f"{file}, line {number}: expected each WordNet id once, found {wnid} again; remove the line"
            )
        names[wnid] = name
    return names


def _unique_names(wnids: Sequence[str], readable: dict[str, str]) -> tuple[str, ...]:
    # ImageNet has two cranes, the bird and the machine: names that several classes share carry the id.
    uses = Counter(readable.values())
    return tuple(
        readable[wnid] if uses[readable[wnid]] == 1 else f"{readable[wnid]} ({wnid})" for wnid in wnids
    )
