"""The 8x8 handwritten digits that come inside scikit-learn: real data without a download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smoothcert.datasets.base import DATASETS, Dataset
from smoothcert.extras import require

TRAIN_SIZE = 1297


@DATASETS.register("digits")
def load_digits(split: str, root: Path | None) -> Dataset:  # noqa: ARG001 - the data is inside scikit-learn
    """Scikit-learn's digits; inputs are 1x8x8 in [0, 1], stored as the original counts 0..16.

    The split is simple: the first 1297 images train, the last 500 test, in scikit-learn's order. No shuffle,
    so no random generator can change it; every class has between 46 and 51 test images.
    """
    bunch = require("sklearn.datasets", "the digits data set").load_digits()
    part = slice(None, TRAIN_SIZE) if split == "train" else slice(TRAIN_SIZE, None)
    return Dataset(
        name="digits",
        stored=bunch.images[part, np.newaxis].astype(np.uint8),
        labels=bunch.target[part].astype(np.int64),
        classes=tuple("0123456789"),
        scale=1 / 16,
    )
