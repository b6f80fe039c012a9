"""The client: the same answers in a few lines, sync and async, step by step."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

from smoothcert.client import AsyncClient, Client, ServedAnswer, ServiceError
from smoothcert.errors import InvalidValueError
from smoothcert.service.limits import EngineLimits, Limits
from smoothcert.service.secrets import Keys, new_key
from tests.service.made import Edge, Live, live
from tests.waiting import join, unanswered, until

pytestmark = pytest.mark.system

FAR = np.array([-1.0, 0.0])


@pytest.fixture(scope="module")
def served() -> Iterator[Live]:
    with live() as server:
        yield server


def test_one_input_has_an_answer_and_a_batch_a_list(served: Live) -> None:
    client = Client(served.url)
    one = client.certify(FAR)
    assert isinstance(one, ServedAnswer)
    assert one.predicted == 0
    assert one.radius > 0.5
    assert one.final
    several = client.predict(np.stack([FAR, -3 * FAR]), votes=500)
    assert isinstance(several, list)
    assert [answer.predicted for answer in several] == [0, 1]
    assert client.certify(FAR) == one, "asked again, the same answer"
    assert client.plan()["model"]["input_shape"] == [2]
    torch = pytest.importorskip("torch")
    assert client.certify(torch.tensor(FAR)) == one


def test_a_stream_can_be_left_at_any_state(served: Live) -> None:
    states = list(Client(served.url).stream(np.array([-1.0, 2.0])))
    assert states[-1].final
    assert not any(state.final for state in states[:-1])
    assert states[-1].votes == 2048
    for state in Client(served.url).stream(np.array([-1.0, 3.0])):
        assert state.radius >= 0
        break


def test_asynchronous_callers_have_the_same(served: Live) -> None:
    async def ask() -> tuple[object, list[ServedAnswer], list[object]]:
        client = AsyncClient(served.url)
        states = [state async for state in client.stream(np.array([-1.0, 4.0]))]
        many = await asyncio.gather(*(client.certify(np.array([-1.0, place])) for place in range(4)))
        return await client.predict(FAR), states, many

    predicted, states, many = asyncio.run(ask())
    assert predicted.predicted == 0
    assert states[-1].final
    assert all(answer.radius > 0.5 for answer in many)


def test_refusals_are_errors_with_a_status(served: Live, tmp_path) -> None:
    client = Client(served.url)
    with pytest.raises(ServiceError, match=r"\[3\].*\[2\]") as wrong:
        client.certify(np.zeros(3))
    assert wrong.value.status == 422
    with unanswered() as nowhere, pytest.raises(ServiceError, match=nowhere.rstrip("/")) as unreachable:
        Client(nowhere, timeout=2).plan()
    assert unreachable.value.status == 0
    with pytest.raises(InvalidValueError, match=r"'127\.0\.0\.1:8000'"):
        Client("127.0.0.1:8000")
    with pytest.raises(InvalidValueError, match="<U1"):
        client.certify(["a"])
    key = new_key(tmp_path / "keys", "alice")
    with live(keys=Keys.read(tmp_path / "keys")) as server:
        with pytest.raises(ServiceError) as locked:
            Client(server.url).plan()
        assert locked.value.status == 401
        assert Client(server.url, key).plan()["sha256"]
        assert Client(server.url, f"{key}\n").plan()["sha256"], "as it is read from a file"
    with pytest.raises(InvalidValueError) as refused:
        Client(server.url, "two\r\nlines")
    assert "two" not in str(refused.value), "a key is never shown"


@pytest.mark.parametrize("head", [b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 9999\r\n"])
def test_a_stream_that_is_cut_off_is_an_error_and_not_an_end(head: bytes) -> None:
    event = b'event: votes\ndata: {"predicted": 0, "radius": 0.5, "abstained": false, "votes": 64}\n\n'
    body = b"%x\r\n%s\r\n" % (len(event), event) if b"chunked" in head else event
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)

        def answer() -> None:
            line, _ = listening.accept()
            with line:
                line.settimeout(60)
                while not line.recv(65536).endswith(b"\x00"):
                    """Until the whole array is there; its last byte is one of zero."""
                line.sendall(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)

        thread = threading.Thread(target=answer)
        thread.start()
        states = Client(f"http://127.0.0.1:{listening.getsockname()[1]}").stream(np.zeros(2))
        assert next(states).radius == 0.5
        with pytest.raises(ServiceError) as cut:
            next(states)
        assert cut.value.status == 0
        join(thread)


def test_a_patient_client_asks_again_when_it_is_told_to() -> None:
    model = Edge()
    with live(model, limits=Limits(engine=EngineLimits(queue=1, per_caller=1))) as server:
        model.open.clear()
        thread = threading.Thread(target=Client(server.url).certify, args=(FAR,))
        thread.start()
        until(lambda: server.service.engine.load().inputs)
        with pytest.raises(ServiceError) as busy:
            Client(server.url).certify(-FAR)
        assert busy.value.status == 429
        assert busy.value.retry_after is not None
        threading.Timer(0.2, model.open.set).start()
        assert Client(server.url, patience=30).certify(-FAR).predicted == 1
        join(thread)
