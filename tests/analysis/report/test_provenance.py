"""The command on the page certifies the same again: it is run, and run and results are compared."""

import shlex
from pathlib import Path

import numpy as np
import pytest

from smoothcert.analysis.report.statements import certify_command
from smoothcert.cli import main
from smoothcert.runs.records import results_digest
from smoothcert.runs.run import read_run

LADDER = "--sigma-search ladder:factor=3,votes=8,round_votes=24,rescue"
ELLIPSOID = "--sigma-search ellipsoid:steps=3,check_votes=16,cover,kappa=0.5"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("--sigma 0.3 --noise uniform", "--sigma 0.3 --noise uniform"),
        ("--noise sigmas.npy", "--noise run/sigmas.npy --n0"),
        ("--noise uniform:sigmas.npy", "--noise uniform:run/sigmas.npy --n0"),
        (LADDER, "--sigma-search ladder:factor=3.0,rescue=true"),
        (ELLIPSOID, "cover=true"),
        ("--sigma-search gradient:steps=3,check_votes=16", "lr=0.0001"),
        ("--sigma-search grid:budget=40,check_votes=16", "top=1.0"),
        ("--stop grid:0,0.25 --stop wrong", "--stop grid:0,0.25 --stop wrong"),
        ("--stop wrong --total-votes 3000", "--stop wrong --total-votes 3000"),
        ("--stop total:3000 --stop wrong", "--stop total:3000 --stop wrong"),
        ("--stop total:3000,100", "--stop total:3000,100"),
    ],
)
def test_the_command_makes_the_same_run(options, shown, digits_model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("sigmas.npy", np.linspace(0.2, 0.4, 64).reshape(1, 8, 8))
    words = ["certify", str(digits_model), "--n0", "10", "--n", "100", "--every", "7", "--max", "2"]
    main([*words, "--quiet", *options.split(), "--out", "run"])
    run = read_run(Path("run"))
    command = certify_command(run)
    assert command is not None
    assert shown in command
    if "npy" in options:
        assert "--sigma " not in command
    main([*shlex.split(command)[1:], "--quiet"])
    again = read_run(Path("run-again"))
    assert run.manifest.differences(again.manifest) == []
    assert results_digest(again.records) == results_digest(run.records)
