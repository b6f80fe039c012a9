"""Small data, models and plans that train in a moment."""

import collections
import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn

from smoothcert.architectures.spec import ModelSpec, initialise
from smoothcert.datasets.base import Dataset
from smoothcert.objectives import Objective
from smoothcert.training.plan import TrainPlan
from smoothcert.training.processes import Processes
from smoothcert.training.recipe import Recipe

CLASSES = ("left", "right", "both")


def halves(size=50, channels=1):
    """Images bright in the left half, the right half or everywhere, no two alike."""
    labels = np.arange(size, dtype=np.int64) % 3
    images = np.random.default_rng(0).integers(0, 60, (size, channels, 8, 8)).astype(np.uint8)
    images[labels != 1, :, :, :4] += 190
    images[labels != 0, :, :, 4:] += 190
    return Dataset("halves", images, labels, CLASSES, 1 / 255)


def numbers(size):
    """Inputs 0, 1, 2, … of one value each, labelled by their remainder."""
    return Dataset(
        "numbers",
        np.arange(size, dtype=np.float32).reshape(-1, 1),
        np.arange(size, dtype=np.int64) % 3,
        CLASSES,
    )


def new_model(classes=CLASSES, shape=(1, 8, 8), architecture="small-cnn"):
    return initialise(ModelSpec(architecture, shape, classes), seed=0)


def plan(**changes):
    return dataclasses.replace(TrainPlan(0.25, epochs=4, batch_size=16, lr=0.05), **changes)


def recipe(**changes):
    return Recipe("halves", plan(**({"epochs": 2} | changes)), architecture="small-cnn")


def flat(model):
    return torch.cat([tensor.detach().flatten().double() for tensor in model.state_dict().values()])


class InDouble(nn.Module):
    """A network that works in float64, where sums in another order agree to many digits."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner.double()

    def forward(self, x):
        return self.inner(x.double())


@dataclasses.dataclass(frozen=True)
class Recorder(Objective):
    """Notes which inputs each batch held and what they were given."""

    seen: list = dataclasses.field(default_factory=list)

    def loss(self, model, x, y, noise, generator):
        self.seen.append((x.flatten().tolist(), y.tolist(), noise))
        return model(x).sum() * 0 + len(y)


@dataclasses.dataclass(frozen=True)
class Diverging(Objective):
    """Becomes NaN when called for the last time."""

    calls: int = 3
    made: list = dataclasses.field(default_factory=list, compare=False)

    def loss(self, model, x, y, noise, generator):
        self.made.append(1)
        return model(x).sum() * (float("nan") if len(self.made) >= self.calls else 0.0)


class Meeting:
    """Ranks that work in turns in threads of one process and meet whenever they exchange tensors."""

    def __init__(self, count):
        self.count = count
        self.turn = threading.Lock()
        self._barrier = threading.Barrier(count, timeout=60)
        self._brought = collections.defaultdict(dict)

    def exchange(self, rank, number, tensors):
        self._brought[number][rank] = [tensor.clone() for tensor in tensors]
        self.turn.release()
        try:
            self._barrier.wait()
        finally:
            self.turn.acquire()
        everyone = [self._brought[number][each] for each in range(self.count)]
        return [torch.stack(alike).sum(0) for alike in zip(*everyone)]

    def run(self, work):
        """``work`` of each rank's processes, all at once."""

        def take_part(rank):
            with self.turn:
                return work(Rank(rank, self))

        with torch.random.fork_rng(devices=[]), ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(take_part, range(self.count)))


class Rank(Processes):
    """One of the processes of a meeting."""

    def __init__(self, rank, meeting):
        super().__init__()
        self.rank, self.count = rank, meeting.count
        self._meeting, self._met = meeting, 0

    def sum(self, tensors):
        self._met += 1
        for tensor, total in zip(tensors, self._meeting.exchange(self.rank, self._met, tensors)):
            tensor.copy_(total)

    def wait(self):
        self.sum([])
