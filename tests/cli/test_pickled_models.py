"""Fitted estimators by file name: opened only where the command line says that the file is trusted."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from smoothcert import load_run
from smoothcert.cli import main
from smoothcert.cli.arguments import load_named_model
from smoothcert.cli.options import ModelOptions
from smoothcert.errors import ModelError

from .output import names, refusal

joblib = pytest.importorskip("joblib", reason="smoothcert[sklearn] is not installed")
linear_model = pytest.importorskip("sklearn.linear_model", reason="smoothcert[sklearn] is not installed")


class Marks:
    """Makes a folder when it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("opened",)


CERTIFY = "certify model.joblib --trust-pickle --dataset npz:inputs.npz --sigma 0.5 --n 200 --out run --quiet"


@pytest.fixture
def model(tmp_path, monkeypatch) -> str:
    """A classifier of two numbers, the file of which marks that it was opened."""
    monkeypatch.chdir(tmp_path)
    rows = np.array([[0.0, 0.0], [0.0, 1.0], [4.0, 0.0], [4.0, 1.0]])
    fitted = linear_model.LogisticRegression().fit(rows, ["low", "low", "high", "high"])
    fitted.mark = Marks()
    joblib.dump(fitted, "model.joblib")
    np.savez("inputs.npz", x=rows, y=np.array([1, 1, 0, 0]), classes=np.array(["high", "low"]))
    return "model.joblib"


def test_without_trust_the_file_is_not_opened(model, capsys):
    words = ["certify", model, "--dataset", "npz:inputs.npz", "--sigma", "1", "--out", "run"]
    assert names(refusal(capsys, *words), model, "--trust-pickle")
    assert not Path("opened").exists()


def test_a_trusted_estimator_is_certified_and_its_run_does_not_make_it_trusted(model, capsys):
    """Its classes go by name."""
    main(CERTIFY.split())
    assert Path("opened").exists()
    run = load_run(Path("run"))
    assert run.records.predicted.tolist() == [1, 1, 0, 0]
    assert (run.records.radius > 0.5).all()
    Path("opened").rmdir()
    refusal(capsys, "verify", "run", "--replay", "1", "--model", model, "--dataset", "npz:inputs.npz")
    assert not Path("opened").exists()


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (None, ["model.pkl"]),
        (b"", ["model.pkl"]),
        (b"not a pickle", ["model.pkl"]),
        (b"cno_such_package\nThing\n.", ["model.pkl", "no_such_package"]),
    ],
)
def test_what_cannot_be_unpickled_is_named(content, named, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("model.pkl").write_bytes(content)
    with pytest.raises(ModelError) as caught:
        load_named_model("model.pkl", ModelOptions(trust_pickle=True), "hard")
    assert names(str(caught.value), *named)


def test_a_class_of_the_folder_that_the_command_runs_in_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own_estimator_module.py").write_text(
        "class Own:\n    classes_ = ['a', 'b']\n    def predict(self, rows):\n        return ['b'] * len(rows)\n"
    )
    Path("model.pkl").write_bytes(b"cown_estimator_module\nOwn\n)\x81.")
    found = load_named_model("model.pkl", ModelOptions(trust_pickle=True), "hard").classifier
    assert found.class_names == ("a", "b")


def test_an_unfitted_estimator_is_rejected(tmp_path):
    path = tmp_path / "model.pkl"
    path.write_bytes(pickle.dumps(linear_model.LogisticRegression()))
    with pytest.raises(ValueError, match="LogisticRegression"):
        load_named_model(str(path), ModelOptions(trust_pickle=True), "hard")
