"""``python -m tests.golden make-runs DIR``: run directories of every kind, small, by exact models.

Run it from the root of the repository with a relative DIR: runs state where their model and data were found.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert import Choice, LevelledClassifier, SmoothedClassifier, StatisticChooser, certify_dataset
from smoothcert.cli import main
from smoothcert.datasets import load
from smoothcert.evaluation.certification import Progress
from smoothcert.smoothing.search.base import SEARCHES
from tests.golden import models

ROOT = Path(__file__).resolve().parents[2]
RUNS = Path("tests/golden/runs")
"""Where the stored ones are, from the root of the repository."""
FILES = RUNS / "files"
"""Models, data, a fit, a memory and a log."""

_SCORES, _NET = "tests.golden.models:digit_scores", "tests.golden.models:DIGIT_NET"
_PROBABILITIES, _POINTS = "tests.golden.models:digit_probabilities", "tests.golden.models:thresholds"
_DIGITS = ["--dataset", "digits"]
_SIGMA = ["--sigma", "0.25"]
_SEARCH = ["--sigma-search", "ladder:votes=16,round_votes=96"]
_LEVELS = ["--chooser", "mean:0.28,0.32", "--sigma-levels", "0.25", "0.5", "1"]
_TOTAL = ["--stop", "total:9000,100"]


def _few(n: int = 400) -> list[str]:
    return ["--max", "6", "--n0", "40", "--n", str(n), "--alpha", "0.01", "--seed", "3", "--workers", "1"]


CERTIFY = {
    "plain": [f"{FILES}/digits.onnx", *_DIGITS, *_SIGMA, *_few()],
    "clopper-pearson": [_SCORES, *_DIGITS, *_SIGMA, *_few(), "--bound", "clopper-pearson"],
    "soft": [
        _PROBABILITIES,
        "--outputs",
        "probabilities",
        "--bound",
        "bernstein",
        *_DIGITS,
        *_SIGMA,
        *_few(),
    ],
    "philox": [_NET, *_DIGITS, *_SIGMA, *_few(), "--generator", "philox", "--route", "eager"],
    "search": [_NET, *_DIGITS, *_SIGMA, *_few(), *_SEARCH],
    "ellipsoid": [_NET, *_DIGITS, *_SIGMA, *_few(), "--sigma-search", "ellipsoid:steps=6,check_votes=48"],
    "levels": [_SCORES, *_DIGITS, *_few(), *_LEVELS],
    "held": [_POINTS, "--dataset", f"npz:{FILES}/points.npz", *_SIGMA, *_few(), "--hold", "3", "4"],
    "total": [_SCORES, *_DIGITS, *_SIGMA, *_few(), *_TOTAL],
    "stopped": [_SCORES, *_DIGITS, *_SIGMA, *_few(2000), "--stop", "decide:0.1", "--stop", "wrong"],
    "pilot": [_SCORES, *_DIGITS, *_SIGMA, *_few(4000), "--stop", "pilot:5%"],
    "uniform": [_POINTS, "--dataset", f"npz:{FILES}/points.npz", *_SIGMA, *_few(), "--noise", "uniform"],
    "fitted-noise": [_NET, *_DIGITS, *_few(), "--noise", f"{FILES}/fit"],
    "shard-1": [_SCORES, *_DIGITS, *_SIGMA, *_few(), "--shard", "1/2"],
    "shard-2": [_SCORES, *_DIGITS, *_SIGMA, *_few(), "--shard", "2/2"],
    "incomplete": [_SCORES, *_DIGITS, *_SIGMA, *_few()],
    "incomplete-search": [_NET, *_DIGITS, *_SIGMA, *_few(), *_SEARCH],
    "incomplete-total": [_SCORES, *_DIGITS, *_SIGMA, *_few(), *_TOTAL],
    "incomplete-levels": [_SCORES, *_DIGITS, *_few(), *_LEVELS],
}
"""The words after ``smoothcert certify`` that make, or resume, each run."""
FIT = [_NET, *_DIGITS, "--init", "0.25", "--fit-by", "votes", "--groups", "rows", "--sub-epochs", "1"]
FIT += ["--max", "24", "--validation", "8", "--workers", "1"]
TRAIN = ["digits", *_SIGMA, "--epochs", "1", "--max", "256", "--threads", "1", "--architecture", "small-cnn"]
IMPORT = ["--sigma", "0.25", "--dataset", "digits", "--method", "gaussian"]
INCOMPLETE = {"incomplete": "merged", "incomplete-search": "search"}
INCOMPLETE |= {"incomplete-total": "total", "incomplete-levels": "levels"}
"""Runs that were interrupted, and the complete run whose results each must end with."""


def command(*words: object) -> tuple[int, str]:
    """``smoothcert WORDS`` in this process: its exit code and what it printed."""
    printed = io.StringIO()
    code = 0
    with contextlib.redirect_stdout(printed):
        try:
            main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
    return code, printed.getvalue()


def _done(*words: object) -> None:
    if code := command(*words)[0]:
        raise RuntimeError(f"smoothcert {' '.join(map(str, words))} ended with code {code}")


def make_runs(arguments: list[str]) -> int:
    """Make every run in a directory that has none yet, and expected.json with what is known of each."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden make-runs", description=make_runs.__doc__)
    parser.add_argument("directory", type=Path, help=f"relative, such as {RUNS}")
    out = parser.parse_args(arguments).directory
    files = out / FILES.name
    files.mkdir(parents=True)
    models.save_digit_onnx(files / "digits.onnx")
    points = models.points_dataset()
    np.savez(files / "points.npz", x=np.asarray(points.stored), y=points.labels, classes=list(points.classes))
    _done("fit-noise", *FIT, "--out", files / "fit", "--quiet")
    _done("train", *TRAIN, "--out", out / "trained", "--quiet")
    for name, words in CERTIFY.items():
        if name in INCOMPLETE:
            _interrupt(name, out / name)
        else:
            _done(
                "certify",
                *(word.replace(str(FILES), str(files)) for word in words),
                "--out",
                out / name,
                "--quiet",
            )
    _done(
        "remember",
        out / "search",
        "--memory",
        files / "regions.memory",
        "--out",
        out / "remembered",
        "--quiet",
    )
    _done("recertify", out / "plain", "--alpha", "0.05", "--out", out / "recertified", "--quiet")
    _done("export-log", out / "plain", "--out", files / "log.tsv")
    _done("import-log", files / "log.tsv", *IMPORT, "--out", out / "imported")
    _done("merge", out / "shard-1", out / "shard-2", "--out", out / "merged", "--quiet")
    expected = {path.parent.name: facts(path.parent) for path in sorted(out.glob("*/run.json"))}
    (out / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
    return 0


class InterruptedRunError(Exception):
    """Ends a run after some of its records."""


def _interrupt(name: str, out: Path) -> None:
    """The run that the words of CERTIFY make, by Python, ended after two records."""
    fields: dict[str, Any] = {"n0": 40, "n": 400, "alpha": 0.01, "seed": 3}
    classifier: SmoothedClassifier
    if name == "incomplete-levels":
        chooser = StatisticChooser("mean", (0.28, 0.32))
        levels = {"sigmas": (0.25, 0.5, 1.0), "chooser_sigma": 1.0}
        classifier = LevelledClassifier(models.digit_scores, chooser, **levels, **fields)
    elif name == "incomplete-search":
        search = SEARCHES["ladder"](votes=16, round_votes=96)
        classifier = SmoothedClassifier(models.digit_net(), sigma=0.25, search=search, **fields)
    else:
        stop = ["total:9000,100"] if name == "incomplete-total" else []
        classifier = SmoothedClassifier(models.digit_scores, sigma=0.25, stop=stop, **fields)
    counted = _countdown(2)
    with contextlib.suppress(InterruptedRunError):
        certify_dataset(
            classifier, load("digits", "test"), out, Choice(most=6), Progress(record=lambda _: next(counted))
        )


def _countdown(records: int) -> Iterator[None]:
    for _ in range(records - 1):
        yield
    raise InterruptedRunError


def facts(run: Path) -> dict[str, Any]:
    """What is known of a stored run: its kind, what ``verify`` says of it, and the digest of its results."""
    kind = json.loads((run / "run.json").read_text(encoding="utf-8"))["kind"]
    if kind == "train":
        return {"kind": kind}
    code, printed = command("verify", run, "--format", "json")
    report = json.loads(printed)
    return {"kind": kind, "verify": code} | {
        name: report[name] for name in ("records", "finished", "recomputed", "results_sha256")
    }
