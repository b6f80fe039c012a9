"""However callers give inputs, seeds and loaders: answer i is of input i, as it was, and one input has one stream."""

import contextlib
import copy
import pickle
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler, Sampler, TensorDataset

from smoothcert import (
    ConstantChooser,
    HoldingClassifier,
    LevelledClassifier,
    SmoothedClassifier,
    StatisticChooser,
)
from smoothcert.datasets.base import Dataset
from smoothcert.engine.execution import Execution
from smoothcert.errors import DataError, InvalidValueError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.adapt import adapt
from smoothcert.models.numerics import Numerics
from smoothcert.regions.bodies import L2Ball
from smoothcert.smoothing.inputs import content_index
from tests.guarantees.toys import always_first, labelled, scores

pytestmark = pytest.mark.filterwarnings("ignore::smoothcert.smoothing.inputs.SmallNoiseWarning")


def first_sign(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 0).astype(np.int64)


def test_one_input_has_one_stream_however_it_is_written():
    """A choice among several streams of an input would be a choice among certificates."""
    classifier = SmoothedClassifier(lambda b: np.stack([b[:, 0], b[:, 1]], 1), sigma=0.5, n=200, seed=0)
    written: list[Any] = [
        np.array([0.0, 1.0]),
        np.array([-0.0, 1.0]),
        np.array([0.0, 1.0], dtype=">f8"),
        np.array([0.0, 1.0], dtype=np.float32),
        np.array([0, 1], dtype=np.uint8),
        np.array([False, True]),
        torch.tensor([0.0, 1.0], dtype=torch.bfloat16),
        [0, 1],
    ]
    indices = {classifier.certify(x).index for x in written}
    assert len(indices) == 1
    large = [np.array([2**53 + 1, 3], dtype) for dtype in (np.int64, ">i8", np.uint64)]
    if np.finfo(np.longdouble).nmant >= 63:
        large.append(np.array([2**53 + 1, 3], np.longdouble))
    assert len({content_index(x) for x in large}) == 1
    assert content_index(np.array([2**60])) == content_index(np.array([2.0**60]))
    others = [
        [0.0, np.nextafter(1.0, 2.0)],
        [1.0, 0.0],
        [2**53, 0],
        [2**53 + 1, 0],
        [np.float32(0.1), 0.0],
        [0.1, 0.0],
    ]
    assert len({content_index(np.array(x)) for x in others} | indices) == len(others) + 1


@pytest.mark.parametrize(
    "stored",
    [
        np.array([[2**53 + 1]]),
        np.array([[-(2**60) - 1]]),
        np.array([[2**64 - 1]], np.uint64),
        np.array([[1.5]], np.longdouble),
    ],
)
def test_data_that_float64_would_round_are_refused(stored):
    """Inputs would be moved before anything is said of where they are."""
    if stored.dtype.itemsize == 8 and stored.dtype.kind == "f":
        pytest.skip("hardware: long doubles are float64 here")
    with pytest.raises(DataError, match=rf"2\^53|{stored.dtype}"):
        Dataset("made-up", stored, np.zeros(1, np.int64), ("a", "b"))


def test_a_whole_number_isnt_rounded_beside_floats():
    """NumPy makes 2⁵³ of 2⁵³ + 1 in such a list, and ``shift`` was that of 2⁵³."""
    classifier = SmoothedClassifier(
        scores, sigma=1e4, n=100, seed=0, levels=1, numerics=Numerics("float64"), alpha=0.1
    )
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": np.array([2**53 + 1]), "b": [0.5]})
    for x in ([2**53 + 1, 0.5], (np.int64(2**53 + 1), 0.5), [[0, 1], [0.5, 2**53 + 1]], table):
        with pytest.raises(InvalidValueError, match=r"\b9007199254740993\b.*float64"):
            classifier.certify(x)
    assert classifier.certify([2**53 + 1, 0]).shift == pytest.approx(1.0)
    assert classifier.certify([2**53 + 2, 0.5]).shift == pytest.approx(0.5)


def test_what_is_no_array_of_numbers_is_refused():
    for x, named in [
        ([torch.ones(3, requires_grad=True)], "list"),
        (torch._neg_view(torch.ones(3)), "Tensor"),
        (np.zeros((2, 0)), r"\b0\b"),
    ]:
        with pytest.raises(InvalidValueError, match=named):
            labelled().certify(x)


def test_masks_are_seen_wherever_they_are():
    """NumPy drops them from arrays in a list, and pairs of index and input were taken as they came."""
    masked = np.ma.masked_array([0.5, 1.0, 0.0], mask=[True, False, False])
    plain = np.asarray(masked.data)
    smoothed = labelled()
    model = adapt(always_first, "hard", "labels", 2)
    levelled = LevelledClassifier(model, ConstantChooser(0), sigmas=(0.5,), n=100, seed=0)
    for ask in (
        lambda x: smoothed.certify([x]),
        lambda x: smoothed.predict([[x]]),
        lambda x: list(smoothed.certify_each([(0, x)])),
        lambda x: list(smoothed.predict_each([(0, x)])),
        lambda x: list(levelled.certify_each([(0, x)])),
        lambda x: list(smoothed.holding([1]).certify_each([(0, x)])),
    ):
        assert ask(plain)
        with pytest.raises(InvalidValueError):
            ask(masked)


def test_tables_of_truths_and_nullable_numbers():
    plain = np.array([[1.5, 1.0, 3.0], [0.0, 0.0, 4.0]])
    table = pd.DataFrame({"a": plain[:, 0], "b": plain[:, 1] == 1, "c": pd.array([3, 4], dtype="Int64")})
    votes = [one.estimation for one in labelled(first_sign).certify(plain, index=0)]
    assert [one.estimation for one in labelled(first_sign).certify(table, index=0)] == votes
    nullable = table.astype({"a": "Float64", "b": "boolean"})
    assert [one.estimation for one in labelled(first_sign).certify(nullable, index=0)] == votes
    assert labelled(first_sign).certify(nullable.iloc[0], index=0).estimation == votes[0]
    nullable.loc[1, "c"] = pd.NA
    with pytest.raises(InvalidValueError, match=r"'c'.*\b1\b"):
        labelled(first_sign).certify(nullable)


def test_tables_of_arrow_columns():
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": [1.5, 0.0], "b": [1, 2]}).convert_dtypes(dtype_backend="pyarrow")
    assert len(labelled(first_sign).certify(table)) == 2


def test_integers_of_numpy_and_text_for_alpha():
    x = np.array([1.0, 0.0])
    plain = labelled(first_sign, seed=3).certify(x, index=7)
    given = labelled(first_sign, seed=np.int64(3), n=np.int32(500)).certify(x, index=np.uint8(7))
    assert given.estimation == plain.estimation
    with pytest.raises(InvalidValueError, match=r"'0\.1'"):
        labelled(first_sign, alpha="0.1")


def above_two(batch: np.ndarray) -> np.ndarray:
    return (batch[:, 0] > 2.5).astype(np.int64)


def test_an_array_that_is_filled_again_moves_no_region():
    """A loop that reads inputs into one buffer: votes were on each of them, regions around the last."""

    def read() -> Iterator[tuple[int, np.ndarray]]:
        buffer = np.empty(1)
        for index in range(8):
            buffer[:] = index
            yield index, buffer

    for answer in labelled(above_two, execution=Execution(workers=1)).certify_each(read()):
        assert answer.region.center[0] == pytest.approx(answer.index, abs=1e-6)
        assert answer.predicted == int(answer.index > 2)


def test_an_input_that_changes_between_two_states_of_a_stream_moves_no_region():
    x = np.zeros(1)
    for state in labelled(above_two, bound="mixture", n=2000).certify_stream(x):
        x += 10
        last = state.certification
    assert last.region.center[0] == 0
    assert last.predicted == 0


def test_a_region_covers_no_point_that_it_would_have_to_round_or_to_cut():
    """Imaginary parts were dropped, and whole numbers that float64 doesn't hold were taken for their neighbours."""
    answer = labelled().certify(np.array([1.0, 1.0, 1.0]))
    assert answer.covers([1, 1, 1])
    for point in (np.array([1 + 5j, 1, 1]), np.array(["1", "1", "1"])):
        with pytest.raises(InvalidValueError, match=str(point.dtype)):
            answer.covers(point)
    center = float(2**53)
    ball = L2Ball(np.array([center]), 0.9)
    assert ball.contains(np.array([2**53]))
    for point in (np.array([2**53 + 1]), np.array([2**53 + 1], np.uint64)):
        assert not ball.contains(point)
        assert ball.distance(point) > 0


# Seeds that nobody gave: one for a classifier and all its copies, or answers to one input could be chosen among


@pytest.mark.parametrize("seed", [3, None])
def test_answers_state_the_seed_that_gives_them_again(seed):
    """With σ levels it was that of a stage, which no plan gives; predictions stated none."""
    options: dict[str, Any] = {"sigmas": (0.25, 0.5), "n": 200, "n0": 20}
    model, chooser = adapt(always_first, "hard", "labels", 2), StatisticChooser("mean", (0.5,))
    x = np.full(3, 0.4)
    first = LevelledClassifier(model, chooser, seed=seed, **options)
    answer, prediction = first.certify(x), first.predict(x)
    assert answer.seed == prediction.seed == first.plan.seed
    again = LevelledClassifier(model, chooser, seed=answer.seed, **options)
    assert again.certify(x).levels == answer.levels
    assert again.predict(x).tally == prediction.tally
    plain = labelled(seed=seed)
    assert plain.certify(x).seed == plain.predict(x).seed == plain.plan.seed


def test_threads_that_ask_first_get_one_seed(monkeypatch):
    """Two seeds would be two streams of one input: a choice among certificates."""
    smoothed = labelled(seed=None)
    both = threading.Barrier(2, timeout=0.2)

    def slow(bits: int) -> int:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait()  # met by both threads only if both draw
        return random.getrandbits(bits)

    monkeypatch.setattr("smoothcert.smoothing.planned_model.secrets.randbits", slow)
    with ThreadPoolExecutor(2) as pool:
        assert len(set(pool.map(lambda _: smoothed.settle_seed(), range(2), timeout=60))) == 1


def copies_of(one: Any) -> list[Any]:
    made = [copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))]
    if not isinstance(one, HoldingClassifier):
        made += [one.on(Execution(workers=2)), copy.copy(one).on(Execution(workers=1))]
    return made


def unseeded(kind: str) -> Any:
    if kind == "levels":
        model = adapt(first_sign, "hard", "labels", 2)
        return LevelledClassifier(model, ConstantChooser(0), sigmas=(0.5,), n=200, n0=20)
    plain = SmoothedClassifier(first_sign, sigma=0.5, n=200, n0=20, outputs="labels", classes=2)
    return plain.holding([1]) if kind == "held" else plain


@pytest.mark.parametrize("kind", ["plain", "held", "levels"])
def test_copies_made_before_the_first_vote_have_one_seed(kind):
    one, x = unseeded(kind), np.array([0.25, 0.5])
    answers = [each.certify(x) for each in [*copies_of(one), one, *copies_of(one)]]
    assert len({answer.seed for answer in answers}) == 1
    assert len({answer.estimation.counts for answer in answers}) == 1
    assert unseeded(kind).certify(x).seed != answers[0].seed


def test_a_data_set_still_has_seed_0_whatever_was_drawn(tmp_path):
    data = Dataset("two", np.array([[0.5, 0.0], [-0.5, 0.0]]), np.array([1, 0]), ("a", "b"))
    one = unseeded("plain")
    for number, each in enumerate([one, *copies_of(one)]):
        run = certify_dataset(each, data, tmp_path / str(number))
        assert run.manifest.plan.seed == 0
        assert each.plan.seed is None


# Loaders


ROWS = torch.tensor([[3.0, 0.0], [-3.0, 1.0], [2.0, 2.0], [-2.0, 3.0], [1.0, 4.0], [-1.0, 5.0]])


ROWS_OF = TensorDataset(ROWS, torch.arange(6) % 2)


class Drawn(Sampler):
    """Doesn't say in its name that it draws."""

    def __iter__(self) -> Any:
        return iter(torch.randperm(6).tolist())

    def __len__(self) -> int:
        return 6


class Backwards(Drawn):
    def __iter__(self) -> Any:
        return iter([[5, 4, 3], [2, 1, 0]])


def test_a_loader_in_another_order_is_refused():
    """Answers had the labels of other inputs: an accuracy of .3 for a model that is always right."""
    for options in [
        {"batch_size": 2, "shuffle": True},
        {"batch_sampler": BatchSampler(RandomSampler(ROWS_OF), 2, drop_last=False)},
        {"batch_sampler": BatchSampler(Drawn(), 2, drop_last=False)},
        {"batch_sampler": Backwards()},
        {"sampler": Drawn(), "batch_size": 3},
        {"sampler": Drawn(), "batch_size": None},
        {"sampler": [0, 2, 1], "batch_size": 3},
        {"sampler": [0, 0, 1], "batch_size": 3},
    ]:
        classifier = SmoothedClassifier(scores, sigma=0.25, n=200, seed=0, input_shape=(2,))
        with pytest.raises(InvalidValueError, match="shuffle=False"):
            classifier.certify(DataLoader(ROWS_OF, **options))


class Counted(IterableDataset):
    def __iter__(self) -> Any:
        return iter(ROWS)


def test_a_loader_is_a_batch_in_the_order_of_its_data():
    for data, options, kept in [
        (ROWS_OF, {"batch_size": 4}, range(6)),
        (ROWS_OF, {"batch_size": 4, "drop_last": True}, range(4)),
        (ROWS_OF, {"batch_sampler": [[0, 1], [2], [3, 4, 5]]}, range(6)),
        (ROWS_OF, {"batch_size": 2, "sampler": [1, 4, 5]}, [1, 4, 5]),
        (ROWS_OF, {"batch_size": None}, range(6)),
        (Counted(), {"batch_size": 4}, range(6)),
        (Counted(), {"batch_size": None}, range(6)),
        (ROWS.reshape(3, 2, 2), {"batch_size": None}, range(6)),
    ]:
        classifier = SmoothedClassifier(scores, sigma=0.25, n=200, seed=0, input_shape=(2,))
        answers = classifier.certify(DataLoader(data, **options))
        rows = classifier.certify(ROWS[list(kept)])
        assert [one.estimation for one in answers] == [one.estimation for one in rows]


def test_inputs_of_a_loader_are_never_joined_to_one():
    """Without batches all rows were certified as a single input; so were tables of tables."""
    classifier = SmoothedClassifier(scores, sigma=0.25, n=200, seed=0)
    with pytest.raises(InvalidValueError, match="batch_size=None"):
        classifier.certify(DataLoader(ROWS_OF, batch_size=None))
    with pytest.raises(InvalidValueError):
        classifier.certify(DataLoader(torch.arange(6.0), batch_size=2))
    pictures = SmoothedClassifier(lambda batch: scores(batch[:, 0]), sigma=0.25, n=200, seed=0)
    answers = pictures.certify(DataLoader(ROWS.reshape(6, 1, 2), batch_size=2))
    assert len(answers) == 6


def test_a_loader_that_gives_batches_as_they_are_ready_is_refused():
    loader = DataLoader(ROWS_OF, batch_size=2, num_workers=1, in_order=False)
    with pytest.raises(InvalidValueError, match="in_order=True"):
        SmoothedClassifier(scores, sigma=0.25, n=200, seed=0).certify(loader)
