"""`smoothcert predict`: the smoothed classifier's answer, or an honest abstention."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from smoothcert.cli.arguments import foreign_fit
from smoothcert.cli.certification import CertificationOptions
from smoothcert.cli.console import note, progress_bar, warn
from smoothcert.cli.levels import LevelOptions
from smoothcert.cli.options import (
    DataName,
    DataOptions,
    Held,
    ModelName,
    ModelOptions,
    NoiseText,
    OutputOptions,
    Sigma,
    held_back,
)
from smoothcert.cli.plan_options import EngineOptions
from smoothcert.files import write_atomically


def predict(
    model: ModelName,
    *,
    dataset: DataName = None,
    sigma: Sigma = None,
    noise: NoiseText = None,
    n: int = 1000,
    until_decided: int | None = None,
    alpha: float = 0.001,
    seed: int | None = None,
    hold: Held = None,
    out: Path | None = None,
    levels: LevelOptions = LevelOptions(),
    data: DataOptions = DataOptions(),
    model_options: ModelOptions = ModelOptions(),
    engine: EngineOptions = EngineOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Predict with the smoothed classifier: the class, or −1 where the votes don't tell.

    `n` noisy votes are cast for each input; a two-sided test of the two classes ahead abstains unless it can tell
    them apart at level alpha. With probability 1 − alpha an answer is the smoothed classifier's true one. That holds
    for one n: asking again with more votes until it answers is wrong more often; `--until-decided 100000` is for that.
    Writes one line per input (`idx label predict p_value correct time`) to standard output or `--out`.

    Parameters
    ----------
    n
        Votes per input.
    until_decided
        Cast votes until a test that holds at every number of them answers, at most so many (instead of n).
    alpha
        Probability that an answer is wrong.
    seed
        Names the random streams (default: drawn from the operating system, so that inputs can't be chosen by it;
        stated with the answers).
    out
        File to write instead of standard output.
    """
    from smoothcert.models.adapt import class_order

    options = CertificationOptions(
        dataset, sigma, noise, levels=levels, data=data, model_options=model_options, engine=engine
    )
    asked = options.smoothed(model, "hard", {"alpha": alpha, "seed": seed}, hold)
    named, inputs, classifier = asked.named, asked.inputs, asked.classifier
    seed = classifier.settle_seed()
    one_sigma = classifier.plan.noise.sigma if classifier.plan.sigma_levels is None else None
    for departure in named.departures(classifier.plan.noise.name, one_sigma, inputs):
        warn(departure)
    classifier = classifier.in_order(class_order(classifier.base, inputs))
    if (warning := foreign_fit(asked.noise, classifier, inputs.input_shape)) is not None:
        note(warning)
    voting = held_back(classifier, hold)
    indices = asked.choice.indices(len(inputs))
    with progress_bar("predicting", "votes") as bar:
        bar.begin(n * len(indices) if until_decided is None else None, len(indices))
        answers = []
        for answer in voting.predict_each(inputs.each(indices), n, alpha, bar.advance, until_decided):
            answers.append(answer)
            bar.item()
    answers.sort(key=lambda answer: answer.index)
    rows = [
        {
            "idx": answer.index,
            "label": int(inputs.labels[answer.index]),
            "predict": answer.predicted,
            "p_value": answer.p_value,
            "correct": int(answer.predicted == inputs.labels[answer.index]),
            "time": round(answer.seconds, 6),
            **({"name": answer.label} if output.json and classifier.base.class_names is not None else {}),
        }
        for answer in answers
    ]
    right, abstained = sum(row["correct"] for row in rows), sum(answer.abstained for answer in answers)
    if output.json:
        counts = {"inputs": len(rows), "correct": right, "abstained": abstained, "seed": seed}
        text = json.dumps(counts | {"predictions": rows})
    else:
        lines = ["\t".join(rows[0])] + ["\t".join(str(value) for value in row.values()) for row in rows]
        text = "\n".join(lines)
    if out is None:
        sys.stdout.write(text + "\n")
    else:
        write_atomically(out, (text + "\n").encode())
    if abstained and until_decided is None:
        note(
            f"Asking again with more votes until an input is answered would be wrong more often than alpha = "
            f"{alpha:g}: use --until-decided with the most votes you would spend"
        )
    note(
        f"{right} of {len(rows)} inputs answered correctly ({100 * right / len(rows):.1f} %), {abstained} abstained "
        f"(seed {seed})"
    )
