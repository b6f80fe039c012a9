"""Backends: where the votes of a task are cast. Threads, processes of this machine, or a Ray cluster.

All of them evaluate the same passes, and a block's votes follow from the plan alone: the answers have the same bits.
"""

from smoothcert.sampling.backends.base import BACKENDS, Cast, Voters

__all__ = ["BACKENDS", "Cast", "Voters"]
