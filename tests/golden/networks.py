"""Votes of real networks, whose bits depend on the machine: one line of JSON for each case.

Run as a script, by the ``src`` that PYTHONPATH names. A checkout is measured by its own copy of this file, so that
moved modules do not matter: keep the names of the cases.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smoothcert import Execution, Numerics, SmoothedClassifier
from smoothcert.architectures.spec import ModelSpec, initialise

NETWORKS = {"lenet": ("lenet", (1, 28, 28), 1500, 256), "resnet20": ("cifar_resnet20", (3, 32, 32), 96, 32)}
"""Architecture, shape of an input, votes, rows of a pass."""
ROUTES = ("eager", "channels-last", "folded", "onnxruntime", "compiled")
INPUTS = 2


def network(name: str) -> tuple[torch.nn.Module, np.ndarray, int]:
    """A network with random weights whose classes are about equally likely under noise, and inputs for it."""
    architecture, shape, votes, _ = NETWORKS[name]
    module = initialise(ModelSpec(architecture, shape, tuple("0123456789")), seed=0)
    images = np.random.default_rng(0).integers(0, 256, (INPUTS, *shape)).astype(np.float32) / 255
    generator = torch.Generator().manual_seed(1)
    noisy = torch.from_numpy(images).repeat(64, 1, 1, 1)
    noisy = noisy + 0.5 * torch.randn(noisy.shape, generator=generator)
    with torch.no_grad():
        module.train()
        torch.manual_seed(0)
        module(noisy)  # batch norm gets statistics
        module.eval()
        last = [part for part in module.modules() if isinstance(part, torch.nn.Linear)][-1]
        last.bias -= module(noisy).mean(0)
    return module.requires_grad_(False), images, votes


def certified(module: Any, images: np.ndarray, votes: int, **fields: Any) -> list[Any]:
    """What is compared: votes, and radii to the last bit."""
    plan = {"sigma": 0.5, "n0": 64, "n": votes, "alpha": 0.01, "seed": 0, "levels": 255}
    classifier = SmoothedClassifier(module, execution=Execution(workers=1), **plan, **fields)
    found = []
    for answer in classifier.certify(images, 0):
        tallies = *_tally(answer.selection), *_tally(answer.estimation)
        found.append([answer.predicted, answer.radius.hex(), answer.sigma.hex(), *tallies])
    return found


def _tally(tally: Any) -> list[Any]:
    return [tally.counts, tally.sums, tally.squares]


def cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names and what makes their facts."""
    from smoothcert.smoothing.search.base import SEARCHES

    for name in NETWORKS:
        module, images, votes = network(name)
        chunk = NETWORKS[name][3]
        certify = partial(certified, module, images, votes)
        for kind, bound in (("hard", "top-two"), ("soft", "bernstein")):
            brief = name == "resnet20" and kind == "hard"  # a soft tally has the hard counts as well
            routes = ROUTES if not brief else ("eager", "onnxruntime", "compiled")
            plans = {f"float32-{route}": Numerics(route=route, chunk=chunk) for route in routes}
            for route in ("eager", "channels-last", "folded") if not brief else ("eager",):
                numbers = Numerics(dtype="autocast-bfloat16", route=route, chunk=chunk)
                plans[f"autocast-bfloat16-{route}"] = numbers
            plans["philox"] = Numerics(route="eager", generator="philox", chunk=chunk)
            for plan, numerics in plans.items():
                yield f"{name}-{plan}-{kind}", partial(certify, bound=bound, numerics=numerics)
        yield f"{name}-auto", certify
    certify = partial(certified, *network("lenet"))
    yield "lenet-search-ladder", partial(certify, search=SEARCHES["ladder"]())
    yield "lenet-search-gradient", partial(certify, search=SEARCHES["gradient"](steps=10, lr=0.01))
    yield "train-digits", trained


def trained() -> Any:
    """The weights after an epoch of training, and what the command certifies with them."""
    from smoothcert import load_run
    from smoothcert.cli import main

    with tempfile.TemporaryDirectory() as folder:
        model, run = Path(folder) / "model", Path(folder) / "run"
        words = ["--sigma", "0.25", "--epochs", "1", "--max", "512", "--threads", "1", "--quiet", "--out"]
        main(["train", "digits", *words, str(model)])
        words = ["--n", "500", "--n0", "50", "--max", "3", "--workers", "1", "--quiet", "--out"]
        main(["certify", str(model), *words, str(run)])
        (weights,) = model.glob("*.safetensors")
        return [
            hashlib.sha256(weights.read_bytes()).hexdigest(),
            [
                [record.predicted, record.radius.hex(), *_tally(record.estimation)]
                for record in load_run(run).records
            ],
        ]


def run(only: list[str]) -> None:
    """Print a line for each case: its name, a hash, its facts, and how long it took."""
    torch.set_num_threads(1)
    for name, make in cases():
        if only and not any(part in name for part in only):
            continue
        began = time.perf_counter()
        try:
            facts = make()
        except Exception as error:  # told, and compared: a route that fails here fails there, too
            facts = f"{type(error).__name__}"
        text = json.dumps(facts)
        line = {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "facts": facts}
        print(json.dumps(line | {"seconds": time.perf_counter() - began}), flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
