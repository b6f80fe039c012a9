"""Turns: who waits longer than passes take is told why."""

from __future__ import annotations

import threading

import pytest

from smoothcert.sampling import turns


def test_long_wait_is_told_and_ends_with_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE", 0.05)
    held, told, order = threading.Event(), threading.Event(), []

    def holder() -> None:
        with turns.turn(thread_safe=False):
            held.set()
            assert told.wait(10)
            order.append("holder")

    def warned(*words: object, **_: object) -> None:
        assert "thread_safe=True" in str(words[0])
        told.set()

    monkeypatch.setattr("warnings.warn", warned)
    first = threading.Thread(target=holder)
    first.start()
    assert held.wait(10)
    with turns.turn(thread_safe=False):
        order.append("waited")
    first.join(10)
    assert not first.is_alive()
    assert order == ["holder", "waited"]


def test_nobody_is_told_who_waits_no_longer_than_that() -> None:
    with turns.turn(thread_safe=False), turns.turn(thread_safe=False):
        pass  # warnings are errors in tests


def test_an_error_in_a_turn_gives_it_back() -> None:
    with pytest.raises(ZeroDivisionError), turns.turn(thread_safe=False):
        _ = 1 / 0
    done = threading.Thread(target=_take)
    done.start()
    done.join(10)
    assert not done.is_alive()


def _take() -> None:
    with turns.turn(thread_safe=False):
        pass
