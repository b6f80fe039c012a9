"""Actors that are lost and come back, by a stand-in for Ray: who gets their leases, and when it is given up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from smoothcert.errors import ModelError
from smoothcert.sampling.backends import ray as ray_backend
from smoothcert.sampling.backends.ray import _Actors


class LostError(Exception):
    """Ray's, of an actor that is away."""


class Actor:
    """Answers; or refuses at once while it is away, as Ray does while it restarts one."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self.away = False
        self.refused = self.done = 0
        self.begin = SimpleNamespace(remote=lambda: self._called(None))
        self.cast = SimpleNamespace(remote=self._called)

    def _called(self, lease: Any) -> Any:
        future = self._pool.submit(self._work, lease)
        return SimpleNamespace(future=lambda: future)

    def _work(self, lease: Any) -> Any:
        if self.away:
            self.refused += lease is not None
            raise LostError("the actor is restarting")
        self.done += lease is not None
        return lease


class Cluster:
    """What the backend asks of Ray."""

    exceptions = SimpleNamespace(RayError=LostError)

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(4)
        self.actors: list[Actor] = []

    def remote(self, **_: Any) -> Any:
        def make(_: Any) -> Any:
            return SimpleNamespace(remote=self._started)

        return make

    def _started(self, _: Any) -> Actor:
        self.actors.append(Actor(self.pool))
        return self.actors[-1]

    def put(self, one: Any) -> Any:
        return one

    def wait(self, waiting: list[Any], **_: Any) -> tuple[list[Any], list[Any]]:
        return waiting[:1], waiting[1:]

    def get(self, reference: Any) -> Any:
        return reference.future().result()

    def kill(self, _: Actor) -> None:
        """Nothing to end."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(ray_backend, "_SECONDS_BETWEEN_LOOKS", 0.01)
    return Cluster()


def sent(actors: _Actors, lease: Any) -> Future[Any]:
    """A promise; sending waits where all are away."""
    promised: Future[Any] = Future()
    threading.Thread(target=actors._send, args=(lease, promised), daemon=True).start()
    return promised


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_an_actor_that_is_away_gets_no_leases_and_the_others_do_its_work(cluster: Cluster) -> None:
    actors = _Actors(cluster, None, 3, 0, "a model")
    lost = cluster.actors[0]
    lost.away = True
    for number in range(100):
        assert sent(actors, number).result(30) == number
    assert lost.refused == 1, "it would always have the fewest"
    lost.away = False
    for _ in range(1000):
        if not actors._away:
            break
        sent(actors, 0).result(30)
    assert not actors._away
    for number in range(9):
        sent(actors, number).result(30)
    assert lost.done
    actors.close()


def test_where_all_are_away_leases_wait_until_one_is_back(cluster: Cluster) -> None:
    actors = _Actors(cluster, None, 2, 0, "a model")
    for one in cluster.actors:
        one.away = True
    waiting = [sent(actors, number) for number in range(2)]
    until(lambda: len(actors._away) == 2)
    assert not any(promised.done() for promised in waiting)
    cluster.actors[1].away = False
    assert [promised.result(30) for promised in waiting] == [0, 1]
    actors.close()


def test_a_node_with_many_actors_may_be_lost(cluster: Cluster) -> None:
    """All of its actors go at once, more than are lost in a row of a model that kills them."""
    actors = _Actors(cluster, None, 50, 0, "a model")
    for one in cluster.actors[:40]:
        one.away = True
    waiting = [sent(actors, number) for number in range(100)]
    assert [promised.result(30) for promised in waiting] == list(range(100))
    actors.close()


def test_a_model_that_loses_every_actor_is_given_up(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(self: Actor, lease: Any) -> Any:
        if lease is not None:
            raise LostError("SIGKILL\nand more")
        return None

    monkeypatch.setattr(Actor, "_work", dies)
    actors = _Actors(cluster, None, 2, 0, "a model")
    with pytest.raises(ModelError, match=r"\b21\b.*SIGKILL") as caught:
        sent(actors, 1).result(30)
    assert "and more" not in str(caught.value)
    actors.close()


def test_closing_ends_who_waits(cluster: Cluster) -> None:
    actors = _Actors(cluster, None, 1, 0, "a model")
    cluster.actors[0].away = True
    promised = sent(actors, 1)
    until(lambda: len(actors._away) == 1)
    actors.close()
    with pytest.raises(CancelledError):
        promised.result(30)
