"""Numbers as callers give them change no promise by their type, and the model gets the very values that are held."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert import SmoothedClassifier
from smoothcert.analysis.intervals import population_lower_bound, rate_interval
from smoothcert.bounds.base import BOUNDS
from smoothcert.bounds.fixed import clopper_pearson_lower, top_two_p_value
from smoothcert.datasets.base import Dataset
from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.models.numerics import Numerics
from smoothcert.regions.bodies import L2Ball
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.procedures import predict_procedure
from smoothcert.smoothing.stopping.rules import Decide
from smoothcert.tally import Phase, Stream, Tally
from tests.guarantees.toys import scores


def tally(counts: tuple[Any, ...]) -> Tally:
    return Tally(Stream(0, 0, Phase.ESTIMATION), 0, int(sum(map(int, counts))), counts)


@pytest.mark.parametrize("bound", sorted(name for name in BOUNDS if BOUNDS[name].votes == "hard"))
def test_a_bound_of_a_float32_alpha_is_that_of_its_value(bound):
    for n, missing in ((1000, 1), (10_000, 3), (1_000_000, 7), (1_000_000, 18)):
        alpha = np.float32(0.001)
        votes = tally((n - missing, missing))
        assert BOUNDS[bound](votes, 0, alpha) == BOUNDS[bound](votes, 0, float(alpha))


@pytest.mark.parametrize("coarse", [np.float16, np.float32])
def test_a_plan_keeps_its_numbers_as_float64(coarse):
    alpha, sigma = coarse(0.001), coarse(0.1)
    given = SmoothedClassifier(scores, sigma=sigma, alpha=alpha, bound="clopper-pearson", n=2000, seed=3)
    plain = SmoothedClassifier(
        scores, sigma=float(sigma), alpha=float(alpha), bound="clopper-pearson", n=2000, seed=3
    )
    assert [type(value) for value in (given.plan.alpha, given.plan.noise.sigma)] == [float, float]
    x = np.array([0.2, 0.0])
    assert given.certify(x).radius == plain.certify(x).radius


def test_predict_isnt_decided_by_a_rounded_p_value():
    """What the sampler's error adds to 2⁻⁹ is less than float32 can say."""
    classifier = SmoothedClassifier(scores, sigma=1.0, seed=0)
    alpha = classifier._settle_prediction(10, np.float32(2.0**-9))
    procedure = predict_procedure(10, alpha, 1e-12)
    next(procedure)
    with pytest.raises(StopIteration) as done:
        procedure.send(Tally(Stream(0, 0, Phase.PREDICTION), 0, 10, (10, 0)))
    assert done.value.value.p_value > 2.0**-9
    assert done.value.value.abstained


@pytest.mark.parametrize("small", [np.int8, np.int16, np.float32])
def test_small_counts_mean_what_they_say(small):
    assert clopper_pearson_lower(small(97), small(100), 0.001) == clopper_pearson_lower(97, 100, 0.001)
    assert top_two_p_value(small(70), small(20)) == top_two_p_value(70, 20)
    counts = (small(100), small(27))
    assert BOUNDS["mixture"](tally(counts), 0, 0.01) == BOUNDS["mixture"](tally((100, 27)), 0, 0.01)


def test_statements_and_regions_are_computed_in_float64_whatever_they_are_given():
    level: Any = np.float32(0.01)
    share: Any = np.float32(0.9)
    exact = float(level)
    assert population_lower_bound(99, 100, level, level) == population_lower_bound(99, 100, exact, exact)
    assert rate_interval(99, 100, share) == rate_interval(99, 100, float(share))
    ball = L2Ball(np.zeros(1), np.float32(0.1))
    assert not ball.contains([np.nextafter(float(np.float32(0.1)), 1.0)])
    shrunk = L2Ball(np.zeros(1), 1.0).scaled(np.float32(0.1))
    assert shrunk.radius < float(np.float32(0.1))
    assert type(Decide(np.float32(0.1)).radius) is float


def test_soft_votes_that_64_bits_cannot_add_are_refused():
    """Unanimous probabilities in units of 2**-32: 2**31 of them are 2**63, a negative number."""

    def sure(batch: np.ndarray) -> np.ndarray:
        return np.tile(np.array([1.0, 0.0]), (len(batch), 1))

    smoothed = SmoothedClassifier(
        sure, sigma=1.0, n0=20, n=2**31, seed=0, bound="hoeffding", outputs="probabilities"
    )
    with pytest.raises(InvalidValueError, match=rf"\b{2**31}\b"):
        smoothed.certify(np.zeros(1))
    with pytest.raises(InvalidValueError, match=rf"\b{2**31}\b"):
        smoothed.predict(np.zeros(1), n=2**31)


# Values that are held


def odd(batch: np.ndarray) -> np.ndarray:
    return (np.asarray(batch, dtype=np.float64)[:, 0] % 2).astype(np.int64)


def above(border: float) -> Any:
    return lambda batch: (np.asarray(batch, dtype=np.float64)[:, 0] > border).astype(np.int64)


def labelling(model: Any, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(
        model, sigma=0.5, outputs="labels", classes=2, **({"n": 500, "seed": 0} | options)
    )


def test_the_model_gets_the_very_value_that_is_held():
    """Float32 moved a timestamp by half a minute, and made odd numbers even, without a word."""
    for model, value, label in [
        (above(1_700_000_030.0), 1_700_000_060.0, 1),
        (above(1_700_000_030.0), 1_700_000_010.0, 0),
        (odd, 16_777_217.0, 1),
        (odd, np.int64(16_777_217), 1),
        (above(0.1), 0.1, 0),  # the float32 next to it lies above
    ]:
        x = np.array([value, 0 if isinstance(value, np.integer) else 0.25])
        holding = labelling(model).holding([0])
        answer = holding.certify(x)
        assert answer.predicted == label
        assert holding.predict(x).predicted == label
        assert holding.base_class(x) == label
        with pytest.raises(ModelError, match=rf"\b{float(value)!r}\b.*float32.*--dtype float64"):
            labelling(model, numerics=Numerics("float32")).holding([0]).certify(x)
        assert labelling(model, numerics=Numerics("float64")).holding([0]).certify(x).predicted == label


def test_what_float32_has_is_held_in_float32_as_ever():
    seen = set()

    def spy(batch: np.ndarray) -> np.ndarray:
        seen.add(batch.dtype)
        return np.zeros(len(batch), np.int64)

    for value in (0.5, -3.0, float(np.float32(0.1)), float(2**30)):
        labelling(spy).holding([0]).certify(np.array([value, 0.25]))
    assert seen == {np.dtype(np.float32)}


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.longdouble])
def test_a_value_that_float64_doesnt_have_isnt_held(dtype):
    if np.finfo(np.longdouble).nmant < 63 and dtype is np.longdouble:
        pytest.skip("hardware: long doubles are float64 here")
    with pytest.raises(InvalidValueError, match=r"\b9007199254740993\b.*float64"):
        labelling(odd).holding([0]).certify(np.array([2**53 + 1, 1], dtype=dtype))
    holding = labelling(odd, numerics=Numerics("float64")).holding([0])
    assert holding.certify(np.array([2**53 + 2, 1], dtype=dtype)).predicted == 0


def test_a_data_set_whose_held_values_need_float64_is_certified_in_it(tmp_path):
    for value, dtype in ((0.1, "float64"), (0.5, "float32")):
        data = Dataset("held", np.array([[0.5, 0.25], [value, 0.25]]), np.array([1, 0]), ("a", "b"))
        run = certify_dataset(labelling(above(0.1)).holding([0]), data, tmp_path / dtype)
        assert run.manifest.plan.dtype == dtype
        assert run.records[1].predicted == int(value > 0.1)


@pytest.mark.parametrize("value", [2**53, 2.0**53])
def test_covers_compares_what_is_held_exactly(value):
    answer = labelling(above(0.0)).holding([0]).certify(np.array([2.0**53, 1.0]))
    assert answer.covers(np.array([value, 1]))
    assert answer.covers(np.array([value, 1], dtype=object))
    others = [np.array([2**53 + 1, 1]), np.array([2**53 + 1, 1], np.uint64), [2**53 + 1, 1]]
    others += [np.array([each, 1], dtype=object) for each in (2**53 + 1, np.int64(2**53 + 1))]
    for other in others:
        assert not answer.covers(other)


class ByValue:
    """The class is what ``told`` makes of the held column."""

    classes_ = np.array([0, 1])
    feature_names_in_ = np.array(["v", "u"], dtype=object)
    n_features_in_ = 2

    def __init__(self, told: Any) -> None:
        self.told = told

    def predict(self, table: Any) -> np.ndarray:
        return np.array([self.told(value) for value in table["v"]], dtype=np.int64)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (np.array([2**53, 2**53 + 1]), lambda v: int(v) % 2),
        (np.array([2**63, 2**63 + 1], np.uint64), lambda v: int(v) % 2),
    ],
)
def test_rows_of_one_table_have_each_their_own_held_value(values, told):
    """A number in float64 stood for both: row 0 was voted on with row 1's value."""
    pandas = pytest.importorskip("pandas")
    column = values if isinstance(values, np.ndarray) else pandas.Series(values, dtype=object)
    table = pandas.DataFrame({"v": column, "u": [0.25, 0.25]})
    holding = SmoothedClassifier(ByValue(told), sigma=0.5, n=200, seed=0).holding(["v"])
    answers = holding.certify(table)
    assert answers.predicted.tolist() == [0, 1]
    assert len({answer.index for answer in answers}) == 2
    alone = [holding.certify(table.iloc[[row]])[0] for row in (0, 1)]
    assert [one.estimation for one in alone] == [one.estimation for one in answers]
    for row, answer in enumerate(answers):
        for other in (0, 1):
            point = np.empty(2, dtype=object)
            point[:] = values[other], 0.25
            assert answer.covers(point) == (row == other)


class Quiet:
    """Prints the same whatever it is, and doesn't say what equals it."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Quiet()"


def test_held_values_that_cant_be_told_apart_are_refused():
    pandas = pytest.importorskip("pandas")
    holding = SmoothedClassifier(ByValue(lambda v: getattr(v, "value", 0)), sigma=0.5, n=200, seed=0).holding(
        ["v"]
    )
    one = Quiet(1)
    table = pandas.DataFrame({"v": pandas.Series([Quiet(0), one], dtype=object), "u": [0.25, 0.5]})
    with pytest.raises(InvalidValueError, match=r"'v'.*\b0\b.*\b1\b"):
        holding.certify(table)
    for value in (np.array([0.3]), torch.tensor([0.3]), [np.zeros(2000)], (0.3,), {"a": 1}):
        table = pandas.DataFrame({"v": pandas.Series(["x", value], dtype=object), "u": [0.25, 0.5]})
        with pytest.raises(InvalidValueError, match=r"'v'.*\b1\b"):
            holding.certify(table)
    missing = [float("nan"), float("nan")]
    for same in ([one, one], ["x", "x"], missing, [None, None], [pandas.NA, pandas.NA]):
        table = pandas.DataFrame({"v": pandas.Series(same, dtype=object), "u": [0.25, 0.5]})
        assert holding.certify(table).predicted.tolist() == [int(same[0] is one)] * 2


def test_a_free_column_that_float64_doesnt_have_is_refused():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"v": ["x", "y"], "u": np.array([0, 2**53 + 1])})
    with pytest.raises(InvalidValueError, match=r"'u'.*\b9007199254740993\b"):
        SmoothedClassifier(ByValue(lambda _: 0), sigma=0.5, n=200, seed=0).holding(["v"]).certify(table)


STREAMS = [
    6357963324649179721,
    3960619045564336456,
    3149292467201031422,
    3917488619627662386,
    3149292467201031422,
    6283467391971535115,
    3686740980733006686,
    4263392708736586900,
    1305212285741502214,
    7138605951558226374,
    8435110777776102075,
    2900465281368091927,
    3096893025383541403,
    763394198309156953,
]


def test_streams_of_ordinary_held_values_stay_what_they_were():
    """Published answers depend on them."""
    pandas = pytest.importorskip("pandas")
    columns = [["red", "blue"], [1, -7], [True, False], pandas.Categorical(["a", "b"]), [None, "x"]]
    columns += [pandas.to_datetime(["2020-01-01", "2021-02-03"]), np.array([2**53, -(2**53)])]
    found = []
    for column in columns:
        table = pandas.DataFrame({"v": column, "u": [0.25, 0.5]})
        answers = SmoothedClassifier(ByValue(lambda _: 0), sigma=0.5, n=20, n0=5, seed=0, alpha=0.1).holding(
            ["v"]
        )
        found += [answer.index for answer in answers.certify(table)]
    assert found == STREAMS


def test_a_memory_keeps_no_certificate_that_holds_coordinates(tmp_path):
    """It would answer inputs whose held coordinates differ, of which the certificate says nothing."""

    def both_widths(batch: np.ndarray) -> np.ndarray:
        kind = batch[:, 2] if batch.shape[1] == 3 else 1.0
        return np.stack([batch[:, 0] * kind, -batch[:, 0] * kind], 1)

    classifier = SmoothedClassifier(both_widths, sigma=0.5, n=200, seed=0)
    statement = MemoryStatement.of(classifier, input_shape=(2,), preprocessing="none")
    held = classifier.holding([2]).certify(np.array([1.0, 0.0, 1.0]))
    other = classifier.holding([2]).certify(np.array([1.0, 0.0, -1.0]))
    assert held.predicted != other.predicted
    with RegionMemory.open(tmp_path / "memory.sqlite", statement) as memory:
        with pytest.raises(InvalidValueError):
            memory.answer(np.array([1.0, 0.0]), lambda _: held)
        assert not list(memory.answers())
        free = replace(held, held=None)
        assert memory.answer(np.array([1.0, 0.0]), lambda _: free).predicted == free.predicted
