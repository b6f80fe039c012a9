"""What CERTIFY makes of models that cost next to nothing: its votes a second over rows a second of a bare ``predict``.

    python -m benchmarks.cheap_models

``predict`` gets batches that are noisy already, as long as CERTIFY's own passes. The contenders take turns, in one
thread, and seconds are those of the processor. Beside it stands what no smoothing can be faster than: the same noise
drawn with the field's means (``normal_`` into the same memory) and then ``predict``, with nothing counted.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.interleave import Ratio, interleave, speedup
from smoothcert import Execution, SmoothedClassifier

SIGMA = 0.5
TARGET = 0.8


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cheap_models", description=main.__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="votes an input")
    parser.add_argument("--inputs", type=int, default=4, help="inputs certified in a turn")
    parser.add_argument("--repeats", type=int, default=5, help="rounds")
    parser.add_argument("--model", action="append", choices=list(estimators()), help="default: all")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    table = Table(
        "data", "model", "rows a pass", "predict, µs a row", "certify / predict", "certify / (noise, predict)"
    )
    for name, make in DATA.items():
        x, y = make()
        for called, estimator in estimators().items():
            if options.model and called not in options.model:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of fits that are cut short
                estimator.fit(x, y)
            table.add_row(name, called, *_measured(estimator, x, options))
    Console(width=120).print(table)
    print(f"target of certify / predict: {TARGET}")


def estimators() -> dict[str, Any]:
    """Classifiers whose rows are cheap, and one whose rows aren't."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "LinearSVC": LinearSVC(),
        "LogisticRegression": LogisticRegression(),
        "scaled LinearSVC": make_pipeline(StandardScaler(), LinearSVC()),
        "MLP": MLPClassifier(max_iter=20, random_state=0),
        "GaussianNB": GaussianNB(),
        "tree": DecisionTreeClassifier(random_state=0),
        "forest of 20": RandomForestClassifier(20, random_state=0),
    }


def _wine() -> tuple[Any, Any]:
    from sklearn.datasets import load_wine
    from sklearn.preprocessing import StandardScaler

    x, y = load_wine(return_X_y=True)
    return StandardScaler().fit_transform(x), y


def _digits() -> tuple[Any, Any]:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return x / 16, y


DATA: dict[str, Callable[[], tuple[Any, Any]]] = {"wine, 13 numbers": _wine, "digits, 64 numbers": _digits}


def _measured(estimator: Any, x: Any, options: argparse.Namespace) -> list[str]:
    rows = x[: options.inputs].astype(np.float32)
    smoothed = SmoothedClassifier(
        estimator,
        sigma=SIGMA,
        n=options.n,
        seed=0,
        input_shape=rows.shape[1:],
        execution=Execution(workers=1),
    )
    plan = smoothed.prepare(rows.shape[1:])
    chunk = plan.numerics.layout().chunk
    passes = -(-options.n // chunk) * options.inputs
    noise = torch.empty((chunk, *rows.shape[1:]))
    noisy = np.repeat(rows[:1], chunk, 0) + np.random.default_rng(0).normal(scale=SIGMA, size=noise.shape)
    noisy = noisy.astype(np.float32)
    first, drawn = torch.from_numpy(rows[0]), torch.Generator().manual_seed(0)

    def certify() -> int:
        answers = smoothed.certify_batch(rows, index=0)
        return int(sum(answer.selection.n + answer.estimation.n for answer in answers))

    def predict() -> int:
        for _ in range(passes):
            estimator.predict(noisy)
        return int(passes * chunk)

    def noise_and_predict() -> int:
        for _ in range(passes):
            noise.normal_(0, SIGMA, generator=drawn).add_(first)
            estimator.predict(noise.numpy())
        return int(passes * chunk)

    contenders = {"certify": certify, "predict": predict, "both": noise_and_predict}
    rounds = interleave(contenders, options.repeats, processor_time=True)
    cost = 1e6 / Ratio.of([turn.rate for turn in rounds["predict"]]).median
    ratios = [speedup(rounds, "certify", other) for other in ("predict", "both")]
    return [
        str(chunk),
        f"{cost:.3f}",
        *(f"{one.median:.2f} ({one.low:.2f}–{one.high:.2f})" for one in ratios),
    ]


if __name__ == "__main__":
    main()
