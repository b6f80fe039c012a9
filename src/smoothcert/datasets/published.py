"""The data sets' published files: where they lie in the net and on disk, their sizes and their SHA-256.

Every hash was compared in two independent lists: the checksums of TensorFlow Datasets and the prototype data sets of
torchvision (MNIST, Fashion-MNIST, SVHN), torchvision-rb for CIFAR-10's archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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

    ``members``, where there are any, are the files of the one archive that readers want, with their sizes.
    """

    name: str
    folders: tuple[str, ...]
    files: tuple[PublishedFile, ...]
    mirrors: tuple[str, ...]
    members: tuple[tuple[str, int], ...] = ()
    system_places: tuple[Path, ...] = ()

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


MNIST = Publication(
    "mnist",
    folders=("mnist", "MNIST/raw"),
    files=(
        PublishedFile(
            "train-images-idx3-ubyte.gz",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        ),
        PublishedFile(
            "train-labels-idx1-ubyte.gz",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        ),
        PublishedFile(
            "t10k-images-idx3-ubyte.gz",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        ),
        PublishedFile(
            "t10k-labels-idx1-ubyte.gz",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)

FASHION_MNIST = Publication(
    "fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    files=(
        PublishedFile(
            "train-images-idx3-ubyte.gz",
            26421880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        ),
        PublishedFile(
            "train-labels-idx1-ubyte.gz",
            29515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        ),
        PublishedFile(
            "t10k-images-idx3-ubyte.gz",
            4422102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        ),
        PublishedFile(
            "t10k-labels-idx1-ubyte.gz",
            5148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
    ),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
    system_places=(DEBIAN_PLACE,),
)

# Hashes of the single batches aren't known from two sources: they are trusted because the archive's is.
CIFAR10 = Publication(
    "cifar10",
    folders=("cifar-10-batches-bin", "cifar-10-batches-py"),
    files=(
        PublishedFile(
            "cifar-10-binary.tar.gz",
            170052171,
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
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

SVHN = Publication(
    "svhn",
    folders=("svhn", "SVHN"),
    files=(
        PublishedFile(
            "train_32x32.mat",
            182040794,
            "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        ),
        PublishedFile(
            "test_32x32.mat",
            64275384,
            "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        ),
    ),
    mirrors=("http://ufldl.stanford.edu/housenumbers/",),
)

PUBLICATIONS = {each.name: each for each in (MNIST, FASHION_MNIST, CIFAR10, SVHN)}
