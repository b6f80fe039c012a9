"""``python -m benchmarks.tables certified``: UCI's bank table with masks and noise, in three families of classifiers.

``fit_masked`` trains each on the training split; rows of the test split are certified: the share that is right and
certified after d changed categories and numbers that move by less than ρ, beside the accuracy of the same family
trained without noise. ``votes``: CERTIFY's votes a second over bare ``predict`` of rows that are noisy already.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from benchmarks.timing import command_line, interleave, show, speedup
from smoothcert import Execution, SmoothedClassifier, fit_masked, load_dataset
from smoothcert.analysis.tables import markdown_table
from smoothcert.datasets.tables import as_frame
from smoothcert.regions.changes import ChangeRegion

RHOS, CHANGES = (0.0, 0.25, 0.5), 5

app = command_line("tables", __doc__)


def families(class_weight: str | None = None) -> dict[str, Any]:
    """The classifiers that are trained, none of them tuned to the table."""
    columns = make_column_transformer(
        (StandardScaler(), make_column_selector(dtype_include="number")),
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
    )
    weighted: dict[str, Any] = {"class_weight": class_weight}
    return {
        "HistGradientBoosting": HistGradientBoostingClassifier(random_state=0, **weighted),
        "RandomForest": RandomForestClassifier(min_samples_leaf=5, n_jobs=1, random_state=0, **weighted),
        "LogisticRegression": make_pipeline(columns, LogisticRegression(max_iter=1000, **weighted)),
    }


@app.command
def certified(
    *, sigma: float = 0.25, beta: float = 0.85, rows: int = 500, n: int = 10_000, balanced: bool = False
) -> None:
    """Certified and right (%) over d and ρ, beside clean accuracy without noise: of all rows, and of the rarer class.

    ``balanced``: the classes weigh the same in training, with noise and without.
    """
    table, classes = as_frame(load_dataset("bank", "train"))
    test, truth = (part[:rows] for part in as_frame(load_dataset("bank", "test")))
    names, counts = np.unique(truth, return_counts=True)
    groups = {"all": np.full(rows, True), f"{names[counts.argmin()]}": truth == names[counts.argmin()]}
    lines = []
    for name, estimator in families("balanced" if balanced else None).items():
        plain = fit_masked(estimator, table, classes, sigma=1e-9, beta=1e-9, copies=1).predict(test) == truth
        model = fit_masked(estimator, table, classes, sigma=sigma, beta=beta)
        noise, alone = model.smoothcert_noise_, Execution(workers=1)
        voting = SmoothedClassifier(model, noise=noise, n=n, alpha=0.001, seed=0, execution=alone)
        began = time.perf_counter()
        answers = voting.certify(test)
        seconds = time.perf_counter() - began
        regions = [one.region.table if isinstance(one.region, ChangeRegion) else () for one in answers]
        rho = np.array([(*table, *[0.0] * CHANGES)[:CHANGES] for table in regions])
        rho[answers.label != truth] = 0
        for group, members in groups.items():
            one = rho[members]
            cells = [
                [f"{100 * np.mean((one[:, d] > 0) & (one[:, d] >= r)):.1f}" for r in RHOS]
                for d in range(CHANGES)
            ]
            clean = f"{100 * plain[members].mean():.1f}"
            lines.append(
                (name, f"{group} ({members.sum()})", clean, *map(" / ".join, cells), f"{seconds:.0f}")
            )
        heads = ("family", "rows", "clean", *(f"d = {d}" for d in range(CHANGES)), "seconds")
        print(markdown_table(heads, lines[-2:], (0, 1)), flush=True)


@app.command
def votes(*, n: int = 20_000, repeats: int = 7) -> None:
    """Votes a second over bare ``predict``, of the masked estimator and of the classifier inside it."""
    table, classes = as_frame(load_dataset("bank", "train"))
    lines = []
    for name, estimator in families().items():
        model = fit_masked(estimator, table, classes)
        noise = model.smoothcert_noise_
        voting = SmoothedClassifier(
            model, noise=noise, n=n, n0=1, alpha=0.001, seed=0, execution=Execution(workers=1)
        )
        row = noise.columns.rows(table[:1])
        noisy = noise.sample(np.random.default_rng(0), np.tile(row, (n, 1)))
        inside = model.encoded(noisy)
        contenders = {
            "votes": lambda voting=voting, row=row: n * len(voting.certify(row)),
            "bare": lambda model=model, noisy=noisy: len(model.predict(noisy)),
            "inside": lambda model=model.estimator_, inside=inside: len(model.predict(inside)),
        }
        rounds = interleave(contenders, repeats, processor_time=True)
        cost = 1e6 / np.median([turn.rate for turn in rounds["inside"]])
        lines.append(
            (name, f"{cost:.1f}", speedup(rounds, "votes", "bare"), speedup(rounds, "votes", "inside"))
        )
    show(("family", "bare predict, µs a row", "votes over predict", "over the classifier inside"), lines)


if __name__ == "__main__":
    app()
