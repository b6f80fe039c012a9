"""With a memory: look up, search σ, certify, store, answer; and no answer contradicts another."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from smoothcert.errors import InvalidValueError
from smoothcert.service.limits import EngineLimits, Limits, QueueFullError
from smoothcert.service.service import Service, Wanted
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.search.base import parse_search
from smoothcert.smoothing.stores.base import StoreError
from tests.service import made
from tests.service.made import SHAPE, Edge, live, smoothed
from tests.waiting import join, until

FAR = np.array([-1.0, 0.0])


def certified(service: Service, *points: Any, caller: str = "a", **wanted: Any) -> list[dict[str, Any]]:
    inputs = [np.asarray(point, dtype=np.float64) for point in points]
    return asyncio.run(service.certify(caller, inputs, Wanted(**wanted)))


def test_an_answer_is_stored_and_given_again_inside_its_region(tmp_path: Path) -> None:
    service = made.service(smoothed(), memory=str(tmp_path / "memory"))
    (first,) = certified(service, FAR)
    assert first["source"] == "certified"
    assert first["record"] == 1
    cast = service.engine.load().votes_cast
    near, again = certified(service, FAR + np.array([0.1, 0.0]), FAR)
    assert near["source"] == again["source"] == "memory"
    assert near["predicted"] == first["predicted"]
    assert 0 < near["radius"] <= first["radius"] - 0.1 + 1e-9
    assert service.engine.load().votes_cast == cast, "no vote was cast"
    assert asyncio.run(service.predict("a", [FAR], Wanted()))[0]["source"] == "memory"
    assert service.plan()["stateful"]
    service.close()
    memory = RegionMemory.open(
        tmp_path / "memory", MemoryStatement.of(smoothed(), SHAPE)
    )  # what was answered is on disk
    assert memory.stored_answer(1).facts["votes"] == 2048
    memory.close()


def test_each_input_has_a_sigma_of_its_own_and_streams_too(tmp_path: Path) -> None:
    model = smoothed(search=parse_search("ladder:rungs=3,votes=32"), n=1024)
    service = made.service(model, memory=str(tmp_path / "memory"))
    found = certified(service, [-1.0, 0.0], [0.45, 0.0], [-6.0, 0.0])
    assert len({one["sigma"] for one in found}) > 1

    async def events() -> list[tuple[str, dict[str, Any]]]:
        return [event async for event in service.stream("a", np.array([-1.0, 30.0]), Wanted())]

    streamed = asyncio.run(events())
    assert streamed[-1][0] == "answer"
    assert streamed[-1][1]["source"] in ("certified", "shrunk")
    assert asyncio.run(events())[0][1]["source"] == "memory"
    service.close()


def test_a_deadline_holds_for_the_search_too_and_whoever_waits_for_it_is_in_the_queue(
    tmp_path: Path,
) -> None:
    model = Edge()
    limits = Limits(engine=EngineLimits(queue=2, per_caller=1))
    fields = {"search": parse_search("ladder:rungs=3,votes=32"), "n": 256}
    service = made.service(smoothed(model, **fields), memory=str(tmp_path / "memory"), limits=limits)
    model.open.clear()
    waiting = threading.Thread(
        target=certified, args=(service, FAR), kwargs={"caller": "b", "deadline": 50.0}
    )
    waiting.start()
    until(lambda: service.engine.load().inputs)
    (found,) = certified(service, FAR, deadline=0.2)
    assert (found["ended"], found["abstained"], found["votes"], found["radius"]) == ("deadline", True, 0, 0.0)
    assert found["source"] == "abstained"
    with pytest.raises(QueueFullError):
        certified(service, FAR, caller="b", deadline=0.2)
    assert service.engine.load().inputs == 1, "who is answered waits no more"

    async def events() -> list[tuple[str, dict[str, Any]]]:
        return [event async for event in service.stream("a", FAR, Wanted(deadline=0.2))]

    ((name, told),) = asyncio.run(events())
    assert (name, told["ended"]) == ("answer", "deadline")
    model.open.set()
    join(waiting)
    assert service.engine.load().inputs == 0
    assert certified(service, FAR)[0]["source"] == "memory"
    service.close()


@pytest.mark.system
def test_what_callers_are_told_of_a_memory_that_fails_says_nothing_of_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with live(memory=str(tmp_path / "memory")) as server:

        def fail(*_: object) -> None:
            raise StoreError("postgresql://user@secret-host/answers: the disk is full")

        assert server.ask("GET", "/readyz")[0] == 200
        monkeypatch.setattr(server.service.memory, "offer", fail)
        status, _, found = server.post("/v1/certify", {"inputs": [[-1.0, 0.0]]})
        assert status == 503
        assert "secret-host" not in str(found)
        body = b'{"inputs": [[-1.0, 1.0]]}'
        status, _, told = server.ask("POST", "/v1/certify/stream", body, content_type="application/json")
        assert b"event: failed" in told
        assert b"secret-host" not in told
        monkeypatch.setattr(type(server.service.memory), "__len__", fail)
        assert server.ask("GET", "/readyz")[0] == 503


def test_a_search_without_a_memory_is_refused() -> None:
    with pytest.raises(InvalidValueError, match="--memory"):
        made.service(smoothed(search=parse_search("ladder")))


def test_two_servers_on_one_memory_never_contradict_each_other(tmp_path: Path) -> None:
    """Models that disagree would be refused; here the same one is asked by many callers at its edge, σ searched."""
    fields = {"search": parse_search("ladder:rungs=3,votes=16"), "n": 256, "alpha": 0.01}
    memory = str(tmp_path / "memory")
    servers = [made.service(smoothed(Edge(), **fields), seed, memory=memory) for seed in range(2)]
    rng = np.random.default_rng(0)
    points = rng.uniform([-0.2, 0.0], [1.2, 3.0], (48, 2))
    answers: list[tuple[np.ndarray, dict[str, Any]]] = []

    def ask(place: int) -> None:
        for point in points[place::4]:
            found = certified(servers[place % 2], point, caller=str(place))
            answers.append((point, found[0]))

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert len(answers) == 48
    told = [(point, one) for point, one in answers if not one["abstained"]]
    assert {one["predicted"] for _, one in told} == {0, 1}
    for here, one in told:
        for there, other in told:
            if one["predicted"] != other["predicted"]:
                assert np.linalg.norm(here - there) >= one["radius"] + other["radius"] - 1e-9
    for server in servers:
        server.close()
