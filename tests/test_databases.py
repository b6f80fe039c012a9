"""Which file system a path is on, from the kernel's own table."""

from pathlib import Path

import pytest

from smoothcert import databases
from smoothcert.databases import mount_of, network_mount

LINES = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /srv rw,relatime shared:7 master:2 - nfs4 server:/export rw,vers=4.2,local_lock=none,addr=10.0.0.1
31 22 0:26 / /data\040sets rw - lustre 10.0.0.2@tcp:/scratch rw,flock
32 30 0:27 / /srv/me/local rw - xfs /dev/sdb1 rw
33 22 0:28 / /mnt/auto rw - autofs systemd-1 rw,fd=5
34 33 0:29 / /mnt/auto rw - nfs server:/x rw,nolock
35 22 0:30 / /mnt/ssh rw - fuse.sshfs me@there: rw,user_id=1000
36 22 0:31 / /mnt/fuse rw - fuse.somebodys thing rw
37 22 0:32 / /mnt/merged rw - fuse.mergerfs a:b rw
38 22 0:33 / /mnt/cifs rw - cifs //server/share rw,vers=3.1.1,nobrl
not a line
"""


def inject(path: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (path / "mountinfo").write_text(table)
    monkeypatch.setattr(databases, "MOUNTS", path / "mountinfo")


@pytest.mark.parametrize(
    ("path", "kind", "network", "locks"),
    [
        ("/usr/share", "ext4", False, True),
        ("/srv/me/runs/new", "nfs4", True, True),
        ("/srvs", "ext4", False, True),
        ("/data sets/runs", "lustre", True, True),
        ("/srv/me/local/x", "xfs", False, True),
        ("/mnt/auto/x", "nfs", True, False),
        ("/mnt/ssh/x", "fuse.sshfs", True, False),
        ("/mnt/fuse/x", "fuse.somebodys", True, True),
        ("/mnt/merged/x", "fuse.mergerfs", False, True),
        ("/mnt/cifs/x", "cifs", True, False),
    ],
)
def test_the_mount_of_a_path(path, kind, network, locks, tmp_path, monkeypatch):
    inject(tmp_path, LINES, monkeypatch)
    mount = mount_of(Path(path))
    assert mount is not None
    assert (mount.kind, mount.is_network, mount.without_locks is None) == (kind, network, locks)
    assert (network_mount(Path(path)) is not None) == network


def test_a_link_counts_as_where_it_leads(tmp_path, monkeypatch):
    there = tmp_path / "there"
    there.mkdir()
    (tmp_path / "here").symlink_to(there)
    inject(tmp_path, f"1 0 8:1 / / rw - ext4 a rw\n2 1 0:9 / {there.resolve()} rw - nfs b rw\n", monkeypatch)
    assert network_mount(tmp_path / "here" / "run") is not None
    assert network_mount(tmp_path / "elsewhere") is None


def test_links_in_a_circle_are_on_some_mount(tmp_path, monkeypatch):
    inject(tmp_path, LINES, monkeypatch)
    (tmp_path / "round").symlink_to(tmp_path / "round")
    assert mount_of(tmp_path / "round" / "run") is not None


def test_without_a_table_nothing_is_known(tmp_path, monkeypatch):
    monkeypatch.setattr(databases, "MOUNTS", tmp_path / "missing")
    assert mount_of(tmp_path) is None
    assert network_mount(tmp_path) is None


def test_this_machine_is_known():
    if databases.MOUNTS.exists():
        assert mount_of(Path.cwd()) is not None
