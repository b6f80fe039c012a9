"""Tables with masks by command: certified, resumed, shown, tabled, drawn, reported, verified; memories are rejected."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothcert import fit_masked, load_dataset, load_run
from smoothcert.analysis.changes import CertifiedChanges
from smoothcert.cli import main
from smoothcert.datasets.tables import as_frame
from smoothcert_verify.__main__ import main as verify_alone
from tests.masked.tables import written_table

from .output import names
from .test_bad_input import refusal

joblib = pytest.importorskip("joblib", reason="smoothcert[sklearn] is not installed")
tree = pytest.importorskip("sklearn.tree", reason="smoothcert[sklearn] is not installed")
pytest.importorskip("pandas")

WORDS = ["certify", "model.joblib", "--trust-pickle", "--dataset", "csv:a.csv", "--target", "y", "--n", "300"]
FEW = ["--max", "12", "--quiet", "--out", "run"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, a model that was trained with masks, and a run of it."""
    path = tmp_path_factory.mktemp("masked")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        spec = written_table(Path("a.csv"))
        table, classes = as_frame(load_dataset(spec, "train"))
        model = fit_masked(tree.DecisionTreeClassifier(min_samples_leaf=5), table, classes, beta=0.6)
        joblib.dump(model, "model.joblib")
        main([*WORDS, *FEW])
    return path


@pytest.fixture(autouse=True)
def _inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    main(list(words))
    return capsys.readouterr().out


def test_the_model_says_its_noise_and_the_command_resumes() -> None:
    run = load_run(Path("run"))
    assert run.manifest.plan.noise == "hybrid"
    assert run.norm == "l2/sigma"
    before = run.records.digest
    main([*WORDS, *FEW])
    assert load_run(Path("run")).records.digest == before
    found = CertifiedChanges.of(run)
    assert [table[0] for table in found.tables if table] == run.records.radius[
        run.records.radius > 0
    ].tolist()


def test_table_show_and_plot_are_over_changes(capsys: pytest.CaptureFixture[str]) -> None:
    found = CertifiedChanges.of(load_run(Path("run")))
    told = json.loads(printed(capsys, "table", "run", "--radii", "0,0.5", "--json"))
    assert told["runs"][0]["certified"]["1"] == [found.share(1, 0.0), found.share(1, 0.5)]
    assert "|   1 |" in printed(capsys, "table", "run")
    shown = json.loads(printed(capsys, "show", "run", "--json"))
    assert shown["changes"]["certified"]["0"][0] == found.share(0, 0.0)
    # In words: features by name, in their own units.
    shown = printed(capsys, "show", "run")
    assert names(shown, "colour", "age", "income")
    # ρ(0) moves numbers alone: no sentence about a radius lets a category change.
    proved = [line for line in shown.splitlines() if "ℓ2/σ" in line and "%" in line]
    assert all("categories" in line for line in proved)
    pytest.importorskip("matplotlib")
    main(["plot", "run", "--kind", "changes", "--out", "p.png"])
    assert Path("p.png").stat().st_size > 1000


def test_the_page_names_features_and_says_what_may_change() -> None:
    main(["report", "run", "--out", "page", "--dataset", "csv:a.csv?target=y", "--quiet"])
    page = Path("page/index.html").read_text()
    assert '"features":["age","colour","size","income","member"]' in page
    assert '"changes":[["' in page
    assert names(page, "colour", "member")
    assert '"sigma":null' in page  # a mean over columns of different units
    (replayed,) = re.findall(r"smoothcert (verify run --replay 20 [^\"]*)", page)
    main([*shlex.split(replayed), "--trust-pickle", "--quiet"])


def test_verified_by_both_programs_and_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--replay", "3", "--model", "model.joblib", "--trust-pickle", "--dataset", "csv:a.csv?target=y"]
    main(["verify", "run", *words, "--quiet"])
    assert verify_alone(["run"]) == 0


def test_recertified_exported_and_imported_tables_agree() -> None:
    pytest.importorskip("pyarrow")
    main(["run", "recertify", "run", "--out", "again", "--quiet"])
    main(["run", "export", "run", "--out", "run.parquet", "--quiet"])
    main(["run", "import", "run.parquet", "--out", "imported", "--quiet"])
    tables = [CertifiedChanges.of(load_run(Path(name))).tables for name in ("run", "again", "imported")]
    assert tables[0] == tables[1] == tables[2]


def test_the_command_on_the_page_certifies_the_same_noise() -> None:
    from smoothcert.analysis.report.statements import certify_command

    run = load_run(Path("run"))
    words = (certify_command(run) or "").split()
    spelled = words[words.index("--noise") + 1]
    main([*WORDS, "--max", "12", "--quiet", "--noise", spelled, "--out", "spelled"])
    assert load_run(Path("spelled")).manifest.plan.value("sigmas") == run.manifest.plan.value("sigmas")
    assert load_run(Path("spelled")).records.digest == run.records.digest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--noise", "hybrid:agee=3"], ["agee", "age"]),
        (["--noise", "hybrid:beta=x", "--sigma", "0.2"], ["beta", "x"]),
        (["--noise", "hybrid:beta=1.5", "--sigma", "0.2"], ["beta", "1.5"]),
        (["--noise", "hybrid:beta=0.5"], ["--sigma"]),
        (["--noise", "gaussian", "--sigma", "1"], ["colour", "--hold", "hybrid"]),
        (["--sigma", "0.2", "--memory", "m.sqlite"], ["--memory", "hybrid"]),
        (["--noise", "masks"], ["beta"]),
    ],
)
def test_what_cannot_be_is_rejected(
    words: list[str], told: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert names(refusal(capsys, *WORDS, *words, "--max", "2", "--out", "other"), *told)
    assert not Path("other").exists()


def test_a_memory_of_a_run_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "remember", "run", "--memory", "m.sqlite", "--out", "remembered"]
    assert names(refusal(capsys, *words, "--dataset", "csv:a.csv?target=y"), "hybrid")


def test_sigma_in_units_or_in_deviations_of_the_training_rows() -> None:
    main([*WORDS, *FEW[:-1], "units", "--noise", "hybrid:beta=0.5,age=3", "--sigma", "0.5"])
    plan = load_run(Path("units")).manifest.plan
    table, _ = as_frame(load_dataset("csv:a.csv?target=y", "train"))
    assert plan.value("beta") == 0.5
    assert plan.value("sigmas") == pytest.approx([3, table["income"].to_numpy().std() / 2])


def test_masks_alone_by_command(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (30, 12))
    np.savez("bytes.npz", x=x, y=np.zeros(30, dtype=int), classes=np.array(["few", "many"]))
    Path("counting.py").write_text("def votes(rows):\n    return ((rows == 1).sum(1) > 11).astype(int)\n")
    words = ["certify", "counting:votes", "--model-returns", "labels", "--classes", "2", "--dataset"]
    noise = ["--noise", "masks:beta=0.9,mask=2"]
    main([*words, "npz:bytes.npz", *noise, "--n", "200", "--split", "train", *FEW[:-1], "bytes"])
    found = CertifiedChanges.of(load_run(Path("bytes")))
    assert found.most >= 2
    assert load_run(Path("bytes")).norm == "l0"
    main(["show", "bytes", "--quiet"])
    main(["table", "bytes"])
