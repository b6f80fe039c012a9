"""Published data sets fetched from the net: nothing gets its name before its SHA-256 is the known one."""

from __future__ import annotations

from smoothcert.downloads.fetching import Fetched, Watch, fetch, found_in

__all__ = ["Fetched", "Watch", "fetch", "found_in"]
