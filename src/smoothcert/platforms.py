"""What smoothcert needs of the operating system: POSIX, for locks that go with the process."""

from __future__ import annotations

from smoothcert.errors import PlatformError


def check_platform() -> None:
    """Refuse an operating system without POSIX file locks, before anything is written without them."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        raise PlatformError from None


def lock(descriptor: int, *, shared: bool = False, wait: bool = True) -> None:
    """Lock an open file until it is closed or the process ends; OSError where another holds it and we don't wait."""
    check_platform()
    import fcntl

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    fcntl.flock(descriptor, kind if wait else kind | fcntl.LOCK_NB)
