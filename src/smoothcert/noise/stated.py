"""The noise of a run: its plan names it, and a file beside it holds the scales that a plan is too small for."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import DataError, RunError
from smoothcert.files import write_atomically
from smoothcert.noise.base import NOISES, Noise
from smoothcert.noise.diagonal import DIAGONAL_NOISES, DiagonalNoise, sigmas_sha256
from smoothcert.npy import load_npy

SIGMAS_FILE = "sigmas.npy"


def save_sigmas(directory: Path, noise: Noise) -> None:
    """Write the σ vector of a diagonal noise beside a run's statement; other noises need no file.

    A vector that is there already must be the same: results of two noises don't belong in one run.
    """
    if not isinstance(noise, DiagonalNoise):
        return
    path = directory / SIGMAS_FILE
    if path.exists():
        _check_hash(path, load_sigmas(path), noise.sha256)
        return
    write_sigmas(path, noise.sigmas)


def write_sigmas(path: Path, sigmas: NDArray[np.float64]) -> None:
    """Write a σ vector as a .npy file, whole or not at all."""
    content = io.BytesIO()
    np.save(content, sigmas, allow_pickle=False)
    write_atomically(path, content.getvalue())


def load_sigmas(path: Path) -> NDArray[np.float64]:
    """A σ vector from a .npy file of real numbers, as float64."""
    try:
        values = load_npy(path)
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


def stated_noise(plan: Mapping[str, Any], directory: Path) -> Noise:
    """The noise that a plan's JSON states; a diagonal one's scales are read from the run directory and verified."""
    name = plan["noise"]
    if name in DIAGONAL_NOISES:
        path = directory / SIGMAS_FILE
        sigmas = load_sigmas(path)
        _check_hash(path, sigmas, plan["sigmas_sha256"])
        return DIAGONAL_NOISES[name](sigmas)
    # NOISES holds dataclasses whose one field is sigma.
    return NOISES[name](plan["sigma"])  # type: ignore[call-arg]


def _check_hash(path: Path, sigmas: NDArray[np.float64], stated: str) -> None:
    found = sigmas_sha256(sigmas)
    if found != stated:
        raise RunError(
            f"{path} isn't the vector that the run states (SHA-256 {found[:12]}…, stated {stated[:12]}…): the file was "
            "replaced or is damaged; restore it or choose another directory"
        )
