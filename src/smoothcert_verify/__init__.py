"""Recomputes a run of smoothcert from its votes, by arithmetic of its own and with Python's standard library alone.

It uses nothing of the library that made the run: a mistake in its bounds, quantiles, rounding or readers can't hide
itself. Exact fractions, whole numbers, and decimal intervals that are rounded outwards take their place.
"""

from smoothcert_verify.reading import RunError
from smoothcert_verify.report import Report
from smoothcert_verify.run import Checked, verify_run

__all__ = ["Checked", "Report", "RunError", "verify_run"]
