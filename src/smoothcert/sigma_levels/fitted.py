"""What a fitted chooser's directory says of itself: the levels it chooses among, and the noise it was fitted for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothcert.checksums import sealed, unsealed
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.files import parse_json, read_file, write_atomically
from smoothcert.runs.layout import RunFiles
from smoothcert.sigma_levels.statement import SigmaLevels

_MOST = 1 << 20


def write_chooser_statement(
    directory: Path, sigmas: tuple[float, ...], chooser_sigma: float, about: Mapping[str, Any]
) -> None:
    """State levels and noise beside a chooser's weights, and whatever else is to be known of its fit."""
    fields = {"sigma_levels": list(sigmas), "chooser_sigma": chooser_sigma, **about}
    text = json.dumps(sealed(fields), indent=2, ensure_ascii=False)
    write_atomically(RunFiles(directory).chooser, (text + "\n").encode())


def read_chooser_statement(directory: Path) -> tuple[tuple[float, ...], float] | None:
    """Levels and σ of the noise; None where the path isn't a fitted chooser's. Nothing that it names is opened."""
    path = RunFiles(directory).chooser
    if not path.is_file():
        return None
    try:
        fields = unsealed(parse_json(read_file(path, _MOST).decode()))
        levels = SigmaLevels(tuple(fields["sigma_levels"]), fields["chooser_sigma"])
    except (ValueError, KeyError, TypeError, InvalidValueError) as error:
        raise ModelError(f"{path} is damaged ({error}); fit the chooser again") from None
    return levels.sigmas, levels.noise_sigma
