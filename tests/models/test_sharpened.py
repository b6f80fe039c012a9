"""Soft votes at another temperature, as MACER's Soft-RS certifies."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from smoothcert import SmoothedClassifier
from smoothcert.cli import main
from smoothcert.errors import InvalidValueError
from smoothcert.models.torch_module import TorchClassifier
from smoothcert.models.wrappers import Sharpened
from smoothcert.runs.run import read_run
from tests.cli.output import refusal


class Margin(nn.Module):
    """Two scores that differ by the first number of the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([x[:, 0], 0 * x[:, 0]], 1)


def test_the_bound_is_that_of_the_sharper_softmax():
    plan = {"sigma": 0.5, "bound": "hoeffding", "n": 4000, "seed": 0}
    x = np.array([1.0, 0.0])
    plain = SmoothedClassifier(Margin(), **plan).certify(x)
    sharp = SmoothedClassifier(Sharpened(Margin(), 16.0), **plan).certify(x)
    # E softmax(β(1 + ε/2)): 0.72 at β = 1, near P(1 + ε/2 > 0) = 0.977 at β = 16; Hoeffding takes off 0.029.
    draws = 1 + 0.5 * np.random.default_rng(0).standard_normal(400_000)
    for beta, answer in ((1.0, plain), (16.0, sharp)):
        mean = (1 / (1 + np.exp(-beta * draws))).mean()
        assert norm.cdf(answer.radius / 0.5) == pytest.approx(mean - np.sqrt(np.log(1000) / 8000), abs=0.02)
    assert sharp.radius > 1.5 * plain.radius


def test_it_is_another_model_with_the_same_labels():
    network, x = nn.Linear(3, 4), torch.randn(50, 3)
    assert torch.equal(Sharpened(network, 16.0)(x).argmax(1), network(x).argmax(1))
    models = (network, Sharpened(network, 16.0), Sharpened(network, 8.0))
    assert len({TorchClassifier(each).fingerprint((3,)) for each in models}) == 3
    for beta in (0.0, -1.0, float("nan")):
        with pytest.raises(InvalidValueError, match=f"sharpen.*{beta}"):
            Sharpened(nn.Linear(2, 2), beta)


def test_certify_states_it_and_verify_replays_it(digits_model, tmp_path):
    radii = {}
    for name, options in (("plain", []), ("sharp", ["--sharpen", "16"])):
        out = tmp_path / name
        arguments = ["--bound", "bernstein", "--n", "1000", "--max", "6", "--quiet", "--out", str(out)]
        main(["certify", str(digits_model), *arguments, *options])
        radii[name] = sum(record.radius for record in read_run(out).records)
    assert radii["sharp"] > radii["plain"]
    assert read_run(tmp_path / "sharp").manifest.origin.value("sharpen") == 16.0
    replay = ["--replay", "2", "--model", str(digits_model), "--quiet"]
    main(["verify", str(tmp_path / "sharp"), *replay, "--sharpen", "16"])
    with pytest.raises(SystemExit):
        main(["verify", str(tmp_path / "sharp"), *replay])


def test_other_models_sharpen_themselves(tmp_path, capsys):
    words = ["certify", "os:getcwd", "--sharpen", "2", "--sigma=1", "-d", "digits"]
    assert "--sharpen" in refusal(capsys, *words, "--out", tmp_path / "r")
    assert not (tmp_path / "r").exists()
