"""Probes: fixed batches that show what a model would do wrong before any vote is cast, and what function it is."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from smoothcert.errors import DependentVotesError, ModelError
from smoothcert.sampling.ballots import OutputKind, labels_of
from smoothcert.sampling.threads import worker_threads

Outputs = Callable[[torch.Tensor], torch.Tensor]

_SEED = 20190208
_THREADS, _ROUNDS, _MOST_ROUNDS = 2, 2, 64  # of the probe of concurrent passes
_RANGES = (
    (10.0, -5.0),
    (255.0, 0.0),
    (1.0, 1.0),
    (1000.0, 1.0),
)  # times a row, plus: where others are no numbers
_SECONDS = 0.05  # that it goes on for where passes are short: races are rare in them
_SWITCH = 1e-5  # seconds after which the interpreter changes threads meanwhile: races show sooner

# Scores of equal rows may differ by what rounding does in other places of a batch: relative to a score itself, and
# relative to the median of its row (a score near zero is the difference of larger numbers). What lies far beyond the
# two scores that a vote is between, a mask of −1e9 say, tells nothing of how they were computed: it takes no part.
_RELATIVE, _OF_ROW = 1e-3, 1e-4
_IN_FLOAT64 = 1e-6  # of these, where passes are computed in float64
_BEYOND, _MASKED = 30.0, 1e3

# How finely answers are hashed, relative to the largest of their row, and how many. A rounded value changes when a last
# bit moves it over an edge. In float64 that is next to impossible. Where the arithmetic may be float32 they are few and
# coarse: even so, about one function in fifty would get another fingerprint on another kind of processor.
_COARSE, _FINE = (1e-3, 8), (1e-4, 32)


def probe_rows(rows: int, input_shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Fixed pseudo-random rows in [0, 1), for probing and fingerprinting models."""
    generator = torch.Generator().manual_seed(_SEED)
    return torch.rand((rows, *input_shape), generator=generator, dtype=torch.float32).to(dtype)


@dataclass(frozen=True)
class Probe:
    """A batch and the model's undisturbed answers to it."""

    rows: torch.Tensor
    answers: torch.Tensor

    @property
    def mostly_nan(self) -> bool:
        """Whether so few rows have a number that hardly anything can be compared."""
        return self.answers.is_floating_point() and bool(_rows_with_nan(self.answers).double().mean() > 0.5)


def telling(ask: Outputs, first: Probe) -> Probe:
    """The probe, or where the model is no number on most of its rows, the same rows in a range where it is."""
    for scale, shift in _RANGES:
        if not first.mostly_nan:
            break
        moved = scale * first.rows + shift
        try:
            found = Probe(moved, ask(moved))
        except ModelError:  # it may refuse what is out of its range
            continue
        first = first if found.mostly_nan else found
    return first


def check_rows(
    name: str, ask: Outputs, first: Probe, kind: OutputKind, eps: float, cause: str
) -> tuple[Probe, bool]:
    """Refuse a model that gives any row another answer in another place and among other rows; ``cause``: the usual one.

    Half of the rows are moved among new rows in one pass, the other half in another. Returns the last of them, and
    whether all answers were the same to the last bit.
    """
    rows = first.rows
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(_SEED))
    moved = rows[order]
    place = torch.arange(len(rows)).reshape(-1, *[1] * (rows.ndim - 1))
    probe, to_the_bit = first, True
    for half, others in enumerate((10 * rows.flip(0) - 5, 255 * rows.flip(0))):
        batch = torch.where(place % 2 == half, moved, others)
        try:
            probe = Probe(batch, ask(batch))
        except ModelError:  # it may refuse what is out of its range, which the probe's own rows are not
            batch = torch.where(place % 2 == half, moved, 1 - rows.flip(0))
            probe = Probe(batch, ask(batch))
        expected, found = first.answers[order[half::2]], probe.answers[half::2]
        if not same_answers(expected, found, kind, eps):
            raise DependentVotesError(
                f"{name} gives a row another answer when the rest of the batch changes, or its place; votes must be "
                f"independent. The usual cause: {cause}"
            )
        to_the_bit &= torch.equal(expected, found)
    return probe, to_the_bit


def check_again(name: str, ask: Outputs, first: Probe, kind: OutputKind, eps: float) -> None:
    """Refuse a model that answers the same rows differently the second time."""
    if not same_answers(first.answers, ask(first.rows), kind, eps):
        raise DependentVotesError(
            f"{name} gives another answer to the same rows; votes must be independent. The usual causes: a "
            "random layer, or something remembered from the passes before"
        )


def check_kept(name: str, ask: Outputs, probes: Sequence[Probe], kind: OutputKind, eps: float) -> None:
    """Refuse a model that writes to the batch of an earlier pass, or knows a batch by its place in memory.

    ``ask`` shows the model the very memory that it is given. Votes are drawn into memory of their own for each pass,
    but such a model isn't a function of its rows.
    """
    room = probes[0].rows.clone()
    for one in probes:
        room.copy_(one.rows)
        if not same_answers(one.answers, ask(room), kind, eps):
            raise ModelError(
                f"{name} keeps the batch that it is given and writes to it in a later pass, when it holds other rows: "
                "keep a copy of it"
            )


def check_draws(name: str, ask: Outputs, first: Probe, before: torch.Tensor) -> None:
    """Refuse a model that uses torch's random generator, which all workers would share.

    The generator isn't touched unless it has moved since ``before``. Another thread may have done that: the model is
    asked once more.
    """
    state = torch.get_rng_state()
    if torch.equal(state, before):
        return
    try:
        alone = torch.manual_seed(_SEED).get_state()
        ask(first.rows)
        moved = not torch.equal(alone, torch.get_rng_state())
    finally:
        torch.set_rng_state(state)
    if moved:
        raise ModelError(
            f"{name} draws random numbers or seeds torch while it is evaluated: with several workers its answers would "
            "depend on their order. Remove that, or, if its answers are the same every time, let one worker do the "
            "work: thread_safe=False (--no-thread-safe)"
        )


def check_together(name: str, ask: Outputs, probes: Sequence[Probe], kind: OutputKind, eps: float) -> None:
    """Refuse a model whose passes disturb one another when several threads evaluate it at the same time."""
    gate = threading.Barrier(_THREADS)

    def passes(thread: int) -> bool:
        with torch.inference_mode():
            gate.wait()
            began = time.perf_counter()
            for turn in range(_MOST_ROUNDS):
                one = probes[(thread + turn) % len(probes)]
                if not same_answers(one.answers, ask(one.rows), kind, eps):
                    return False
                if turn + 1 >= _ROUNDS and time.perf_counter() - began > _SECONDS:
                    break
            return True

    with _eager_switching(), worker_threads(_THREADS) as pool:
        alike = all(pool.map(passes, range(_THREADS)))
    if not alike:
        raise DependentVotesError(
            f"{name} gives other answers when several workers evaluate it at once: it keeps what one pass computes "
            "where another finds it (a global, an object that its copies share). Keep it in local variables or on the "
            "module itself, or let one worker do the work: thread_safe=False (--no-thread-safe)"
        )


@contextmanager
def _eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def same_answers(expected: torch.Tensor, found: torch.Tensor, kind: OutputKind, eps: float) -> bool:
    """Whether two evaluations of the same rows agree."""
    return not bool(differing_rows(expected, found, kind, eps).any())


def differing_rows(expected: torch.Tensor, found: torch.Tensor, kind: OutputKind, eps: float) -> torch.Tensor:
    """Where two evaluations of the same rows disagree: labels, and scores by more than rounding.

    Labels may differ only between two scores that rounding could have swapped. Where one is no number (no vote: refused
    when it is to be one) the other must be none either.
    """
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return torch.ones(len(expected), dtype=torch.bool)
    expected, found = expected.cpu(), found.cpu()
    if kind == "labels" or not expected.is_floating_point():
        return _in_rows(expected != found)
    differing = _in_rows(expected.isnan() != found.isnan())
    numbers = torch.nonzero(~differing & ~_rows_with_nan(expected))[:, 0]
    expected, found = expected[numbers], found[numbers]
    if not len(expected):
        return differing
    a, b = expected.double(), found.double()
    least = 1.0 if eps >= torch.finfo(torch.float32).eps else _IN_FLOAT64
    of_score, of_row = max(_RELATIVE * least, 8 * eps), max(_OF_ROW * least, 8 * eps)
    typical = of_row * torch.maximum(_typical_size(a), _typical_size(b))
    largest = torch.maximum(a.abs(), b.abs())
    allowed = torch.where(largest.isinf(), 0.0, of_score * largest + typical)
    moved = ~((a == b) | ((a - b).abs() <= allowed)).all(1)  # equal infinities differ by NaN
    first, second = (torch.from_numpy(labels_of(one))[:, None] for one in (expected, found))
    of_first, of_second = a.gather(1, first), a.gather(1, second)
    allowed = of_row * torch.maximum(of_first.abs(), of_second.abs()) + typical
    swapped = ~((first == second) | ((of_first - of_second).abs() <= allowed))[:, 0]
    differing[numbers] = moved | swapped
    return differing


def _rows_with_nan(answers: torch.Tensor) -> torch.Tensor:
    return _in_rows(answers.isnan())


def _in_rows(where: torch.Tensor) -> torch.Tensor:
    """Rows where it is so anywhere."""
    return where.flatten(1).any(1) if where.ndim > 1 else where


def _typical_size(scores: torch.Tensor) -> torch.Tensor:
    """The median size in each row, of scores that aren't far beyond the two that lead; at least the middle row's.

    What a row's scores are differences of is about as large in all rows of a batch: of very many rows, one has scores
    that are small by chance.
    """
    sizes = scores.abs()
    near = sizes <= _BEYOND * _leading_size(scores)
    found = torch.where(near, sizes, torch.nan).nanmedian(1, keepdim=True).values.nan_to_num(nan=0.0)
    return found.clamp(min=float(found.median()))


def _leading_size(scores: torch.Tensor) -> float:
    """How large, in a batch of rows, the two highest scores are: in the middle row, and on average if that is 0."""
    leading = scores.topk(2, dim=1).values.abs()
    found = torch.where(leading.isfinite(), leading, 0.0).amax(1)
    return float(found.median()) or float(found.mean())


def answer_bytes(answers: torch.Tensor, kind: OutputKind, *, fine: bool) -> bytes:
    """What a fingerprint keeps of a probe's answers: labels of all rows, and the first scores, rounded."""
    head = f"{tuple(answers.shape)} ".encode()
    if kind == "labels" or not answers.is_floating_point():
        return head + answers.cpu().numpy().tobytes()
    scores = _without_masks(answers.double().cpu()).numpy()
    step, most = _FINE if fine else _COARSE
    scale = np.max(np.abs(scores), axis=1, keepdims=True, where=np.isfinite(scores), initial=0.0)
    # The scale itself is hashed as a rounded logarithm: relative, like everything else.
    sizes = np.round(np.log(np.maximum(scale, 1e-300)) / step)
    with np.errstate(invalid="ignore"):
        steps = np.round(scores / np.maximum(scale, 1e-300) / step)
    steps = np.nan_to_num(steps, nan=1e18, posinf=2e18, neginf=-2e18).astype(np.int64)
    leading = np.sort(np.nan_to_num(scores, nan=np.inf), axis=1)[:, -2:]
    with np.errstate(invalid="ignore"):
        close = (leading[:, 1] - leading[:, 0]) <= step * scale[:, 0]
    labels = np.where(close, -1, np.nan_to_num(scores, nan=np.inf).argmax(1)).astype(np.int64)
    rows = -(-most // scores.shape[1])
    kept = steps[:rows].reshape(-1)[:most], sizes[:rows].astype(np.int64)
    return b"".join([head, labels.tobytes(), *(part.tobytes() for part in kept)])


def _without_masks(scores: torch.Tensor) -> torch.Tensor:
    """The scores, those of a mask made infinite: beside −1e9 all others would round to 0, and all labels be ties.

    Only where masks are far beyond whatever leads, in most rows: of other models all bytes stay as they were.
    """
    numbers = scores[~_rows_with_nan(scores)]
    leading = _leading_size(numbers) if len(numbers) else 0.0
    sizes = torch.where(numbers.isfinite(), numbers.abs(), 0.0).amax(1) if len(numbers) else torch.zeros(1)
    if leading == 0 or float(sizes.median()) <= _MASKED * leading:
        return scores
    return torch.where(scores.abs() > _MASKED * leading, scores.sign() * torch.inf, scores)
