"""Answers of Python as runs: saved, read, verified, cast again; data sets of arrays, tables and named labels."""

from typing import Any

import numpy as np
import pytest

from smoothcert import Dataset, SmoothedClassifier, certify_dataset, load_run, table
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError
from smoothcert.replay import Replay
from smoothcert_verify import verify_run

ROWS = np.array([[1.0, 0.5], [-1.0, 0.25], [0.5, 0.5], [1.0, 0.5]])
LABELS = [1, 0, 0, 1]


def signs(batch: np.ndarray) -> np.ndarray:
    return (batch.sum(1) > 0).astype(int)


def smoothed(**options: Any) -> SmoothedClassifier:
    kept = {"sigma": 0.5, "n": 500, "seed": 0, "outputs": "labels", "classes": 2, "input_shape": (2,)}
    return SmoothedClassifier(signs, **(kept | options))


@pytest.mark.parametrize(
    "options", [{}, {"hold": [1]}, {"sigma": {0: 0.5, 1: 1.0}}, {"sigma": {0: 0.5}}], ids=str
)
@pytest.mark.parametrize("index", [None, 0])
def test_saved_answers_are_a_run_that_follows_from_its_votes(tmp_path, options, index):
    classifier = smoothed(**options)
    answers = classifier.certify(ROWS, index=index)
    run = answers.save(tmp_path / "run", LABELS, name="toys")
    assert run.records.radius.tolist() == answers.radius.tolist()
    assert answers.accuracy(LABELS) == 0.75
    assert load_run(tmp_path / "run").complete
    assert "toys" in str(run.manifest.data.name)
    assert "run" in table(run)
    checked = verify_run(tmp_path / "run", keep_records=True)
    assert checked.report.exit_code == 0
    data = Dataset("toys", ROWS, np.array(LABELS), ("0", "1"))
    replay = Replay(tmp_path / "run", checked.statement, classifier.base, data, Execution())
    replay.check(checked.records, checked.report)
    assert checked.report.exit_code == 0


def test_votes_of_another_inputs_stream_are_found_by_replay(tmp_path):
    classifier = smoothed()
    answers = classifier.certify(ROWS)
    moved = type(answers)([answers[2], *answers[1:]])
    moved.source = answers.source
    with pytest.raises(InvalidValueError, match="input 0"):
        moved.save(tmp_path / "run", LABELS)


def test_inputs_that_changed_since_are_refused(tmp_path):
    rows = ROWS.copy()
    answers = smoothed().certify(rows)
    rows[1] = 3.0
    with pytest.raises(InvalidValueError, match="input 1"):
        answers.save(tmp_path / "run", LABELS)


def test_a_part_of_the_answers_has_no_source(tmp_path):
    with pytest.raises(InvalidValueError, match="save"):
        smoothed().certify(ROWS)[:2].save(tmp_path / "run", LABELS[:2])


def test_arrays_with_labels_are_the_data_set_of_them(tmp_path):
    data = Dataset("data", ROWS, np.array(LABELS), ("0", "1"))
    expected = certify_dataset(smoothed(), data, tmp_path / "a")
    found = certify_dataset(smoothed(), ROWS, tmp_path / "b", labels=LABELS)
    assert found.records.digest == expected.records.digest
    assert found.manifest.data.sha256 == expected.manifest.data.sha256
    with pytest.raises(InvalidValueError, match=r"\b4\b.*\b3\b"):
        certify_dataset(smoothed(), ROWS, tmp_path / "c", labels=LABELS[:3])
    with pytest.raises(InvalidValueError, match="labels="):
        certify_dataset(smoothed(), ROWS, tmp_path / "c")


def test_tables_with_named_labels(tmp_path):
    pandas, linear = pytest.importorskip("pandas"), pytest.importorskip("sklearn.linear_model")
    columns = pandas.DataFrame(np.repeat(ROWS, 5, 0), columns=["a", "b"])
    named = np.repeat(["low", "high", "low", "low"], 5)
    model = linear.LogisticRegression().fit(columns, named)
    smooth = SmoothedClassifier(model, sigma=0.1, n=200, seed=0)
    run = certify_dataset(smooth, columns[["b", "a"]][::5], tmp_path / "run", labels=named[::5])
    assert run.records.label.tolist() == [1, 0, 1, 1]  # sorted names are the model's order
    expected = smooth.certify(columns[::5], index=0)
    assert run.records.predicted.tolist() == expected.predicted.tolist()
    with pytest.raises(InvalidValueError, match="'hihg'"):
        certify_dataset(smooth, columns[::5], tmp_path / "other", labels=["low", "hihg", "low", "low"])


def test_a_loader_has_its_labels(tmp_path):
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.tensor(ROWS), torch.tensor(LABELS)), batch_size=3)
    run = certify_dataset(smoothed(), loader, tmp_path / "run")
    assert run.records.label.tolist() == LABELS
