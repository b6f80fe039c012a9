"""Metrics in Prometheus's text format: counters of what was asked and answered, and gauges of what waits."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter

from smoothcert.service.engine import Load

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts requests by path and status, and how long they took; labels are ours, never a caller's words."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()
        self._answers: Counter[str] = Counter()

    def request(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self._requests[path, status] += 1
            buckets = self._seconds.setdefault(path, [0] * (len(_BUCKETS) + 1))
            buckets[bisect_left(_BUCKETS, seconds)] += 1
            self._sums[path] += seconds  # type: ignore[assignment]

    def answer(self, kind: str) -> None:
        """An input was answered: certified, abstained, failed, or its caller had left."""
        with self._lock:
            self._answers[kind] += 1

    def text(self, load: Load) -> str:
        """Everything, for /metrics."""
        with self._lock:
            lines = [
                *_head("smoothcert_requests_total", "counter", "Requests by path and status."),
                *(
                    f'smoothcert_requests_total{{path="{path}",status="{status}"}} {count}'
                    for (path, status), count in sorted(self._requests.items())
                ),
                *_head("smoothcert_request_seconds", "histogram", "Time from a request to its answer."),
            ]
            for path, buckets in sorted(self._seconds.items()):
                total = 0
                for edge, count in zip((*_BUCKETS, "+Inf"), buckets):
                    total += count
                    lines.append(f'smoothcert_request_seconds_bucket{{path="{path}",le="{edge}"}} {total}')
                lines.append(f'smoothcert_request_seconds_sum{{path="{path}"}} {self._sums[path]:.6f}')
                lines.append(f'smoothcert_request_seconds_count{{path="{path}"}} {total}')
            lines += _head("smoothcert_answers_total", "counter", "Inputs answered, by kind of answer.")
            lines += [
                f'smoothcert_answers_total{{kind="{kind}"}} {count}'
                for kind, count in sorted(self._answers.items())
            ]
        for name, kind, words, value in (
            ("votes_total", "counter", "Votes cast.", load.votes_cast),
            (
                "votes_per_second",
                "gauge",
                "Votes cast a second, while busy.",
                round(load.votes_per_second, 3),
            ),
            ("inputs_waiting", "gauge", "Inputs that wait for votes.", load.inputs),
            ("callers_waiting", "gauge", "Callers that wait.", load.callers),
            ("votes_waiting", "gauge", "Votes that are asked for, at most.", load.votes_waiting),
            ("points_kept", "gauge", "Points whose votes are kept.", load.kept),
        ):
            lines += [*_head(f"smoothcert_{name}", kind, words), f"smoothcert_{name} {value}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]
