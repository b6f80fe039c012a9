"""Answers become votes, row by row or counted by block, by the same rules; or a clear error that names the inputs."""

import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from smoothcert.errors import ModelError
from smoothcert.models.outputs import VoteCounts, failure, naming, read_ballots
from smoothcert.tally import SOFT_UNIT

ROWS, CLASSES, BLOCKS, SIZE = 48, 5, 3, 8
OWNERS = [0, 1, 2, 1, 0, 0]
PARTS = [(owner, 1, SIZE - part % 3) for part, owner in enumerate(OWNERS)]
"""The block of each part of a pass, and the rows of it that are counted."""
WRONG_ROW = 27  # in the fourth part


def named(places: Sequence[int], reason: str) -> ModelError:
    return ModelError(f"blocks {list(places)}: {reason}")


def counted(
    outputs: Sequence[torch.Tensor], kind: str, votes: str, order: tuple[int, ...] | None = None
) -> np.ndarray:
    held = None if order is None else torch.tensor(order)
    counts = VoteCounts(BLOCKS, kind, CLASSES, votes, held, "cpu")  # type: ignore[arg-type]
    for one in outputs:
        counts.add(one, torch.tensor(PARTS))
    return np.stack(counts.read(counts.held.numpy(), named))


def row_by_row(outputs: Sequence[torch.Tensor], kind: str, votes: str) -> np.ndarray:
    sums = np.zeros((BLOCKS, 3 if votes == "soft" else 1, CLASSES), dtype=np.int64)
    for one in outputs:
        ballots = read_ballots(one, kind, CLASSES, votes)  # type: ignore[arg-type]
        for part, (owner, first, last) in enumerate(PARTS):
            for row in range(part * SIZE + first, part * SIZE + last):
                sums[owner, 0, ballots.labels[row]] += 1
                if votes == "soft":
                    assert ballots.probabilities is not None
                    assert ballots.squares is not None
                    sums[owner, 1] += ballots.probabilities[row]
                    sums[owner, 2] += ballots.squares[row]
    return sums


def scores(seed: int = 0) -> torch.Tensor:
    return torch.randn((ROWS, CLASSES), generator=torch.Generator().manual_seed(seed)) * 3


def with_(value: object, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    outputs = scores().to(dtype)
    outputs[WRONG_ROW, 2] = value
    return outputs


TIES = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0]]).expand(ROWS, CLASSES)
OUTPUTS = {
    "float32": scores(),
    "float64": scores().double(),
    "bfloat16": scores().bfloat16(),
    "float16": scores().half(),
    "float8": scores().to(torch.float8_e4m3fn),
    "int64": (scores() * 10).long(),
    "int8": (scores() * 10).to(torch.int8),
    "uint8": (scores().abs() * 10).to(torch.uint8),
    "bool": scores() > 0,
    "columns in memory": scores().T.contiguous().T,
    "ties": TIES,
    "zeros of both signs": TIES * -0.0,
    "infinite": torch.where(scores() > 2, torch.inf, scores()),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_hard_votes_are_counted(name):
    outputs = [OUTPUTS[name], OUTPUTS[name].flip(0)]
    assert np.array_equal(counted(outputs, "scores", "hard"), row_by_row(outputs, "scores", "hard"))


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "infinite"])
def test_soft_votes_add_up_to_the_last_unit(name):
    outputs = [OUTPUTS[name], OUTPUTS[name].flip(0)]
    assert np.array_equal(counted(outputs, "scores", "soft"), row_by_row(outputs, "scores", "soft"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_and_labels_are_counted(dtype):
    shares = torch.softmax(scores(), 1).to(dtype)
    for votes in ("hard", "soft"):
        assert np.array_equal(
            counted([shares], "probabilities", votes), row_by_row([shares], "probabilities", votes)
        )
    labels = scores().argmax(1)
    strided = torch.stack([labels, labels], 1)[:, 0]
    assert np.array_equal(counted([strided], "labels", "hard"), row_by_row([labels], "labels", "hard"))
    for kind in (torch.int64, torch.uint8, torch.int32):
        assert np.array_equal(
            counted([labels.to(kind)], "labels", "hard"), row_by_row([labels.to(kind)], "labels", "hard")
        )


def test_classes_in_another_order():
    order = (3, 0, 4, 1, 2)
    assert np.array_equal(
        counted([scores()], "scores", "soft", order), row_by_row([scores()[:, list(order)]], "scores", "soft")
    )
    labels = scores().argmax(1)
    renumbered = torch.tensor(order).argsort()[labels]
    assert np.array_equal(
        counted([labels], "labels", "hard", order), row_by_row([renumbered], "labels", "hard")
    )


def test_whole_numbers_without_a_sign_keep_their_order():
    outputs = torch.from_numpy(np.array([[1, 2**63 + 5, 2**63 - 1, 0, 2**64 - 1]] * ROWS, dtype=np.uint64))
    assert counted([outputs], "scores", "hard")[:, 0].tolist() == [
        [0, 0, 0, 0, 18],
        [0, 0, 0, 0, 13],
        [0, 0, 0, 0, 5],
    ]
    assert set(read_ballots(outputs, "scores", CLASSES, "hard").labels.tolist()) == {4}


def with_label(label: int) -> torch.Tensor:
    return LABELS.index_fill(0, torch.tensor([WRONG_ROW]), label)


OFF = torch.full((ROWS, CLASSES), 0.2)
OFF[WRONG_ROW, 0] = 0.25
NEGATIVE = torch.full((ROWS, CLASSES), 0.2)
NEGATIVE[WRONG_ROW] = torch.tensor([0.5, 0.7, -0.2, 0.0, 0.0])
LABELS = torch.zeros(ROWS, dtype=torch.int64)
WRONG = {
    "NaN": (with_(torch.nan), "scores", "hard", "NaN"),
    "NaN in bfloat16": (with_(torch.nan, torch.bfloat16), "scores", "hard", "NaN"),
    "NaN in soft votes": (with_(torch.nan), "scores", "soft", "NaN"),
    "NaN of probabilities": (with_(torch.nan), "probabilities", "hard", "NaN"),
    "infinite": (with_(torch.inf), "scores", "soft", "infinite"),
    "too large": (with_(2**53 + 1, torch.int64), "scores", "soft", r"2\*\*53"),
    "too small": (with_(-(2**63), torch.int64), "scores", "soft", r"2\*\*53"),
    "no probabilities": (OFF, "probabilities", "soft", "probabilities"),
    "negative": (NEGATIVE, "probabilities", "soft", "probabilities"),
    "label too large": (with_label(CLASSES), "labels", "hard", r"\b0\.\.5\b.*\b0\.\.4\b"),
    "label too small": (with_label(-1), "labels", "hard", r"-1\.\.0\b.*\b0\.\.4\b"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_vote_is_refused_with_its_block_in_the_same_words(name):
    outputs, kind, votes, message = WRONG[name]
    with pytest.raises(ModelError, match=message) as expected:
        read_ballots(outputs, kind, CLASSES, votes)  # type: ignore[arg-type]
    honest = {"scores": scores(), "probabilities": torch.full((ROWS, CLASSES), 0.2), "labels": LABELS}[kind]
    with pytest.raises(ModelError) as found:  # and though the passes before and after are as they should be
        counted([honest, outputs, honest], kind, votes)
    assert str(found.value) == f"blocks [1]: {expected.value}"


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [(scores()[:, :4], "scores"), (scores()[0], "scores"), (scores(), "labels"), (scores()[:, 0], "labels")],
)
def test_outputs_of_another_shape_or_type_are_refused_at_once(outputs, kind):
    shape = re.escape(str(tuple(outputs.shape)))
    counts = VoteCounts(BLOCKS, kind, CLASSES, "hard", None, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=shape):
        counts.add(outputs, torch.tensor(PARTS))
    with pytest.raises(ModelError, match=shape):
        read_ballots(outputs, kind, CLASSES, "hard")  # type: ignore[arg-type]


def test_scores_and_probabilities_become_votes():
    ballots = read_ballots(torch.tensor([[0.1, 2.0], [3.0, -1.0]]), "scores", 2, "hard")
    assert ballots.labels.tolist() == [1, 0]
    assert ballots.probabilities is None
    ballots = read_ballots(torch.tensor([[0.25, 0.75]], dtype=torch.float64), "probabilities", 2, "soft")
    assert ballots.probabilities is not None
    assert ballots.probabilities.tolist() == [[SOFT_UNIT // 4, 3 * SOFT_UNIT // 4]]


def test_soft_scores_are_softmaxed_in_float64_and_rounded_to_the_safe_side():
    logits = torch.tensor([[0.3, -1.2, 2.0]])
    ballots = read_ballots(logits, "scores", 3, "soft")
    exact = np.exp(logits.double().numpy()) / np.exp(logits.double().numpy()).sum()
    assert ballots.probabilities is not None
    assert ballots.squares is not None
    low, square = ballots.probabilities / SOFT_UNIT, ballots.squares / SOFT_UNIT
    assert np.all((low <= exact + 1e-15) & (low > exact - 3e-10))
    assert np.all((square >= exact**2 - 1e-15) & (square < exact**2 + 3e-10))
    assert ballots.probabilities.sum() <= SOFT_UNIT


def test_errors_name_the_inputs_and_keep_their_kind():
    for indices, named in (([3, 3], ["3"]), ([9, 3, 9], ["3", "9"])):
        told = str(failure("voting on {which}", indices, "no"))
        assert re.findall(r"\d+", told) == named
        assert told.startswith("voting on ")
        assert told.endswith(": no")
    assert str(failure("fitting", [9, 3], "no")) == "fitting: no"
    for error, told in (
        (KeyError("a"), "KeyError: 'a'"),
        (ModelError("no"), "no"),
        (SystemExit(0), "SystemExit: 0"),
    ):
        with (
            pytest.raises(ModelError, match=rf"^voting .*\b1: {told}$"),
            naming("voting on {which}", [1], 64),
        ):
            raise error


@pytest.mark.parametrize("votes", ["hard", "soft"])
def test_parts_that_are_counted_whole_need_no_mask(votes):
    found = []
    for whole in (True, False):
        counts = VoteCounts(BLOCKS, "scores", CLASSES, votes, None, "cpu")  # type: ignore[arg-type]
        counts.add(scores(), torch.tensor([(owner, 0, SIZE) for owner in OWNERS]), whole)
        found.append(np.stack(counts.read(counts.held.numpy(), named)))
    assert np.array_equal(*found)
    assert found[0][:, 0].sum() == ROWS
