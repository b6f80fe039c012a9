"""Outputs: what a model's answers to a pass mean as votes, exact sums of them, and when two answers are the same.

One set of rules in torch's operations, for the CPU and for devices. Where answers lie on a device nothing is looked at:
what is wrong with a row is noted there, and told when the sums are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothcert.bounds.base import VoteKind
from smoothcert.errors import ModelError
from smoothcert.tally import SOFT_UNIT

OutputKind = Literal["labels", "scores", "probabilities"]

Note = Callable[[str, Tensor, Tensor | None], None]
"""Takes a problem, which rows have it, and labels where these are the problem."""

_SUM_TOLERANCE = 1e-3  # probabilities are divided by their sum; a larger error means they aren't any
_EXACT_IN_FLOAT64 = 1 << 53
_COMPARABLE = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1

_RANGE = "the model returned label {least}..{largest}, outside 0..{last}"
_NAN = "the model returned NaN: its weights or its input range may be broken"
_ROUNDED = "soft votes of whole numbers beyond 2**53 would be rounded: return float64 scores"
_INFINITE = "soft votes need finite scores: the model returned infinite ones, or none else in a row"
_NO_SHARES = "soft votes need probabilities: non-negative rows that sum to 1, or scores to softmax"
_PROBLEMS = (_RANGE, _NAN, _ROUNDED, _INFINITE, _NO_SHARES)


@dataclass(frozen=True)
class Ballots:
    """The votes of one pass: a label a row and, for soft votes, fixed-point probabilities and their squares."""

    labels: NDArray[np.int64]
    probabilities: NDArray[np.int64] | None = None
    squares: NDArray[np.int64] | None = None

    def part(self, start: int, rows: slice) -> Ballots:
        """The votes of these rows, counted from ``start``."""
        rows = slice(start + rows.start, start + rows.stop)
        return Ballots(*(column[rows] for column in self._columns()))

    @staticmethod
    def joined(parts: Sequence[Ballots]) -> Ballots:
        """All rows in order."""
        return Ballots(*map(np.concatenate, zip(*(part._columns() for part in parts))))

    def _columns(self) -> list[NDArray[np.int64]]:
        columns = (self.labels, self.probabilities, self.squares)
        return [column for column in columns if column is not None]


def read_ballots(outputs: Tensor, kind: OutputKind, classes: int, votes: VoteKind) -> Ballots:
    """The vote of each row; raises ModelError for anything that can't be one."""

    def refuse(problem: str, wrong: Tensor, labels: Tensor | None) -> None:
        if bool(wrong.any()):
            least, largest = (0, 0) if labels is None else (int(labels.min()), int(labels.max()))
            raise ModelError(_told(problem, least, largest, classes))

    columns = _columns(outputs.detach().cpu(), kind, classes, votes, refuse)
    return Ballots(*(column.numpy() for column in columns))


def labels_of(outputs: Tensor) -> NDArray[np.int64]:
    """The class of each row of scores: the first of the largest, compared in the model's own type."""
    return read_ballots(outputs, "scores", outputs.shape[1], "hard").labels


class VoteCounts:
    """The sums of a task's blocks and the rows of each that can't be votes, in one array that is read once."""

    def __init__(
        self, blocks: int, kind: OutputKind, classes: int, votes: VoteKind, order: Tensor | None, device: str
    ) -> None:
        """Class c of the votes is the model's class ``order[c]``, a tensor on the device; None: numbered alike."""
        self._blocks, self._kind, self._classes, self._votes = blocks, kind, classes, votes
        self._order, self._on_host = order, device == "cpu"
        self._columns = 3 if votes == "soft" else 1
        sizes = [self._columns * blocks * classes, len(_PROBLEMS) * blocks, 1, 1]
        self.held = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        sums, wrong, *self._labels = torch.split(self.held, sizes)
        if kind == "labels":
            self._labels[0].fill_(_LARGEST)
            self._labels[1].fill_(_LEAST)
        self._sums = sums.view(self._columns, blocks, classes)
        self._wrong = wrong.view(len(_PROBLEMS), blocks)

    def add(self, outputs: Tensor, parts: Tensor, whole: bool = False) -> None:
        """Count rows that belong to equal parts, one after the other.

        A row of ``parts`` has the place of the part's block in the task, and the first and the last of the part's rows
        that are counted, the last not included; ``whole`` says that these are all.
        """
        size = len(outputs) // len(parts)
        place, first, last = torch.split(parts, 1, 1)
        if whole:
            wanted = torch.ones((len(parts), size), dtype=torch.int64, device=parts.device)
        else:
            row = torch.arange(size, device=parts.device)
            wanted = ((row >= first) & (row < last)).to(torch.int64)

        def note(problem: str, wrong: Tensor, labels: Tensor | None) -> None:
            if self._on_host and not bool(wrong.any()):
                return
            rows = wrong.reshape(-1, size).sum(1)
            self._wrong[_PROBLEMS.index(problem)].scatter_add_(0, place.squeeze(1), rows)
            if labels is not None:
                torch.minimum(self._labels[0], labels.min(), out=self._labels[0])
                torch.maximum(self._labels[1], labels.max(), out=self._labels[1])

        labels, *shares = _columns(outputs, self._kind, self._classes, self._votes, note, self._order)
        class_places = labels.reshape(-1, size) + place * self._classes
        self._sums[0].view(-1).scatter_add_(0, class_places.view(-1), wanted.view(-1))
        blocks = place.expand(-1, self._classes)
        for sums, column in zip(self._sums[1:], shares):
            column = column.reshape(-1, size, self._classes)
            sums.scatter_add_(0, blocks, (column if whole else column * wanted.unsqueeze(2)).sum(1))

    def read(
        self, found: NDArray[np.int64], naming: Callable[[Sequence[int], str], ModelError]
    ) -> list[NDArray[np.int64]]:
        """Each block's votes for each class, and for soft votes the sums of probabilities and of squares.

        ``found`` is what was ``held``, on the host; raises ``naming``'s error for the blocks that went wrong.
        """
        counted = self._sums.numel()
        sums, wrong, labels = found[:counted], found[counted:-2], found[-2:]
        if wrong.any():
            rows = wrong.reshape(len(_PROBLEMS), self._blocks)
            problem = int(rows.any(1).argmax())
            reason = _told(_PROBLEMS[problem], int(labels[0]), int(labels[1]), self._classes)
            raise naming(np.flatnonzero(rows[problem]).tolist(), reason)
        by_block = sums.reshape(self._columns, self._blocks, self._classes).transpose(1, 0, 2)
        return list(np.ascontiguousarray(by_block))


def _columns(
    outputs: Tensor, kind: OutputKind, classes: int, votes: VoteKind, note: Note, order: Tensor | None = None
) -> list[Tensor]:
    """The columns of :class:`Ballots`; with rows that were noted, none is used."""
    if kind == "labels":
        if outputs.ndim != 1 or outputs.is_floating_point() or outputs.is_complex():
            raise ModelError(
                f"labels must be integers, one a row, got {outputs.dtype} {tuple(outputs.shape)}"
            )
        labels = outputs.to(torch.int64)
        note(_RANGE, (labels < 0) | (labels >= classes), labels)
        labels = labels.clamp(0, classes - 1)
        return [labels if order is None else order.argsort()[labels]]
    if outputs.ndim != 2 or outputs.shape[1] != classes:
        raise ModelError(f"the model must return {classes} scores a row, got shape {tuple(outputs.shape)}")
    if order is not None:
        outputs = outputs.index_select(1, order)
    labels = _first_of_largest(outputs, note)
    if votes == "hard":
        return [labels]
    shares = _shares(outputs, kind, note)
    # Rounded so that a mean can only be understated and a variance only overstated.
    parts = (shares * SOFT_UNIT).floor(), (shares * shares * SOFT_UNIT).ceil()
    return [labels, *(part.to(torch.int64) for part in parts)]


def _first_of_largest(scores: Tensor, note: Note) -> Tensor:
    """No type is converted to one that can't tell all of its numbers apart."""
    if not scores.is_floating_point():
        whole = _whole(scores)
        return (whole ^ _LEAST if scores.dtype == torch.uint64 else whole).argmax(1)
    if scores.dtype not in _COMPARABLE:
        scores = scores.float()  # exact for the 8-bit floats
    largest, labels = scores.max(1)  # NaN is the maximum of whatever holds it
    note(_NAN, largest.isnan(), None)
    return labels


def _shares(outputs: Tensor, kind: OutputKind, note: Note) -> Tensor:
    """Non-negative float64 rows that sum to one, as the soft certificates require."""
    if not outputs.is_floating_point():
        whole, least = _whole(outputs), 0 if outputs.dtype == torch.uint64 else -_EXACT_IN_FLOAT64
        note(_ROUNDED, ((whole < least) | (whole > _EXACT_IN_FLOAT64)).any(1), None)
    numbers = outputs.double()
    if kind == "scores":
        shares = torch.softmax(numbers, 1)
        note(_INFINITE, ~shares.isfinite().all(1), None)
    else:
        sums = numbers.sum(1, keepdim=True)
        honest = (numbers >= 0).all(1) & ((sums - 1).abs() <= _SUM_TOLERANCE).squeeze(1)
        note(_NO_SHARES, ~honest, None)
        shares = numbers / sums
    return shares


def _whole(numbers: Tensor) -> Tensor:
    """As int64; 64-bit unsigned ones keep their bits, and so are in order once the first is turned."""
    return numbers.view(torch.int64) if numbers.dtype == torch.uint64 else numbers.to(torch.int64)


def _told(problem: str, least: int, largest: int, classes: int) -> str:
    return problem.format(least=least, largest=largest, last=classes - 1)


def failure(purpose: str, indices: Sequence[int], reason: str) -> ModelError:
    """An error that names the inputs; ``purpose`` says where, and takes ``which`` and ``indices``."""
    unique = sorted(set(indices))
    which = f"input {unique[0]}" if len(unique) == 1 else f"one of the inputs {unique}"
    return ModelError(f"{purpose.format(which=which, indices=unique)}: {reason}")


def short_of_memory(error: BaseException | None) -> bool:
    """Whether a device had no memory left, whatever the error was made into since."""
    while error is not None:
        if isinstance(error, torch.OutOfMemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def memory_remedy(rows: int) -> str:
    """What to change where a pass of so many rows doesn't fit."""
    return (
        f"the device has no memory left for a pass of {rows} rows: free some and rerun the same command, or begin "
        f"a run with smaller passes (--chunk {max(1, rows // 2)})"
    )


@contextmanager
def naming(purpose: str, indices: Sequence[int], rows: int) -> Iterator[None]:
    """Whatever goes wrong is reported with the inputs; ``rows``: of a pass."""
    try:
        yield
    except (Exception, SystemExit) as error:  # a model that exits would end a command as if all were done
        reason = str(error) if isinstance(error, ModelError) else f"{type(error).__name__}: {error}"
        if short_of_memory(error):
            reason = memory_remedy(rows)
        raise failure(purpose, indices, reason) from error


Outputs = Callable[[torch.Tensor], torch.Tensor]

_SEED = 20190208

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


def same_answers(expected: torch.Tensor, found: torch.Tensor, kind: OutputKind, eps: float) -> bool:
    """Whether two evaluations of the same rows agree."""
    return not bool(differing_rows(expected, found, kind, eps).any())


def differing_rows(expected: torch.Tensor, found: torch.Tensor, kind: OutputKind, eps: float) -> torch.Tensor:
    """Where two evaluations of the same rows disagree: labels, and scores by more than rounding.

    Labels may differ only between two scores that rounding could have swapped. Where one is not a number (no vote:
    refused when it is to be one) the other must be none either.
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
