"""A training run on disk: weights, their description, the plan and the metrics."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from smoothcert.architectures import ModelSpec, initialise
from smoothcert.datasets.base import Dataset
from smoothcert.errors import RunError
from smoothcert.files import write_atomically
from smoothcert.training.loop import EpochMetrics, Progress, train
from smoothcert.training.plan import TrainPlan
from smoothcert.weights import WEIGHTS_NAME, save_model

PLAN_NAME = "train.json"
METRICS_NAME = "metrics.jsonl"


def default_architecture(input_shape: tuple[int, ...]) -> str:
    """A network that suits inputs of this shape: a ResNet for colour, LeNet from 16×16 on, else a small CNN."""
    if len(input_shape) == 3 and input_shape[0] == 3 and min(input_shape[1:]) >= 32:
        return "cifar_resnet20"
    return "lenet" if len(input_shape) == 3 and min(input_shape[1:]) >= 16 else "small-cnn"


def train_into(
    out: Path,
    dataset: Dataset,
    plan: TrainPlan,
    architecture: str,
    on_step: Progress | None = None,
    device: str = "cpu",
) -> list[EpochMetrics]:
    """Train a fresh model and write it to ``out``, which must not hold one yet."""
    if (out / WEIGHTS_NAME).exists():
        raise RunError(f"{out} holds a trained model already; choose another --out")
    spec = ModelSpec(architecture, dataset.input_shape, dataset.classes)
    model = initialise(spec, plan.seed)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{out} can't be made: {error.strerror}") from None
    history = train(model, dataset, plan, progress=on_step, device=device)
    lines = "".join(json.dumps(asdict(metrics)) + "\n" for metrics in history)
    write_atomically(out / METRICS_NAME, lines.encode())
    facts = asdict(plan) | {
        "dataset": dataset.name,
        "dataset_sha256": dataset.fingerprint(),
        "inputs": len(dataset),
        "architecture": architecture,
    }
    write_atomically(out / PLAN_NAME, (json.dumps(facts, indent=2) + "\n").encode())
    save_model(model.cpu(), spec, out)
    return history
