"""A run as Parquet: out and back to the last bit, or refused."""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smoothcert import CertifyPlan, SmoothedClassifier
from smoothcert.commands import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, MissingExtraError, OutputError
from smoothcert.evaluation import certify_dataset
from smoothcert.evaluation.recertification import recertify
from smoothcert.noise import DiagonalGaussian
from smoothcert.region_memory.runs import remember
from smoothcert.runs import Manifest, Record, Run, create_run, read_run
from smoothcert.runs.parquet import is_parquet, read_parquet, write_parquet
from smoothcert.runs.records import results_digest
from smoothcert.sigma_search import EllipsoidSearch
from smoothcert.sigma_search.log import read_found
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

MANIFEST = Manifest.of(
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
        0, 1, 1, 0.1 + 0.2, 0.25, 1 / 3, hard(0, Phase.SELECTION, 9, 1), hard(0, Phase.ESTIMATION, 70, 30), 3
    ),
    Record(1, 4, -1, 0.0, 5e-324, 0.0),
    Record(2, 0, 1, 1.7976931348623157e49, 0.3, 2.0, hard(2, Phase.SELECTION, 10, 0), SOFT),
)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    create_run(tmp_path / "run", MANIFEST, list(RECORDS))
    return read_run(tmp_path / "run")


def test_there_and_back(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    write_parquet(run, out)
    assert read_parquet(out) == (MANIFEST, list(RECORDS), {})


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
    assert json.loads(table.schema.metadata[b"smoothcert.manifest"])["plan"] == MANIFEST.plan.as_json()


def test_every_field_of_a_record_is_kept(run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    columns = set(parquet.read_schema(tmp_path / "a.parquet").names)
    for field in fields(Record):
        assert field.name in columns or f"{field.name}_counts" in columns, field.name


def test_a_run_without_records(run: Run, tmp_path: Path) -> None:
    write_parquet(replace(run, records=()), tmp_path / "a.parquet")
    assert read_parquet(tmp_path / "a.parquet") == (MANIFEST, [], {})


def test_a_method_may_be_given(run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    main(["import-log", str(tmp_path / "a.parquet"), "--method", "other", "--out", str(tmp_path / "back")])
    assert read_run(tmp_path / "back").manifest.origin.as_json() == {"method": "other"}


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as left:
        main([str(word) for word in words])
    assert left.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def test_commands_refuse(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, back = tmp_path / "a.parquet", tmp_path / "back"
    assert "--out" in refusal(capsys, "export-log", run.path, "--format", "parquet")
    write_parquet(run, out)
    told = refusal(capsys, "import-log", out, "--sigma", 0.5, "--n", 10, "--out", back)
    assert "--sigma, --n" in told
    log = tmp_path / "log.tsv"
    main(["export-log", str(run.path), "--out", str(log)])
    assert "--sigma" in refusal(capsys, "import-log", log, "--out", back)
    assert "none.tsv" in refusal(capsys, "import-log", tmp_path / "none.tsv", "--out", back)
    assert not back.exists()


def test_changed_files_are_refused(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "a.parquet"
    write_parquet(run, out)
    table = parquet.read_table(out)
    column = table.schema.get_field_index("radius")
    larger = table.set_column(column, table.schema.field(column), pyarrow.array([9.0, 0.0, 9.0]))
    parquet.write_table(larger.replace_schema_metadata(table.schema.metadata), out)
    with pytest.raises(DataError, match="results_sha256"):
        read_parquet(out)
    parquet.write_table(table.drop_columns(["radius"]), out)
    with pytest.raises(DataError, match="'radius'"):
        read_parquet(out)
    parquet.write_table(table.replace_schema_metadata(None), out)
    with pytest.raises(DataError, match="manifest"):
        read_parquet(out)
    out.write_bytes(out.read_bytes()[:-30])
    assert is_parquet(out)
    with pytest.raises(DataError, match=r"a\.parquet.*Parquet"):
        read_parquet(out)


def test_what_doesnt_fit(run: Run, tmp_path: Path) -> None:
    tally = RECORDS[0].selection
    assert tally is not None
    huge = replace(RECORDS[0], selection=replace(tally, stream=replace(tally.stream, seed=2**64)))
    with pytest.raises(OutputError, match=r"\b64\b"):
        write_parquet(replace(run, records=(huge,)), tmp_path / "a.parquet")
    with pytest.raises(OutputError, match=r"nowhere/a\.parquet"):
        write_parquet(run, tmp_path / "nowhere" / "a.parquet")


def test_without_pyarrow(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pyarrow.*smoothcert\[parquet\]"):
        write_parquet(run, tmp_path / "a.parquet")


POINTS = Dataset(
    "points", np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]], np.float32), np.array([0, 1, 1]), ("a", "b")
)


class Linear(torch.nn.Module):
    """Class 0 beyond ½ in the first coordinate; the second hardly matters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - torch.tensor([0.5, 0.0])) @ torch.tensor([[1.0, 0.05], [0.0, 0.0]]).T


def there_and_back(folder: Path) -> Path:
    main(["export-log", str(folder / "run"), "--out", str(folder / "run.parquet")])
    main(["import-log", str(folder / "run.parquet"), "--out", str(folder / "back")])
    return folder / "back"


def files_of(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and not path.name.startswith((".", "results"))
    }


def test_the_scales_of_diagonal_noise_come_along(tmp_path: Path) -> None:
    noise = DiagonalGaussian(np.array([0.5, 2.0]))
    classifier = SmoothedClassifier(Linear(), CertifyPlan(noise, n0=50, n=500, seed=0), input_shape=(2,))
    run = certify_dataset(classifier, POINTS, tmp_path / "run")
    back = read_run(there_and_back(tmp_path))
    assert back.manifest.plan.noise_in(back.path) == noise
    assert (back.path / "sigmas.npy").read_bytes() == (run.path / "sigmas.npy").read_bytes()
    assert results_digest(recertify(back, tmp_path / "again").records) == results_digest(run.records)


def test_searches_come_along(tmp_path: Path) -> None:
    search = EllipsoidSearch(steps=30, samples=4, lr=0.05)
    classifier = SmoothedClassifier(Linear(), sigma=0.25, n=500, seed=0, input_shape=(2,), search=search)
    run = certify_dataset(classifier, POINTS, tmp_path / "run")
    back = read_run(there_and_back(tmp_path))
    assert read_found(back.path) == read_found(run.path)
    assert any(one.noise is not None for one in read_found(back.path).values())
    first, second = (
        remember(one, POINTS, tmp_path / f"memory{k}", tmp_path / f"out{k}")[0]
        for k, one in enumerate((run, back))
    )
    assert [replace(r, seconds=0.0) for r in first.records] == [
        replace(r, seconds=0.0) for r in second.records
    ]


def test_whatever_a_run_keeps_comes_along_and_nothing_else(run: Run, tmp_path: Path) -> None:
    (run.path / "sigmas").mkdir()
    kept = {"sigmas.npy", "sigma_search.jsonl", "sigmas/12.npy", "pilots.jsonl", "allocation.json"}
    for name in kept | {"notes.txt", "sigmas/.3.npy.17.part"}:
        (run.path / name).write_bytes(bytes(range(256)) + name.encode())
    out = tmp_path / "run.parquet"
    write_parquet(run, out)
    assert read_parquet(out)[2] == {name: bytes(range(256)) + name.encode() for name in kept}
    # Other readers take metadata for text.
    assert all(value.decode() for value in parquet.read_schema(out).metadata.values())


def with_file(source: Path, out: Path, name: str, content: bytes) -> Path:
    table = parquet.read_table(source)
    stated = table.schema.metadata | {f"smoothcert.file:{name}".encode(): content}
    parquet.write_table(table.replace_schema_metadata(stated), out)
    return out


@pytest.mark.parametrize(
    "name",
    ["../sigmas.npy", "/tmp/sigmas.npy", "sigmas/../1.npy", "run.json", "sigmas/a.npy", "sigmas.npy\n", ""],
)
def test_names_that_no_run_has_are_refused(name: str, run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    bad = with_file(
        tmp_path / "a.parquet", tmp_path / "b.parquet", name, base64.b64encode(zlib.compress(b"x"))
    )
    with pytest.raises(DataError, match=re.escape(repr(name))):
        read_parquet(bad)
    with pytest.raises(SystemExit):
        main(["import-log", str(bad), "--out", str(tmp_path / "back")])
    assert not (tmp_path / "back").exists()


@pytest.mark.parametrize("content", [b"no base64!", base64.b64encode(b"not compressed")])
def test_damaged_files_are_refused(content: bytes, run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    bad = with_file(tmp_path / "a.parquet", tmp_path / "b.parquet", "sigmas.npy", content)
    with pytest.raises(DataError, match=r"b\.parquet"):
        read_parquet(bad)


def test_files_that_are_there_already_stay(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run.path / "sigmas.npy").write_bytes(b"theirs")
    write_parquet(run, tmp_path / "a.parquet")
    back = tmp_path / "back"
    back.mkdir()
    (back / "sigmas.npy").write_bytes(b"mine")
    assert "sigmas.npy" in refusal(capsys, "import-log", tmp_path / "a.parquet", "--out", back)
    assert files_of(back) == {"sigmas.npy": b"mine"}


def test_too_large_for_metadata(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smoothcert.runs.parquet._MOST_KEPT", 10)
    (run.path / "sigmas.npy").write_bytes(bytes(range(256)))
    with pytest.raises(OutputError, match=re.escape(str(run.path))):
        write_parquet(run, tmp_path / "a.parquet")


def test_files_of_earlier_versions_are_read(run: Run, tmp_path: Path) -> None:
    write_parquet(run, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").drop_columns(["volume_radius", "stopped"])
    parquet.write_table(table, tmp_path / "b.parquet")
    assert read_parquet(tmp_path / "b.parquet") == (MANIFEST, list(RECORDS), {})


def test_the_name_says_the_format(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, format, expected in [
        ("a.parquet", None, True),
        ("b.PARQUET", None, True),
        ("c.tsv", None, False),
        ("d", None, False),
        ("e", "parquet", True),
        ("f.pq", "parquet", True),
        ("g.gz", "tsv", False),
    ]:
        words = ["export-log", str(run.path), "--out", str(tmp_path / name)]
        main(words if format is None else [*words, "--format", format])
        assert is_parquet(tmp_path / name) == expected, name
    for name, format in (("x.parquet", "tsv"), ("x.tsv", "parquet"), ("x.csv", "parquet")):
        words = ["export-log", str(run.path), "--out", str(tmp_path / name), "--format", format]
        told = refusal(capsys, *words)
        assert f"--format {format}" in told
        assert "--out" in told
        assert not (tmp_path / name).exists()
