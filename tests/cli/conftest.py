"""A certified run of digits that several files read."""

from pathlib import Path

import pytest

from smoothcert.cli import main


@pytest.fixture(scope="session")
def certify_digits(digits_model) -> list[str]:
    """The command that made the run, but for how it shows results and where they go."""
    return ["certify", str(digits_model), "--n", "1000", "--max", "20", "--every", "3"]


@pytest.fixture(scope="session")
def digits_run(certify_digits, build_once) -> Path:
    """Twenty digits; a test that writes copies it."""
    runs = build_once(
        "cli-runs", lambda runs: main([*certify_digits, "--quiet", "--out", str(runs / "digits")])
    )
    return runs / "digits"
