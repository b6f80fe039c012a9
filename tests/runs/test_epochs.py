"""The lines of a training run: read as written, damaged ones left out, strangers' files refused."""

import json

import pytest

from smoothcert.errors import RunError
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.side_files import EpochMetrics, read_epochs, trained_on, write_epochs

HISTORY = (
    EpochMetrics(1, 2.5, 0.1, "test", 0.01, 3.0),
    EpochMetrics(2, 1.5, 0.5, "test", 0.01, 3.0, acr=0.25),
    EpochMetrics(3, -1.5, 1.0, "test", 0.0, 3.0, 0.3, acr_inputs=100, acr_votes=1000, sigma=0.25, norm="l2"),
)
LINE = {"epoch": 4, "loss": 1, "accuracy": 0, "validated_on": "test", "learning_rate": 1, "seconds": 1}


def test_a_line_that_says_nothing_is_left_out(tmp_path):
    write_epochs(tmp_path, HISTORY)
    assert read_epochs(tmp_path) == HISTORY
    assert "acr" not in (tmp_path / "metrics.jsonl").read_text().splitlines()[0]
    rest = '"validated_on": "test", "learning_rate": 1, "seconds": 1}'
    with (tmp_path / "metrics.jsonl").open("a") as file:
        for line in (
            '{"epoch": 3',
            "[]",
            '{"epoch": 3, "loss": "1"}',
            '{"epoch": 3, "loss": NaN, "accuracy": 0, ' + rest,
            '{"epoch": true, "loss": 1, "accuracy": 0, ' + rest,
            '{"epoch": 3, "loss": 1, "accuracy": 0, ' + rest.replace("test", "\\u001b[2J"),
        ):
            file.write(line + "\n")
    assert read_epochs(tmp_path) == HISTORY


ODD = {
    "epoch": (-1, 0, 3, 4.0, 10**400), "accuracy": (55, -0.1), "acr": (-3, 1e300), "learning_rate": (-1,),
    "loss": (10**400, None), "seconds": (-5,), "acr_inputs": (0,), "acr_votes": (True,), "sigma": (-0.25,),
    "norm": ("l2\u001b[2J", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ODD)
def test_a_line_that_no_training_makes_is_left_out(tmp_path, name):
    write_epochs(tmp_path, HISTORY)
    for value in ODD[name]:
        with (tmp_path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(LINE | {name: value}) + "\n")
        assert read_epochs(tmp_path) == HISTORY
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(LINE) + "\n")
    assert len(read_epochs(tmp_path)) == 4, "the same without it is read"


def test_the_data_set_is_what_the_statement_says(tmp_path):
    assert trained_on(tmp_path) is None
    (tmp_path / "run.json").write_text("nothing")
    assert trained_on(tmp_path) is None
    (tmp_path / "run").mkdir()
    Manifest.of("train", {}, {}, {"name": "dig\tits"}).save(tmp_path / "run")
    assert trained_on(tmp_path / "run") == "dig\\u0009its"


def test_other_directories_are_refused(tmp_path):
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        read_epochs(tmp_path)
    (tmp_path / "metrics.jsonl").write_text("nothing\n")
    with pytest.raises(RunError, match=r"metrics\.jsonl"):
        read_epochs(tmp_path)
