"""What a machine has is found without asking anybody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from smoothcert import mounts
from smoothcert.health import environment
from smoothcert.health.environment import look_around

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
    monkeypatch.setattr(mounts, "TABLE", table)
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
    monkeypatch.setattr(mounts, "TABLE", table)
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
    assert environment._quota(file) == quota
