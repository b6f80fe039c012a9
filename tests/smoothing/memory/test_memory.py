"""What may be asked, what is answered, and what a certificate must look like."""

import numpy as np
import pytest
import torch

from smoothcert import SmoothedClassifier
from smoothcert.errors import InvalidValueError
from smoothcert.regions.bodies import L1Ball, L2Ball
from smoothcert.smoothing.memory import MemoryStatement, RegionMemory
from smoothcert.smoothing.memory_ledger import StoredAnswer
from smoothcert.smoothing.stores.base import IncompleteMemoryError, next_row
from smoothcert.tally import ABSTAIN
from tests.smoothing.memory.toys import ListStore, Toy, never, saying, statement


@pytest.fixture
def memory() -> RegionMemory:
    return RegionMemory(ListStore(statement()))


def test_the_four_sources(memory):
    first = memory.answer(np.zeros(2), saying(0, 1.0))
    assert (first.predicted, first.source, first.record, first.stateful) == (0, "certified", 1, True)
    assert first.radius == pytest.approx(1.0)
    assert first.radius < 1.0
    inside = memory.answer(np.array([0.25, 0.0]), never)
    assert (inside.predicted, inside.source, inside.record) == (0, "memory", 1)
    assert inside.radius == pytest.approx(0.75)
    shrunk = memory.answer(np.array([1.5, 0.0]), saying(1, 1.0))
    assert (shrunk.predicted, shrunk.source, shrunk.record) == (1, "shrunk", 2)
    assert shrunk.radius == pytest.approx(0.5)
    # x = (1, 0) is on both edges, in neither open ball, and another class has no room there.
    none = memory.answer(np.array([1.0, 0.0]), saying(2, 1.0))
    assert (none.predicted, none.source, none.record, none.region) == (ABSTAIN, "abstained", None, None)
    assert len(memory) == 2
    for answer in (first, inside, shrunk, none):
        assert answer.stateful
        assert "stateful" in answer.promise


def test_same_class_regions_may_overlap_and_the_largest_claim_is_given(memory):
    memory.answer(np.zeros(2), saying(0, 1.0))
    assert memory.answer(np.array([1.1, 0.0]), saying(0, 3.0)).source == "certified"
    answer = memory.answer(np.array([0.9, 0.0]), never)
    assert answer.record == 2
    assert answer.radius == pytest.approx(2.8)


def test_certificate_at_hand_says_more_than_a_region_of_its_class(memory):
    memory.answer(np.zeros(2), saying(0, 1.0))
    memory.answer(np.array([3.0, 0.0]), saying(1, 0.5))
    near = np.array([0.9, 0.0])
    assert memory.answer(near, never).radius == pytest.approx(0.1)
    answer = memory.offer(near, Toy(0, L2Ball(near, 1.2)))
    assert (answer.predicted, answer.source, answer.record) == (0, "certified", 3)
    assert answer.radius == pytest.approx(1.2)
    # Its neighbour of another class leaves 1.6 of it.
    wide = memory.offer(near, Toy(0, L2Ball(near, 2.0)))
    assert (wide.predicted, wide.source, wide.record) == (0, "shrunk", 4)
    assert wide.radius == pytest.approx(1.6)
    for certificate in (Toy(0, L2Ball(near, 2.0)), Toy(0, L2Ball(near, 1.0)), Toy(ABSTAIN, None)):
        again = memory.offer(near, certificate)
        assert (again.predicted, again.source, again.record) == (0, "memory", 4)
        assert again.radius == pytest.approx(1.6)
    assert len(memory) == 4


def test_certificate_at_hand_is_overruled_by_a_region_of_another_class(memory):
    memory.answer(np.zeros(2), saying(0, 1.0))
    near = np.array([0.9, 0.0])
    answer = memory.offer(near, Toy(1, L2Ball(near, 1.2)))
    assert (answer.predicted, answer.source, answer.record) == (0, "memory", 1)
    assert answer.radius == pytest.approx(0.1)
    assert len(memory) == 1


def test_every_record_of_another_class_cuts(memory):
    for i, x in enumerate([[3.0, 0], [-2.5, 0], [0, 2.0], [0, -3.5]]):
        memory.answer(np.array(x), saying(i, 0.5))
    for order in range(4):
        assert memory.answer(np.zeros(2), saying(order, 100.0)).source in ("shrunk", "memory")
    assert memory.stored_answer(5).region.radius == pytest.approx(1.5)


def test_abstentions_and_radii_too_small_to_compute_with_are_not_stored(memory):
    assert memory.answer(np.zeros(2), saying(ABSTAIN, 0.0)).abstained
    assert memory.answer(np.zeros(2), saying(1, 1e-120)).abstained
    assert len(memory) == 0
    assert memory.answer(np.zeros(2), saying(1, 1e-90)).radius == pytest.approx(1e-90)
    assert memory.answer(np.array([1e-170, 0.0]), never).predicted == 1


def test_equal_numbers_are_one_input_whatever_their_type(memory):
    memory.answer(np.array([1.0, 0.0]), saying(1, 0.5))
    for dtype in (np.float64, np.float32, np.float16, np.int64, np.uint8, bool):
        assert memory.answer(np.array([1, 0], dtype=dtype), never).predicted == 1
    assert memory.answer(torch.tensor([1.0, 0.0], requires_grad=True), never).predicted == 1


@pytest.mark.parametrize(
    ("x", "named"),
    [
        (np.zeros(3), r"\(2,\).*\(3,\)"),
        (np.zeros((1, 2)), r"\(2,\).*\(1, 2\)"),
        (np.array([np.nan, 0]), None),
        (np.array([np.inf, 0]), None),
        (np.array([1e101, 0]), r"1e\+100.*1e\+101"),
        (np.array([1j, 0]), "complex128"),
        (np.array([0, 0], dtype=np.longdouble), np.dtype(np.longdouble).name),
        (np.array(["a", "b"]), "<U1"),
        (np.array([2**53 + 2, 0]), "2\\^53"),
        (np.array([-(2**63), 0]), "2\\^53"),
    ],
)
def test_bad_inputs_are_refused_before_anything_is_certified(memory, x, named):
    with pytest.raises(InvalidValueError, match=named):
        memory.answer(x, never)
    with pytest.raises(InvalidValueError, match=named):
        memory.look_up(x)


@pytest.mark.parametrize(
    ("certificate", "named"),
    [
        (Toy(1, L1Ball(np.zeros(2), 1.0)), r"\bl2\b.*L1Ball"),
        (Toy(1, L2Ball(np.ones(2), 1.0)), None),
        (Toy(1, L2Ball(np.zeros((2, 1)), 1.0)), None),
        (Toy(1, None), r"\b1\b.*None"),
        (Toy(ABSTAIN, L2Ball(np.zeros(2), 1.0)), r"-1\b.*L2Ball"),
        (Toy(-2, L2Ball(np.zeros(2), 1.0)), r"-2\b.*L2Ball"),
        (Toy(1, L2Ball(np.zeros(2), 1e101)), r"1e\+100.*1e\+101"),
    ],
)
def test_bad_certificates_are_refused(memory, certificate, named):
    with pytest.raises(InvalidValueError, match=named):
        memory.answer(np.zeros(2), lambda x: certificate)
    assert len(memory) == 0


def test_facts_that_can_t_be_kept_are_refused_and_nothing_is_stored(memory):
    for fact in (float("nan"), object()):
        with pytest.raises(InvalidValueError, match=r"facts.*sigma"):
            memory.answer(np.zeros(2), saying(0, 1.0), facts=lambda c, fact=fact: {"sigma": fact})
    assert len(memory) == 0
    memory.answer(np.zeros(2), lambda x: Toy(np.int64(1), L2Ball(x, np.float64(1.0))))
    assert memory.stored_answer(1).predicted == 1


def test_a_memory_that_contradicts_itself_stops_answering():
    """As after a merge of two memories that didn't see each other."""
    store = ListStore(statement())
    for label in (0, 1):
        answer = StoredAnswer(label, L2Ball(np.zeros(2), 1.0))
        store.append(next_row(store.head(), answer.encode()))
    memory = RegionMemory(store)
    with pytest.raises(IncompleteMemoryError, match=r"\b1\b.*\b2\b"):
        memory.look_up(np.zeros(2))
    with pytest.raises(IncompleteMemoryError):
        memory.look_up(np.array([50.0, 0.0]))


def test_statements_are_checked():
    with pytest.raises(InvalidValueError, match="linf"):
        MemoryStatement("ab", (2,), "gaussian", "linf")
    with pytest.raises(InvalidValueError, match=r"input_shape.*\(\)"):
        MemoryStatement("ab", (), "gaussian", "l2")
    with pytest.raises(InvalidValueError, match=r"format.*\b2\b"):
        MemoryStatement("ab", (2,), "gaussian", "l2", format=2)


@pytest.mark.parametrize(("noise", "norm"), [("gaussian", "l2"), ("uniform", "l1")])
def test_a_smoothed_classifier_s_certificates_fit(noise, norm):
    model = torch.nn.Linear(4, 3)
    torch.nn.init.eye_(model.weight)
    torch.nn.init.zeros_(model.bias)
    inputs = np.eye(4, dtype=np.float32)[:3]
    statements = []
    for sigma in (0.1, 0.2):
        classifier = SmoothedClassifier(
            model, sigma=sigma, noise=noise, n0=20, n=200, seed=0, input_shape=(4,)
        )
        statements.append(MemoryStatement.of(classifier, (4,)))
    assert statements[0] == statements[1]  # σ may differ from input to input
    assert statements[0].norm == norm
    memory = RegionMemory(ListStore(statements[0]))
    answers = [memory.answer(x, lambda x: classifier.certify(x)) for x in inputs]
    assert [answer.predicted for answer in answers] == [0, 1, 2]
    for x, answer in zip(inputs, answers):
        assert answer.source == "certified"
        assert answer.radius == pytest.approx(answer.certified.radius)
        stated = getattr(answer.certified, "sigma", None)
        assert memory.stored_answer(answer.record).facts.get("sigma") == stated
        assert memory.answer(torch.from_numpy(x) + 1e-3, never).predicted == answer.predicted
