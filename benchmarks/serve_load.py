"""``python -m benchmarks.serve_load``: 32 callers on loopback, bounded in count and time.

Votes a second through HTTP over those of CERTIFY on the same model, in turns in one process; how long a prediction and
a decision take; what a server gets to hear at twice what its queue holds; what 1000 clients that leave leave behind.
Callers are processes of their own; random weights of LeNet don't matter to speed.

``python -m benchmarks.serve_load attack``: hostile pictures beside one caller who asks `predict` of `smoothcert serve`.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Spread, command_line, status_bytes
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.architectures.weights import save_model
from smoothcert.client import Client, ServiceError
from smoothcert.service.application import make_application
from smoothcert.service.limits import EngineLimits, Limits
from smoothcert.service.server import make_server
from smoothcert.service.service import Service
from smoothcert.smoothing.classifier import SmoothedClassifier

SHAPE = (1, 28, 28)
CALLERS = 32

app = command_line("serve_load", __doc__)


def classifier(n: int) -> SmoothedClassifier:
    model = initialise(ModelSpec("lenet", SHAPE, tuple("0123456789")), seed=0)
    return SmoothedClassifier(model, sigma=0.25, n=n, n0=100, bound="mixture-two-class", levels=255)


def picture(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, SHAPE) / 255


@contextmanager
def served(n: int, limits: Limits) -> Iterator[tuple[Service, str]]:
    """A server in a thread of this process."""
    service = Service(classifier(n), SHAPE, limits=limits)
    ready, address = threading.Event(), []

    def started(url: str) -> None:
        address.append(url)
        ready.set()

    server = make_server(make_application(service), "127.0.0.1", 0, 1.0, started)
    thread = threading.Thread(target=server.run)
    thread.start()
    ready.wait()
    try:
        yield service, address[0]
    finally:
        server.should_exit = True
        thread.join()


@app.command(show=False)
def ask(url: str, kind: str, count: int, seconds: float) -> None:
    """The callers' side: each asks ``count`` times, or until the time is up; how long each took and what came back."""
    took: list[float] = []
    statuses: Counter[int] = Counter()
    until, lock = time.monotonic() + seconds, threading.Lock()

    def caller(name: int) -> None:
        client = Client(url)
        for number in range(count):
            if time.monotonic() > until:
                return
            x, began, status = picture(random.randrange(2**60) + name + number), time.perf_counter(), 200
            try:
                if kind == "predict":
                    client.predict(x, votes=1000)
                elif kind == "decide":
                    client.certify(x, radius=0.1)
                else:
                    client.certify(x, deadline=200)
            except ServiceError as error:
                status = error.status
            with lock:
                took.append(time.perf_counter() - began)
                statuses[status] += 1

    threads = [threading.Thread(target=caller, args=(name,)) for name in range(CALLERS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    json.dump({"seconds": time.perf_counter() - began, "took": took, "statuses": dict(statuses)}, sys.stdout)


def asked(url: str, kind: str, count: int, seconds: float) -> dict[str, Any]:
    """The callers in a process of their own."""
    words = [sys.executable, "-m", "benchmarks.serve_load", "ask", url, kind, str(count), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@app.default
def load(
    *, n: int = 4000, repeats: int = 3, count: int = 20, seconds: float = 20.0, clients: int = 1000
) -> None:
    """Put callers on a server on loopback and say what they got.

    Parameters
    ----------
    n:
        Votes for an input, for the throughput.
    count:
        Questions of each caller, for the latencies.
    seconds:
        Of overload.
    clients:
        That leave before they get an answer.
    """
    throughput(n, repeats)
    latency("predict", count)
    latency("decide", count)
    overload(seconds)
    leaving(clients)


def throughput(n: int, repeats: int) -> None:
    plain, ratios, costs = classifier(n), [], []
    inputs = [(place, picture(place)) for place in range(CALLERS)]
    list(plain.certify_each(inputs[:1]))
    with served(n, Limits()) as (service, url):
        asked(url, "predict", 1, 30)
        for _ in range(repeats):
            began, spent = time.perf_counter(), time.process_time()
            list(plain.certify_each(inputs))
            votes = CALLERS * (n + 100)
            alone, cost = votes / (time.perf_counter() - began), (time.process_time() - spent) / votes
            before, spent = service.engine.load().votes_cast, time.process_time()
            seconds = asked(url, "certify", 1, 300)["seconds"]
            votes = service.engine.load().votes_cast - before
            ratios.append(votes / seconds / alone)
            costs.append(cost / ((time.process_time() - spent) / votes))
    print(
        f"votes a second, serve / certify: {Spread.range(ratios)}; by the processor's time {Spread.range(costs)}"
    )


def latency(kind: str, count: int) -> None:
    with served(100_000, Limits(requests_per_minute=10**6)) as (_, url):
        asked(url, kind, 1, 60)
        answers = asked(url, kind, count, 60)
    middle, slow = 1e3 * np.quantile(answers["took"], [0.5, 0.99])
    print(
        f"{kind}: {len(answers['took'])} answers to {CALLERS} callers, p50 {middle:.0f} ms, p99 {slow:.0f} ms, ",
        end="",
    )
    print(f"statuses {answers['statuses']}")


def overload(seconds: float) -> None:
    limits = Limits(
        requests_per_minute=10**6, engine=EngineLimits(queue=CALLERS // 2, per_caller=CALLERS // 2)
    )
    with served(2000, limits) as (_, url):
        asked(url, "certify", 10, seconds / 3)
        before = status_bytes("VmRSS")
        statuses = asked(url, "certify", 10**6, seconds)["statuses"]
        grown = (status_bytes("VmRSS") - before) / 2**20
    print(f"twice what the queue holds, {seconds:.0f} s: statuses {statuses}, memory {grown:+.1f} MiB")


def leaving(clients: int) -> None:
    limits = Limits(requests_per_minute=10**6, connections=2 * clients)
    with served(10**6, limits) as (service, url):
        host, port = url.removeprefix("http://").split(":")
        for count in (50, clients):  # the first ones warm up
            before = status_bytes("VmRSS")
            for number in range(count):
                body = json.dumps({"inputs": [picture(number).tolist()]}).encode()
                head = "POST /v1/certify HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                head += f"Content-Length: {len(body)}"
                with socket.create_connection((host, int(port))) as line:
                    line.sendall(head.encode() + b"\r\n\r\n" + body[: len(body) if number % 4 else 100])
            until = time.monotonic() + 60
            while (service.engine.load().inputs or service.engine._votings) and time.monotonic() < until:
                time.sleep(0.1)
        waiting, voting = service.engine.load().inputs, len(service.engine._votings)
        grown = (status_bytes("VmRSS") - before) / 2**20
    print(
        f"{clients} clients that left: {waiting} inputs waiting, {voting} under way, memory {grown:+.1f} MiB"
    )


def repeated_scans(scans: int) -> bytes:
    """A progressive JPEG of 2^24 pixels whose last scan comes again and again."""
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.new("RGB", (4096, 4096), (90, 120, 200)).save(file, "JPEG", progressive=True)
    content = file.getvalue()
    last = content.rindex(b"\xff\xda")
    return content[:last] + content[last:-2] * scans + content[-2:]


def flat_png(width: int, height: int) -> bytes:
    """A PNG of one colour; of more than 2^24 pixels only the first rows are there."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixels = zlib.compress(bytes((width + 1) * min(height, (1 << 24) // width)), 9)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def hostile_pictures() -> list[bytes]:
    """Beyond the limits by their headers, and within all limits and as slow as those allow."""
    sizes = (1, 1 << 24), (60_000, 60_000), (4096, 4096)
    scans = 1000, 50, 7  # beside the nine that each has
    return [*map(repeated_scans, scans), *(flat_png(*size) for size in sizes)]


@dataclass
class Heard:
    """Seconds and statuses of one side's requests; a connection that was closed is status 0."""

    took: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)

    def post(self, port: int, address: str, body: bytes, kind: str) -> None:
        """One question and its answer."""
        began, status = time.perf_counter(), 0
        with suppress(OSError, HTTPException):
            connection = HTTPConnection("127.0.0.1", port, timeout=60, source_address=(address, 0))
            connection.request("POST", "/v1/predict", body, {"Content-Type": kind})
            response = connection.getresponse()
            response.read()
            status = response.status
            connection.close()
        self.took.append(time.perf_counter() - began)
        self.statuses[status] += 1

    def __str__(self) -> str:
        p50, p99 = 1e3 * np.quantile(self.took, [0.5, 0.99])
        return f"{len(self.took)} answers, p50 {p50:.0f} ms, p99 {p99:.0f} ms, statuses {dict(self.statuses)}"


@contextmanager
def attacked(port: int, callers: int, connections: int) -> Iterator[Heard]:
    """So many addresses send hostile pictures over so many connections each, until the block ends."""
    heard, pictures, over = Heard(), hostile_pictures(), threading.Event()

    def send(address: str, number: int) -> None:
        while not over.is_set():
            body = pictures[number % len(pictures)]
            heard.post(port, address, body, "image/png" if body.startswith(b"\x89") else "image/jpeg")
            number += 1

    senders = [(f"127.0.1.{caller + 1}", first) for caller in range(callers) for first in range(connections)]
    threads = [threading.Thread(target=send, args=sender) for sender in senders]
    for thread in threads:
        thread.start()
    try:
        yield heard
    finally:
        over.set()
        for thread in threads:
            thread.join()


def resident(root: int) -> int:
    """Bytes of a process and its descendants that lie in memory, shared pages counted for each."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    family = {root}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    pages = 0
    for member in family:
        with suppress(OSError):
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def command_served(*options: str) -> Iterator[tuple[int, int]]:
    """`smoothcert serve` of LeNet in a process of its own; its number and its port."""
    with tempfile.TemporaryDirectory() as directory:
        spec = ModelSpec("lenet", SHAPE, tuple("0123456789"))
        model = save_model(initialise(spec, seed=0), spec, Path(directory) / "lenet.safetensors")
        words = [sys.executable, "-m", "smoothcert", "serve", str(model), "--sigma", "0.25", "--port", "0"]
        words += ["--max-requests", "1000000", "--json", *options]
        server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            yield server.pid, int(url.rpartition(":")[2])
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(60)


@app.command
def attack(*, rounds: int = 3, count: int = 100, callers: int = 2, connections: int = 4) -> None:
    """One caller asks alone and beside attackers, in turns; then sends a legal picture, alone and beside them.

    Parameters
    ----------
    rounds:
        Of both.
    count:
        Predictions in each turn, and a tenth of that of pictures.
    callers:
        Addresses that attack, each over so many ``connections``.
    """
    sides = {(kind, under): Heard() for kind in ("predict", "picture") for under in (False, True)}
    answers, largest, over = Heard(), 0, threading.Event()
    legal, seeds = flat_png(1000, 1000), itertools.count()
    with command_served("--n", "100000") as (process, port):

        def watch() -> None:
            nonlocal largest
            while not over.wait(0.05):
                largest = max(largest, resident(process))

        def ask(under: bool) -> None:
            for _ in range(count):  # other inputs each time: votes on these are cast, and not remembered
                file = io.BytesIO()
                np.save(file, picture(next(seeds)))
                sides["predict", under].post(port, "127.0.0.1", file.getvalue(), "application/x-npy")
            for _ in range(max(1, count // 10)):
                sides["picture", under].post(port, "127.0.0.1", legal, "image/png")

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            for _ in range(rounds):
                ask(False)
                with attacked(port, callers, connections) as heard:
                    ask(True)
                answers.took += heard.took
                answers.statuses += heard.statuses
        finally:
            over.set()
            watching.join()
    for (kind, under), heard in sides.items():
        print(f"{kind}, {'under attack' if under else 'alone'}: {heard}")
    print(f"attackers: {answers}")
    print(f"server and decoders: {largest / 2**20:.0f} MiB at most, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    app()
