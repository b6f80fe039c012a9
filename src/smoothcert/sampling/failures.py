"""What goes wrong in a pass, with the inputs in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from smoothcert.errors import ModelError


def failure(purpose: str, indices: Sequence[int], reason: str) -> ModelError:
    """An error that names the inputs; ``purpose`` says where, and takes ``which`` and ``indices``."""
    unique = sorted(set(indices))
    which = f"input {unique[0]}" if len(unique) == 1 else f"one of the inputs {unique}"
    return ModelError(f"{purpose.format(which=which, indices=unique)}: {reason}")


@contextmanager
def naming(purpose: str, indices: Sequence[int]) -> Iterator[None]:
    """Whatever goes wrong is reported with the inputs."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a model that exits would end a command as if all were done
        reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
        raise failure(purpose, indices, reason) from error
