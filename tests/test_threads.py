"""Threads are chosen by the size of the work; models that aren't thread-safe have one caller at a time."""

import threading

import pytest
import torch
from torch import nn

from smoothcert import threads
from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.threads import (
    counted_pass,
    holding_the_lock,
    in_a_worker,
    one_caller,
    openmp_threads,
    threads_for,
    worker_threads,
)


def test_a_layer_with_weights_counts_its_products_and_others_their_numbers():
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 5))
    answer, work = counted_pass(network, torch.zeros(2, 3, 4, 4))
    assert answer.shape == (2, 5)
    assert work == 8 * 16 * 27 + 8 * 16 + 8 * 16 + 5 * 8 * 16


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_hooks_are_gone_afterwards_and_modules_that_take_none_count_nothing():
    network = nn.Linear(4, 2)
    with pytest.raises(RuntimeError):
        counted_pass(network, torch.zeros(1, 3))
    counted_pass(network, torch.zeros(1, 4))
    assert not network._forward_hooks
    scripted = torch.jit.trace(nn.Linear(4, 2), torch.zeros(1, 4))
    assert counted_pass(scripted, torch.zeros(1, 4))[1] == 0


def test_small_networks_have_one_thread_and_large_ones_as_many_as_there_are():
    for network, shape, rows, most in (
        ("small-cnn", (1, 8, 8), 256, 1),
        ("lenet", (1, 28, 28), 64, 1),
        ("lenet", (1, 28, 28), 256, 2),
        ("cifar_resnet20", (3, 32, 32), 256, 8),
    ):
        module = initialise(ModelSpec(network, shape, tuple("0123456789"), None, None), 0).eval()
        _, work = counted_pass(module, torch.zeros(1, *shape))
        with openmp_threads(8):
            assert threads_for(rows * work) == most
        with openmp_threads(1):
            assert threads_for(rows * work) == 1


def test_the_number_of_threads_comes_back_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), openmp_threads(before + 1):
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_a_long_wait_for_the_lock_is_told_and_ends(monkeypatch):
    monkeypatch.setattr(threads, "LONG_WAIT", 0.05)
    held, told, order = threading.Event(), threading.Event(), []

    def holder() -> None:
        with one_caller():
            held.set()
            assert told.wait(10)
            order.append("holder")

    def warned(*words: object, **_: object) -> None:
        assert "thread_safe=True" in str(words[0])
        told.set()

    monkeypatch.setattr("warnings.warn", warned)
    first = threading.Thread(target=holder)
    first.start()
    assert held.wait(10)
    with one_caller():
        order.append("waited")
    first.join(10)
    assert order == ["holder", "waited"]


def test_the_lock_may_be_entered_again_and_an_error_releases_it():
    with pytest.raises(ZeroDivisionError), one_caller(), one_caller():
        _ = 1 / 0
    assert not holding_the_lock()

    def take() -> None:
        with one_caller():
            pass

    other = threading.Thread(target=take, daemon=True)
    other.start()
    other.join(10)
    assert not other.is_alive()


def test_what_a_holder_waits_for_is_done_with_its_lock():
    with one_caller():
        assert in_a_worker(holding_the_lock)
        with worker_threads(2) as pool:
            found = list(pool.map(lambda _: (holding_the_lock(), threading.get_ident()), range(3)))
    assert found == [(True, threading.get_ident())] * 3
    assert not in_a_worker(holding_the_lock)
    with worker_threads(1) as pool:
        assert pool.submit(threading.get_ident).result() != threading.get_ident()
        assert isinstance(pool.submit(lambda: 1 / 0).exception(), ZeroDivisionError)
