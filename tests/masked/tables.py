"""Small tables of numbers and categories, whose class follows from both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

COLOURS, SIZES = ("blue", "green", "red"), ("large", "small")


def small_table(rows: int = 240, seed: int = 0) -> tuple[Any, np.ndarray[Any, Any]]:
    """A DataFrame of two numbers and three categories, and its classes."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    high = rng.random(rows) < 0.5
    colour = np.where(rng.random(rows) < 0.9, np.where(high, 0, 1), 2)
    shape = np.where(rng.random(rows) < 0.9, high, ~high).astype(int)
    table = pandas.DataFrame(
        {
            "age": np.round(40 + 8 * high + rng.normal(0, 4, rows)),
            "colour": np.array(COLOURS)[colour],
            "size": np.array(SIZES)[shape],
            "income": np.round(1000 + 300 * high + rng.normal(0, 200, rows)),
            "member": np.array(["no", "yes"])[high.astype(int)],
        }
    )
    return table, np.where(high, "high", "low")


def written_table(path: Path, rows: int = 240) -> str:
    """The same as a csv file with the target ``y``; what names it as a data set."""
    table, classes = small_table(rows)
    table.assign(y=classes).to_csv(path, index=False)
    return f"csv:{path}?target=y"
