"""Verification: a run recomputed from its votes by arithmetic of its own.

Nothing but :mod:`replay` and :mod:`level_replay` uses the library's bounds, certificates, rounding or readers: a
mistake in those can't hide itself. Exact fractions, whole numbers, and decimal intervals that are rounded outwards take
their place.
"""

from smoothcert.verification.report import Report
from smoothcert.verification.run_checks import Checked, verify_run

__all__ = ["Checked", "Report", "verify_run"]
