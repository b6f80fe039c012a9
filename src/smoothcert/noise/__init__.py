"""Noise: a frozen description of the distribution added to an input, in the units of that input."""

from smoothcert.noise.base import DEFAULT_NOISE, NOISES, Isotropic, Noise
from smoothcert.noise.diagonal import DIAGONAL_NOISES, DiagonalNoise, diagonal_noise, sigmas_sha256
from smoothcert.noise.gaussian import DiagonalGaussian, Gaussian
from smoothcert.noise.grid import (
    Grid,
    draw_unit,
    drawable,
    exact_type,
    lost_off_grid,
    on_grid,
    same_to_precision,
    sampler_error,
)
from smoothcert.noise.sigma_files import encoded_sigmas, load_sigmas, write_sigmas
from smoothcert.noise.uniform import DiagonalUniform, Uniform

__all__ = [
    "DEFAULT_NOISE",
    "DIAGONAL_NOISES",
    "NOISES",
    "DiagonalGaussian",
    "DiagonalNoise",
    "DiagonalUniform",
    "Gaussian",
    "Grid",
    "Isotropic",
    "Noise",
    "Uniform",
    "diagonal_noise",
    "draw_unit",
    "drawable",
    "encoded_sigmas",
    "exact_type",
    "load_sigmas",
    "lost_off_grid",
    "on_grid",
    "same_to_precision",
    "sampler_error",
    "sigmas_sha256",
    "write_sigmas",
]
