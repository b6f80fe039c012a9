"""`smoothcert diagnose`: confidence on the way to an unrestricted adversary."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from smoothcert.commands.options import FewInputsOptions, ModelOptions, OutputOptions
from smoothcert.commands.plan_options import LineOptions

if TYPE_CHECKING:
    from smoothcert.analysis.plots.lines import Ends
    from smoothcert.commands.model_argument import NamedModel
    from smoothcert.datasets.base import Dataset
    from smoothcert.empirical.diagnostics import ConfidenceLine
    from smoothcert.sampling.models import TorchClassifier


def diagnose(
    model: str,
    *,
    out: Path | None = None,
    dataset: Annotated[str | None, Parameter(alias="-d")] = None,
    sigma: float | None = None,
    plan_options: LineOptions = LineOptions(),
    each: bool = False,
    before: str | None = None,
    data: FewInputsOptions = FewInputsOptions(),
    model_options: ModelOptions = ModelOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Walk from inputs to adversaries that no norm restricts, and see where confidence turns.

    For each input, normalised gradient steps up the smoothed classifier's loss find an adversary; votes at points on
    the straight line to it show how the label's share falls and the rival's rises. The equal-confidence mixing ratio
    is where they meet: small ratios mean over-confident surroundings, which cost certified radius (SmoothMix, Jeong et
    al., 2021). Not a certificate.

    Example: `smoothcert diagnose runs/lenet --skip 100 --max 50 --out line.png`

    Parameters
    ----------
    model
        A training run, .safetensors or published checkpoint: a torch model, because gradients are needed.
    out
        Picture to write (.png, .svg, .pdf): mean confidence along the line, and the distribution of ratios.
    dataset
        Data set (default: what the model was trained on).
    sigma
        Standard deviation of the noise (default: what the model was trained with).
    each
        Draw a line for each input instead of the median over them, and the first four images with their adversaries
        (SmoothMix, figure 2): for a few inputs.
    before
        Another model, whose mixing ratios are drawn beside these, on the same inputs and at the same σ (figure 5).
    """
    import numpy as np

    from smoothcert.analysis.figures import check_picture_path
    from smoothcert.analysis.plots.lines import plot_confidence_lines
    from smoothcert.commands.console import note, progress_bar
    from smoothcert.empirical.diagnostics import LinePlan, confidence_lines
    from smoothcert.errors import InvalidValueError
    from smoothcert.evaluation import Choice
    from smoothcert.sampling.models import labelled_for

    if out is not None:
        check_picture_path(out)
    classifier, named = _torch_model(model, model_options)
    inputs = labelled_for(classifier, data.load(named.dataset_or(dataset)))
    low, high = inputs.value_range()
    plan = LinePlan(named.sigma_or(sigma), clip=low >= 0 and high <= 1, **vars(plan_options))
    indices = list(Choice(data.skip, data.max).indices(len(inputs)))
    quiet = output.silent
    with progress_bar("inputs", "inputs", quiet) as bar:
        bar.begin(len(indices), len(indices))
        lines = confidence_lines(classifier.module, inputs, indices, plan, bar.one)
    right, turned = _turned(lines)
    earlier = None
    if before is not None:
        other, _ = _torch_model(before, model_options)
        with progress_bar("inputs, before", "inputs", quiet) as bar:
            bar.begin(len(indices), len(indices))
            of_other = _turned(confidence_lines(other.module, inputs, indices, plan, bar.one))
        if not of_other[0]:
            raise InvalidValueError(f"{before} is right on none of the inputs: there is no ratio to draw")
        earlier = of_other[1], len(of_other[0])
    median = turned[len(turned) // 2] if turned else None
    if output.json:
        rows = [
            {
                "idx": line.index,
                "label": line.label,
                "rival": line.rival,
                "right": line.right,
                "distance": line.distance,
                "equal_confidence_ratio": line.equal_confidence_ratio,
            }
            for line in lines
        ]
        print(json.dumps({"sigma": plan.sigma, "median_ratio": median, "inputs": rows}))
    elif not output.quiet:
        words = "no adversary turned the answer" if median is None else f"median mixing ratio {median:.3f}"
        sys.stdout.write(
            f"{len(lines)} inputs, {len(right)} right without attack; of those, {len(turned)} are turned on the way to "
            f"their adversary: {words}\n"
        )
    if out is not None:
        plot_confidence_lines(
            lines[0].ratios,
            np.array([line.shares[:, line.label] for line in right]),
            np.array([line.shares[:, line.rival] for line in right]),
            turned,
            out,
            each=each,
            before=earlier,
            ends=_ends(right, inputs) if each and plan.clip else (),
        )
        note(str(out), quiet)


def _torch_model(text: str, options: ModelOptions) -> tuple[TorchClassifier, NamedModel]:
    from smoothcert.commands.model_argument import load_named_model
    from smoothcert.errors import ModelError
    from smoothcert.sampling.models import TorchClassifier

    named = load_named_model(text, options, "hard")
    if not isinstance(named.classifier, TorchClassifier):
        raise ModelError(f"{text} gives no gradients, which the adversary needs: name a torch model")
    return named.classifier, named


def _ends(lines: list[ConfidenceLine], inputs: Dataset) -> list[Ends]:
    """Where the lines of the first few inputs begin and end, if inputs are grey or coloured images."""
    from smoothcert.analysis.plots.lines import MOST_ENDS, Ends

    shape = inputs.input_shape
    if not (len(shape) == 2 or (len(shape) == 3 and shape[0] in (1, 3))):
        return []
    return [
        Ends(
            inputs.input(line.index),
            line.adversary,
            f"{line.index}: {inputs.classes[line.label]} → {inputs.classes[line.rival]}, ℓ2 {line.distance:.2f}",
        )
        for line in lines[:MOST_ENDS]
        if line.adversary is not None
    ]


def _turned(lines: list[ConfidenceLine]) -> tuple[list[ConfidenceLine], list[float]]:
    """The lines of inputs that are right without attack, and the ratios at which those turn, ascending."""
    right = [line for line in lines if line.right]
    ratios = [line.equal_confidence_ratio for line in right]
    return right, sorted(ratio for ratio in ratios if ratio is not None)
