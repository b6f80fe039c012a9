"""The chooser's network: its form, and how it learns from radii at every level."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from smoothcert.architectures import ModelSpec, initialise, normalisation_for
from smoothcert.datasets.base import Dataset
from smoothcert.errors import ModelError
from smoothcert.level_fit.objective import combined_radii, expected_radius
from smoothcert.level_fit.plan import LevelFitPlan
from smoothcert.noise import NOISES
from smoothcert.sampling.threads import counted_pass, openmp_threads, threads_for
from smoothcert.sigma_levels.statement import level_names

_ROOM = 0x6C6576656C  # keeps streams apart from those that training and fits of noise name by numbers too
_LENET_SIDE = 16
_LEANING = 2.0  # e² times as likely as any other level


class _Purpose(IntEnum):
    """One for each stream, so that drawing more of one never shifts another."""

    INPUTS = 0
    SHUFFLE = 1
    NOISE = 2


def chosen_inputs(indices: range, plan: LevelFitPlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions to fit on and positions kept apart, drawn by the seed."""
    order = torch.randperm(len(indices), generator=_stream(plan.seed, _Purpose.INPUTS)).numpy()
    drawn = np.asarray(indices, dtype=np.int64)[order[: plan.inputs]]
    return np.sort(drawn[plan.validation :]), np.sort(drawn[: plan.validation])


def chooser_spec(dataset: Dataset, plan: LevelFitPlan, start: ModelSpec | None = None) -> ModelSpec:
    """A network with an output for each level: a small one, or that of the model that it starts from."""
    shape = dataset.input_shape
    if start is not None:
        if start.input_shape != shape or plan.network not in (None, start.architecture):
            wanted = plan.network or start.architecture
            raise ModelError(
                f"the chooser is {wanted} for inputs of shape {shape}: it can't start from {start.architecture} for "
                f"{start.input_shape}"
            )
        return replace(start, classes=level_names(plan.sigmas))
    large = len(shape) == 3 and min(shape[1:]) >= _LENET_SIDE
    mean, std = normalisation_for(dataset.name, shape[0]) or (None, None)
    network = plan.network or ("lenet" if large else "small-cnn")
    return ModelSpec(network, shape, level_names(plan.sigmas), mean, std)


def fitted_chooser(
    spec: ModelSpec,
    dataset: Dataset,
    indices: NDArray[np.int64],
    radii: NDArray[np.float64],
    plan: LevelFitPlan,
    on_rows: Callable[[int], None] | None = None,
    on_epoch: Callable[[], None] | None = None,
    start: nn.Module | None = None,
) -> nn.Module:
    """A network that gives each noisy input a level, so that the whole classifier's radius is large.

    Two sums are climbed together. The expected radius leaves a level for another where that gains on average; the
    radius that G would have (min over levels of max(reach, radius)) makes the votes as clear as reaches have to be.
    The same seed gives the same weights on one machine's processor. ``start``: a trained network of the same
    architecture, of which all but the last layer is taken over.
    """
    model = initialise(spec, plan.seed)
    if start is not None:
        _take_over(model, start)
    _lean(model, int(radii.mean(axis=0).argmax()))
    noise = NOISES[plan.noise](plan.noise_sigma)
    goal = torch.from_numpy(radii).float()
    _, work = counted_pass(model.eval(), torch.from_numpy(dataset.inputs(indices[:1])))
    steps = math.ceil(len(indices) / plan.batch)
    with openmp_threads(threads_for(work * plan.batch * plan.copies)):
        optimizer = Adam(model.parameters(), plan.lr)
        schedule = CosineAnnealingLR(optimizer, plan.epochs * steps)
        model.train()
        for epoch in range(plan.epochs):
            draws = _stream(plan.seed, _Purpose.NOISE, epoch)
            order = torch.randperm(len(indices), generator=_stream(plan.seed, _Purpose.SHUFFLE, epoch))
            for rows in torch.split(order, plan.batch):
                x = torch.from_numpy(dataset.inputs(indices[rows.numpy()]))
                shares = _soft_votes(model, x, plan, draws)
                mine = goal[rows]
                gained = combined_radii(shares, mine, noise) + expected_radius(shares, mine)
                loss = -gained.mean()
                if not bool(torch.isfinite(loss)):
                    raise ModelError(
                        f"the chooser's loss became {float(loss.detach())} in epoch {epoch + 1}: try a learning rate "
                        f"below {plan.lr:g}"
                    )
                optimizer.zero_grad(set_to_none=True)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                if on_rows is not None:
                    on_rows(plan.copies * len(x))
            if on_epoch is not None:
                on_epoch()
    return model.eval()


def _take_over(model: nn.Module, start: nn.Module) -> None:
    """Give a network the weights of another one of its architecture, all but those of the last layer."""
    own, taken = model.state_dict(), start.state_dict()
    other = [name for name, value in own.items() if value.shape != taken[name].shape]
    last = _last_layer(model)
    if last is None or any(name.rpartition(".")[0] != last for name in other):
        raise ModelError(
            f"the chooser can't start from {type(start).__name__}: its classes aren't the outputs of a last linear "
            "layer"
        )
    model.load_state_dict(
        {name: own[name] if name.rpartition(".")[0] == last else value for name, value in taken.items()}
    )


@torch.no_grad()
def _lean(model: nn.Module, level: int) -> None:
    """Begin near the level that is best for all inputs: leaving it has to be learnt, not unlearnt."""
    if (last := _last_layer(model)) is not None:
        layer = model.get_submodule(last)
        if isinstance(layer.bias, Tensor) and level < len(layer.bias):
            layer.bias[level] += _LEANING


def _last_layer(model: nn.Module) -> str | None:
    """The name of the last linear layer, which gives the logits of the usual networks."""
    names = [name for name, layer in model.named_modules() if isinstance(layer, nn.Linear)]
    return names[-1] if names else None


def _soft_votes(model: nn.Module, x: Tensor, plan: LevelFitPlan, draws: torch.Generator) -> Tensor:
    """The mean softmax of each input's noisy copies."""
    unit = torch.empty(plan.copies, *x.shape, dtype=x.dtype)
    NOISES[plan.noise].fill(unit, draws)
    logits: Tensor = model((x + plan.noise_sigma * unit).flatten(0, 1))
    return logits.reshape(plan.copies, len(x), -1).softmax(-1).mean(0)


def _stream(seed: int, purpose: _Purpose, *words: int) -> torch.Generator:
    state = np.random.SeedSequence([_ROOM, seed, int(purpose), *words]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0]))
