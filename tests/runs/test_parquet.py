"""A run as Parquet: out and back to the last bit, or refused."""

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
from smoothcert.cli import main
from smoothcert.datasets.base import Dataset
from smoothcert.errors import DataError, MissingExtraError, OutputError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.evaluation.recertification import recertify
from smoothcert.evaluation.remembering import remember
from smoothcert.perturb.gaussian import DiagonalGaussian
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.parquet import is_parquet, read_parquet, write_parquet
from smoothcert.runs.records import Record, results_digest
from smoothcert.runs.run import Run, create_run, read_run
from smoothcert.runs.side_files import read_searches
from smoothcert.smoothing.search.by_gradient import EllipsoidSearch
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally
from tests.cli.output import refusal
from tests.guarantees.hostile import process_within

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
def run(tmp_path) -> Run:
    create_run(tmp_path / "run", MANIFEST, list(RECORDS))
    return read_run(tmp_path / "run")


def test_there_and_back(run, tmp_path):
    out, back = tmp_path / "log", tmp_path / "back"
    for records in (RECORDS, ()):
        write_parquet(replace(run, records=records), out)
        assert read_parquet(out) == (MANIFEST, list(records), {})
    main(["run", "export", str(run.path), "--format", "parquet", "--out", str(out)])
    main(["run", "import", str(out), "--out", str(back)])
    again = read_run(back)
    assert (again.manifest, again.records) == (run.manifest, run.records)
    assert results_digest(again.records) == results_digest(run.records)
    main(["run", "import", str(out), "--method", "other", "--out", str(tmp_path / "other")])
    assert read_run(tmp_path / "other").manifest.origin.as_json() == {"method": "other"}


def test_others_read_it_as_a_table(run, tmp_path):
    write_parquet(run, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table["radius"].to_pylist() == [record.radius for record in RECORDS]
    assert table["correct"].to_pylist() == [True, False, False]
    assert table["abstained"].to_pylist() == [False, True, False]
    assert table["estimation_counts"].to_pylist() == [[70, 30], None, [999, 1]]
    assert table["estimation_sums"].to_pylist() == [None, None, list(SUMS)]
    assert table["base"].to_pylist() == [3, None, None]
    assert json.loads(table.schema.metadata[b"smoothcert.manifest"])["plan"] == MANIFEST.plan.as_json()
    columns = {name.removesuffix("_counts") for name in table.column_names}
    assert {field.name for field in fields(Record)} <= columns


def test_commands_refuse(run, tmp_path, capsys):
    out, back = tmp_path / "a.parquet", tmp_path / "back"
    assert "--out" in refusal(capsys, "run", "export", run.path, "--format", "parquet")
    write_parquet(run, out)
    told = refusal(capsys, "run", "import", out, "--sigma", 0.5, "--n", 10, "--out", back)
    assert "--sigma, --n" in told
    log = tmp_path / "log.tsv"
    main(["run", "export", str(run.path), "--out", str(log)])
    assert "--sigma" in refusal(capsys, "run", "import", log, "--out", back)
    assert "none.tsv" in refusal(capsys, "run", "import", tmp_path / "none.tsv", "--out", back)
    assert not back.exists()


def test_changed_files_are_refused(run, tmp_path):
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


def test_what_doesnt_fit(run, tmp_path, monkeypatch):
    tally = RECORDS[0].selection
    assert tally is not None
    huge = replace(RECORDS[0], selection=replace(tally, stream=replace(tally.stream, seed=2**64)))
    with pytest.raises(OutputError, match=r"\b64\b"):
        write_parquet(replace(run, records=(huge,)), tmp_path / "a.parquet")
    with pytest.raises(OutputError, match=r"nowhere/a\.parquet"):
        write_parquet(run, tmp_path / "nowhere" / "a.parquet")
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
    main(["run", "export", str(folder / "run"), "--out", str(folder / "run.parquet")])
    main(["run", "import", str(folder / "run.parquet"), "--out", str(folder / "back")])
    return folder / "back"


def test_the_scales_of_diagonal_noise_come_along(tmp_path):
    noise = DiagonalGaussian(np.array([0.5, 2.0]))
    classifier = SmoothedClassifier(Linear(), CertifyPlan(noise, n0=50, n=500, seed=0), input_shape=(2,))
    run = certify_dataset(classifier, POINTS, tmp_path / "run")
    back = read_run(there_and_back(tmp_path))
    assert back.manifest.plan.noise_in(back.path) == noise
    assert (back.path / "sigmas.npy").read_bytes() == (run.path / "sigmas.npy").read_bytes()
    assert results_digest(recertify(back, tmp_path / "again").records) == results_digest(run.records)


def test_searches_come_along(tmp_path):
    search = EllipsoidSearch(steps=30, samples=4, lr=0.05)
    classifier = SmoothedClassifier(Linear(), sigma=0.25, n=500, seed=0, input_shape=(2,), search=search)
    run = certify_dataset(classifier, POINTS, tmp_path / "run")
    back = read_run(there_and_back(tmp_path))
    assert read_searches(back.path) == read_searches(run.path)
    assert any(one.noise is not None for one in read_searches(back.path).values())
    first, second = (
        remember(one, POINTS, tmp_path / f"memory{k}", tmp_path / f"out{k}")[0]
        for k, one in enumerate((run, back))
    )
    assert [replace(r, seconds=0.0) for r in first.records] == [
        replace(r, seconds=0.0) for r in second.records
    ]


def test_whatever_a_run_keeps_comes_along_and_nothing_else(run, tmp_path):
    (run.path / "sigmas").mkdir()
    kept = {"sigmas.npy", "sigma_search.jsonl", "sigmas/12.npy", "pilots.jsonl", "allocation.json"}
    for name in kept | {"notes.txt", "sigmas/.3.npy.17.part"}:
        (run.path / name).write_bytes(bytes(range(256)) + name.encode())
    out = tmp_path / "run.parquet"
    write_parquet(run, out)
    assert read_parquet(out)[2] == {name: bytes(range(256)) + name.encode() for name in kept}
    # Other readers take metadata for text.
    assert all(value.decode() for value in parquet.read_schema(out).metadata.values())


@pytest.mark.parametrize("name", ["stopped", "selection_phase"])
def test_a_long_text_that_few_bytes_repeat_takes_no_memory(name, run, tmp_path):
    out = tmp_path / "a.parquet"
    write_parquet(replace(run, records=RECORDS[:1] * 500), out)
    table = parquet.read_table(out)
    texts = pyarrow.array(["x" * 50_000] * 500)
    table = table.set_column(table.column_names.index(name), name, texts)
    with parquet.ParquetWriter(out, table.schema) as writer:
        for _ in range(30):
            writer.write_table(table)
    assert out.stat().st_size < 500_000
    with process_within(200), pytest.raises(DataError, match=r"a\.parquet") as caught:
        read_parquet(out)
    assert len(str(caught.value)) < 1000 + len(str(out))


PACKED = base64.b64encode(zlib.compress(b"x"))
BAD_NAMES = (
    "../sigmas.npy",
    "/tmp/sigmas.npy",
    "sigmas/../1.npy",
    "run.json",
    "sigmas/a.npy",
    "sigmas.npy\n",
    "",
)


@pytest.mark.parametrize(
    ("name", "content", "named"),
    [
        *((name, PACKED, re.escape(repr(name))) for name in BAD_NAMES),
        ("sigmas.npy", b"no base64!", r"b\.parquet"),
        ("sigmas.npy", base64.b64encode(b"not compressed"), r"b\.parquet"),
    ],
)
def test_files_that_no_run_has_are_refused(name, content, named, run, tmp_path):
    bad = tmp_path / "b.parquet"
    write_parquet(run, bad)
    table = parquet.read_table(bad)
    stated = table.schema.metadata | {f"smoothcert.file:{name}".encode(): content}
    parquet.write_table(table.replace_schema_metadata(stated), bad)
    with pytest.raises(DataError, match=named):
        read_parquet(bad)
    with pytest.raises(SystemExit):
        main(["run", "import", str(bad), "--out", str(tmp_path / "back")])
    assert not (tmp_path / "back").exists()


def test_files_that_are_there_already_stay(run, tmp_path, capsys):
    (run.path / "sigmas.npy").write_bytes(b"theirs")
    write_parquet(run, tmp_path / "a.parquet")
    back = tmp_path / "back"
    back.mkdir()
    (back / "sigmas.npy").write_bytes(b"mine")
    assert "sigmas.npy" in refusal(capsys, "run", "import", tmp_path / "a.parquet", "--out", back)
    kept = {path.name: path.read_bytes() for path in back.iterdir() if path.name != ".lock"}
    assert kept == {"sigmas.npy": b"mine"}


def test_too_large_for_metadata(run, tmp_path, monkeypatch):
    monkeypatch.setattr("smoothcert.runs.parquet._MOST_KEPT", 10)
    (run.path / "sigmas.npy").write_bytes(bytes(range(256)))
    with pytest.raises(OutputError, match=re.escape(str(run.path))):
        write_parquet(run, tmp_path / "a.parquet")


def test_files_of_earlier_versions_are_read(run, tmp_path):
    write_parquet(run, tmp_path / "a.parquet")
    table = parquet.read_table(tmp_path / "a.parquet").drop_columns(["volume_radius", "stopped"])
    parquet.write_table(table, tmp_path / "b.parquet")
    assert read_parquet(tmp_path / "b.parquet") == (MANIFEST, list(RECORDS), {})


def test_the_name_says_the_format(run, tmp_path, capsys):
    for name, format, expected in [
        ("a.parquet", None, True),
        ("b.PARQUET", None, True),
        ("c.tsv", None, False),
        ("d", None, False),
        ("e", "parquet", True),
        ("f.pq", "parquet", True),
        ("g.gz", "tsv", False),
    ]:
        words = ["run", "export", str(run.path), "--out", str(tmp_path / name)]
        main(words if format is None else [*words, "--format", format])
        assert is_parquet(tmp_path / name) == expected, name
    for name, format in (("x.parquet", "tsv"), ("x.tsv", "parquet"), ("x.csv", "parquet")):
        words = ["run", "export", str(run.path), "--out", str(tmp_path / name), "--format", format]
        told = refusal(capsys, *words)
        assert f"--format {format}" in told
        assert "--out" in told
        assert not (tmp_path / name).exists()
