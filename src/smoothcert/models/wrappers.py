"""What modules take and return beside floats and one tensor of scores, made into that by a stated rule.

Noise is added in floating point; for models that take whole numbers it is then made whole, which is a part of f.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from smoothcert.errors import ModelError, check_positive
from smoothcert.models.outputs import OutputKind
from smoothcert.registry import check_name

WHOLE_TYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in ("int8", "int16", "int32", "int64", "uint8")
}


def whole_type(name: str | None) -> torch.dtype | None:
    """The type of that name; None for floats, which need no rule."""
    if name is None:
        return None
    check_name("input_dtype", name, WHOLE_TYPES)
    return WHOLE_TYPES[name]


def check_exact(name: str, whole: torch.dtype | None, dtype: torch.dtype) -> None:
    """Refuse a type in which noisy numbers would be rounded before they are made whole."""
    if whole is not None and dtype not in (torch.float32, torch.float64):
        raise ModelError(f"{name} takes {whole}, which {dtype} would round; drop --dtype")


def as_whole(batch: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Each number rounded to the nearest whole one (halves to the even one), then clipped to the type's range."""
    limits = torch.iinfo(dtype)
    return batch.round().clamp(_inside(limits.min, batch.dtype), _inside(limits.max, batch.dtype)).to(dtype)


def _inside(limit: int, dtype: torch.dtype) -> float:
    """The limit, or the float next to it towards zero: one beyond it would wrap around."""
    nearest = torch.tensor(float(limit), dtype=dtype)
    if abs(int(nearest.item())) > abs(limit):
        nearest = torch.nextafter(nearest, torch.zeros((), dtype=dtype))
    return float(nearest.item())


LOGITS = "logits"
"""The output that votes where a model names one so."""


class VotingModule(nn.Module):
    """A module between the rules that are a part of the base classifier: whole numbers in, the scores alone out."""

    def __init__(
        self,
        module: nn.Module,
        kind: OutputKind,
        output: str | None = None,
        input_dtype: torch.dtype | None = None,
        *,
        one_number: bool = False,
    ) -> None:
        super().__init__()
        self.module = module
        self.kind, self.output, self.input_dtype, self.one_number = kind, output, input_dtype, one_number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The scores of every row."""
        if self.input_dtype is not None:
            x = as_whole(x, self.input_dtype)
        scores = chosen_output(type(self.module).__name__, self.module(x), self.output)
        return two_columns(scores, self.kind) if self.one_number else scores


def chosen_output(name: str, answer: Any, output: str | None) -> torch.Tensor:
    """The tensor that votes: the output asked for; else ``logits`` where there are some; else the only one there is."""
    parts, taken = _parts_of(answer), output
    if parts is None:
        if output is not None:
            raise ModelError(
                f"{name} returned a {type(answer).__name__} without outputs: leave output={output!r} out"
            )
        found = answer
    elif output is not None:
        check_name(f"output of {name}", output, parts)
        found = parts[output]
    elif LOGITS in parts:
        taken, found = LOGITS, parts[LOGITS]
    elif len(parts) == 1:
        ((taken, found),) = parts.items()
    else:
        shown = ", ".join(parts) or "none"
        raise ModelError(
            f"{name} returned a {type(answer).__name__} with the outputs {shown}, none of them {LOGITS!r}: choose the "
            "scores with output= (--model-output)"
        )
    if not isinstance(found, torch.Tensor):
        where = "" if parts is None else f" as its output {taken!r}"
        raise ModelError(f"{name} returned a {type(found).__name__}{where}: wrap it to return its scores")
    return found


def _parts_of(answer: Any) -> dict[str, Any] | None:
    """The outputs by name (by place in a plain tuple); None if the answer isn't made of several."""
    if isinstance(answer, Mapping):
        return {str(key): value for key, value in answer.items()}
    if isinstance(answer, tuple | list):
        names = getattr(answer, "_fields", range(len(answer)))
        return {str(key): value for key, value in zip(names, answer)}
    if is_dataclass(answer):
        return {each.name: getattr(answer, each.name) for each in fields(answer)}
    held = getattr(answer, LOGITS, None)
    return None if isinstance(answer, torch.Tensor) or held is None else {LOGITS: held}


def two_columns(answers: torch.Tensor, kind: OutputKind) -> torch.Tensor:
    """Scores of two classes from one number a row: the second's logit z as (0, z), its probability p as (1 − p, p).

    softmax(0, z) is (1 − sigmoid(z), sigmoid(z)); z = 0 and p = ½ are votes for the first class.
    """
    if answers.ndim == 2 and answers.shape[1] == 1:
        answers = answers[:, 0]
    if answers.ndim != 1:
        return answers
    if kind == "probabilities":
        answers = _in_range(answers)
    return torch.stack([1 - answers if kind == "probabilities" else torch.zeros_like(answers), answers], 1)


def _in_range(shares: torch.Tensor) -> torch.Tensor:
    """Reject what is not a probability: at once, or as NaN among votes where a device would have to be awaited."""
    inside = (shares >= 0) & (shares <= 1)
    if shares.device.type != "cpu":
        return shares.where(inside, torch.nan)
    if not bool(inside.all()):
        raise ModelError(
            'one number a row was declared a probability (outputs="probabilities"), and the model returned one outside '
            'of [0, 1], or NaN: a logit is outputs="scores"'
        )
    return shares


class Sharpened(nn.Module):
    """``module`` with its scores times ``beta``: the softmax at inverse temperature β, as MACER's Soft-RS has it.

    β is a buffer, so that the hash of the model in a run's statement tells it from the plain one. Labels stay the same.
    """

    beta: Tensor

    def __init__(self, module: nn.Module, beta: float) -> None:
        super().__init__()
        check_positive("sharpen", beta)
        self.module = module
        self.register_buffer("beta", torch.tensor(float(beta)))

    def forward(self, x: Tensor) -> Tensor:
        """Scores."""
        return cast(Tensor, self.module(x)) * self.beta
