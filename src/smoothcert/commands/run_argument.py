"""The RUN of a command: a directory, or the address of a run that was published, which is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from cyclopts import Token


def _directory(_kind: object, tokens: Sequence[Token]) -> Path:
    text = tokens[0].value
    if "://" not in text:  # most are paths: help and mistakes don't wait for the library
        return Path(text)
    from smoothcert.errors import InvalidValueError, RunError
    from smoothcert.runs.publishing import local_run

    try:
        return local_run(text)
    except InvalidValueError as error:  # a ValueError: the parser would repeat the address, secrets included
        raise RunError(str(error)) from None


RunPath = Annotated[Path, Parameter(converter=_directory)]
"""A run of any origin."""
