"""What a module writes to in a pass, and puts back, no other worker's pass meets."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from smoothcert.errors import ModelError
from smoothcert.sampling import Numerics, adapt
from smoothcert.sampling.models import copies


class ScratchPaper(nn.Module):
    """Writes to a buffer, reads it and leaves it as it was."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("paper", torch.zeros(4096, 2), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.paper[: x.shape[0]]
        rows.copy_(x)
        found = torch.stack([rows[:, 0], -rows[:, 0]], 1)
        rows.zero_()
        return found


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [ScratchPaper, lambda: torch.jit.script(ScratchPaper())])
def test_workers_have_buffers_of_their_own(make: Callable[[], nn.Module]) -> None:
    """Copies shared them: rows of two passes met, and .004 was certified as the class of −.004."""
    lending = adapt(make(), "hard").prepare(Numerics(chunk=8, block=8), (2,)).lending
    with lending.borrowed() as one, lending.borrowed() as other:
        papers = [next(each.forward.module.buffers()) for each in (one, other)]  # type: ignore[attr-defined]
    assert papers[0].data_ptr() != papers[1].data_ptr()


class ScratchParameter(nn.Module):
    """The same with a parameter; ``way``: what it is written through, or when."""

    def __init__(self, way: str = "itself") -> None:
        super().__init__()
        self.paper = nn.Parameter(torch.zeros(4096, 2))
        self.way = way
        self.passes = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        seldom = (self.way == "every other" and self.passes % 2) or (self.way == "long" and len(x) < 2)
        with torch.no_grad():
            if seldom:
                return torch.stack([x[:, 0], -x[:, 0]], 1)
            if self.way == "replaced":
                kept, self.paper.data = self.paper.data, x.clone()
                found = torch.stack([self.paper[:, 0], -self.paper[:, 0]], 1)
                self.paper.data = kept
                return found
            paper = {"data": self.paper.data, "view": self.paper.view(2, 2048, 2)[0]}.get(
                self.way, self.paper
            )
            rows = paper[: x.shape[0]]
            if self.way == "out":
                torch.mul(x, 1.0, out=rows)
            else:
                rows.copy_(x)
            found = torch.stack([rows[:, 0], -rows[:, 0]], 1)
            rows.zero_()
        return found


class ScriptedParameter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.paper = nn.Parameter(torch.zeros(4096, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            rows = self.paper[: x.shape[0]]
            rows.copy_(x)
            found = torch.stack([rows[:, 0], -rows[:, 0]], 1)
            rows.zero_()
        return found


WRITERS: list[Callable[[], nn.Module]] = [
    ScratchParameter,
    *(functools.partial(ScratchParameter, way) for way in ("view", "out", "every other", "long")),
    lambda: torch.jit.script(ScriptedParameter()),
    lambda: nn.Sequential(ScratchParameter(), nn.Identity()),
]
OTHERS = [
    functools.partial(ScratchParameter, way) for way in ("data", "replaced")
]  # torch doesn't count these


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", [*WRITERS, *OTHERS])
def test_workers_have_parameters_of_their_own(make: Callable[[], nn.Module]) -> None:
    """It leaves no trace that could be seen afterwards, and passes that meet may be too rare for a probe."""
    lending = adapt(make(), "hard").prepare(Numerics(chunk=8, block=8), (2,)).lending
    with lending.borrowed() as one, lending.borrowed() as other:
        papers = [next(each.forward.module.parameters()) for each in (one, other)]  # type: ignore[attr-defined]
    assert papers[0].data_ptr() != papers[1].data_ptr()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("make", WRITERS)
def test_a_module_that_writes_to_large_parameters_is_refused(
    make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers share them, and passes that meet are seen by luck alone."""
    monkeypatch.setattr(copies, "OWN_WEIGHTS", 1 << 14)
    monkeypatch.setattr("smoothcert.sampling.models.base.check_together", lambda *_: None)
    with pytest.raises(ModelError, match=r"\b(0\.)?paper\b.*thread_safe=False"):
        adapt(make(), "hard").prepare(Numerics(chunk=8, block=8), (2,))
    prepared = adapt(make(), "hard", thread_safe=False).prepare(Numerics(chunk=8, block=8), (2,))
    assert prepared.workers(4) == 1


def test_large_parameters_are_shared_as_memory_and_not_as_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another tensor in the place of a parameter's data was every worker's: 7 of 8 times votes were wrong."""
    monkeypatch.setattr(copies, "OWN_WEIGHTS", 1 << 14)
    lending = adapt(ScratchParameter("replaced"), "hard").prepare(Numerics(chunk=8, block=8), (2,)).lending
    with lending.borrowed() as one, lending.borrowed() as other:
        papers = [next(each.forward.module.parameters()) for each in (one, other)]  # type: ignore[attr-defined]
    assert papers[0] is not papers[1]
    assert papers[0].data_ptr() == papers[1].data_ptr()
