"""Several processes, or one that takes all shards: the same training (real ones: test_torchrun); and kept memory."""

import copy
import dataclasses
import os
import subprocess
import sys
from unittest.mock import patch

import pytest
import torch
from torch import nn

from smoothcert.cli import main
from smoothcert.errors import InvalidValueError
from smoothcert.objectives import Objective
from smoothcert.objectives.smoothadv import SmoothAdv
from smoothcert.training import processes
from smoothcert.training.loop import train
from smoothcert.training.processes import Processes, connect
from tests.training.toys import InDouble, Meeting, flat, halves, new_model, plan

TORCHRUN = {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "RANK": "3"}


def trained_together(ranks, model, dataset, chosen):
    """Every rank's model and history."""

    def work(processes):
        mine = copy.deepcopy(model)
        return mine, train(mine, dataset, chosen, processes=processes)

    return Meeting(ranks).run(work)


def step(shards, size=16, **changes):
    model = InDouble(new_model())
    history = train(model, halves(size), plan(sigma=0.0, epochs=1, shards=shards, **changes))
    return flat(model), history[-1].loss


@pytest.mark.parametrize("shards", [2, 3, 5])
@pytest.mark.parametrize("size", [16, 27])  # the last of 27 has 11 inputs: unequal parts
def test_without_noise_shards_add_up_to_one(shards, size):
    (whole, loss), (parts, mean_loss) = step(1, size), step(shards, size)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-12)
    assert mean_loss == pytest.approx(loss, rel=1e-9)


@dataclasses.dataclass(frozen=True)
class Draws(Objective):
    """Notes the next number of its generator and of the model's own."""

    noise: list = dataclasses.field(default_factory=list)
    own: list = dataclasses.field(default_factory=list)

    def loss(self, model, x, y, noise, generator):
        self.noise.append(torch.rand((), generator=generator, dtype=torch.float64).item())
        self.own.append(torch.rand((), dtype=torch.float64).item())
        return model(x).sum() * 0


def test_no_two_shards_batches_or_epochs_draw_the_same():
    objective = Draws()
    train(new_model(), halves(32), plan(objective=objective, epochs=2, shards=3))
    assert len(objective.noise) == 2 * 2 * 3
    assert len({*objective.noise, *objective.own}) == 2 * len(objective.noise)


@pytest.mark.parametrize("objective", [plan().objective, SmoothAdv(steps=2, copies=2)])
@pytest.mark.parametrize(("ranks", "shards"), [(2, 2), (2, 4), (3, 3)])
def test_ranks_do_together_what_one_process_does_alone(ranks, shards, objective):
    chosen = plan(epochs=2, shards=shards, objective=objective, flip=True, shift=1)
    alone = InDouble(new_model())
    history = train(alone, halves(27), chosen)
    for model, together in trained_together(ranks, InDouble(new_model()), halves(27), chosen):
        torch.testing.assert_close(flat(model), flat(alone), rtol=1e-9, atol=1e-12)
        assert [m.loss for m in together] == pytest.approx([m.loss for m in history], rel=1e-9)
        assert [m.accuracy for m in together] == [m.accuracy for m in history]


def test_a_models_own_draws_belong_to_the_shard_and_not_to_the_process():
    def dropout_model():
        return nn.Sequential(nn.Dropout(0.5), InDouble(new_model()))

    chosen, alone = plan(epochs=2, shards=2), dropout_model()
    train(alone, halves(27), chosen)
    for model, _ in trained_together(2, dropout_model(), halves(27), chosen):
        torch.testing.assert_close(flat(model), flat(alone), rtol=1e-9, atol=1e-12)


def test_batch_norm_statistics_are_shared_after_each_epoch():
    model = new_model(architecture="cifar_resnet20")
    chosen = plan(epochs=1, batch_size=32)
    (first, _), (second, _) = trained_together(2, model, halves(32), chosen)
    assert torch.equal(flat(first), flat(second))
    # After one step the running mean of the first layer is a tenth of the mean of the two batches' means.
    name = next(name for name, buffer in first.named_buffers() if name.endswith("running_mean"))
    with patch.object(Meeting, "exchange", lambda self, rank, number, tensors: tensors):
        apart = [each for each, _ in trained_together(2, model, halves(32), chosen)]
    own = [each.state_dict()[name] * 2 for each in apart]  # sum() did nothing, and a sum of 2 was halved
    assert not torch.equal(*own)
    torch.testing.assert_close(first.state_dict()[name], (own[0] + own[1]) / 2)


def test_shards_are_one_for_each_process_or_are_refused():
    alone = InDouble(new_model())
    train(alone, halves(20), plan(epochs=1, shards=2))
    (model, _), _ = trained_together(2, InDouble(new_model()), halves(20), plan(epochs=1))
    torch.testing.assert_close(flat(model), flat(alone), rtol=1e-9, atol=1e-12)
    with pytest.raises(InvalidValueError, match=r"shards.*\b2\b.*\b3\b"):
        trained_together(2, new_model(), halves(), plan(shards=3))


def test_more_shards_than_inputs_are_refused():
    for size, batch_size, inputs in ((50, 4, 4), (3, 16, 3)):
        with pytest.raises(InvalidValueError, match=rf"shards.*\b{inputs}\b.*\b5\b"):
            train(new_model(), halves(size), plan(shards=5, batch_size=batch_size))


def test_without_torchrun_a_process_is_alone_and_exchanges_nothing():
    for environment in ({}, {"WORLD_SIZE": "4", "RANK": "3"}, TORCHRUN | {"WORLD_SIZE": "1"}):
        with patch.dict(os.environ, environment, clear=True):
            assert type(connect()) is Processes
    alone, tensor = Processes(), torch.tensor([1.0, 2.0])
    alone.sum([tensor])
    alone.wait()
    assert tensor.tolist() == [1.0, 2.0]
    assert (alone.is_first, alone.count, alone.device.type) == (True, 1, "cpu")


def test_several_processes_need_a_card_each():
    for device, instead in (("cuda:1", "'cuda'"), ("mps", "cpu")):
        named = rf"'{device}'.*\b4\b.*{instead}"
        with patch.dict(os.environ, TORCHRUN), pytest.raises(InvalidValueError, match=named):
            connect(device)
    here = patch.dict(os.environ, TORCHRUN | {"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "4"})
    cards = patch("torch.cuda.device_count", return_value=2)
    with here, cards, pytest.raises(InvalidValueError, match=r"\b4\b.*\b2\b"):
        connect("cuda")


FAULTS = """
import resource
import numpy as np
from smoothcert.training.processes import keep_freed_memory

kept = KEEP and keep_freed_memory()
for step in range(6):
    if step == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(64 * 2**20, np.uint8)
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(keep: bool) -> tuple[bool, int]:
    """Whether freed memory was kept, and the pages that five more arrays of 64 MB faulted in."""
    words = [sys.executable, "-c", FAULTS.replace("KEEP", str(keep))]
    run = subprocess.run(words, check=True, capture_output=True, text=True, timeout=120)
    kept, count = run.stdout.split()
    return kept == "1", int(count)


@pytest.mark.system
def test_the_next_array_has_the_pages_of_the_last():
    kept, count = faults(keep=True)
    if not kept:
        pytest.skip("this C library can't be told")
    _, otherwise = faults(keep=False)
    assert count < otherwise / 10


def test_the_command_keeps_freed_memory_unless_the_c_library_is_another(monkeypatch, tmp_path):
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: object())
    assert not processes.keep_freed_memory()
    pytest.importorskip("sklearn")
    asked: list[bool] = []
    monkeypatch.setattr(processes, "keep_freed_memory", lambda: asked.append(True))
    words = ["--sigma", "0.25", "--epochs", "1", "--max", "64", "--quiet"]
    main(["train", "digits", *words, "--out", str(tmp_path / "run")])
    assert asked == [True]
