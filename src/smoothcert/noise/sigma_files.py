"""Files of σ vectors: NumPy's, with a checksum in the header that other readers pass over."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, RunError
from smoothcert.files import opened_file, write_atomically
from smoothcert.noise.diagonal import sigmas_sha256
from smoothcert.npy import load_npy

# A header is a Python literal, in which a comment may stand; files that others made have none.
_COMMENT = b"# sha256 "
_COMMENTED = re.compile(rb"# sha256 ([0-9a-f]{64}) *\n")
_LONGEST_HEADER = 10_000


def write_sigmas(path: Path, sigmas: NDArray[np.float64]) -> None:
    """Write a σ vector as a .npy file, whole or not at all."""
    write_atomically(path, encoded_sigmas(sigmas))


def encoded_sigmas(sigmas: NDArray[np.float64]) -> bytes:
    """A .npy file with the vector's SHA-256 as a comment in its header."""
    content = io.BytesIO()
    np.save(content, sigmas, allow_pickle=False)
    whole = content.getvalue()
    end = whole.index(b"\n") + 1
    literal = whole[10 : end - 1].rstrip() + b"  " + _COMMENT + sigmas_sha256(sigmas).encode()
    padding = -(10 + len(literal) + 1) % 64  # numpy aligns what follows
    header = literal + b" " * padding + b"\n"
    return whole[:8] + len(header).to_bytes(2, "little") + header + whole[end:]


def _check_comment(path: Path, values: NDArray[np.float64]) -> None:
    """ValueError where the header states another vector's hash."""
    with opened_file(path) as file:
        start = file.read(_LONGEST_HEADER)
    header = start[10 : 10 + int.from_bytes(start[8:10], "little")]
    if b"#" not in header:
        return
    found = _COMMENTED.fullmatch(header[header.index(b"#") :])
    if found is None or found[1].decode() != sigmas_sha256(values):
        raise ValueError("its checksum doesn't match: it was edited or damaged")


def load_sigmas(path: Path) -> NDArray[np.float64]:
    """A σ vector from a .npy file of real numbers, as float64; refused if it isn't what was written."""
    try:
        values = load_npy(path)
        if values.dtype.kind in "iuf":
            _check_comment(path, values.astype(np.float64))
    except FileNotFoundError:
        raise RunError(
            f"{path} is missing: it holds the noise's scale for each dimension; restore it"
        ) from None
    except DataError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"{path} is no .npy file of numbers ({error}); restore it") from None
    if values.dtype.kind not in "iuf":
        raise RunError(f"{path} must hold one array of real numbers")
    return values.astype(np.float64)
