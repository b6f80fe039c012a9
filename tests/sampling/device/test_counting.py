"""Counting on the device: the sums and the refusals of ballots that are read on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from smoothcert.errors import ModelError
from smoothcert.sampling.ballots import read_ballots
from smoothcert.sampling.device.counting import DeviceCounts

ROWS, CLASSES, BLOCKS = 48, 5, 3
OWNER = torch.arange(ROWS) % BLOCKS
WANTED = (torch.arange(ROWS) % 4 != 1).long()


def named(places: Sequence[int], reason: str) -> ModelError:
    return ModelError(f"blocks {list(places)}: {reason}")


def counted(
    outputs: Sequence[torch.Tensor], kind: str, votes: str, order: tuple[int, ...] | None = None
) -> np.ndarray:
    counts = DeviceCounts(BLOCKS, kind, CLASSES, votes, order, "cpu")  # type: ignore[arg-type]
    for one in outputs:
        counts.add(one, OWNER, WANTED)
    return np.stack(counts.read(counts.held.numpy(), named))


def on_the_host(outputs: Sequence[torch.Tensor], kind: str, votes: str) -> np.ndarray:
    total = 0
    for one in outputs:
        sums = []
        for block in range(BLOCKS):
            own = one[(block == OWNER) & (WANTED == 1)]
            sums.append(read_ballots(own, kind, CLASSES, votes).sums(CLASSES))  # type: ignore[arg-type]
        total = total + np.stack(sums)
    return total


def scores(seed: int = 0) -> torch.Tensor:
    return torch.randn((ROWS, CLASSES), generator=torch.Generator().manual_seed(seed)) * 3


def with_(value: object, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    outputs = scores().to(dtype)
    outputs[7, 2] = value  # of block 1
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
    "ties": TIES,
    "zeros of both signs": TIES * -0.0,
    "infinite": torch.where(scores() > 2, torch.inf, scores()),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_hard_votes_are_the_hosts(name: str) -> None:
    outputs = [OUTPUTS[name], OUTPUTS[name].flip(0)]
    assert np.array_equal(counted(outputs, "scores", "hard"), on_the_host(outputs, "scores", "hard"))


@pytest.mark.parametrize("name", [name for name in OUTPUTS if name != "infinite"])
def test_soft_votes_are_the_hosts_to_the_last_unit(name: str) -> None:
    outputs = [OUTPUTS[name], OUTPUTS[name].flip(0)]
    assert np.array_equal(counted(outputs, "scores", "soft"), on_the_host(outputs, "scores", "soft"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_and_labels_are_the_hosts(dtype: torch.dtype) -> None:
    shares = torch.softmax(scores(), 1).to(dtype)
    for votes in ("hard", "soft"):
        assert np.array_equal(
            counted([shares], "probabilities", votes), on_the_host([shares], "probabilities", votes)
        )
    labels = scores().argmax(1)
    for kind in (torch.int64, torch.uint8, torch.int32):
        assert np.array_equal(
            counted([labels.to(kind)], "labels", "hard"), on_the_host([labels.to(kind)], "labels", "hard")
        )


def test_classes_in_another_order() -> None:
    order = (3, 0, 4, 1, 2)
    assert np.array_equal(
        counted([scores()], "scores", "soft", order),
        on_the_host([scores()[:, list(order)]], "scores", "soft"),
    )
    labels = scores().argmax(1)
    renumbered = torch.tensor(order).argsort()[labels]
    assert np.array_equal(
        counted([labels], "labels", "hard", order), on_the_host([renumbered], "labels", "hard")
    )


def test_whole_numbers_without_a_sign_keep_their_order() -> None:
    outputs = torch.from_numpy(np.array([[1, 2**63 + 5, 2**63 - 1, 0, 2**64 - 1]] * ROWS, dtype=np.uint64))
    assert counted([outputs], "scores", "hard")[:, 0].tolist() == [[0, 0, 0, 0, 12]] * 3


OFF = torch.full((ROWS, CLASSES), 0.2)
OFF[7, 0] = 0.25
NEGATIVE = torch.full((ROWS, CLASSES), 0.2)
NEGATIVE[7] = torch.tensor([0.5, 0.7, -0.2, 0.0, 0.0])
LABELS = torch.zeros(ROWS, dtype=torch.int64)
WRONG = {
    "NaN": (with_(torch.nan), "scores", "hard"),
    "NaN in bfloat16": (with_(torch.nan, torch.bfloat16), "scores", "hard"),
    "NaN in soft votes": (with_(torch.nan), "scores", "soft"),
    "NaN of probabilities": (with_(torch.nan), "probabilities", "hard"),
    "infinite": (with_(torch.inf), "scores", "soft"),
    "too large": (with_(2**53 + 1, torch.int64), "scores", "soft"),
    "too small": (with_(-(2**63), torch.int64), "scores", "soft"),
    "no probabilities": (OFF, "probabilities", "soft"),
    "negative": (NEGATIVE, "probabilities", "soft"),
    "label too large": (LABELS.index_fill(0, torch.tensor([7]), CLASSES), "labels", "hard"),
    "label too small": (LABELS.index_fill(0, torch.tensor([7]), -1), "labels", "hard"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_vote_is_refused_with_its_block_in_the_hosts_words(name: str) -> None:
    outputs, kind, votes = WRONG[name]
    with pytest.raises(ModelError) as expected:
        read_ballots(outputs, kind, CLASSES, votes)  # type: ignore[arg-type]
    honest = {"scores": scores(), "probabilities": torch.full((ROWS, CLASSES), 0.2), "labels": LABELS}[kind]
    with pytest.raises(ModelError) as found:  # and though the passes before and after are as they should be
        counted([honest, outputs, honest], kind, votes)
    assert str(found.value) == f"blocks [1]: {expected.value}"


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [(scores()[:, :4], "scores"), (scores()[0], "scores"), (scores(), "labels"), (scores()[:, 0], "labels")],
)
def test_outputs_of_another_shape_or_type_are_refused_at_once(outputs: torch.Tensor, kind: str) -> None:
    counts = DeviceCounts(BLOCKS, kind, CLASSES, "hard", None, "cpu")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=re.escape(str(tuple(outputs.shape)))):
        counts.add(outputs, OWNER, WANTED)
