"""What modules take and return beside floats and one tensor of scores, made into that by a stated rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn

from smoothcert.errors import ModelError
from smoothcert.registry import unknown_name
from smoothcert.sampling.ballots import OutputKind
from smoothcert.sampling.models.whole_numbers import as_whole

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
                f"{name} returned a {type(answer).__name__}, which has no output {output!r}: leave output= out"
            )
        found = answer
    elif output is not None:
        if output not in parts:
            raise unknown_name(f"output of {name}", output, list(parts))
        found = parts[output]
    elif LOGITS in parts:
        taken, found = LOGITS, parts[LOGITS]
    elif len(parts) == 1:
        ((taken, found),) = parts.items()
    else:
        shown = ", ".join(parts) or "none"
        raise ModelError(
            f"{name} returned a {type(answer).__name__} with the outputs {shown}, none of them {LOGITS!r}: choose the "
            "scores with output= (--output)"
        )
    if not isinstance(found, torch.Tensor):
        where = "" if parts is None else f" as its output {taken!r}"
        raise ModelError(
            f"{name} returned a {type(found).__name__}{where}, not a tensor: wrap it so that it returns its scores"
        )
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
    """Refuse what is no probability: at once, or as NaN among votes where looking would mean waiting for a device."""
    inside = (shares >= 0) & (shares <= 1)
    if shares.device.type != "cpu":
        return shares.where(inside, torch.nan)
    if not bool(inside.all()):
        raise ModelError(
            'one number a row was declared a probability (outputs="probabilities"), and the model returned one outside '
            'of [0, 1], or NaN: a logit is outputs="scores"'
        )
    return shares
