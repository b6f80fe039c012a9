"""NumPy's .npy files, also inside .npz archives: a header's claim is compared with the bytes before memory is taken."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from smoothcert.errors import DataError
from smoothcert.files import check_expansion, opened_file

_VERSIONS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_STORED, _DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
_MOST_MEMBERS = 10_000


def load_npy(path: Path) -> NDArray[Any]:
    """The array of a .npy file; ValueError if it isn't one, or one of objects, which would have to be unpickled."""
    with opened_file(path) as file:
        return read_npy(file, path.stat().st_size)


def read_npy(stream: IO[bytes], size: int) -> NDArray[Any]:
    """The array in ``size`` bytes of a .npy file; ValueError for any other claim."""
    magic = stream.read(npy_format.MAGIC_LEN)
    if magic[:-2] != npy_format.MAGIC_PREFIX:
        raise ValueError("it doesn't begin as a .npy file does")
    version = (magic[-2], magic[-1])
    if version not in _VERSIONS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format isn't read")
    try:
        shape, fortran, dtype = _VERSIONS[version](stream)
    except Exception as error:  # it is parsed as Python is, which can fail in many ways
        raise ValueError(f"its header can't be read ({type(error).__name__})") from None
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded: they are pickles, which run code when opened")
    # True and False are whole numbers to NumPy's own check.
    if dtype.itemsize == 0 or any(type(side) is not int or side < 0 for side in shape):
        raise ValueError(f"no array has the shape {shape} of {dtype}")
    claimed = math.prod(shape) * dtype.itemsize
    if claimed > size:
        raise ValueError(f"its header claims {claimed} bytes, the file has {size}")
    content = stream.read(claimed + 1)
    if len(content) != claimed:
        raise ValueError(
            f"its header claims {claimed} bytes, it holds {'more' if len(content) > claimed else 'fewer'}"
        )
    flat = np.frombuffer(bytearray(content), dtype)
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)


class NpyArchive:
    """The arrays of an .npz file by name, each read when it is asked for."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path, self._archive = path, archive
        members = archive.infolist()
        if len(members) > _MOST_MEMBERS:
            raise ValueError(f"it has {len(members)} members")
        self._members = {one.filename.removesuffix(".npy"): one for one in members}

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The array; ValueError if it is none, DataError if it is far larger than the bytes it comes from."""
        member = self._members[name]
        if member.compress_type not in (_STORED, _DEFLATED) or member.flag_bits & 1:
            raise ValueError("it is encrypted, or compressed in a way that numpy doesn't")
        check_expansion(f"{self._path}: {name!r}", member.file_size, member.compress_size)
        with self._archive.open(member) as stream:
            return read_npy(stream, member.file_size)


@contextmanager
def opened_npz(path: Path) -> Iterator[NpyArchive]:
    """The archive at ``path``; DataError for what is not an .npz file."""
    with opened_file(path) as file:
        try:
            archive = zipfile.ZipFile(file)
            found = NpyArchive(path, archive)
        except Exception as error:  # a damaged zip can raise nearly any exception
            raise DataError(
                f"{path}: expected an .npz archive, found a truncated or damaged file ({error}); save it again"
            ) from None
        with archive:
            yield found
