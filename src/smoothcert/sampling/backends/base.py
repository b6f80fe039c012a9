"""What a backend is: workers that cast the votes of the tasks they are handed."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from smoothcert.registry import Registry
from smoothcert.sampling.execution import Execution
from smoothcert.sampling.lanes import Task
from smoothcert.sampling.passes import Passes

Cast = tuple[NDArray[np.int64], float]
"""A block's result: its sums, as :meth:`Ballots.sums` has them, and the seconds it took."""


class Voters(Protocol):
    """Workers. A task is done once, or not at all: a worker that is lost has its task repeated by another."""

    @property
    def count(self) -> int:
        """How many tasks they work on at once."""

    def submit(self, task: Task, /) -> Future[list[Cast]]:
        """The results of the task's blocks, in their order."""


Backend = Callable[[Passes, Execution], AbstractContextManager[Voters]]
"""Starts workers for passes; on leaving, tasks not begun are dropped and every worker has ended."""


BACKENDS: Registry[Backend] = Registry("backend", "smoothcert.sampling.backends")
