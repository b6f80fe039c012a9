"""The noise of a run: its plan names it, and a file beside it holds the scales that a plan is too small for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from smoothcert.errors import RunError
from smoothcert.noise import (
    DIAGONAL_NOISES,
    NOISES,
    DiagonalNoise,
    Noise,
    encoded_sigmas,
    load_sigmas,
    sigmas_sha256,
    write_sigmas,
)
from smoothcert.runs.layout import RunFiles


def save_sigmas(directory: Path, noise: Noise) -> None:
    """Write the σ vector of a diagonal noise beside a run's statement; other noises need no file.

    A vector that is there already must be the same: results of two noises don't belong in one run.
    """
    path = RunFiles(directory).sigmas
    if not isinstance(noise, DiagonalNoise):
        return
    if path.exists():
        _check_hash(path, load_sigmas(path), noise.sha256)
    else:
        write_sigmas(path, noise.sigmas)


def sigmas_files(noise: Noise) -> dict[str, bytes]:
    """The file that :func:`save_sigmas` writes, by name; none where the noise needs none."""
    return {RunFiles.sigmas.name: encoded_sigmas(noise.sigmas)} if isinstance(noise, DiagonalNoise) else {}


def stated_noise(name: str, sigma: float | None, sha256: str | None, directory: Path) -> Noise:
    """The noise that a run states; a diagonal one's scales are read from the run directory and verified."""
    if name in DIAGONAL_NOISES:
        if sha256 is None:
            raise RunError(f"{directory} doesn't state the SHA-256 of its noise's scales; certify again")
        path = RunFiles(directory).sigmas
        sigmas = load_sigmas(path)
        _check_hash(path, sigmas, sha256)
        return DIAGONAL_NOISES[name](sigmas)
    if sigma is None:
        raise RunError(f"{directory} doesn't state the sigma of its noise; certify again")
    return NOISES[name](sigma)


def _check_hash(path: Path, sigmas: NDArray[np.float64], stated: str) -> None:
    found = sigmas_sha256(sigmas)
    if found != stated:
        raise RunError(
            f"{path} isn't the vector that the run states (SHA-256 {found[:12]}…, stated {stated[:12]}…): the file was "
            "replaced or is damaged; restore it or choose another directory"
        )
