"""What a run's figures are about: which data set and split, and whether σ is one for all inputs."""

from __future__ import annotations

from typing import Literal

from smoothcert.noise import DIAGONAL_NOISES
from smoothcert.plain_text import shown_name
from smoothcert.runs import Run

Per = Literal["input", "coordinate"]
"""What has a σ of its own."""


def dataset_of(run: Run) -> str | None:
    """The data set the run states; None for a log imported without one."""
    name = run.manifest.data.name
    return shown_name(name) if isinstance(name, str) and name else None


def split_of(run: Run) -> str | None:
    """The split of the data set, where the run states it; logs don't."""
    split = run.manifest.origin.split
    return shown_name(split) if split else None


def data_in_words(dataset: str | None, split: str | None) -> str | None:
    """``digits, test split``; None where neither is known."""
    return ", ".join(part for part in (dataset, None if split is None else f"{split} split") if part) or None


def search_of(run: Run) -> str | None:
    """The search that chose each input's σ, by name; None where none did."""
    search = run.manifest.plan.sigma_search
    return shown_name(search) if search else None


def sigma_per(run: Run) -> Per | None:
    """Whether each input or each coordinate has a σ of its own; None where one σ is everybody's.

    A log may have a σ for each input without saying how it was found.
    """
    if search_of(run) is not None or len(set(run.records.sigma.tolist())) > 1:
        return "input"
    return "coordinate" if run.manifest.plan.noise in DIAGONAL_NOISES else None


def sigma_mark(search: str | None, per: Per | None) -> str:
    """What stands behind a σ that isn't simply the noise's: `` (ladder search)``, `` (per input)``; else nothing."""
    if search is not None:
        return f" ({search} search)"
    return "" if per is None else f" (per {per})"
