"""Which file system a directory is on, and what a database may rely on there.

SQLite's write-ahead mode needs memory that all processes share, which a file system of another machine can't give; its
rollback journal needs nothing but locks and files that are on disk when that is said.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

TABLE = Path("/proc/self/mountinfo")
"""Linux's own list of mounts. Elsewhere there is none, and nothing is known."""

_NETWORK = frozenset(
    [
        "9p",
        "acfs",
        "beegfs",
        "ceph",
        "cephfs",
        "cifs",
        "gfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb2",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "wekafs",
    ]
)
_LOCKLESS = frozenset(
    [
        "afs",
        "coda",
        "davfs",
        "fuse.blobfuse",
        "fuse.blobfuse2",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.geesefs",
        "fuse.goofys",
        "fuse.mountpoint-s3",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "ncpfs",
    ]
)
"""Locks don't reach other machines, or a file can't be altered in its middle."""
_LOCAL_LOCKS = re.compile(r"nolock|nobrl|localflock|local_lock=(?!none$).*")
"""Options of a mount that keep its locks on one machine."""
_LOCAL_FUSE = frozenset(
    {"fuse.mergerfs", "fuse.ntfs-3g", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.encfs"}
)


@dataclass(frozen=True)
class Mount:
    """A file system where it is mounted."""

    point: Path
    kind: str
    """As the kernel names it: ext4, nfs4, fuse.sshfs."""
    options: tuple[str, ...] = ()

    @property
    def is_network(self) -> bool:
        """Whether other machines may have it, too; a FUSE file system that isn't known is taken for one."""
        return (
            self.kind in _NETWORK
            or self.kind in _LOCKLESS
            or (self.kind.startswith("fuse.") and self.kind not in _LOCAL_FUSE)
        )

    @property
    def without_locks(self) -> str | None:
        """Why a lock on it wouldn't keep another machine out, in words; None where nothing says so."""
        if self.kind in _LOCKLESS:
            return f"{self.kind} has no locks that other machines see"
        if self.is_network:
            for option in self.options:
                if _LOCAL_LOCKS.fullmatch(option):
                    return f"it is mounted with {option}, so that other machines don't see its locks"
        return None


def mount_of(path: Path) -> Mount | None:
    """The mount that a path, made already or not, is on; None where the operating system doesn't say."""
    try:
        lines = TABLE.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    real, found = Path(os.path.realpath(path)), None  # which takes links that lead in circles, too
    for mount in filter(None, map(_parsed, lines)):
        # Of two at one point the later one is seen.
        if real.is_relative_to(mount.point) and (
            found is None or len(mount.point.parts) >= len(found.point.parts)
        ):
            found = mount
    return found


def network_mount(path: Path) -> Mount | None:
    """The mount of a path, if other machines may have it."""
    mount = mount_of(path)
    return mount if mount is not None and mount.is_network else None


def _parsed(line: str) -> Mount | None:
    """A line: number, parent, device, root, point, options, tags …, a dash, kind, source, the file system's options."""
    before, _, after = line.partition(" - ")
    head, tail = before.split(" "), after.split(" ")
    if len(head) < 6 or not tail[0]:
        return None
    own = tail[2].split(",") if len(tail) > 2 else []
    return Mount(Path(_unescaped(head[4])), tail[0], (*head[5].split(","), *own))


def _unescaped(text: str) -> str:
    """Spaces and the like are written as three octal digits."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
