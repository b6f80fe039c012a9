"""A model remembers which kind of noise it was trained with."""

from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.run import read_run

TRAIN = ["train", "digits", "--sigma", "0.3", "--noise", "uniform", "--epochs", "1", "--max", "60"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("uniform") / "model"
    main([*TRAIN, "--out", str(out)])
    return out


def test_certify_takes_it_unless_told_otherwise(trained, tmp_path):
    for words, noise, norm in (([], "uniform", "l1"), (["--noise", "gaussian"], "gaussian", "l2")):
        out = tmp_path / noise
        main(["certify", str(trained), "--n", "64", "--max", "2", "--quiet", *words, "--out", str(out)])
        plan = read_run(out).manifest.plan
        assert (plan.noise, plan.norm, plan.sigma) == (noise, norm, 0.3)


def test_every_input_may_have_its_own_sigma_in_l1(trained, tmp_path):
    tuned, out = tmp_path / "tuned", tmp_path / "run"
    main([*TRAIN, "--from", str(trained), "--data-dependent", "--out", str(tuned)])
    search = ["--sigma-search", "gradient:steps=3,factor=2", "--quiet"]
    main(["certify", str(tuned), "--n", "100", "--max", "2", *search, "--out", str(out)])
    run = read_run(out)
    assert run.manifest.plan.norm == "l1"
    assert run.manifest.subject == "frozen sigma"
