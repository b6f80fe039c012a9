"""Advice follows from what was found by fixed rules, and there is none where all is well."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from smoothcert.health.advice import advise
from smoothcert.health.environment import Environment
from smoothcert.health.speed import Rates

WELL = Environment(
    versions={"torch": "2.13.0"},
    machine="Linux x86_64",
    devices=("cpu",),
    cores=8,
    all_cores=8,
    quota=None,
    load=0.5,
    missing={},
    directory="/home/user",
    file_system="ext4",
    variables={"OMP_NUM_THREADS": "1"},
    driver=False,
)
GOOD = Rates("ResNet-20", "cpu", "onnxruntime", True, votes=960.0, bare=1000.0)


def test_where_all_is_well_nothing_is_said() -> None:
    assert advise(WELL, [GOOD, replace(GOOD, route="folded", auto=False, votes=800.0)]) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"quota": 2.0}, "--workers 2"),
        ({"cores": 4}, r"\b4\b.*\b8\b"),
        ({"load": 20.0}, r"\b20\.0\b.*\b8\b"),
        ({"variables": {"OMP_NUM_THREADS": "8"}}, "OMP_NUM_THREADS=8"),
        ({"file_system": "nfs4"}, "/home/user.*nfs4"),
        ({"missing": {"onnx": "pip install 'smoothcert[onnx]'"}}, r"pip install 'smoothcert\[onnx\]'"),
        ({"missing": {"images": "pip install 'smoothcert[images]'"}}, r"pip install 'smoothcert\[images\]'"),
        ({"driver": True}, r"torch 2\.13\.0.*CUDA.*pytorch\.org"),
    ],
)
def test_each_finding_has_its_remedy(change: dict[str, object], said: str) -> None:
    (sentence,) = advise(replace(WELL, **change), [GOOD])  # type: ignore[arg-type]
    assert re.search(said, sentence)


def test_a_busy_machine_is_not_blamed_for_its_speed() -> None:
    (sentence,) = advise(replace(WELL, load=20.0), [replace(GOOD, votes=500.0)])
    assert "20.0" in sentence
    assert "50 %" not in sentence


def test_speed_is_judged_by_the_default_route() -> None:
    (slow,) = advise(WELL, [replace(GOOD, votes=500.0)])
    assert re.search("ResNet-20.*50 %.*onnxruntime", slow)
    (other,) = advise(
        WELL, [replace(GOOD, votes=950.0), replace(GOOD, route="folded", auto=False, votes=1900.0)]
    )
    assert re.search(r"ResNet-20.*--route folded.*\b2\.0\b.*onnxruntime", other)
