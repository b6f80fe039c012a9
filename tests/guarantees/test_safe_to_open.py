"""A stranger's run, log, data or memory can be opened: nothing in it is run, followed, obeyed or believed too far."""

import base64
import contextlib
import gzip
import html
import io
import itertools
import json
import os
import pickle
import re
import shutil
import sqlite3
import stat
import struct
import zipfile
import zlib
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from smoothcert import datasets
from smoothcert.analysis.report import ReportOptions, write_report
from smoothcert.analysis.tables import csv_escaped, latex_escaped, markdown_escaped
from smoothcert.architectures.weights import load_model
from smoothcert.cli import main
from smoothcert.cli.console import _Guard, _Screen
from smoothcert.errors import DataError, InvalidValueError, ModelError, OutputError, RunError, SmoothcertError
from smoothcert.files import MOST_EXPANSION, append_line, write_atomically
from smoothcert.perturb.diagonal import load_sigmas
from smoothcert.runs import field_log
from smoothcert.runs.field_log import read_field_log
from smoothcert.runs.journal import CREATE_RECORDS
from smoothcert.runs.parquet import read_parquet, write_parquet
from smoothcert.runs.run import create_run, open_run, read_run
from smoothcert.runs.side_files import read_searches
from smoothcert.smoothing.stores.base import MemoryStatement, StoreError, open_store
from smoothcert.smoothing.stores.sqlite import SqliteStore
from tests.analysis.report.made_reports import statement, toy_records
from tests.cli.output import refusal
from tests.guarantees.hostile import (
    ESCAPE,
    edited,
    in_time,
    manifest_of,
    memory_below,
    process_within,
    toy_run,
)

PAYLOAD = (
    "open({!r}, 'w').write('ran')\n\ndef scores(batch):\n    return batch.reshape(len(batch), -1)[:, :4]\n"
)


# What a run names is not opened.


def test_a_module_beside_a_run_is_not_imported(tmp_path, monkeypatch, capsys):
    marker = tmp_path / "ran"
    run = toy_run(tmp_path / "run", origin={"model": "payload:scores", "dataset": "digits", "split": "test"})
    (run / "payload.py").write_text(PAYLOAD.format(str(marker)))
    monkeypatch.chdir(run)
    assert "--model payload:scores --dataset digits" in refusal(capsys, "attack", ".")
    for command in (["report", "--out", "page"], ["show"], ["table"], ["recertify", "--out", "again"]):
        main([command[0], ".", *command[1:]])
    assert not marker.exists()


def private_pictures(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image")
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        image.new("L", (8, 8), 77).save(folder / name / "secret.png")
    return folder


@pytest.mark.parametrize("form", ["folder:{}", "{}"])
def test_a_path_that_a_run_names_is_not_opened(tmp_path, monkeypatch, capsys, form):
    spec = form.format(private_pictures(tmp_path / "private"))
    data = {"name": spec, "sha256": datasets.load(spec).fingerprint(), "inputs": 2, "skip": 1}
    run = tmp_path / "run"
    records = [replace(record, label=0) for record in toy_records(2)]
    create_run(run, statement(data=data).stating(origin={"dataset": spec}), records)
    monkeypatch.setattr(datasets, "_resolve", lambda *_: pytest.fail("a data set was opened"))
    main(["report", str(run), "--out", str(tmp_path / "page")])
    page = (tmp_path / "page" / "index.html").read_text(encoding="utf-8")
    assert "data:image/png" not in page
    assert f"--dataset {spec}" in html.unescape(page)
    words = ["remember", run, "--memory", tmp_path / "memory", "--out", tmp_path / "out"]
    assert f"--dataset {spec}" in refusal(capsys, *words)


def test_a_model_names_no_path_either(digits_model, tmp_path, capsys):
    model = tmp_path / "model"
    shutil.copytree(digits_model, model)
    recipe = (model / "recipe.toml").read_text()
    (model / "recipe.toml").write_text(
        recipe.replace('dataset = "digits"', f'dataset = "folder:{tmp_path}"').replace(
            'noise = "gaussian"', f'noise = "{tmp_path}"'
        )
    )
    for words in (["certify", model, "--out", tmp_path / "run"], ["predict", model], ["diagnose", model]):
        assert f"--dataset folder:{tmp_path}" in refusal(capsys, *words)


def test_a_stated_folder_of_data_is_only_suggested(digits_model, tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)
    run = toy_run(tmp_path / "run", origin={"dataset": "mnist", "data_dir": str(tmp_path / "theirs")})
    message = refusal(capsys, "attack", run, "--model", digits_model)
    assert f"--data-dir {tmp_path / 'theirs'}" in message


# Processes of our own.


def test_a_report_imports_nothing_from_the_working_directory(tmp_path, monkeypatch):
    marker = tmp_path / "ran"
    runs = [toy_run(tmp_path / f"run{k}", 3) for k in range(3)]
    for name in ("smoothcert", "json", "numpy", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(marker)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("a pickle was read"))
    write_report(runs, tmp_path / "page", ReportOptions())
    assert not marker.exists()


# Journals and memories.


def changed(path: Path, *commands: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for command in commands:
            connection.execute(command)


JOURNALS = {
    "more": ["CREATE TRIGGER more AFTER INSERT ON records BEGIN UPDATE records SET radius = 99 WHERE 1; END"],
    "another": ["CREATE VIEW another AS SELECT * FROM records"],
    "sqlean": ["CREATE TABLE sqlean (a)"],
    "quick": ["CREATE INDEX quick ON records (radius)"],
    "records": ["ALTER TABLE records ADD COLUMN extra INTEGER DEFAULT 1"],
    "records that only look like ours": [
        "ALTER TABLE records RENAME TO other",
        CREATE_RECORDS.replace("radius REAL NOT NULL", "radius REAL NOT NULL DEFAULT 99"),
        "DROP TABLE other",
    ],
}


@pytest.mark.parametrize("name", JOURNALS)
def test_a_journal_with_anything_else_in_it_is_refused(tmp_path, name):
    run = toy_run(tmp_path / "run")
    changed(run / "journal.sqlite", *JOURNALS[name])
    before = (run / "journal.sqlite").read_bytes()
    odd = f"'{name.partition(' ')[0]}'"
    with pytest.raises(RunError, match=odd):
        read_run(run)
    with pytest.raises(RunError, match=odd), open_run(run, manifest_of(run)):
        pass
    assert (run / "journal.sqlite").read_bytes() == before


def test_values_that_no_record_has_are_refused_in_a_line(tmp_path, capsys):
    changes = [
        "radius = 9e999",
        "radius = 'far'",
        "radius = -1",
        "sigma = x'00'",
        "label = 4000000000",
        "predicted = 1.5",
        "predicted = -2",
        "stopped = x'05'",
        "base = 'cat'",
        "seconds = -1",
        "estimation = '" + "[" * 100_000 + "'",
        'estimation = \'{"counts": [1' + "0" * 5000 + "]}'",
        "estimation = '[]'",
        "predicted = 7, label = 7",
    ]
    for name, change in zip("abcdefghijklmn", changes, strict=True):
        run = toy_run(tmp_path / name)
        changed(run / "journal.sqlite", f'UPDATE records SET {change} WHERE "index" = 3')
        assert re.search(r"\b3\b", refusal(capsys, "show", run).replace(str(run), "")), change


def test_a_memory_with_a_trigger_is_refused(tmp_path):
    about = MemoryStatement("a" * 64, (2,), "gaussian", "l2")
    SqliteStore(tmp_path / "memory", about).close()
    changed(tmp_path / "memory", "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END")
    with pytest.raises(StoreError, match="'t'"):
        SqliteStore(tmp_path / "memory", about)


# Links.


LINKED = (".lock", "journal.sqlite", "journal.sqlite-wal")


# run.json is replaced, never written to.
@pytest.mark.parametrize(("name", "hard"), [*itertools.product(LINKED, (False, True)), ("run.json", False)])
def test_links_in_a_run_are_not_followed(tmp_path, name, hard):
    run = toy_run(tmp_path / "run")
    about = manifest_of(run)
    mine = tmp_path / "mine"
    if name == "journal.sqlite":
        (run / name).rename(mine)
    else:
        mine.write_text((run / "run.json").read_text() if name == "run.json" else "precious")
        (run / name).unlink(missing_ok=True)
    (os.link if hard else os.symlink)(mine, run / name)
    before = mine.read_bytes()
    with pytest.raises(RunError), open_run(run, about) as journal:
        journal.append(toy_records(20)[-1])
    assert mine.read_bytes() == before


def test_files_beside_a_journal_are_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("precious\n")
    (tmp_path / "sigma_search.jsonl").symlink_to(mine)
    with pytest.raises(OutputError, match=r"sigma_search\.jsonl"):
        append_line(tmp_path / "sigma_search.jsonl", "line")
    with pytest.raises(DataError, match=r"sigma_search\.jsonl"):
        read_searches(tmp_path)
    (tmp_path / "linked.jsonl").hardlink_to(mine)
    with pytest.raises(OutputError, match=r"linked\.jsonl"):
        append_line(tmp_path / "linked.jsonl", "line")
    # The name that a file had until it was whole could be guessed: it was made from the process's number.
    for name in (f".out.{os.getpid()}.part", "out"):
        (tmp_path / name).symlink_to(mine)
    write_atomically(tmp_path / "out", b"new")
    assert mine.read_text() == "precious\n"
    assert not (tmp_path / "out").is_symlink()
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) & 0o111 == 0


def test_an_index_in_a_search_is_no_path(tmp_path):
    np.save(tmp_path / "elsewhere.npy", np.ones(3))
    run = tmp_path / "run"
    run.mkdir()
    line = {"index": "../../elsewhere", "sigma": 1.0, "noise": "diagonal-gaussian", "sigmas_sha256": "a"}
    (run / "sigma_search.jsonl").write_text(json.dumps(line) + "\n")
    assert read_searches(run) == {}


def test_a_memorys_links_are_not_followed(tmp_path):
    about = MemoryStatement("a" * 64, (2,), "gaussian", "l2")
    SqliteStore(tmp_path / "theirs", about).close()
    before = (tmp_path / "theirs").read_bytes()
    (tmp_path / "memory").symlink_to(tmp_path / "theirs")
    with pytest.raises(StoreError, match=re.escape(str(tmp_path / "memory"))):
        SqliteStore(tmp_path / "memory", about)
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "new.head").symlink_to(tmp_path / "mine")
    with pytest.raises(StoreError):
        SqliteStore(tmp_path / "new", about)
    assert (tmp_path / "theirs").read_bytes() == before
    assert (tmp_path / "mine").read_text() == "precious"


def test_reading_adds_no_file_to_a_run(tmp_path):
    """A journal that says it has a write-ahead file, or has one without its index, as after a kill and a copy."""
    for name in ("alone", "with one"):
        run = toy_run(tmp_path / name)
        copy = tmp_path / f"{name} copied"
        with open_run(run, manifest_of(run)) as journal:
            journal.append(toy_records(20)[-1])
            copy.mkdir()
            kept = ["run.json", "journal.sqlite"] + (["journal.sqlite-wal"] if name == "with one" else [])
            for one in kept:
                shutil.copy(run / one, copy / one)
        assert len(read_run(copy).records) == (13 if name == "with one" else 12)
        assert sorted(one.name for one in copy.iterdir()) == sorted(kept)


# What is printed.


def printed(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    with contextlib.suppress(SystemExit):
        main([str(word) for word in words])
    shown = capsys.readouterr()
    return shown.out + shown.err


def test_control_characters_are_shown_and_not_sent(tmp_path, capsys):
    name = f"run{ESCAPE}\x9b31m\u202e[red]"
    run = toy_run(tmp_path / name)
    edited(run, origin={"method": f"best\n{ESCAPE}", "model": ESCAPE}, data={"name": f"toys\r{ESCAPE}"})
    other = toy_run(tmp_path / "other")
    edited(other, data={"name": f"toys\r{ESCAPE}"})
    commands = [
        ["show", run],
        ["show", run, "--json"],
        ["table", run],
        *(
            ["table", run, "--layout", "paper", "--format", one]
            for one in ("markdown", "latex", "csv", "json")
        ),
        ["compare", run, other],
        ["compare", run, other, "--json"],
        ["attack", run],
        ["recertify", run, "--out", tmp_path / f"again{ESCAPE}"],
        ["report", run, "--out", tmp_path / "page"],
        ["plot", run, "--out", tmp_path / f"{ESCAPE}.tiff"],
        ["import-log", run / ESCAPE, "--sigma", "1", "--out", tmp_path / "log"],
        ["certify", ESCAPE, "--out", tmp_path / "out"],
        [ESCAPE],
        ["show", run, f"--{ESCAPE}"],
    ]
    for words in commands:
        text = printed(capsys, *words)
        assert text
        assert not [one for one in text if not (one.isprintable() or one in "\n\t")], (words, text)
    assert "[red]" in printed(capsys, "show", run)
    assert "\\u001b]0;owned" in printed(capsys, "table", run)
    json.loads(printed(capsys, "show", run, "--json"))


def test_whoever_prints_goes_through_the_guard():
    stream = io.StringIO()
    guard = _Guard(stream)
    print(f"a\tb{ESCAPE}", file=guard)
    guard.writelines(["\x9b", "\udcff"])
    assert stream.getvalue() == "a\tb\\u001b]0;owned\\u0007\n\\u009b\\udcff"
    assert not guard.isatty()


def test_a_terminal_gets_colours_and_no_title():
    stream = io.StringIO()
    screen = _Screen(file=stream, force_terminal=True, markup=False, highlight=False, color_system="standard")
    table = Table("name", title=f"title{ESCAPE}")
    table.add_row(f"cell{ESCAPE}", Text(f"text{ESCAPE}", style="bold red"))
    screen.print(table, f"plain{ESCAPE}", Text(f"more{ESCAPE}"), Panel(f"panel{ESCAPE}"))
    assert "\x1b[1;31m" in stream.getvalue()
    assert "\x1b]" not in stream.getvalue()
    assert "\x07" not in stream.getvalue()
    assert (
        stream.getvalue().count("\\u001b]0;") >= 5
    )  # rich itself takes a bell out of a Text, and may cut it


def test_cells_are_no_formula_no_code_and_stay_in_their_row():
    for text in ("=1+1", "+1", "-1", "@SUM(A1)"):
        assert csv_escaped(text) == f"'{text}"
    assert csv_escaped("1-1") == "1-1"
    hostile = "a\nb|c<script>alert(1)</script>![x](http://host)`"
    cell = markdown_escaped(hostile)
    assert "\n" not in cell
    assert "<" not in cell
    assert "\\![" in cell or "!\\[" in cell
    assert "\n" not in latex_escaped("a\n\\input{x}")
    assert "\\input" not in latex_escaped("a\n\\input{x}")
    assert "\n" not in csv_escaped(hostile)


# Credentials.

SECRET = "s3cr%21t"


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@localhost:1/db#memory",
        f"PostgreSQL://me:{SECRET}@localhost:1/db",
        f"postgresql+psycopg://me:{SECRET}@localhost:1/db",
        f"postgres://localhost:1/db?user=me&password={SECRET}",
        f"host=localhost port=1 dbname=db user=me password={SECRET}",
        f"mysql://me:{SECRET}@localhost/db",
        f"postgresql://me:{SECRET}@[::1/db",
        f"postgresql://me:{SECRET}@localhost:port/db",
        f"postgresql://localhost/db?{SECRET}",
        f"postgresql://me:{SECRET}%zz@localhost:1/db",
    ],
)
def test_passwords_are_neither_shown_nor_taken_for_paths(tmp_path, monkeypatch, address):
    pytest.importorskip("psycopg")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SmoothcertError) as caught:
        open_store(address, MemoryStatement("a" * 64, (2,), "gaussian", "l2"))
    assert "s3cr" not in str(caught.value)
    assert "me:" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_passwords_are_not_stored_and_old_ones_not_carried_on(tmp_path, capsys):
    run = toy_run(tmp_path / "run")
    edited(run, origin={"memory": f"postgresql://me:{SECRET}@host:5432/db?password={SECRET}#memory"})
    assert read_run(run).manifest.origin.memory == "postgresql://host:5432/db#memory"
    main(["recertify", str(run), "--out", str(tmp_path / "again"), "--quiet"])
    assert SECRET not in (tmp_path / "again" / "run.json").read_text()
    pytest.importorskip("pyarrow")
    write_parquet(read_run(run), tmp_path / "run.parquet")
    assert SECRET.encode() not in (tmp_path / "run.parquet").read_bytes()
    manifest = statement().stating(origin={"memory": f"host=h password={SECRET}"})
    assert SECRET not in str(manifest)


# Files that claim more than they have.


def test_only_raster_formats_by_content(tmp_path, monkeypatch):
    pytest.importorskip("PIL")
    marker = tmp_path / "ran"
    (tmp_path / "bin").mkdir()
    stub = tmp_path / "bin" / "gs"
    stub.write_text(f"#!/bin/sh\ntouch {marker}\n")
    stub.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "data" / "a").mkdir(parents=True)
    eps = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n%%EOF\n"
    (tmp_path / "data" / "a" / "x.png").write_bytes(eps)
    with pytest.raises(DataError, match=r"x\.png"):
        datasets.load(f"folder:{tmp_path / 'data'}")
    assert not marker.exists()


def test_a_log_is_parsed_in_linear_time_and_within_limits(tmp_path):
    path = tmp_path / "log.tsv"
    header = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
    for field in ("1" * 60_000 + "x", "1" * 60_000, "9" * 5000 + " days, 1:00:00", "1" * 400 + ":00:00"):
        path.write_text(f"{header}0\t1\t1\t0.5\t1\t{field}\n")
        with pytest.raises(DataError, match=r"\btime\b.*'[19]{2}"):
            read_field_log(path, 1.0)
        path.write_text(f"{header}0\t1\t1\t{field}\t1\t1\n")
        with pytest.raises(DataError, match=r"\bradius\b.*'[19]{2}"):
            read_field_log(path, 1.0)
    path.write_text("\t".join(f"c{k}" for k in range(40_000)) + "\n")
    with pytest.raises(DataError, match=r"\b40000\b"):
        read_field_log(path, 1.0)
    path.write_text(f"{header}0\t99999999999\t1\t0.5\t0\t1\n")
    with pytest.raises(DataError, match=r"\blabel\b.*\b99999999999\b"):
        read_field_log(path, 1.0)


def test_a_gzipped_log_may_not_expand_without_end(tmp_path):
    path = tmp_path / "log.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(160):
            file.write(bytes(2**20))
    with memory_below(700), pytest.raises(DataError, match=rf"log\.gz.*\b{field_log.MOST_BYTES}\b"):
        read_field_log(path, 1.0)


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr\xff\xff\xff\x1f.",  # puts None under the number 2²⁹
        b"\x80\x04\x8e" + struct.pack("<Q", 2**33) + b"x.",  # bytes of that length
        b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b".",
        b"\x80\x02" + b")" + b"\x85" * 100_000 + b".",
        b"\x80\x02cos\nsystem\nU\x04exit\x85R.",
    ],
)
def test_a_small_pickle_takes_little(tmp_path, content):
    (tmp_path / "test_batch").write_bytes(content)
    with memory_below(50), pytest.raises(DataError):
        datasets.load("cifar10", root=tmp_path)


def test_a_matlab_file_that_is_not_published_is_not_parsed(tmp_path):
    packed = zlib.compress(struct.pack("<II", 14, 2**32 - 16) + bytes(2**26), 9)
    header = b" " * 124 + b"\x00\x01IM"
    (tmp_path / "test_32x32.mat").write_bytes(header + struct.pack("<II", 15, len(packed)) + packed)
    with memory_below(50), pytest.raises(DataError):
        datasets.load("svhn", root=tmp_path)


def npy(shape: tuple[int, ...], code: str = "<f8", content: bytes = b"") -> bytes:
    header = f"{{'descr': {code!r}, 'fortran_order': False, 'shape': {shape!r}}}".encode()
    header = header.ljust(118 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def test_arrays_are_as_large_as_their_files(tmp_path):
    path = tmp_path / "sigmas.npy"
    for shape, code in (((2**34,), "<f8"), ((2**62, 4), "<f8"), ((-1,), "<f8"), ((3,), "|O"), ((3,), "|V0")):
        path.write_bytes(npy(shape, code, b"12345678"))
        with memory_below(20), pytest.raises(RunError, match=r"sigmas\.npy"):
            load_sigmas(path)
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"[" * 9000)
    with pytest.raises(RunError):
        load_sigmas(path)


def test_an_npz_bomb_is_refused_before_it_is_unpacked(tmp_path):
    path = tmp_path / "data.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        member.write(npy((300, 2**20), "|u1"))
        for _ in range(300):
            member.write(bytes(2**20))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("y.npy", npy((300,), "<i8", bytes(2400)))
    with memory_below(20), pytest.raises(DataError, match=rf"\b{MOST_EXPANSION}\b"):
        datasets.load(f"npz:{path}")


@pytest.mark.slow
def test_a_log_in_parquet_may_not_expand_without_end(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "log.parquet"
    write_parquet(read_run(toy_run(tmp_path / "run")), path)
    table = parquet.read_table(path)
    column = arrow.array(np.zeros(3_000_000, dtype=np.int64))
    stated = arrow.schema([("index", arrow.int64())]).with_metadata(table.schema.metadata)
    parquet.write_table(arrow.Table.from_arrays([column], schema=stated), path)
    assert path.stat().st_size < 100_000
    with memory_below(20), pytest.raises(DataError, match=r"\b3000000\b"):
        read_parquet(path)
    other = arrow.schema([("extra", arrow.int64())]).with_metadata(table.schema.metadata)
    parquet.write_table(arrow.Table.from_arrays([column], schema=other), path)
    with pytest.raises(DataError, match="'extra'"):
        read_parquet(path)
    bomb = {**table.schema.metadata, b"smoothcert.file:sigmas.npy": _packed(bytes(2**28 + 1))}
    parquet.write_table(table.replace_schema_metadata(bomb), path)
    with pytest.raises(DataError, match=r"'sigmas\.npy'"):
        read_parquet(path)


def _packed(content: bytes) -> bytes:
    return base64.b64encode(zlib.compress(content, 9))


def test_a_description_asks_for_no_network_that_the_weights_dont_fill(tmp_path, digits_model):
    for shape in ([1, 60_000, 60_000], [1, 2**40, 2**40], [10**80, 8, 8], [-1, 8, 8], [0, 0, 0]):
        model = tmp_path / "model"
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(digits_model, model)
        described = json.loads((model / "model.json").read_text())
        del described["checksum"]
        for architecture in ("small-cnn", "lenet"):
            described["spec"] |= {"input_shape": shape, "architecture": architecture}
            (model / "model.json").write_text(json.dumps(described))
            with pytest.raises(ModelError):
                load_model(model)


def bombs(tmp_path: Path, model: Path) -> list[list[str]]:
    """Small pictures and checkpoints that ask for gigabytes, each as the words of a command that is to read it."""
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    image.new("1", (8000, 8000)).save(tmp_path / "pictures" / "a" / "0.png")
    for k in range(1, 40):
        shutil.copy(tmp_path / "pictures" / "a" / "0.png", tmp_path / "pictures" / "a" / f"{k}.png")
    (tmp_path / "large" / "a").mkdir(parents=True)
    image.new("1", (9000, 9000)).save(tmp_path / "large" / "a" / "0.png")
    half = torch.zeros(1, dtype=torch.float16)
    torch.save({"arch": "lenet", "state_dict": {"x": half.expand(2**31)}}, tmp_path / "expanded.pth")
    for zipped in (True, False):
        torch.save(
            {"arch": "lenet", "state_dict": {"x": torch.zeros(2)}},
            tmp_path / f"{zipped}.pth",
            _use_new_zipfile_serialization=zipped,
        )
    # The number of the tensor's values, as a checkpoint before PyTorch 1.6 states it.
    legacy = (tmp_path / "False.pth").read_bytes()
    before = b"X\x03\x00\x00\x00cpuq"
    start = legacy.index(before) + len(before) + 1
    assert legacy[start : start + 2] == b"K\x02"
    (tmp_path / "legacy.pth").write_bytes(
        legacy[:start] + b"J" + struct.pack("<i", 2**30) + legacy[start + 2 :]
    )
    with zipfile.ZipFile(tmp_path / "True.pth") as archive:
        members = {one.filename: archive.read(one) for one in archive.infolist()}
    with zipfile.ZipFile(tmp_path / "packed.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, bytes(2**28) if name.endswith("data/0") else content)
    folders = [["predict", str(model), "-d", f"folder:{tmp_path / name}"] for name in ("pictures", "large")]
    files = [str(tmp_path / f"{name}.pth") for name in ("expanded", "legacy", "packed")]
    few = ["--sigma", "1", "--n", "10", "--max", "1"]
    return [[*words, *few] for words in [*folders, *(["predict", file, "-d", "digits"] for file in files)]]


def test_pictures_and_checkpoints_take_little_memory(tmp_path, digits_model, capsys):
    commands = bombs(tmp_path, digits_model)
    with process_within(1000):
        for words in commands:
            refusal(capsys, *words)


def test_a_folder_of_small_files_may_not_expand_without_end(tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "a").mkdir()
    for k in range(5):
        image.new("1", (8000, 8000)).save(tmp_path / "a" / f"{k}.png")
    with memory_below(100), pytest.raises(DataError, match=rf"\b{MOST_EXPANSION}\b"):
        datasets.load(f"folder:{tmp_path}")


def test_an_idx_file_may_not_claim_without_end(tmp_path):
    for split, prefix in {"test": "t10k", "train": "train"}.items():
        with gzip.open(tmp_path / f"{prefix}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(b"\0\0\x08\x01" + struct.pack(">I", 2**31) + bytes(10))
        with gzip.open(tmp_path / f"{prefix}-images-idx3-ubyte.gz", "wb") as file:
            file.write(b"\0\0\x08\x03" + struct.pack(">III", 2**31, 28, 28))
        with memory_below(20), pytest.raises(DataError, match=rf"{prefix}-.*\b{2**31}\b"):
            datasets.load("mnist", split, tmp_path)


# Statements.


SENSELESS = (
    "[" * 200_000,
    '{"format": 1, "kind": ' + "[" * 100_000,
    '{"format": 1, "kind": "certify", "plan": [], "model": {}, "data": {}}',
    '{"format": 1, "kind": 5, "plan": {}, "model": {}, "data": {}}',
    '{"format": 1, "kind": "certify", "plan": {"n": 1' + "0" * 400 + '}, "model": {}, "data": {}}',
    '{"format": 1, "kind": "certify", "plan": {"alpha": 1e999}, "model": {}, "data": {}}',
    '{"format": 1, "kind": "certify", "plan": {"alpha": NaN}, "model": {}, "data": {}}',
    '{"format": 1, "kind": "certify", "plan": {"sigma": "wide"}, "model": {}, "data": {}}',
    '{"format": 1, "kind": "certify", "plan": {}, "model": {}, "data": {"inputs": 3, "skip": 0}}',
    '{"format": 1, "kind": "certify", "plan": {}, "model": {}, "data": {}, "origin": {"dataset": 5}}',
    '{"format": 1, "kind": "certify", "plan": {}, "model": {}, "data": {}, "more": {}}',
    '{"format": 1, "format": 2}',
    '{"format": 1e999}',
    "null",
    "",
    "\x00",
)


@pytest.mark.parametrize("command", ["show", "table", "report", "attack", "verify"])
def test_statements_that_make_no_sense_are_refused_in_a_line(tmp_path, capsys, command):
    run = toy_run(tmp_path / "run")
    more = ["--out", tmp_path / "page"] if command == "report" else []
    for text in SENSELESS:
        (run / "run.json").write_text(text)
        named = " 5" if command == "verify" and '"kind": 5' in text else "run.json"
        assert named in refusal(capsys, command, run, *more), text[:200]


def test_a_pipe_keeps_nobody_waiting(tmp_path):
    run = toy_run(tmp_path / "run")
    for name in ("sigma_search.jsonl", "journal.sqlite", "run.json"):
        (run / name).unlink(missing_ok=True)
        os.mkfifo(run / name)
        with in_time(), pytest.raises(SmoothcertError, match=re.escape(name)):
            read_searches(run) if name.endswith("jsonl") else read_run(run)
    os.mkfifo(tmp_path / "log")
    with in_time(), pytest.raises(DataError, match=re.escape(str(tmp_path / "log"))):
        read_field_log(tmp_path / "log", 1.0)
    with pytest.raises(InvalidValueError):
        open_store("http://host/db", MemoryStatement("a" * 64, (2,), "gaussian", "l2"))
