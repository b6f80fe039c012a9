"""Memory that training frees and asks for again at every step."""

from __future__ import annotations

import ctypes

# glibc's names for what mallopt sets (malloc.h), and the largest value that its int can hold.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT = 2**31 - 1
_LARGEST = 2**30


def keep_freed_memory() -> bool:
    """Let this process keep what it frees, up to 2 GiB of it, for its next step; False where that can't be said.

    glibc asks the system for every array above 32 MB and gives it back when it is freed, so that each of its pages is
    cleared and faulted in again at every step: a third of the time of a step with a thousand rows. Results
    don't depend on it. It holds until the process ends, which is why commands call it, and functions don't.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    if setting is None:  # another C library
        return False
    setting.argtypes, setting.restype = (ctypes.c_int, ctypes.c_int), ctypes.c_int
    # glibc before 2.35 refuses a threshold above its own 32 MB.
    return bool(setting(_M_MMAP_THRESHOLD, _LARGEST)) and bool(setting(_M_TRIM_THRESHOLD, _KEPT))
