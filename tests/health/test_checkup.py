"""What a machine has is found without asking anybody, and advice follows from it by fixed rules."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert import databases
from smoothcert.health import checkup
from smoothcert.health.checkup import Environment, advise, look_around
from smoothcert.health.trials import Rates

MOUNTS = [
    "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw",
    "40 22 0:38 / /tmp rw shared:2 - tmpfs tmpfs rw",
    "50 22 0:41 / /data/my\\040share rw - nfs4 server:/export rw",
    "51 50 0:42 / /data/my\\040share/deep rw - overlay overlay rw",
    "damaged line",
    "",
]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("/home/user", "ext4"),
        ("/data/my share", "nfs4"),
        ("/data/my share/runs/a", "nfs4"),
        ("/data/my share/deep/b", "overlay"),
        ("/data/my shared", "ext4"),
    ],
)
def test_the_nearest_mount_counts(
    place: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("\n".join(MOUNTS))
    monkeypatch.setattr(databases, "MOUNTS", table)
    found = look_around(Path(place))
    assert found.file_system == kind
    assert found.network_file_system == (kind == "nfs4")


@pytest.mark.parametrize("lines", [None, ""])
def test_no_table_of_mounts_is_no_answer(
    lines: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "mountinfo"
    if lines is not None:
        table.write_text(lines)
    monkeypatch.setattr(databases, "MOUNTS", table)
    assert look_around(Path("/")).file_system == "unknown"


def test_surroundings_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    found = look_around(tmp_path)
    assert {"smoothcert", "python", "torch", "numpy"} <= found.versions.keys()
    assert found.devices[0] == "cpu"
    assert 1 <= found.cores <= found.all_cores
    assert found.missing["onnx"] == "pip install 'smoothcert[onnx]'"
    assert found.variables["OMP_NUM_THREADS"] == "8"
    assert found.directory == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "quota"), [("150000 100000\n", 1.5), ("max 100000\n", None), ("", None), (None, None)]
)
def test_what_a_container_allows(text: str | None, quota: float | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    if text is not None:
        file.write_text(text)
    assert checkup._quota(file) == quota


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
