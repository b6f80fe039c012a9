"""The data sets' published files: where they are on the web and on disk, their sizes and their SHA-256.

Every hash was compared in two independent lists: the checksums of TensorFlow Datasets and the prototype data sets of
torchvision (MNIST, Fashion-MNIST, SVHN), torchvision-rb for CIFAR-10's archive.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from smoothcert.errors import DataError
from smoothcert.files import read_file
from smoothcert.plain_text import command

DEBIAN_PLACE = Path("/usr/share/datasets/fashion-mnist")
"""Where the Debian and Ubuntu package dataset-fashion-mnist puts its files."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that is what it claims to be if size and hash are these, wherever it came from."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Publication:
    """A data set's files as they are published, and the folders of a data directory that readers look into.

    ``members``, where there are any, are the files of the one archive that readers want, with their sizes. ``zipped``
    is the zip archive, of unknown hash, in which mirrors have the files.
    """

    name: str
    folders: tuple[str, ...]
    files: tuple[PublishedFile, ...]
    mirrors: tuple[str, ...]
    members: tuple[tuple[str, int], ...] = ()
    system_places: tuple[Path, ...] = ()
    zipped: str | None = None

    @property
    def folder(self) -> str:
        """The folder that fetched files are put into: the one that is looked into first."""
        return self.folders[0]

    @property
    def installed(self) -> tuple[str, ...]:
        """Names of the files that are there once the data set is."""
        if self.members:
            return tuple(path.rpartition("/")[2] for path, _ in self.members)
        return tuple(file.name for file in self.files)

    @property
    def size(self) -> int:
        """Bytes to fetch."""
        return sum(file.size for file in self.files)


def _files(table: str) -> tuple[PublishedFile, ...]:
    return tuple(
        PublishedFile(name, int(size), digest)
        for name, size, digest in map(str.split, table.split("\n")[1:-1])
    )


MNIST = Publication(
    "mnist",
    folders=("mnist", "MNIST/raw"),
    files=_files(
        """
        train-images-idx3-ubyte.gz 9912422 440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609
        train-labels-idx1-ubyte.gz 28881 3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c
        t10k-images-idx3-ubyte.gz 1648877 8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6
        t10k-labels-idx1-ubyte.gz 4542 f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6
        """
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)

FASHION_MNIST = Publication(
    "fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    files=_files(
        """
        train-images-idx3-ubyte.gz 26421880 3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84
        train-labels-idx1-ubyte.gz 29515 a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845
        t10k-images-idx3-ubyte.gz 4422102 346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073
        t10k-labels-idx1-ubyte.gz 5148 67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5
        """
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    system_places=(DEBIAN_PLACE,),
)

# Hashes of the single binary batches are not published: they are trusted because the archive's is.
CIFAR10 = Publication(
    "cifar10",
    folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
    files=_files(
        """
        cifar-10-binary.tar.gz 170052171 c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd
        """
    ),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
    ),
    members=tuple(
        (f"cifar-10-batches-bin/{batch}.bin", 30730000)
        for batch in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
    ),
)

CIFAR10_PICKLES = {
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    "test_batch": "40351d587109b95175f43aff81a1287e",
}
"""MD5 of the batches of the Python version (31 MB each), as torchvision lists them."""

SVHN = Publication(
    "svhn",
    folders=("svhn", "SVHN"),
    files=_files(
        """
        train_32x32.mat 182040794 435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8
        test_32x32.mat 64275384 cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b
        """
    ),
    mirrors=("http://ufldl.stanford.edu/housenumbers/",),
)

# UCI publishes the table inside bank.zip alone, whose hash is not published: the table's own was taken from a copy.
BANK = Publication(
    "bank",
    folders=("bank",),
    files=_files(
        """
        bank.csv 461474 dc8d576e9bda0f41ee891251bd84bab9a39ce576cba715aac08adc2374a01fde
        """
    ),
    mirrors=("https://archive.ics.uci.edu/ml/machine-learning-databases/00222/",),
    zipped="bank.zip",
)

PUBLICATIONS = {each.name: each for each in (MNIST, FASHION_MNIST, CIFAR10, SVHN, BANK)}


DATA_VARIABLE = "SMOOTHCERT_DATA"


def candidate_places(
    root: Path | None, subfolders: Sequence[str], system_places: Sequence[Path] = ()
) -> list[Path]:
    """The folders to look in, in order: ``subfolders`` of the root, the root itself, the system's.

    The root is ``root`` or, without one, what ``SMOOTHCERT_DATA`` names. An explicit root is the only place
    looked at: finding other data elsewhere would certify something the user didn't ask for.
    """
    named = root if root is not None else os.environ.get(DATA_VARIABLE)
    if not named:
        return list(system_places)
    base = Path(named).expanduser()
    inside = [*(base / subfolder for subfolder in subfolders), base]
    return inside if root is not None else [*inside, *system_places]


def read_published(path: Path, size: int, algorithm: str, digest: str) -> bytes:
    """The content of a file whose hash is the published one; DataError for any other, before anything parses it.

    MD5 is good enough here: collisions are easy to make, but a second file with the hash of a given one is not.
    """
    content = read_file(path, 2 * size)
    actual = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
    if actual != digest:
        raise DataError(
            f"{path}: its {algorithm.upper()} is {actual[:12]}…, that of the published file is {digest[:12]}…. Only "
            "the published file is read in this format: fetch it again, or keep other images in an .npz file (npz:PATH)"
        )
    return content


def missing_files(name: str, wanted: str, places: Sequence[Path]) -> DataError:
    """The error for a data set that is in none of the places."""
    looked = "; ".join(str(place) for place in places) or f"nowhere, as {DATA_VARIABLE} is not set"
    command_line = command("data", "fetch", name, data_dir="data")
    fetch = f"; or fetch them: `{command_line}`" if name in PUBLICATIONS else ""
    return DataError(
        f"{name}: found no {wanted}. Looked in: {looked}. Name the folder that holds the files with --data-dir or the "
        f"environment variable {DATA_VARIABLE}{fetch}"
    )
