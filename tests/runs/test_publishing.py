"""Published runs: the very bytes or a refusal, whatever was killed, changed or claimed in between."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smoothcert.analysis.notebook import load_run
from smoothcert.checksums import sealed
from smoothcert.commands import main
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation import Choice, certify_dataset
from smoothcert.runs import read_run
from smoothcert.runs.object_store import ObjectStore, Place, scrubbed
from smoothcert.runs.publishing import local_run, publish
from smoothcert.runs.shards import Shard
from smoothcert.training import train_into
from tests.guarantees.damages import _classifier, points
from tests.guarantees.hostile import refusal, toy_run
from tests.runs.s3_server import BUCKET, KEY, SECRET, objects, s3_server, set_up
from tests.training.toys import halves, recipe

pytestmark = pytest.mark.filterwarnings("ignore")  # of other people's packages


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    certify_dataset(_classifier("plain"), points(), path)
    return path


# Addresses.


@pytest.mark.parametrize(
    "address",
    [
        "simplecache::s3://bucket/run",
        "zip://run.zip::s3://bucket/run",
        "reference://x/y",
        "github://owner:repo@main/run",
        "http://host/run",
        "memory://a/b",
        "python://a/b",
        "ssh://host/run",
    ],
)
def test_only_stores_that_are_listed_are_opened(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "show", address)
    assert "s3://, gs://, az://, abfs:// or file://" in said


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:hunter2@bucket/run",
        "s3://hunter2@bucket/run",
        "s3://bucket/run?sig=hunter2",
        "gs://b/r#hunter2",
    ],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(
    address: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["show", address], ["table", address], ["publish", run, address], ["verify", address]):
        said = refusal(capsys, *words)
        assert "credentials" in said
        assert "hunter2" not in said


@pytest.mark.parametrize(
    "address", ["s3://bucket", "s3://", "s3:///x", "s3://b/../x", "s3://b//x", "file://a/b"]
)
def test_an_address_names_a_bucket_and_a_prefix(address: str) -> None:
    with pytest.raises(InvalidValueError, match="names no prefix"):
        Place.parse(address)


def test_errors_are_told_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abc/def+ghi")
    said = scrubbed(
        "no: abc/def+ghi at https://user:pw@host/x?X-Amz-Signature=12ab&a=b Authorization: zzz, Signature=yyy"
    )
    assert not [one for one in ("abc/def", "pw", "12ab", "zzz", "yyy") if one in said]


# Publishing, to a folder.


def test_a_finished_run_and_nothing_else(run: Path, tmp_path: Path) -> None:
    (run / "notes.txt").write_text("private")
    (run / "checkpoint.pt").write_text("weights")
    there = tmp_path / "store" / "run"
    done = publish(run, f"file://{there}")
    assert {one.name for one in there.iterdir()} == {"run.json", "journal.sqlite", "published.json"}
    assert done.uploaded
    assert not publish(run, f"file://{there}").uploaded
    assert read_run(local_run(f"file://{there}")).records.digest == read_run(run).records.digest


def test_an_unfinished_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"12 of 40 inputs so far.*only finished runs are published"):
        publish(toy_run(tmp_path / "run"), f"file://{tmp_path / 'store'}")
    assert not (tmp_path / "store").exists()


def test_another_run_is_replaced_only_when_that_is_asked_for(run: Path, tmp_path: Path) -> None:
    other = toy_run(tmp_path / "other", 40)
    address = f"file://{tmp_path / 'store'}"
    publish(run, address)
    with pytest.raises(RunError, match=r"holds another run already.*--replace"):
        publish(other, address)
    assert len(read_run(tmp_path / "store").records) == len(read_run(run).records)
    publish(other, address, replace=True)
    assert read_run(tmp_path / "store").records.digest == read_run(other).records.digest


def test_a_run_is_not_published_onto_itself(run: Path) -> None:
    before = {one.name: one.read_bytes() for one in run.iterdir()}
    for place in (run, run / "inside"):
        with pytest.raises(RunError, match="the run itself"):
            publish(run, f"file://{place}", replace=True)
    assert {one.name: one.read_bytes() for one in run.iterdir()} == before


def test_weights_are_published_only_when_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "model"
    train_into(path, recipe(epochs=1), halves(10))
    publish(path, f"file://{tmp_path / 'plain'}")
    publish(path, f"file://{tmp_path / 'whole'}", with_model=True)
    plain, whole = ({one.name for one in (tmp_path / name).iterdir()} for name in ("plain", "whole"))
    assert whole - plain == {"model.safetensors", "model.json", "checkpoint.pt"}
    (path / "model.safetensors").unlink()
    with pytest.raises(RunError, match="isn't finished"):
        publish(path, f"file://{tmp_path / 'again'}")


def test_a_certification_has_no_weights_to_publish(run: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no weights.*training runs"):
        publish(run, f"file://{tmp_path / 'store'}", with_model=True)


def test_a_run_that_lies_there_unpublished_is_not_written_over(run: Path, tmp_path: Path) -> None:
    other = toy_run(tmp_path / "store", 40)
    before = {one.name: one.read_bytes() for one in other.iterdir()}
    with pytest.raises(RunError, match="holds another run"):
        publish(run, f"file://{other}")
    assert {one.name: one.read_bytes() for one in other.iterdir()} == before


def test_what_the_store_alters_is_noticed_before_it_is_a_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = ObjectStore.put

    def altered(self: ObjectStore, name: str, path: Path) -> None:
        put(self, name, path)
        if name == "journal.sqlite":
            (tmp_path / "store" / name).write_bytes(path.read_bytes()[:-1] + b"\xff")

    monkeypatch.setattr(ObjectStore, "put", altered)
    with pytest.raises(RunError, match=r"journal.sqlite isn't there as it was sent"):
        publish(run, f"file://{tmp_path / 'store'}")
    assert not (tmp_path / "store" / "published.json").exists()


# A real server.


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@pytest.fixture
def s3(server: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A bucket that is empty; the file system to look into it past smoothcert."""
    import s3fs

    set_up(monkeypatch, server)
    system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    if system.exists(BUCKET):
        system.rm(BUCKET, recursive=True)
    system.mkdir(BUCKET)
    return system


slow = pytest.mark.slow
ADDRESS = f"s3://{BUCKET}/some/run"


@slow
def test_a_run_is_read_where_it_was_published(
    run: Path, s3: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["publish", str(run), ADDRESS])
    said = capsys.readouterr()
    assert "2 files" in said.out
    assert "read back and compared" in said.out
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest
    main(["table", str(run), "--format", "json"])
    here = capsys.readouterr().out
    main(["table", ADDRESS, "--format", "json"])
    assert json.loads(capsys.readouterr().out) == json.loads(here)
    main(["verify", ADDRESS])
    main(["show", ADDRESS])
    main(["compare", ADDRESS, str(run)])
    main(["export-log", ADDRESS, "--out", str(tmp_path / "log.tsv")])
    main(["report", ADDRESS, "--out", str(tmp_path / "page")])
    told = capsys.readouterr()
    for secret in (KEY, SECRET):
        stored = b"".join(objects(s3).values()) + (tmp_path / "page" / "index.html").read_bytes()
        assert secret not in told.out + told.err + said.out
        assert secret.encode() not in stored


@slow
def test_shards_are_merged_from_a_bucket(s3: Any, tmp_path: Path) -> None:
    certify_dataset(_classifier("plain"), points(), tmp_path / "whole")
    for number in (1, 2):
        shard = tmp_path / str(number)
        certify_dataset(_classifier("plain"), points(), shard, Choice(shard=Shard(number, 2)))
        publish(shard, f"s3://{BUCKET}/shards/{number}")
    words = [f"s3://{BUCKET}/shards/{number}" for number in (1, 2)]
    main(["merge", *words, "--out", str(tmp_path / "merged"), "--quiet"])
    assert read_run(tmp_path / "merged").records.digest == read_run(tmp_path / "whole").records.digest


@slow
@pytest.mark.parametrize("after", range(3))
def test_an_upload_that_is_killed_is_no_run_and_can_be_completed(after: int, run: Path, s3: Any) -> None:
    """Killed at once, after each file, and before the list."""
    assert killed_upload(run, after) == -signal.SIGKILL
    assert len(s3.find(BUCKET)) == after
    with pytest.raises(RunError, match="no published run"):
        load_run(ADDRESS)
    assert publish(run, ADDRESS).uploaded
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest


def killed_upload(run: Path, after: int, replace: bool = False) -> int:
    """Exit code of a process that publishes and is killed before it sends one more than so many objects."""
    words = [sys.executable, "-W", "ignore", "-c", _KILLED, str(run), ADDRESS, str(after), str(replace)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(words, env=environment).returncode


_KILLED = """
import os, signal, sys
from pathlib import Path
from smoothcert.runs.object_store import ObjectStore
from smoothcert.runs.publishing import publish

left = [int(sys.argv[3])]

def counted(act):
    def counting(self, *words):
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
        return act(self, *words)
    return counting

ObjectStore.put = counted(ObjectStore.put)
ObjectStore.put_bytes = counted(ObjectStore.put_bytes)
publish(Path(sys.argv[1]), sys.argv[2], replace=sys.argv[4] == "True")
"""


@slow
def test_a_replacement_that_is_killed_leaves_no_run(run: Path, s3: Any, tmp_path: Path) -> None:
    publish(toy_run(tmp_path / "other", 40), ADDRESS)
    assert killed_upload(run, 1, replace=True) == -signal.SIGKILL
    with pytest.raises(RunError, match="no published run"):
        load_run(ADDRESS)
    publish(run, ADDRESS, replace=True)
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest


def _published(s3: Any, change: Any) -> None:
    path = f"{BUCKET}/some/run/published.json"
    stated = json.loads(s3.cat_file(path))
    del stated["checksum"]
    change(stated["files"])
    s3.pipe_file(path, json.dumps(sealed(stated)).encode())


@slow
def test_a_strangers_run_is_held_to_its_list_and_to_what_a_run_has(run: Path, s3: Any) -> None:
    hash_ = hashlib.sha256(b"x").hexdigest()
    publish(run, ADDRESS)
    for name in ("../outside", "/etc/cron.d/x", "sigmas/../../x.npy", ".lock", "evil.py", "sigmas/x.npy"):
        publish(run, ADDRESS, replace=True)
        _published(s3, lambda files, name=name: files.update({name: {"bytes": 1, "sha256": hash_}}))
        with pytest.raises(RunError, match="is no file of a run"):
            load_run(ADDRESS)
    changes: dict[str, Any] = {
        "lists more": lambda files: files["journal.sqlite"].update(bytes=2**37),
        "is no size": lambda files: files["journal.sqlite"].update(bytes=-1),
        "no SHA-256": lambda files: files["journal.sqlite"].update(sha256="a"),
        "isn't what was published": lambda files: files["journal.sqlite"].update(sha256=hash_),
        "more than the 5 bytes": lambda files: files["journal.sqlite"].update(bytes=5),
    }
    for said, change in changes.items():
        s3.rm_file(f"{BUCKET}/some/run/published.json")
        publish(run, ADDRESS)
        _published(s3, change)
        with pytest.raises(RunError, match=said):
            load_run(ADDRESS)
    s3.pipe_file(f"{BUCKET}/some/run/published.json", b"{" * 1000)
    with pytest.raises(RunError, match="damaged"):
        load_run(ADDRESS)


@slow
def test_a_store_that_refuses_or_is_not_there_is_told_in_a_line(
    run: Path, s3: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refusal(capsys, "publish", run, "s3://no-such-bucket/run")
    assert "s3://no-such-bucket/run can't be written" in said
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    for words in (["show", ADDRESS], ["publish", run, ADDRESS]):
        said = refusal(capsys, *words)
        assert ADDRESS in said
        assert SECRET not in said
        assert KEY not in said
