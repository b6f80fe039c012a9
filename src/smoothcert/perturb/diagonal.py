"""Noise with a scale for each coordinate (Tecot et al., *non-uniform* smoothing), and files of scales.

Files are NumPy's, with a checksum in the header that other readers pass over.
"""

from __future__ import annotations

import hashlib
import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, InvalidValueError, RunError
from smoothcert.files import opened_file, write_atomically
from smoothcert.npy import load_npy
from smoothcert.perturb.base import Noise
from smoothcert.perturb.grid import Grid, steps_per_unit, steps_to_a_sigma
from smoothcert.perturb.sampler import MOST_TABLES
from smoothcert.registry import Registry


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalNoise(Noise):
    """Independent coordinates, ``sigmas`` their standard deviations, in the shape of the input.

    A constant vector *is* the isotropic noise: it draws the same bits. Equal vectors make equal noises.
    """

    stretched: ClassVar[bool] = True
    sigmas: NDArray[np.float64]
    """The standard deviations, in the shape of an input."""

    def __post_init__(self) -> None:
        sigmas = np.array(self.sigmas, dtype=np.float64)
        bad = np.argwhere(~(np.isfinite(sigmas) & (sigmas > 0)))
        if not sigmas.size:
            raise InvalidValueError("sigmas must hold a number for each input dimension, got none")
        if len(bad):
            where = tuple(int(i) for i in bad[0])
            raise InvalidValueError(
                f"sigmas must be positive and finite, got {sigmas[where]} at position {where} "
                f"({len(bad)} of {sigmas.size} are bad)"
            )
        sigmas.setflags(write=False)
        object.__setattr__(self, "sigmas", sigmas)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and np.array_equal(self.sigmas, other.sigmas)

    def __repr__(self) -> str:
        between = f"{self.smallest_sigma:.4g} to {self.largest_sigma:.4g}"
        return f"{type(self).__name__}({self.sigmas.size} scales from {between})"

    def __hash__(self) -> int:
        return hash((self.name, self.sha256))

    @cached_property
    def sigma(self) -> float:
        """Geometric mean of the σ_i; of equal ones exactly the one."""
        if self.smallest_sigma == self.largest_sigma:
            return self.smallest_sigma
        mean = math.exp(math.fsum(np.log(self.sigmas).ravel().tolist()) / self.sigmas.size)
        return min(max(mean, self.smallest_sigma), self.largest_sigma)

    @cached_property
    def smallest_sigma(self) -> float:
        """The smallest σ_i."""
        return float(self.sigmas.min())

    @cached_property
    def largest_sigma(self) -> float:
        """The largest σ_i."""
        return float(self.sigmas.max())

    @cached_property
    def sha256(self) -> str:
        """Names the vector: a hash of its shape and its float64 values."""
        return sigmas_sha256(self.sigmas)

    def describe(self) -> dict[str, Any]:
        """Name and geometric mean as of any noise; then what tells this vector from every other."""
        return {
            "noise": self.name,
            "sigma": self.sigma,
            "sigmas_sha256": self.sha256,
            "least_sigma": self.smallest_sigma,
            "dimension": self.sigmas.size,
        }

    @classmethod
    def stated(cls, plan: Mapping[str, Any]) -> Self:
        """Refused: a plan is too small for all scales, which lie in a file beside it."""
        raise InvalidValueError(f"the scales of {plan['noise']} noise aren't in its plan")

    def check_shape(self, input_shape: tuple[int, ...]) -> None:
        """Refuse inputs that don't have a σ for each coordinate."""
        if tuple(input_shape) != self.sigmas.shape:
            raise InvalidValueError(
                f"the noise has sigmas of shape {self.sigmas.shape}, the inputs have shape {tuple(input_shape)}: "
                "give a sigma for each coordinate of an input"
            )

    def scales(self) -> NDArray[np.float64]:
        """The σ_i."""
        return self.sigmas

    def drawable(self, grid: Grid) -> Self:
        """The noise itself, or where its scales need more tables than a sampler has, with scales a little smaller.

        Scales are rounded down to equal parts of an octave of steps.
        """
        steps = steps_per_unit(self.sigmas, grid)
        if len(steps_to_a_sigma(self.sigmas, steps)[0]) <= MOST_TABLES:
            return self
        ratios = self.sigmas * steps
        octaves = np.floor(np.log2(ratios / grid.cells)).clip(0)
        parts = MOST_TABLES // (int(octaves.max()) + 1)
        unit = grid.cells * 2.0**octaves
        rounded = unit * (1 + np.floor((ratios / unit - 1) * parts).clip(0, parts - 1) / parts)
        return type(self)(rounded / steps)


def sigmas_sha256(sigmas: NDArray[np.float64]) -> str:
    """SHA-256 of a σ vector's shape and its values as little-endian float64."""
    digest = hashlib.sha256(repr(tuple(sigmas.shape)).encode())
    digest.update(np.ascontiguousarray(sigmas, dtype="<f8").tobytes())
    return digest.hexdigest()


DIAGONAL_NOISES: Registry[type[DiagonalNoise]] = Registry("noise with scales for each dimension", __package__)


def diagonal_noise(kind: str, sigmas: NDArray[np.float64]) -> DiagonalNoise:
    """Noise of that kind, named as with one scale, with a scale for each coordinate."""
    return DIAGONAL_NOISES[f"diagonal-{kind}"](sigmas)


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
        raise RunError(f"{path} is missing: it holds the noise's scales; restore it") from None
    except DataError as error:
        raise RunError(str(error)) from None
    except ValueError as error:
        raise RunError(f"{path} is not an .npy file of numbers ({error}); restore it") from None
    if values.dtype.kind not in "iuf":
        raise RunError(f"{path} must hold one array of real numbers")
    return values.astype(np.float64)
