"""Pictures in requests, and the turns of those who send them."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.service.application import _Reader
from smoothcert.service.limits import FairSlots, Limits
from smoothcert.service.pictures import MOST_SCANS, MOST_SIDE, PictureDecoder, TooLargeError, decoded
from tests.service.made import SHAPE, live, service, smoothed


def png(size: tuple[int, int], mode: str = "L") -> bytes:
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.new(mode, size, (200,) * len(mode)).save(file, "PNG")
    return file.getvalue()


def test_pictures_are_inputs_and_bombs_are_refused() -> None:
    same = decoded(png((8, 6)), (1, 6, 8), 1000)
    assert same.shape == (1, 6, 8)
    assert np.all(same == 200 / 255)
    assert decoded(png((16, 12)), (3, 6, 8), 1000).shape == (3, 6, 8)
    for size, most in (((5000, 5000), 1 << 20), ((1, MOST_SIDE + 1), 1 << 20)):
        with pytest.raises(TooLargeError, match=rf"{size[0]}x{size[1]}.*{most}.*{MOST_SIDE}"):
            decoded(png(size), (1, 6, 8), most)
    header = png((8, 6)).replace(
        (8).to_bytes(4, "big") + (6).to_bytes(4, "big"), (60_000).to_bytes(4, "big") * 2
    )
    fixed = header[:29] + zlib.crc32(header[12:29]).to_bytes(4, "big") + header[33:]
    with pytest.raises(TooLargeError, match="60000x60000"):
        decoded(fixed, (1, 6, 8), 1 << 20)
    with pytest.raises(TooLargeError, match=r"3000x3000.*16777216"):
        decoded(many_scans(40), (1, 6, 8), 1 << 24)
    for damaged in (png((8, 6))[:40], b"%!PS-Adobe-3.0 EPSF-3.0\n"):
        with pytest.raises(DataError, match="UnidentifiedImageError"):
            decoded(damaged, (1, 6, 8), 1000)


def many_scans(scans: int) -> bytes:
    """A progressive JPEG whose scans are repeated: a second of decoding for a few of them."""
    pillow = pytest.importorskip("PIL.Image")
    file = io.BytesIO()
    pillow.effect_noise((3000, 3000), 50).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + content[-2:]


@pytest.mark.system
def test_a_picture_ends_with_its_time_and_its_memory() -> None:
    """Its process is ended; the next picture has another."""

    async def ask() -> None:
        decoder = PictureDecoder(30.0, memory=48 << 20)
        try:
            with pytest.raises(TooLargeError, match="memory"):
                await decoder.decode(png((4500, 4500), "RGB"), (3, 6, 8), 1 << 25)
            small = await decoder.decode(png((16, 12)), (3, 6, 8), 1000)
            assert np.array_equal(small, decoded(png((16, 12)), (3, 6, 8), 1000))
            assert decoder._process is not None
            own = os.getpriority(os.PRIO_PROCESS, 0)
            assert os.getpriority(os.PRIO_PROCESS, decoder._process.pid) > min(own, 18)  # votes come first
        finally:
            await decoder.close()
        decoder = PictureDecoder(0.3)
        try:
            with pytest.raises(TooLargeError, match=r"0\.3 s"):
                await decoder.decode(many_scans(15), (1, 6, 8), 1 << 24)
            with pytest.raises(TooLargeError, match=str(MOST_SCANS)):
                await decoder.decode(many_scans(MOST_SCANS + 1), (1, 6, 8), 1 << 24)
            with pytest.raises(InvalidValueError, match=r"\[7\]"):
                await decoder.decode(png((8, 6)), (7,), 1000)
            assert (await decoder.decode(png((8, 6)), (1, 6, 8), 1000)).shape == (1, 6, 8)
        finally:
            await decoder.close()
        decoder = PictureDecoder(30.0)
        try:
            leaving = asyncio.create_task(decoder.decode(many_scans(5), (1, 4, 4), 1 << 24))
            while decoder._process is None:
                await asyncio.sleep(0.01)
            leaving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await leaving
            assert (await decoder.decode(png((8, 6)), (1, 6, 8), 1000)).shape == (1, 6, 8), (
                "not of the one before"
            )
        finally:
            await decoder.close()

    asyncio.run(ask())


def test_callers_take_turns() -> None:
    """Ten of one caller's and two of others' for two slots: no other waits for more than one of the ten."""

    async def ask() -> list[str]:
        slots, order = FairSlots(2), list[str]()

        async def use(caller: str) -> None:
            async with slots.taken(caller):
                order.append(caller)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(use("crowd")) for _ in range(10)]
            await asyncio.sleep(0.005)
            tasks[4].cancel()
            for caller in ("one", "two", "one"):
                group.create_task(use(caller))
        return order

    order = asyncio.run(ask())
    assert order[0] == "crowd"
    assert order.count("crowd") == 9
    assert max(place for place, caller in enumerate(order) if caller != "crowd") < 6


@pytest.mark.parametrize(
    ("callers", "order"),
    [("most most some idle", "most idle some most"), ("most most most tied", "most most tied most")],
)
def test_callers_who_have_spent_least_are_next_and_others_alternate(callers: str, order: str) -> None:
    async def ask() -> list[str]:
        left = {"idle": 3.0, "some": 2.0, "most": 1.0, "tied": 1.0}
        slots, served = FairSlots(1, left.__getitem__), list[str]()

        async def use(caller: str) -> None:
            async with slots.taken(caller):
                served.append(caller)
                await asyncio.sleep(0.01)

        async with asyncio.TaskGroup() as group:
            for caller in callers.split():
                group.create_task(use(caller))
        return served

    assert asyncio.run(ask()) == order.split()


def test_callers_pay_for_reading_and_for_the_process_that_ends_when_they_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Starting another takes longer than any picture that is left at once. Deadlines count from arrival."""
    seconds, wanted = 0.3, []

    async def slow(*_: object) -> np.ndarray:
        await asyncio.sleep(seconds)
        return np.zeros(SHAPE)

    async def predict(*asked: Any) -> list[Any]:
        wanted.append((asked[-1], asyncio.get_running_loop().time()))
        return []

    monkeypatch.setattr(PictureDecoder, "decode", slow)
    with live(limits=Limits(reading_per_minute=800)) as server:
        monkeypatch.setattr(server.service, "predict", predict)

        def ask(query: str = "") -> tuple[int, bytes]:
            status, _, told = server.ask("POST", f"/v1/predict{query}", b"picture", content_type="image/png")
            return status, told

        assert ask()[0] == 200
        ((options, now),) = wanted
        assert options.arrived <= now - seconds
        assert server.service.reading.left("address 127.0.0.1") < 800
        seconds = 60.0
        assert ask("?deadline=0.05")[0] == 429
        status, told = ask()
        assert status == 429
        assert b"800 milliseconds" in told


def test_pictures_of_who_has_read_least_are_next(monkeypatch: pytest.MonkeyPatch) -> None:
    order, over = [], asyncio.Event()

    async def slow(_: object, content: bytes, *__: object) -> np.ndarray:
        order.append(content)
        await over.wait()
        return np.zeros(SHAPE)

    async def ask(reader: _Reader) -> None:
        async with asyncio.TaskGroup() as group:
            for caller in ("busy", "here", "most", "least"):
                group.create_task(reader.read(caller, caller.encode(), "image/png", ()))
                await asyncio.sleep(0)
            over.set()

    monkeypatch.setattr(PictureDecoder, "decode", slow)
    with closing(service(smoothed())) as served:
        served.reading.spend("most", 1000)
        asyncio.run(ask(_Reader(served)))
    assert order == [b"busy", b"here", b"least", b"most"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of the loopback network")
def test_pictures_of_some_do_not_hold_up_the_numbers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two addresses whose pictures take for ever, and a third that asks with JSON."""
    decoding, over = threading.Semaphore(0), threading.Event()

    async def slow(*_: object) -> np.ndarray:
        decoding.release()
        while not over.is_set():
            await asyncio.sleep(0.01)
        return np.zeros(SHAPE)

    monkeypatch.setattr(PictureDecoder, "decode", slow)

    def send(address: str) -> int:
        connection = HTTPConnection("127.0.0.1", server.port, timeout=30, source_address=(address, 0))
        try:
            connection.request("POST", "/v1/predict", b"picture", {"Content-Type": "image/png"})
            return connection.getresponse().status
        finally:
            connection.close()

    with live() as server, ThreadPoolExecutor(2) as pool:
        try:
            attacks = [pool.submit(send, f"127.0.0.{number}") for number in (2, 3)]
            assert all(decoding.acquire(timeout=20) for _ in attacks)
            status, _, answer = server.post("/v1/predict?deadline=5", {"inputs": [[0.0, 0.0]]})
            assert (status, answer["results"][0]["predicted"]) == (200, 0), answer
        finally:
            over.set()
        assert [attack.result() for attack in attacks] == [200, 200]
