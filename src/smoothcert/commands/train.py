"""`smoothcert train`: a classifier that holds its ground under noise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from smoothcert.commands.options import OutputOptions


def train(
    dataset: str,
    *,
    sigma: float,
    out: Path,
    objective: str = "gaussian",
    architecture: str | None = None,
    epochs: int = 90,
    batch_size: int = 256,
    lr: float = 0.01,
    schedule: Literal["step", "cosine"] = "step",
    step_epochs: int = 30,
    weight_decay: float = 1e-4,
    max: Annotated[int | None, Parameter(help="Train on the first M inputs only.")] = None,
    seed: int = 0,
    data_dir: Path | None = None,
    device: str = "cpu",
    output: OutputOptions = OutputOptions(),
) -> None:
    """Train a classifier under Gaussian noise and save it with everything needed to certify it.

    `--out` receives model.safetensors with its description model.json, train.json (the plan) and metrics.jsonl.

    Example: `smoothcert train digits --sigma 0.25 --epochs 30 --lr 0.05 --out runs/digits`

    Parameters
    ----------
    dataset
        digits, mnist, fashion-mnist, cifar10, folder:PATH or npz:PATH; its train split is used.
    sigma
        Standard deviation of the training noise, in input units (pixels in [0, 1]).
    out
        Directory to write.
    objective
        Training method.
    architecture
        lenet, small-cnn, cifar_resnet20 or cifar_resnet110 (default: by the size of the inputs).
    epochs
        Passes over the data.
    batch_size
        Inputs per step.
    lr
        Learning rate at the start.
    schedule
        step: ×0.1 every --step-epochs; cosine: down to 0.
    step_epochs
        Epochs between steps of the schedule.
    weight_decay
        Weight decay.
    seed
        Fixes initial weights, order and noise.
    data_dir
        Where the data set's files are (default: the environment variable SMOOTHCERT_DATA).
    device
        Where to train: cpu, cuda, mps.
    """
    from smoothcert import datasets
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.sampling.execution import check_device
    from smoothcert.training import TrainPlan
    from smoothcert.training.runs import default_architecture, train_into

    check_device(device)
    plan = TrainPlan(
        sigma=sigma,
        objective=objective,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        schedule=schedule,
        step_epochs=step_epochs,
        seed=seed,
    )
    inputs = datasets.load(dataset, "train", data_dir).first(max)
    quiet = output.quiet or output.json
    with progress_bar("training", "steps", quiet) as bar:
        history = train_into(
            out,
            inputs,
            plan,
            architecture or default_architecture(inputs.input_shape),
            on_step=bar.step,
            device=device,
        )
    last = history[-1]
    if output.json:
        import json

        print(
            json.dumps({"out": str(out), "epochs": last.epoch, "loss": last.loss, "accuracy": last.accuracy})
        )
    note(f"{out}: loss {last.loss:.4f}, noisy training accuracy {100 * last.accuracy:.1f} %", quiet)
