"""``python -m benchmarks.serve_load``: 32 callers on loopback, bounded in count and time.

Votes a second through HTTP over those of CERTIFY on the same model, in turns in one process; how long a prediction and
a decision take; what a server gets to hear at twice what its queue holds; what 1000 clients that leave leave behind.
Callers are processes of their own; random weights of LeNet don't matter to speed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import psutil
from rich.console import Console

from smoothcert.architectures import ModelSpec, initialise
from smoothcert.client import Client, ServiceError
from smoothcert.service.application import make_application
from smoothcert.service.limits import Limits
from smoothcert.service.server import make_server
from smoothcert.service.service import Service
from smoothcert.service.waiting_room import EngineLimits
from smoothcert.smoothing import SmoothedClassifier

SHAPE = (1, 28, 28)
CALLERS = 32


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


def ask(url: str, kind: str, count: int, seconds: float) -> dict[str, Any]:
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
    return {"seconds": time.perf_counter() - began, "took": took, "statuses": dict(statuses)}


def asked(url: str, kind: str, count: int, seconds: float) -> dict[str, Any]:
    """The same from a process of its own."""
    words = [sys.executable, "-m", "benchmarks.serve_load", "--ask", url, kind, str(count), str(seconds)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def throughput(n: int, repeats: int, say: Callable[[str], None]) -> None:
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
            through, cost_there = votes / seconds, (time.process_time() - spent) / votes
            ratios.append(through / alone)
            costs.append(cost / cost_there)
            say(
                f"  certify {alone:7.0f} votes/s, serve {through:7.0f}: {through / alone:.2f}; by the processor's time "
                f"{cost / cost_there:.2f}"
            )
    say(
        f"votes a second, serve / certify: {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f}); by "
        f"the processor's time, on a machine that others use, {statistics.median(costs):.2f} "
        f"({min(costs):.2f}–{max(costs):.2f})"
    )


def latency(kind: str, count: int, say: Callable[[str], None]) -> None:
    with served(100_000, Limits(requests_per_minute=10**6)) as (_, url):
        asked(url, kind, 1, 60)
        found = asked(url, kind, count, 60)
        took = np.quantile(found["took"], [0.5, 0.99])
        say(
            f"{kind}: {len(found['took'])} answers to {CALLERS} callers, p50 {took[0] * 1e3:.0f} ms, p99 "
            f"{took[1] * 1e3:.0f} ms, statuses {found['statuses']}"
        )


def overload(seconds: float, say: Callable[[str], None]) -> None:
    limits = Limits(
        requests_per_minute=10**6, engine=EngineLimits(queue=CALLERS // 2, per_caller=CALLERS // 2)
    )
    with served(2000, limits) as (_, url):
        asked(url, "certify", 10, seconds / 3)
        before = _resident()
        found = asked(url, "certify", 10**6, seconds)
        say(
            f"twice what the queue holds, {seconds:.0f} s: statuses {found['statuses']}, memory "
            f"{(_resident() - before) / 2**20:+.1f} MiB"
        )


def leaving(clients: int, say: Callable[[str], None]) -> None:
    limits = Limits(requests_per_minute=10**6, connections=2 * clients)
    with served(10**6, limits) as (service, url):
        host, port = url.removeprefix("http://").split(":")
        for part, count in (("warm", 50), ("counted", clients)):
            if part == "counted":
                before = _resident()
            for number in range(count):
                body = json.dumps({"inputs": [picture(number).tolist()]}).encode()
                head = "POST /v1/certify HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                head += f"Content-Length: {len(body)}"
                with socket.create_connection((host, int(port))) as line:
                    line.sendall(head.encode() + b"\r\n\r\n" + body[: len(body) if number % 4 else 100])
            until = time.monotonic() + 60
            while (service.engine.load().inputs or service.engine._votings) and time.monotonic() < until:
                time.sleep(0.1)
        load = service.engine.load()
        say(
            f"{clients} clients that left: {load.inputs} inputs waiting, {len(service.engine._votings)} under way, "
            f"memory {(_resident() - before) / 2**20:+.1f} MiB, {load.kept} inputs' votes kept"
        )


def _resident() -> int:
    return int(psutil.Process(os.getpid()).memory_info().rss)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=4000, help="votes for an input, for the throughput")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--count", type=int, default=20, help="questions of each caller, for the latencies")
    parser.add_argument("--seconds", type=float, default=20.0, help="of overload")
    parser.add_argument("--clients", type=int, default=1000, help="that leave")
    parser.add_argument("--ask", nargs=4, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    arguments = _parser().parse_args()
    if arguments.ask:
        url, kind, count, seconds = arguments.ask
        json.dump(ask(url, kind, int(count), float(seconds)), sys.stdout)
        return
    say = Console(highlight=False).print
    throughput(arguments.n, arguments.repeats, say)
    latency("predict", arguments.count, say)
    latency("decide", arguments.count, say)
    overload(arguments.seconds, say)
    leaving(arguments.clients, say)


if __name__ == "__main__":
    main()
