"""What a fitted chooser's directory says of itself: the levels it chooses among, and the noise it was fitted for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothcert.checksums import unsealed
from smoothcert.errors import DataError, InvalidValueError, ModelError
from smoothcert.files import parse_json, read_file
from smoothcert.runs.json_lines import write_sealed
from smoothcert.runs.layout import RunFiles
from smoothcert.sigma_levels.statement import SigmaLevels

_MOST = 1 << 20


def write_chooser_statement(
    directory: Path, sigmas: tuple[float, ...], chooser_sigma: float, about: Mapping[str, Any]
) -> None:
    """State levels and noise beside a chooser's weights, and whatever else is to be known of its fit."""
    fields = {"sigma_levels": list(sigmas), "chooser_sigma": chooser_sigma, **about}
    write_sealed(RunFiles(directory).chooser, fields)


def read_chooser_fields(directory: Path) -> dict[str, Any] | None:
    """All that is stated beside a chooser's weights; None where nothing is."""
    path = RunFiles(directory).chooser
    if not path.is_file():
        return None
    try:
        return unsealed(parse_json(read_file(path, _MOST).decode()))
    except (ValueError, DataError) as error:
        raise ModelError(f"{path} is damaged ({error}); fit the chooser again") from None


def read_chooser_statement(directory: Path) -> tuple[tuple[float, ...], float] | None:
    """Levels and σ of the noise; None where the path isn't a fitted chooser's. Nothing that it names is opened."""
    if (fields := read_chooser_fields(directory)) is None:
        return None
    try:
        levels = SigmaLevels(tuple(fields["sigma_levels"]), fields["chooser_sigma"])
    except (ValueError, KeyError, TypeError, InvalidValueError) as error:
        path = RunFiles(directory).chooser
        raise ModelError(f"{path} is damaged ({error}); fit the chooser again") from None
    return levels.sigmas, levels.noise_sigma
