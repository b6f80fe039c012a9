"""Tables on the command line: options behind the data set's name, which a run keeps."""

from pathlib import Path

import pytest

from smoothcert import load_run
from smoothcert.cli import main

from .output import names, refusal

MODULE = "def votes(rows):\n    return (rows[:, 0] > 5).astype(int)\n"
WORDS = [
    "certify", "table_models:votes", "--model-returns", "labels", "--classes", "2", "--sigma", "0.5", "--n", "200",
    "--max", "5", "--quiet",
]  # fmt: skip


@pytest.fixture
def table(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("table_models.py").write_text(MODULE)
    rows = [f"{k};{k % 10};{k % 7};{'yes' if k % 10 > 5 else 'no'}" for k in range(100)]
    Path("a.csv").write_text("\n".join(["id;x;z w;answer", *rows]))
    return "csv:a.csv"


def test_a_table_is_certified_and_reopened_by_what_the_run_says(table, capsys):
    main([*WORDS, "--dataset", table, "--target", "answer", "--ignore", "id,z w", "--out", "run"])
    run = load_run(Path("run"))
    spec = run.manifest.origin.dataset
    assert spec == "csv:a.csv?target=answer&ignore=id,z w"
    assert run.records.base.tolist() == run.records.label.tolist()
    main([*WORDS, "--dataset", spec, "--out", "run"])  # resumes: nothing is left to do
    assert load_run(Path("run")).records.digest == run.records.digest
    capsys.readouterr()
    main(["report", "run", "--out", "page", "--dataset", spec])


def test_options_of_tables_are_rejected_elsewhere(table, capsys):
    words = [*WORDS, "--out", "run"]
    assert names(refusal(capsys, *words, "--dataset", "digits", "--target", "y"), "--target", "digits")
    assert names(refusal(capsys, *words, "--dataset", table), "--target", "answer")
    assert not Path("run").exists()
