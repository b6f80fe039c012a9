"""What searches found, kept beside a run's journal: a line of JSON for each input."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from smoothcert.errors import RunError, SmoothcertError
from smoothcert.files import make_folder
from smoothcert.noise import DIAGONAL_NOISES, DiagonalNoise, load_sigmas, write_sigmas
from smoothcert.runs.json_lines import append_sealed, read_sealed
from smoothcert.runs.layout import RunFiles
from smoothcert.sigma_search.base import SearchResult


def append_found(directory: Path, found: SearchResult) -> None:
    """Add a line and wait until it is on disk: a record that counts has its line.

    The scales of an input that has one for each coordinate go to ``sigmas/INDEX.npy`` before.
    """
    files = RunFiles(directory)
    if found.noise is not None:
        make_folder(files.searched_sigmas)
        write_sigmas(files.sigmas_of(found.index), found.noise.sigmas)
    append_sealed(files.searches, found.as_json())


def read_found(directory: Path) -> dict[int, SearchResult]:
    """Every input's search by index, without those whose line was cut off or damaged, or whose scales are.

    An input whose record has no search is searched again.
    """
    files = RunFiles(directory)
    files.refuse_link()
    found: dict[int, SearchResult] = {}
    for fields in read_sealed(files.searches):
        try:
            name, scales = fields.pop("noise", None), fields.pop("sigmas_sha256", None)
            one = SearchResult(**fields)
            if type(one.index) is not int or one.index < 0:  # it names a file
                continue
        except (ValueError, TypeError, AttributeError):
            continue
        if scales is not None and isinstance(name, str):
            try:
                one = replace(one, noise=_read_noise(files, one.index, name, scales))
            except SmoothcertError:
                found.pop(one.index, None)
                continue
        found[one.index] = one
    return found


def in_words(found: list[SearchResult], start: float) -> str:
    """How many inputs moved, how many kept σ₀ and why."""
    reasons = Counter(one.reason for one in found)
    moved = [one.sigma for one in found if one.reason in ("improved", "unchecked")]
    kept = ", ".join(
        f"{count} {reason}"
        for reason, count in reasons.most_common()
        if reason not in ("improved", "unchecked")
    )
    span = f" to σ = {min(moved):.3g} … {max(moved):.3g}" if moved else ""
    return f"σ search: {len(moved)} of {len(found)} inputs moved{span}; σ = {start:g} kept: {kept or 'none'}"


def _read_noise(files: RunFiles, index: int, name: str, sha256: str) -> DiagonalNoise:
    path = files.sigmas_of(index)
    noise = DIAGONAL_NOISES[name](load_sigmas(path))
    if noise.sha256 != sha256:
        raise RunError(
            f"{path} isn't the vector that {files.searches.name} states for input {index}; restore it"
        )
    return noise
