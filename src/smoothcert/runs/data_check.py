"""Whether a data set holds the inputs that a run was certified on."""

from __future__ import annotations

from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError
from smoothcert.runs.run import Run


def check_inputs_of(run: Run, dataset: Dataset) -> None:
    """Refuse a data set with other contents than the run states."""
    there, here = run.manifest.data["sha256"], dataset.fingerprint()
    if there != here:
        raise DataError(
            f"{dataset.name} does not hold the inputs that {run.path} was certified on: its sha256 is "
            f"{here[:12]}…, the run's is {there[:12]}… ({run.manifest.data['name']}, "
            f"{run.manifest.data.get('inputs')} inputs); give that data set, split and folder with --dataset, --split "
            "and --data-dir"
        )
