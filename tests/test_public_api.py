"""The public API is held: names, signatures, fields and their docs; short reprs; imports that cost nothing."""

import inspect
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import smoothcert
from smoothcert import (
    Certifications,
    CertifyPlan,
    Choice,
    Dataset,
    DiagonalGaussian,
    Execution,
    Gaussian,
    Numerics,
    SmoothedClassifier,
    SmoothingLoss,
    certify_dataset,
)
from tests.public_api import (
    CLIENT,
    ESTIMATOR,
    GROUPS,
    SNAPSHOT,
    VERONA,
    doc_of_field,
    first_line,
    found,
    members_of,
    snapshot,
)

UPDATE = "is this change of the public API a decision? Then: python -m tests.public_api, and a line in CHANGELOG.md"
NAMES = [*smoothcert.__all__, ESTIMATOR, *CLIENT, *VERONA]


def test_names_and_signatures_are_as_decided():
    pytest.importorskip("sklearn", minversion="1.6")
    assert snapshot() == SNAPSHOT.read_text(encoding="utf-8"), UPDATE


def test_every_public_name_has_a_group_of_the_reference():
    grouped = {name for names in GROUPS.values() for name in names}
    assert grouped == set(NAMES) - {"__version__"}


def test_every_public_name_and_field_is_documented():
    pytest.importorskip("sklearn", minversion="1.6")
    silent = []
    for name in NAMES:
        value = found(name)
        if callable(value) and not first_line(value):
            silent.append(name)
        if inspect.isclass(value):
            for kind, member, _ in members_of(value):
                if not (
                    doc_of_field(value, member) if kind == "field" else first_line(getattr(value, member))
                ):
                    silent.append(f"{name}.{member}")
    assert silent == []


def test_public_types_read_in_a_line(tmp_path):
    classifier = SmoothedClassifier(lambda batch: batch[:, :2], sigma=0.5, n=100, seed=0)
    answers = classifier.certify(np.ones((3, 4)))
    data = Dataset("made-up", np.ones((3, 4)), np.zeros(3, dtype=np.int64), ("a", "b"))
    assert isinstance(answers, Certifications)
    shown = {
        type(one).__name__: repr(one)
        for one in (
            classifier,
            classifier.plan,
            classifier.holding(range(2)),
            answers[0],
            classifier.predict(np.ones(4)),
            data,
            certify_dataset(classifier, data, tmp_path / "run"),
            DiagonalGaussian(np.linspace(0.1, 1, 500)),
            Gaussian(0.5),
            Execution(),
            Numerics(),
            Choice(),
            CertifyPlan(DiagonalGaussian(np.ones(500)), stop=("decide:0.5",)),
            SmoothingLoss(sigma=0.5),
        )
    }
    assert {
        name for name, text in shown.items() if len(text) > 180 or "\n" in text or " at 0x" in text
    } == set()
    assert re.fullmatch(r"Dataset\('made-up', 3\b.* 4\b.* 2\b.*\)", shown["Dataset"])
    assert re.fullmatch(r"DiagonalGaussian\(500\b.*\b0\.1\b.* 1\)", shown["DiagonalGaussian"])
    assert re.search(r"certify, test_public_types_read_in_a_line\.<locals>\.<lambda>, 3\b", shown["Run"])
    assert all(text.startswith(name) for name, text in shown.items() if name != "HoldingClassifier")


@pytest.mark.system
def test_importing_loads_nothing_heavy():
    code = "import sys, smoothcert; dir(smoothcert); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300
    )
    heavy = {"torch", "numpy", "scipy", "sklearn", "matplotlib", "rich", "cyclopts"}
    assert not heavy & set(done.stdout.split())


def test_a_name_that_isnt_there_is_no_name():
    with pytest.raises(AttributeError, match="'SmothedClassifier'"):
        smoothcert.SmothedClassifier  # noqa: B018
    everything: dict[str, Any] = {}
    exec("from smoothcert import *", everything)
    assert set(smoothcert.__all__) <= everything.keys()
