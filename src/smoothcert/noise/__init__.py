"""Noise: a frozen description of the distribution added to an input, in the units of that input."""

from smoothcert.noise.base import NOISES, Noise
from smoothcert.noise.diagonal import (
    DIAGONAL_NOISES,
    DiagonalGaussian,
    DiagonalNoise,
    DiagonalUniform,
    diagonal_noise,
    sigmas_sha256,
)
from smoothcert.noise.grid import (
    Grid,
    GridNoise,
    GridPoint,
    draw_unit,
    drawable,
    exact_type,
    on_grid,
    same_to_precision,
    sampler_error,
)
from smoothcert.noise.isotropic import Gaussian, Uniform
from smoothcert.noise.stated import (
    SIGMAS_FILE,
    load_sigmas,
    save_sigmas,
    sigmas_files,
    stated_noise,
    write_sigmas,
)

__all__ = [
    "DIAGONAL_NOISES",
    "NOISES",
    "SIGMAS_FILE",
    "DiagonalGaussian",
    "DiagonalNoise",
    "DiagonalUniform",
    "Gaussian",
    "Grid",
    "GridNoise",
    "GridPoint",
    "Noise",
    "Uniform",
    "diagonal_noise",
    "draw_unit",
    "drawable",
    "exact_type",
    "load_sigmas",
    "on_grid",
    "same_to_precision",
    "sampler_error",
    "save_sigmas",
    "sigmas_files",
    "sigmas_sha256",
    "stated_noise",
    "write_sigmas",
]
