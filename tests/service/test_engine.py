"""The engine behind all requests: shared passes, fair turns, ends of every kind, and nothing left behind."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from smoothcert.errors import InvalidValueError, ModelError
from smoothcert.models.numerics import Numerics
from smoothcert.service.engine import Question, VotingEngine
from smoothcert.service.limits import ClosedError, EngineLimits, QueueFullError
from smoothcert.service.secrets import Secret
from smoothcert.smoothing.procedures import decide
from smoothcert.smoothing.stopping.rules import Decide, RadiusGrid
from smoothcert.tally import Phase
from tests.service.made import SHAPE, Edge, asked, running, smoothed
from tests.waiting import join, until

FAR = np.array([-1.0, 0.0])


def settled(engine: VotingEngine) -> tuple[object, ...]:
    """What the engine holds: nothing but kept votes, once it is idle."""
    with engine._lock:
        return (
            dict(engine._asks),
            dict(engine._votings),
            dict(engine._waiting.by_caller),
            len(engine._schedule),
        )


def wait_until_idle(engine: VotingEngine) -> None:
    until(lambda: not engine.load().inputs and not engine._out)


def test_an_answer_is_the_certificate_of_its_votes() -> None:
    with running() as engine:
        ask = asked(engine, "a", FAR)
        assert ask.wait(30)
        found = ask.certification
        assert ask.ending == "votes"
        assert found is not None
        assert found.estimation.n == 2048
        assert found.predicted == 0
        plan = replace(engine.plan, n=2048)
        assert decide(FAR, plan, found.selection, found.estimation).radius == found.radius > 0.5


def test_votes_are_those_that_certify_would_cast() -> None:
    with running() as engine:
        ask = asked(engine, "a", FAR)
        ask.wait(30)
        index = engine.point(FAR)[0]
        alone = smoothed(seed=engine.secret.seed).certify(FAR, index=index)
        assert ask.certification is not None
        assert ask.certification.estimation == alone.estimation
        assert ask.certification.radius == alone.radius


def test_an_input_asked_about_again_goes_on_where_it_stopped() -> None:
    model = Edge()
    with running(model) as engine:
        first = asked(engine, "a", FAR, votes=512)
        first.wait(30)
        wait_until_idle(engine)
        rows = model.rows
        again = asked(engine, "b", FAR, votes=512)
        assert again.done
        assert again.certification is not None
        assert first.certification is not None
        assert again.certification.estimation == first.certification.estimation
        assert model.rows == rows, "no vote is cast twice while it is kept"
        more = asked(engine, "a", FAR, votes=1024)
        more.wait(30)
        assert more.standing.votes == 1024
        whole = asked(engine, "a", FAR, votes=64)
        assert whole.done
        assert whole.standing.votes == 1024, (
            "fewer votes than there are can't be had: no choice among answers"
        )


def test_votes_that_are_not_kept_are_cast_again_to_the_same_bits() -> None:
    with running(limits=EngineLimits(kept=0)) as engine:
        found = []
        for _ in range(2):
            ask = asked(engine, "a", FAR, votes=300)
            ask.wait(30)
            found.append(ask.certification)
            wait_until_idle(engine)
            assert not engine._kept
        assert found[0] is not None
        assert found[1] is not None
        assert found[0].estimation == found[1].estimation


def test_two_callers_with_one_input_share_its_votes() -> None:
    model = Edge()
    with running(model) as engine:
        model.open.clear()
        asks = [asked(engine, caller, FAR) for caller in "ab"]
        model.open.set()
        assert all(ask.wait(30) for ask in asks)
        assert asks[0].standing == asks[1].standing
        assert engine.load().votes_cast == 2048 + 16


def test_a_caller_with_many_inputs_does_not_starve_one_with_one() -> None:
    places: list[np.ndarray] = []

    class Recording(Edge):
        def __call__(self, batch: np.ndarray) -> np.ndarray:
            places.append(batch[:, 1].copy())
            return super().__call__(batch)

    model = Recording()
    with running(model) as engine:
        model.open.clear()
        many = [asked(engine, "many", np.array([-1.0, -500.0 - place])) for place in range(20)]
        one = asked(engine, "one", np.array([-2.0, -1000.0]))
        model.open.set()
        assert all(ask.wait(60) for ask in [one, *many])
    votes = 2048 + 16
    own = np.cumsum([(batch < -900).sum() for batch in places])
    others = np.cumsum([((batch > -600) & (batch < -400)).sum() for batch in places])
    assert others[np.searchsorted(own, votes)] < 4 * votes, "it got about half, and not one in 21"


def test_inputs_share_passes() -> None:
    model = Edge()
    with running(model) as engine:
        asked(engine, "warm", np.zeros(2), votes=16).wait(30)
        wait_until_idle(engine)
        model.rows = 0
        with engine._lock:  # it sees all of them at once
            asks = [
                asked(engine, f"caller {place}", np.array([-1.0, place]), votes=64) for place in range(32)
            ]
        assert all(ask.wait(30) for ask in asks)
        assert model.rows < 1.5 * 32 * (64 + 16), "four blocks of 16 votes to a pass of 64 rows"


def test_a_deadline_answers_with_what_is_certified_so_far() -> None:
    model = Edge()
    with running(model) as engine:
        asked(engine, "a", FAR, votes=256).wait(30)
        wait_until_idle(engine)
        model.open.clear()
        ask = asked(engine, "a", FAR)
        assert not ask.done
        engine.end(ask, "deadline")
        assert ask.done
        assert ask.certification is not None
        assert ask.certification.radius > 0
        assert ask.standing.votes == 256
        early = asked(engine, "a", np.array([-3.0, 0.0]))
        engine.end(early, "deadline")
        assert early.certification is None, "before the first vote nothing is said"
        assert early.standing.predicted == -1
        model.open.set()


def test_who_leaves_frees_votes_and_leaves_nothing_behind() -> None:
    model = Edge()
    with running(model, n=2**20) as engine:
        asks = [asked(engine, f"caller {place % 7}", np.array([-1.0, place])) for place in range(200)]
        for ask in asks:
            engine.end(ask)
        wait_until_idle(engine)
        assert settled(engine) == ({}, {}, {}, 0)
        assert engine.load().votes_cast < 2**20
        assert all(ask.certification is None for ask in asks)


def test_who_leaves_does_not_end_the_same_question_of_another() -> None:
    with running() as engine:
        leaving, staying = asked(engine, "a", FAR), asked(engine, "b", FAR)
        engine.end(leaving)
        assert staying.wait(30)
        assert staying.standing.votes == 2048


def test_rules_end_an_ask_early() -> None:
    with running() as engine:
        decided = asked(engine, "a", FAR, rule=Decide(0.3))
        assert decided.wait(30)
        assert decided.ending == "rule"
        assert decided.standing.votes < 2048
        assert decided.standing.radius >= 0.3
        hopeless = asked(engine, "a", np.array([0.4, 0.0]), rule=Decide(2.0))
        assert hopeless.wait(30)
        assert hopeless.ending == "rule"
        assert hopeless.reason is not None
        assert "2" in hopeless.reason
        assert hopeless.standing.radius < 2.0
        tie = asked(engine, "a", np.array([0.5, 0.0]), rule=RadiusGrid((0.0,)), votes=256)
        assert tie.wait(30)
        assert tie.standing.predicted == -1


def test_a_full_queue_refuses_and_says_when() -> None:
    model = Edge()
    with running(model, EngineLimits(queue=4, per_caller=3)) as engine:
        model.open.clear()
        held = [asked(engine, "a", np.array([-1.0, place])) for place in range(3)]
        with pytest.raises(QueueFullError, match=r"\b3\b.*\b3\b") as refused:
            asked(engine, "a", np.array([-1.0, 3.0]))
        assert refused.value.retry_after >= 1
        both = [Question(*engine.point(np.array([-2.0, place]))) for place in range(2)]
        with pytest.raises(QueueFullError, match=r"\b3\b.*\b4\b"):
            engine.ask_all("b", both)
        assert engine.load().inputs == 3, "of a list all are taken or none"
        with pytest.raises(InvalidValueError, match=r"\b4\b.*\b3\b"):
            engine.ask_all("b", both * 2)
        engine.end(held[0])
        asked(engine, "a", np.array([-1.0, 3.0]))
        model.open.set()


def test_one_question_of_many_callers_is_bounded_too() -> None:
    model = Edge()
    with running(model, EngineLimits(queue=4)) as engine:
        model.open.clear()
        for place in range(4):
            asked(engine, f"caller {place}", FAR)
        with pytest.raises(QueueFullError):
            asked(engine, "another", FAR)
        model.open.set()


def test_an_input_that_the_model_can_not_vote_on_fails_alone() -> None:
    model = Edge()
    with running(model) as engine:
        model.open.clear()
        good = [asked(engine, "a", np.array([-1.0, place])) for place in range(5)]
        bad = asked(engine, "b", np.array([0.0, 200.0]))
        model.open.set()
        assert bad.wait(30)
        assert isinstance(bad.error, ModelError)
        assert "NaN" in str(bad.error)
        assert str(engine.point(np.array([0.0, 200.0]))[0]) not in str(bad.error)
        assert all(ask.wait(30) for ask in good)
        assert all(ask.certification is not None for ask in good)
        wait_until_idle(engine)
        assert settled(engine) == ({}, {}, {}, 0)
        assert engine.alive


def test_inputs_are_checked_before_they_are_queued() -> None:
    with running() as engine:
        for wrong in (np.zeros(3), np.array([np.nan, 0.0]), np.array(["a", "b"]), np.array([1e30, 0.0])):
            with pytest.raises(InvalidValueError):
                asked(engine, "a", wrong)
        with pytest.raises(InvalidValueError, match=r"\b2048\b.*\b4096\b"):
            asked(engine, "a", FAR, votes=4096)
        assert engine.load().inputs == 0


def test_shutdown_finishes_what_it_holds_or_answers_as_it_stands() -> None:
    model = Edge()
    engine = VotingEngine(smoothed(model), SHAPE)
    ask = asked(engine, "a", FAR)
    engine.close(grace=30)
    assert ask.ending == "votes"
    with pytest.raises(ClosedError):
        asked(engine, "a", FAR)
    engine = VotingEngine(smoothed(model, n=2**22), SHAPE)
    ask = asked(engine, "a", FAR)
    engine.close()
    assert ask.ending == "shutdown"
    assert not engine._thread.is_alive()


def test_bounds_of_a_fixed_number_of_votes_are_refused() -> None:
    with pytest.raises(InvalidValueError, match=r"two-class.*mixture-top-two"):
        VotingEngine(smoothed(bound="two-class"), SHAPE)


@pytest.mark.parametrize("bound", ["looks", "looks-two-class", "mixture"])
def test_every_anytime_bound_serves(bound: str) -> None:
    with running(bound=bound, n=1000) as engine:
        ask = asked(engine, "a", FAR, votes=700)
        assert ask.wait(30)
        assert ask.certification is not None
        assert ask.certification.radius > 0
        assert ask.standing.votes == (562 if bound.startswith("looks") else 700)
        wait_until_idle(engine)
        more = asked(engine, "a", FAR)
        assert more.wait(30)
        assert more.standing.votes == 1000


def test_many_threads_ask_and_leave_at_once() -> None:
    with running(n=512) as engine:
        wrong: list[BaseException] = []

        def caller(name: int) -> None:
            try:
                rng = np.random.default_rng(name)
                for _ in range(20):
                    ask = asked(engine, str(name), np.array([-1.0, rng.integers(10)]))
                    if rng.random() < 0.5:
                        engine.end(ask)
                    assert ask.wait(30)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=caller, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        join(*threads)
        assert wrong == []
        wait_until_idle(engine)
        assert settled(engine) == ({}, {}, {}, 0)


def test_streams_follow_from_secret_plan_and_point_alone() -> None:
    secret, other = Secret.of_seed(1), Secret.of_seed(2)
    point = np.array([0.0, 1.0])
    assert secret.index("plan", point) == secret.index("plan", np.array([-0.0, 1.0]))
    assert secret.index("plan", point) == secret.index("plan", point.astype(np.float32))
    different = {
        secret.index("plan", point),
        secret.index("another plan", point),
        secret.index("plan", point[::-1]),
        secret.index("plan", point[np.newaxis]),
        other.index("plan", point),
        Secret.fresh().index("plan", point),  # 256 bits: the same twice with a probability of 2**-256
    }
    assert len(different) == 6
    assert Secret.of_seed(1).seed != Secret.of_seed(2).seed
    assert str(Secret.fresh().key) not in repr(Secret.fresh())
    with running() as engine:
        on_grid, off_grid = np.array([0.5, 0.0]), np.array([0.5 + 1e-12, 0.0])
        assert engine.point(on_grid)[0] == engine.point(off_grid)[0], "one point of the grid, one stream"
        assert engine.plan.votes_of(1, Phase.SELECTION).seed == engine.secret.seed


def test_two_servers_that_start_at_once_have_one_secret(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)  # the other has made it and not written it yet
    key = "ab" * 32
    monkeypatch.setattr("smoothcert.service.secrets.time.sleep", lambda _: path.write_text(key))
    assert Secret.in_file(path).key.hex() == key


def test_the_secret_file_is_private_and_keeps_streams_the_same(tmp_path) -> None:
    path = tmp_path / "secret"
    made = Secret.in_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Secret.in_file(path).key == made.key
    path.chmod(0o644)
    with pytest.raises(InvalidValueError, match=rf"--secret-file {path}.*\b644\b.*chmod 600 {path}"):
        Secret.in_file(path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(InvalidValueError, match=rf"--secret-file {path}.*\b64\b"):
        Secret.in_file(path)


def test_the_copies_shown_are_those_the_model_saw() -> None:
    seen = []

    class Recording(Edge):
        def __call__(self, batch: np.ndarray) -> np.ndarray:
            seen.append(np.array(batch))
            return super().__call__(batch)

    layouts = [(64, 16), (16, 64), (64, 16, "philox"), (16, 64, "philox")]
    for numerics in (Numerics("float32", "eager", *layout) for layout in layouts):
        with running(Recording(), numerics=numerics) as engine:
            seen.clear()
            ask = asked(engine, "a", FAR, votes=64)
            assert ask.wait(30)
            rows = {row.tobytes() for batch in seen for row in batch.astype(np.float32)}
            shown = engine.copies(ask, 4).astype(np.float32)
            assert all(row.tobytes() in rows for row in shown)
