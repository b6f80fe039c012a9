"""The noise of a run: its plan names it, and a file beside it holds the scales that a plan is too small for."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, RunError
from smoothcert.files import opened_file, write_atomically
from smoothcert.noise.base import NOISES, Noise
from smoothcert.noise.diagonal import DIAGONAL_NOISES, DiagonalNoise
from smoothcert.noise.diagonal import sigmas_sha256 as sha256_of
from smoothcert.npy import load_npy

SIGMAS_FILE = "sigmas.npy"

# A header is a Python literal, in which a comment may stand; files that others made have none.
_COMMENT = b"# sha256 "
_COMMENTED = re.compile(rb"# sha256 ([0-9a-f]{64}) *\n")
_LONGEST_HEADER = 10_000


def save_sigmas(directory: Path, noise: Noise) -> None:
    """Write the σ vector of a diagonal noise beside a run's statement; other noises need no file.

    A vector that is there already must be the same: results of two noises don't belong in one run.
    """
    for name, content in sigmas_files(noise).items():
        path = directory / name
        if path.exists():
            assert isinstance(noise, DiagonalNoise)
            _check_hash(path, load_sigmas(path), noise.sha256)
            return
        write_atomically(path, content)


def sigmas_files(noise: Noise) -> dict[str, bytes]:
    """The file that :func:`save_sigmas` writes, by name; none where the noise needs none."""
    return {SIGMAS_FILE: _encoded(noise.sigmas)} if isinstance(noise, DiagonalNoise) else {}


def write_sigmas(path: Path, sigmas: NDArray[np.float64]) -> None:
    """Write a σ vector as a .npy file, whole or not at all."""
    write_atomically(path, _encoded(sigmas))


def _encoded(sigmas: NDArray[np.float64]) -> bytes:
    """A .npy file with the vector's SHA-256 as a comment in its header."""
    content = io.BytesIO()
    np.save(content, sigmas, allow_pickle=False)
    whole = content.getvalue()
    end = whole.index(b"\n") + 1
    literal = whole[10 : end - 1].rstrip() + b"  " + _COMMENT + sha256_of(sigmas).encode()
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
    if found is None or found[1].decode() != sha256_of(values):
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


def stated_noise(name: str, sigma: float | None, sigmas_sha256: str | None, directory: Path) -> Noise:
    """The noise that a run states; a diagonal one's scales are read from the run directory and verified."""
    if name in DIAGONAL_NOISES:
        if sigmas_sha256 is None:
            raise RunError(f"{directory} doesn't state the SHA-256 of its noise's scales; certify again")
        path = directory / SIGMAS_FILE
        sigmas = load_sigmas(path)
        _check_hash(path, sigmas, sigmas_sha256)
        return DIAGONAL_NOISES[name](sigmas)
    if sigma is None:
        raise RunError(f"{directory} doesn't state the sigma of its noise; certify again")
    # NOISES holds dataclasses whose one field is sigma.
    return NOISES[name](sigma)  # type: ignore[call-arg]


def _check_hash(path: Path, sigmas: NDArray[np.float64], stated: str) -> None:
    found = sha256_of(sigmas)
    if found != stated:
        raise RunError(
            f"{path} isn't the vector that the run states (SHA-256 {found[:12]}…, stated {stated[:12]}…): the file was "
            "replaced or is damaged; restore it or choose another directory"
        )
