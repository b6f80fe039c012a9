"""--noise on the command line: gaussian or uniform, or a σ vector that fit-noise found or a file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from smoothcert.errors import InvalidValueError

if TYPE_CHECKING:
    from smoothcert.noise import DiagonalNoise
    from smoothcert.smoothing import SmoothedClassifier


def named_diagonal(text: str, sigma: float | None) -> DiagonalNoise | None:
    """The noise of a FIT directory or a .npy file (``uniform:FILE.npy`` for uniform noise); None for a plain name.

    ``sigma`` must be left out: the vector is complete, and scaling it would give another noise than the fitted one.
    """
    from smoothcert.noise import DEFAULT_NOISE, NOISES, diagonal_noise, load_sigmas
    from smoothcert.noise_fit import finished_fit
    from smoothcert.registry import unknown_name
    from smoothcert.runs.layout import RunFiles

    if text in NOISES:
        return None
    kind, colon, rest = text.partition(":")
    stated = bool(colon) and kind in NOISES
    path, kind = (Path(rest), kind) if stated else (Path(text), DEFAULT_NOISE)
    if not path.exists():
        raise unknown_name("noise, fit directory or .npy file", text, [*NOISES.names(), "FIT", "FILE.npy"])
    if sigma is not None:
        raise InvalidValueError(
            f"--sigma {sigma:g} and --noise {text} are two answers to one question: leave --sigma out. For the same "
            f"shape at another scale, save a multiple of its {RunFiles.sigmas.name} and give that file"
        )
    if path.is_dir():
        noise = finished_fit(path).noise
        if stated and noise is not None and noise.kind != kind:
            raise InvalidValueError(
                f"{path} was fitted with {noise.name} noise, not {kind}: leave the prefix out, or fit with --noise "
                f"{kind}"
            )
        return noise
    return diagonal_noise(kind, load_sigmas(path))


def foreign_fit(text: str, classifier: SmoothedClassifier, input_shape: tuple[int, ...]) -> str | None:
    """A sentence if the fit was made for another model: its vector is as sound as any, but not this model's best."""
    from smoothcert.noise import NOISES
    from smoothcert.noise_fit import read_fit

    if text in NOISES:
        return None
    classifier.prepare(input_shape)
    path, base = Path(text), classifier.base
    if not path.is_dir() or (fitted := read_fit(path).manifest.model).sha256 == base.fingerprint(input_shape):
        return None
    return (
        f"{text} was fitted for another model ({fitted.name}): certificates hold, but the noise may not suit this "
        f"{base.name}"
    )
