"""What a caller waits for in the service itself."""

from __future__ import annotations

import asyncio

import pytest

from smoothcert.service.service import _Bell


@pytest.mark.parametrize("turns", range(4))
def test_a_client_that_leaves_while_the_bell_rings_has_left(turns: int) -> None:
    """Whenever the two meet: a waiting task that takes its cancellation is cancelled."""

    async def leave() -> bool:
        bell = _Bell()
        waiting = asyncio.create_task(bell.wait(bell.now() + 60))
        await asyncio.sleep(0.01)
        bell._event.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        taken = waiting.cancel()
        await asyncio.wait({waiting})
        return taken == waiting.cancelled()

    assert asyncio.run(leave())


def test_a_bell_that_nothing_rings_ends_with_its_time() -> None:
    async def heard(rung: bool) -> bool:
        bell = _Bell()
        if rung:
            bell.ring()
        return await bell.wait(bell.now() + (60 if rung else 0.05))

    assert asyncio.run(heard(True))
    assert not asyncio.run(heard(False))
