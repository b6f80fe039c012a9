"""A run as Parquet: out and back to the last bit, or refused."""

from __future__ import annotations

import json
import sys
from dataclasses import fields, replace
from pathlib import Path

import pytest

from smoothcert.commands import main
from smoothcert.errors import DataError, MissingExtraError, OutputError
from smoothcert.runs import Manifest, Record, Run, create_run, read_run
from smoothcert.runs.parquet import is_parquet, read_parquet, write_parquet
from smoothcert.runs.records import results_digest
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

MANIFEST = Manifest(
    "certify",
    {"noise": "gaussian", "sigma": 0.25, "norm": "l2", "bound": "bernstein", "n": 1000, "alpha": 0.001},
    {"name": "lenet", "sha256": "ab"},
    {"name": "mnist", "inputs": 3, "skip": 1},
    {"torch": "2"},
    "2026-01-01",
    {"method": "smoothmix η=1"},
)


def hard(index: int, phase: Phase, *counts: int) -> Tally:
    return Tally(Stream(7, index, phase), 5, 5 + sum(counts), counts)


SUMS = (990 * SOFT_UNIT + 1, 10 * SOFT_UNIT - 1)
SOFT = Tally(Stream(7, 2, Phase.ESTIMATION), 0, 1000, (999, 1), SUMS, SUMS)
RECORDS = (
    Record(
        0, 3, 3, 0.1 + 0.2, 0.25, 1 / 3, hard(0, Phase.SELECTION, 9, 1), hard(0, Phase.ESTIMATION, 70, 30), 3
    ),
    Record(1, 4, -1, 0.0, 5e-324, 0.0),
    Record(2, 0, 1, 1.7976931348623157e308, 0.3, 2.0, hard(2, Phase.SELECTION, 10, 0), SOFT),
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    create_run(tmp_path / "run", MANIFEST, list(RECORDS))
    return read_run(tmp_path / "run")


def test_there_and_back(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    write_parquet(run, out)
    assert read_parquet(out) == (MANIFEST, list(RECORDS))


def test_the_commands_make_an_identical_run(run: Run, tmp_path: Path) -> None:
    out, back = tmp_path / "log", tmp_path / "back"
    main(["export-log", str(run.path), "--format", "parquet", "--out", str(out)])
    main(["import-log", str(out), "--out", str(back)])
    again = read_run(back)
    assert (again.manifest, again.records) == (run.manifest, run.records)
    assert results_digest(again.records) == results_digest(run.records)


def test_others_read_it_as_a_table(run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table["radius"].to_pylist() == [record.radius for record in RECORDS]
    assert table["correct"].to_pylist() == [True, False, False]
    assert table["abstained"].to_pylist() == [False, True, False]
    assert table["estimation_counts"].to_pylist() == [[70, 30], None, [999, 1]]
    assert table["estimation_sums"].to_pylist() == [None, None, list(SUMS)]
    assert table["base"].to_pylist() == [3, None, None]
    assert json.loads(table.schema.metadata[b"smoothcert.manifest"])["plan"] == MANIFEST.plan


def test_every_field_of_a_record_is_kept(run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    columns = set(parquet.read_schema(tmp_path / "a.parquet").names)
    for field in fields(Record):
        assert field.name in columns or f"{field.name}_counts" in columns, field.name


def test_a_run_without_records(run: Run, tmp_path: Path) -> None:
    write_parquet(replace(run, records=()), tmp_path / "a.parquet")
    assert read_parquet(tmp_path / "a.parquet") == (MANIFEST, [])


def test_a_method_may_be_given(run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    main(["import-log", str(tmp_path / "a.parquet"), "--method", "other", "--out", str(tmp_path / "back")])
    assert read_run(tmp_path / "back").manifest.origin == {"method": "other"}


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    assert left.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_commands_refuse(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, back = tmp_path / "a.parquet", tmp_path / "back"
    assert "--out is missing" in refusal(capsys, "export-log", run.path, "--format", "parquet")
    write_parquet(run, out)
    told = refusal(capsys, "import-log", out, "--sigma", 0.5, "--n", 10, "--out", back)
    assert "states its own sigma, n: leave out --sigma, --n" in told
    log = tmp_path / "log.tsv"
    main(["export-log", str(run.path), "--out", str(log)])
    assert "--sigma is missing" in refusal(capsys, "import-log", log, "--out", back)
    assert "can't be read" in refusal(capsys, "import-log", tmp_path / "none", "--out", back)
    assert not back.exists()


def test_changed_files_are_refused(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    write_parquet(run, out)
    table = parquet.read_table(out)
    column = table.schema.get_field_index("radius")
    larger = table.set_column(column, table.schema.field(column), pyarrow.array([9.0, 0.0, 9.0]))
    parquet.write_table(larger.replace_schema_metadata(table.schema.metadata), out)
    with pytest.raises(DataError, match="changed after its export"):
        read_parquet(out)
    parquet.write_table(table.drop_columns(["radius"]), out)
    with pytest.raises(DataError, match=r"damaged \('radius'\)"):
        read_parquet(out)
    parquet.write_table(table.replace_schema_metadata(None), out)
    with pytest.raises(DataError, match="holds no manifest"):
        read_parquet(out)
    out.write_bytes(out.read_bytes()[:-30])
    assert is_parquet(out)
    with pytest.raises(DataError, match="can't be read as Parquet"):
        read_parquet(out)


def test_what_doesnt_fit(run: Run, tmp_path: Path) -> None:
    huge = replace(run, records=(replace(RECORDS[0], label=2**63),))
    with pytest.raises(OutputError, match="doesn't fit 64 bits"):
        write_parquet(huge, tmp_path / "a.parquet")
    with pytest.raises(OutputError, match="can't be written"):
        write_parquet(run, tmp_path / "nowhere" / "a.parquet")


def test_without_pyarrow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError, match=r"Parquet needs pyarrow: pip install 'smoothcert\[parquet\]'"
    ):
        write_parquet(run, tmp_path / "a.parquet")
