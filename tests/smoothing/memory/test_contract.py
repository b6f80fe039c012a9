"""Every registered store keeps what it acknowledged, refuses what isn't its own, and notices what is missing."""

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError
from smoothcert.smoothing.memory import RegionMemory
from smoothcert.smoothing.stores.base import (
    STORES,
    Head,
    IncompleteMemoryError,
    Row,
    Store,
    StoreError,
    genesis,
    link,
    next_row,
    open_store,
)
from smoothcert.smoothing.stores.sqlite import SqliteStore
from tests.processes import _FORKSERVER as FORKSERVER
from tests.smoothing.memory.toys import never, saying, statement


def test_an_address_is_taken_by_one_kind_of_store(place):
    (kind,) = (STORES[name] for name in STORES if STORES[name].takes(place.address))
    with place.open() as memory:
        assert type(memory.store) is kind
    for strange in ("mysql://host/database", "http://somewhere"):
        assert not any(STORES[name].takes(strange) for name in STORES)
        with pytest.raises(InvalidValueError, match=f"{strange.partition('//')[0]}.*postgresql://"):
            open_store(strange, statement())


def test_rows_are_looked_up_and_chained_as_they_were_appended(place):
    payloads = [bytes([k]) * (k + 1) for k in range(5)]
    store = open_store(place.address, statement())
    assert store.head() == genesis(statement())
    assert (store.last_id(), list(store.rows(0, 0))) == (0, [])
    rows = []
    for payload in payloads:
        rows.append(next_row(store.head(), payload))
        with store.exclusive():
            store.append(rows[-1])
        assert store.head() == Head(len(rows), rows[-1].hash)
    store.close()
    again = open_store(place.address, statement(), known=Head(3, rows[2].hash))
    assert again.statement == statement()
    assert again.last_id() == 5
    assert list(again.rows(0, 5)) == rows
    assert list(again.rows(2, 4)) == rows[2:4]
    assert again.fetch([4, 2, 9]) == [rows[1], rows[3]]
    with pytest.raises(KeyboardInterrupt), again.exclusive():
        _append_and_die(again)
    assert (again.last_id(), again.head()) == (5, Head(5, rows[4].hash))
    again.close()


def _append_and_die(store: Store) -> None:
    store.append(next_row(store.head(), b"lost"))
    raise KeyboardInterrupt


def test_answers_are_there_after_reopening_to_the_last_bit(place):
    x = np.array([0.1, 1 / 3])
    with place.open() as memory:
        first = memory.answer(x, saying(2, 0.3), facts=lambda c: {"sigma": 0.5})
        memory.answer(np.array([1.0, 0.0]), saying(1, 5.0))
        before = list(memory.answers())
        head = memory.head
    with RegionMemory.open(place.address, statement(), known=head) as memory:
        assert len(memory) == 2
        assert memory.head == head == Head.parse(str(head))
        for (_, old), (_, new) in zip(before, memory.answers()):
            assert np.array_equal(old.region.center, new.region.center)
            assert (old.predicted, old.region.radius, old.facts) == (
                new.predicted,
                new.region.radius,
                new.facts,
            )
        again = memory.answer(x, never)
        assert (again.predicted, again.source, again.record) == (2, "memory", first.record)
        assert memory.stored_answer(1).facts == {"certified_radius": (0.3).hex(), "sigma": 0.5}


def test_another_process_s_answers_are_seen_before_every_decision(place):
    with place.open() as one, place.open() as other:
        assert one.look_up(np.zeros(2)) is None
        other.answer(np.zeros(2), saying(1, 1.0))
        assert one.answer(np.array([0.5, 0.0]), never).predicted == 1
        shrunk = one.answer(np.array([2.0, 0.0]), saying(0, 5.0))
        assert shrunk.radius == pytest.approx(1.0)
        assert len(one) == len(other) == 2


def test_what_is_stored_while_certifying_is_respected(place):
    with place.open() as slow, place.open() as fast:

        def certify_slowly(x: np.ndarray) -> Any:
            fast.answer(np.array([1.5, 0.0]), saying(1, 1.0))
            return saying(0, 1.0)(x)

        answer = slow.answer(np.zeros(2), certify_slowly)
        assert (answer.predicted, answer.source) == (0, "shrunk")
        assert answer.radius == pytest.approx(0.5)

        def overtaken(x: np.ndarray) -> Any:
            fast.answer(x + 0.1, saying(2, 1.0))
            return saying(0, 1.0)(x)

        answer = slow.answer(np.array([9.0, 9.0]), overtaken)
        assert (answer.predicted, answer.source, answer.record) == (2, "memory", 3)
        assert answer.certified.predicted == 0

        def overtaken_and_abstaining(x: np.ndarray) -> Any:
            fast.answer(x + 0.1, saying(2, 1.0))
            return saying(-1, 0.0)(x)

        assert slow.answer(np.array([-9.0, 9.0]), overtaken_and_abstaining).predicted == 2


def test_what_is_stored_just_before_the_transaction_is_respected(place, monkeypatch):
    """The last moment at which another process can be faster."""
    with place.open() as slow, place.open() as fast:
        begin = slow._store.exclusive

        def late() -> Any:
            fast.answer(np.array([1.5, 0.0]), saying(1, 1.0))
            return begin()

        monkeypatch.setattr(slow._store, "exclusive", late)
        answer = slow.answer(np.zeros(2), saying(0, 1.0))
        assert (answer.source, answer.radius) == ("shrunk", pytest.approx(0.5))


def test_an_answer_is_committed_before_it_is_given(place, monkeypatch):
    with place.open() as memory:
        answer = memory.answer(np.zeros(2), saying(0, 1.0))
        with place.open() as witness:  # another connection sees only what is committed
            assert witness.stored_answer(answer.record).predicted == 0
        append = memory._store.append

        def dying(row: Row) -> None:
            append(row)
            raise KeyboardInterrupt

        monkeypatch.setattr(memory._store, "append", dying)
        with pytest.raises(KeyboardInterrupt):
            memory.answer(np.array([5.0, 5.0]), saying(1, 1.0))
        monkeypatch.undo()
        assert len(memory) == 1
        assert memory.answer(np.array([5.0, 5.0]), saying(2, 1.0)).source == "certified"


TAMPERINGS = {
    "first row deleted": ["DELETE FROM $records WHERE id = 1"],
    "row deleted": ["DELETE FROM $records WHERE id = 3"],
    "last row deleted": ["DELETE FROM $records WHERE id = 5"],
    "all deleted": ["DELETE FROM $records"],
    "rows swapped": [
        "UPDATE $records SET id = 99 WHERE id = 2",
        "UPDATE $records SET id = 2 WHERE id = 3",
        "UPDATE $records SET id = 3 WHERE id = 99",
    ],
    "payload swapped": [
        "UPDATE $records SET payload = (SELECT payload FROM $records WHERE id = 4) WHERE id = 2"
    ],
    "row doubled": ["INSERT INTO $records SELECT 6, payload, hash FROM $records WHERE id = 5"],
    "truncated, head put back by number": ["DELETE FROM $records WHERE id > 3", "UPDATE $head SET count = 3"],
    "stale head": ["UPDATE $head SET count = 4, hash = (SELECT hash FROM $records WHERE id = 4)"],
    "head deleted": ["DELETE FROM $head"],
    "statement edited": ["UPDATE $statement SET text = '{}'"],
    "statement deleted": ["DELETE FROM $statement"],
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_tampering_is_noticed_on_opening(place, how):
    place.filled()
    place.tamper(*TAMPERINGS[how])
    with pytest.raises(StoreError) as caught:
        place.open()
    # That one reads as the store of another statement.
    assert isinstance(caught.value, IncompleteMemoryError) == (how != "statement edited")


@pytest.mark.parametrize(
    "how",
    [
        h
        for h in TAMPERINGS
        if "statement" not in h and h not in ("rows swapped", "payload swapped", "row deleted")
    ],
)
def test_tampering_under_way_is_noticed_before_the_next_answer_is_stored(place, how):
    place.filled()
    with place.open() as memory:
        place.tamper(*TAMPERINGS[how])
        with pytest.raises(IncompleteMemoryError):
            # The first touches record 1 alone, the rest of it the head.
            memory.answer(np.array([0.3, 0.0]), saying(0, 0.1))
        with pytest.raises(IncompleteMemoryError):  # and for good
            memory.look_up(np.array([99.0, 0.0]))


@pytest.mark.parametrize("how", ["row deleted", "rows swapped", "payload swapped"])
def test_a_record_changed_under_way_is_noticed_when_it_matters(place, how):
    place.filled()
    with place.open() as memory:
        place.tamper(*TAMPERINGS[how])
        with pytest.raises(IncompleteMemoryError, match=r": \D*\b[23]\b"):
            [memory.look_up(np.array([float(i), 0.0])) for i in range(5)]


def test_one_changed_bit_is_noticed_and_a_record_with_its_own_hash_by_the_next(place):
    place.filled()
    with place.open() as memory:
        first, second = memory._store.fetch([1, 2])

    def literal(content: bytes) -> str:
        return f"X'{content.hex()}'" if "sqlite" in place.address else f"'\\x{content.hex()}'::bytea"

    flipped = second.payload[:-1] + bytes([second.payload[-1] ^ 1])
    place.tamper(f"UPDATE $records SET payload = {literal(flipped)} WHERE id = 2")
    with pytest.raises(IncompleteMemoryError, match=r": \D*\b2\b"):
        place.open()
    payload = second.payload.replace(b'"class": 1', b'"class": 2')
    assert payload != second.payload
    own = literal(link(first.hash, 2, payload))
    place.tamper(f"UPDATE $records SET payload = {literal(payload)}, hash = {own} WHERE id = 2")
    with pytest.raises(IncompleteMemoryError, match=r": \D*\b3\b"):
        place.open()


def test_a_valid_but_older_memory_is_noticed_by_whoever_knows_better(place):
    head = place.filled()
    with place.open() as memory:
        place.tamper(
            "DELETE FROM $records WHERE id = 5",
            "UPDATE $head SET count = 4, hash = (SELECT hash FROM $records WHERE id = 4)",
        )
        with pytest.raises(IncompleteMemoryError, match=r": \D*\b5\b.*\b4\b"):
            memory.look_up(np.zeros(2))
    with pytest.raises(IncompleteMemoryError, match=r"\b5\b"):
        RegionMemory.open(place.address, statement(), known=head)


def test_another_statement_is_refused_by_name(place):
    place.filled(1)
    for other, named in (
        ({"model_sha256": "cd" * 32}, "model_sha256"),
        ({"shape": (3,)}, "input_shape"),
        ({"norm": "l1"}, "norm.*'l2'.*'l1'"),
        ({"noise": "laplace"}, "noise"),
        ({"preprocessing": "scaled to [-1, 1]"}, "preprocessing"),
    ):
        with pytest.raises(StoreError, match=named) as caught:
            place.open(**other)
        assert not isinstance(caught.value, IncompleteMemoryError)
    place.open().close()


def test_a_long_held_store_is_an_error_and_nothing_is_lost(place):
    with place.open() as holder, place.open() as waiting:
        store: Any = waiting._store
        if isinstance(store, SqliteStore):
            store._connection.execute("PRAGMA busy_timeout = 50")
        else:
            store._connection.execute("SET lock_timeout = '50ms'")
        with holder._store.exclusive(), pytest.raises(StoreError) as caught:
            waiting.answer(np.zeros(2), saying(0, 1.0))
        assert not isinstance(caught.value, IncompleteMemoryError)
        assert waiting.answer(np.zeros(2), saying(0, 1.0)).source == "certified"


def test_rows_are_appended_in_transactions_only(place):
    store = open_store(place.address, statement())
    with pytest.raises(InvalidValueError, match=r"exclusive\(\)"):
        store.append(Row(1, b"", b""))
    store.close()


def test_threads_may_share_a_memory(place):
    failures: list[BaseException] = []
    with place.open() as memory:

        def ask(seed: int) -> None:
            rng = np.random.default_rng(seed)
            try:
                for _ in range(15):
                    x = rng.normal(size=2)
                    answer = memory.answer(x, saying(seed, 0.5))
                    again = memory.look_up(x)
                    assert answer.abstained or again.predicted == answer.predicted
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
    assert failures == []


@pytest.mark.system
def test_processes_that_make_a_store_at_once_make_one(place):
    workers = [FORKSERVER.Process(target=_open_and_answer, args=(place.address, i)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    with place.open() as memory:
        assert len(memory) == 4


def _open_and_answer(address: str, number: int) -> None:
    with RegionMemory.open(address, statement()) as memory:
        memory.answer(np.full(2, float(number)), saying(number, 0.1))


def test_heads_are_read_strictly():
    head = Head(3, bytes(range(32)))
    assert Head.parse(str(head)) == head
    for text in ("", "3", "x:00", f"-1:{'00' * 32}", "3:0011"):
        with pytest.raises(InvalidValueError, match="COUNT:SHA256"):
            Head.parse(text)
    assert replace(head, count=4) != head
