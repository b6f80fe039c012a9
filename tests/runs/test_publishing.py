"""Published runs: the very bytes or a refusal, whatever was killed, changed or claimed in between."""

import hashlib
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smoothcert.cli import main
from smoothcert.errors import InvalidValueError, RunError
from smoothcert.evaluation.certification import certify_dataset
from smoothcert.files import sealed
from smoothcert.functions import load_run
from smoothcert.runs.publishing import DamagedListError, ObjectStore, Place, local_run, publish, scrubbed
from smoothcert.runs.run import read_run
from smoothcert.runs.statement import Choice, Shard
from smoothcert.training.runs import train_into
from tests.cli.output import refusal
from tests.guarantees.damages import _classifier, points
from tests.guarantees.hostile import toy_run
from tests.processes import _FORKSERVER as FORKSERVER
from tests.runs.s3_server import BUCKET, KEY, SECRET, objects, s3_server, set_up
from tests.training.toys import halves, recipe

pytestmark = pytest.mark.filterwarnings("ignore")  # of other people's packages


@pytest.fixture
def run(tmp_path) -> Path:
    path = tmp_path / "run"
    certify_dataset(_classifier("plain"), points(), path)
    return path


def files_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


# Addresses.


CHAINS = ("simplecache::s3://bucket/run", "zip://run.zip::s3://bucket/run", "github://owner:repo@main/run")


@pytest.mark.parametrize(
    "address", [*CHAINS, *(f"{kind}://a/b" for kind in ("reference", "http", "memory", "python", "ssh"))]
)
def test_only_stores_that_are_listed_are_opened(address, capsys):
    said = refusal(capsys, "show", address)
    assert [scheme for scheme in ("s3", "gs", "az", "abfs", "file") if f"{scheme}://" not in said] == []


@pytest.mark.parametrize(
    "address",
    [f"s3://{text}" for text in ("key:hunter2@b/r", "hunter2@b/r", "b/r?sig=hunter2", "b/r#hunter2")],
)
def test_credentials_in_an_address_are_refused_and_not_repeated(address, run, capsys):
    with pytest.raises(InvalidValueError):
        Place.parse(address)
    for words in (
        ["show", address],
        ["table", address],
        ["run", "publish", run, address],
        ["verify", address],
    ):
        assert "hunter2" not in refusal(capsys, *words)


@pytest.mark.parametrize(
    "address", ["s3://bucket", "s3://", "s3:///x", "s3://b/../x", "s3://b//x", "file://a/b"]
)
def test_an_address_names_a_bucket_and_a_prefix(address):
    with pytest.raises(InvalidValueError, match=f"^{re.escape(address)} .*PROTOCOL://BUCKET/PREFIX"):
        Place.parse(address)


def test_errors_are_told_without_secrets(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "abc/def+ghi")
    said = scrubbed(
        "no: abc/def+ghi at https://user:pw@host/x?X-Amz-Signature=12ab&a=b Authorization: zzz, Signature=yyy"
    )
    assert not [one for one in ("abc/def", "pw", "12ab", "zzz", "yyy") if one in said]


# Publishing, to a folder.


def test_a_finished_run_and_nothing_else(run, tmp_path):
    (run / "notes.txt").write_text("private")
    (run / "checkpoint.pt").write_text("weights")
    there = tmp_path / "store" / "run"
    done = publish(run, f"file://{there}")
    assert set(files_of(there)) == {"run.json", "journal.sqlite", "published.json"}
    assert done.uploaded
    assert not publish(run, f"file://{there}").uploaded
    assert read_run(local_run(f"file://{there}")).records.digest == read_run(run).records.digest


def test_another_run_is_replaced_only_when_that_is_asked_for(run, tmp_path):
    other, store = toy_run(tmp_path / "other", 40), tmp_path / "store"
    publish(run, f"file://{store}")
    with pytest.raises(RunError, match="--replace"):
        publish(other, f"file://{store}")
    assert len(read_run(store).records) == len(read_run(run).records)
    publish(other, f"file://{store}", replace=True)
    assert read_run(store).records.digest == read_run(other).records.digest
    before = files_of(other)
    with pytest.raises(RunError, match="--replace"):
        publish(run, f"file://{other}")  # lies there unpublished
    assert files_of(other) == before
    with pytest.raises(RunError, match=r"\b12\b.*\b40\b"):
        publish(toy_run(tmp_path / "unfinished"), f"file://{tmp_path / 'new'}")
    assert not (tmp_path / "new").exists()


def test_a_run_is_not_published_onto_itself(run):
    before = files_of(run)
    for place in (run, run / "inside"):
        with pytest.raises(RunError, match=re.escape(f"file://{place}")):
            publish(run, f"file://{place}", replace=True)
    assert files_of(run) == before


def test_weights_are_published_only_when_that_is_asked_for(run, tmp_path):
    with pytest.raises(RunError, match="--with-model"):
        publish(run, f"file://{tmp_path / 'store'}", with_model=True)  # it has none
    path = tmp_path / "model"
    train_into(path, recipe(epochs=1), halves(10))
    publish(path, f"file://{tmp_path / 'plain'}")
    publish(path, f"file://{tmp_path / 'whole'}", with_model=True)
    plain, whole = (files_of(tmp_path / name) for name in ("plain", "whole"))
    assert whole.keys() - plain == {"model.safetensors", "model.json", "checkpoint.pt"}
    (path / "model.safetensors").unlink()
    with pytest.raises(RunError, match=re.escape(str(path))):
        publish(path, f"file://{tmp_path / 'again'}")


def test_what_the_store_alters_is_noticed_before_it_is_a_run(run, tmp_path, monkeypatch):
    put = ObjectStore.put

    def altered(self: ObjectStore, name: str, path: Path) -> None:
        put(self, name, path)
        if name == "journal.sqlite":
            (tmp_path / "store" / name).write_bytes(path.read_bytes()[:-1] + b"\xff")

    monkeypatch.setattr(ObjectStore, "put", altered)
    with pytest.raises(RunError, match=r"journal\.sqlite"):
        publish(run, f"file://{tmp_path / 'store'}")
    assert not (tmp_path / "store" / "published.json").exists()


# A real server.


@pytest.fixture(scope="session")
def server() -> Iterator[dict[str, str]]:
    with s3_server() as variables:
        yield variables


@pytest.fixture
def s3(server, monkeypatch) -> Any:
    """A bucket that is empty; the file system to look into it past smoothcert."""
    import s3fs

    set_up(monkeypatch, server)
    system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    if system.exists(BUCKET):
        system.rm(BUCKET, recursive=True)
    system.mkdir(BUCKET)
    return system


ADDRESS = f"s3://{BUCKET}/some/run"


@pytest.mark.system
def test_a_run_is_read_where_it_was_published(run, s3, tmp_path, capsys):
    main(["run", "publish", str(run), ADDRESS])
    said = capsys.readouterr()
    assert ADDRESS in said.out
    assert re.search(r"\b2\b", said.out)
    assert len(objects(s3)) == 3  # two files and the list
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest
    main(["table", str(run), "--format", "json"])
    here = capsys.readouterr().out
    main(["table", ADDRESS, "--format", "json"])
    assert json.loads(capsys.readouterr().out) == json.loads(here)
    main(["verify", ADDRESS])
    main(["show", ADDRESS])
    main(["compare", ADDRESS, str(run)])
    main(["run", "export", ADDRESS, "--out", str(tmp_path / "log.tsv")])
    main(["report", ADDRESS, "--out", str(tmp_path / "page")])
    told = capsys.readouterr()
    for secret in (KEY, SECRET):
        stored = b"".join(objects(s3).values()) + (tmp_path / "page" / "index.html").read_bytes()
        assert secret not in told.out + told.err + said.out
        assert secret.encode() not in stored


@pytest.mark.system
def test_shards_are_merged_from_a_bucket(s3, tmp_path):
    certify_dataset(_classifier("plain"), points(), tmp_path / "whole")
    for number in (1, 2):
        shard = tmp_path / str(number)
        certify_dataset(_classifier("plain"), points(), shard, Choice(shard=Shard(number, 2)))
        publish(shard, f"s3://{BUCKET}/shards/{number}")
    words = [f"s3://{BUCKET}/shards/{number}" for number in (1, 2)]
    main(["run", "merge", *words, "--out", str(tmp_path / "merged"), "--quiet"])
    assert read_run(tmp_path / "merged").records.digest == read_run(tmp_path / "whole").records.digest


@pytest.mark.system
@pytest.mark.parametrize("after", range(3))
def test_an_upload_that_is_killed_is_no_run_and_can_be_completed(after, run, s3):
    """Killed at once, after each file, and before the list."""
    assert killed_upload(run, after) == -signal.SIGKILL
    assert len(s3.find(BUCKET)) == after
    with pytest.raises(RunError, match=r"published\.json"):
        load_run(ADDRESS)
    assert publish(run, ADDRESS).uploaded
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest


def killed_upload(run: Path, after: int, replace: bool = False) -> int:
    """Exit code of a process that publishes and is killed before it sends one more than so many objects."""
    process = FORKSERVER.Process(target=_publish_and_die, args=(dict(os.environ), run, after, replace))
    process.start()
    process.join(120)
    assert process.exitcode is not None
    return process.exitcode


def _publish_and_die(environment: dict[str, str], run: Path, after: int, replace: bool) -> None:
    os.environ |= environment
    left = after

    def counted(send: Callable[..., None]) -> Callable[..., None]:
        def counting(self: ObjectStore, *words: Any) -> None:
            nonlocal left
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1
            send(self, *words)

        return counting

    ObjectStore.put = counted(ObjectStore.put)  # type: ignore[method-assign]
    ObjectStore.put_bytes = counted(ObjectStore.put_bytes)  # type: ignore[method-assign]
    publish(run, ADDRESS, replace=replace)


@pytest.mark.system
def test_a_replacement_that_is_killed_leaves_no_run(run, s3, tmp_path):
    publish(toy_run(tmp_path / "other", 40), ADDRESS)
    assert killed_upload(run, 1, replace=True) == -signal.SIGKILL
    with pytest.raises(RunError, match=r"published\.json"):
        load_run(ADDRESS)
    publish(run, ADDRESS, replace=True)
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest


@pytest.mark.system
def test_a_strangers_run_is_held_to_its_list_and_to_what_a_run_has(run, s3):
    hash_ = hashlib.sha256(b"x").hexdigest()
    publish(run, ADDRESS)
    path = f"{BUCKET}/some/run/published.json"
    stated = json.loads(s3.cat_file(path))
    del stated["checksum"]

    def refused(error: type[RunError], named: str, changed: dict[str, dict[str, Any]]) -> None:
        s3.pipe_file(path, json.dumps(sealed(stated | {"files": stated["files"] | changed})).encode())
        with pytest.raises(error, match=named):
            load_run(ADDRESS)

    for name in ("../outside", "/etc/cron.d/x", "sigmas/../../x.npy", ".lock", "evil.py", "sigmas/x.npy"):
        refused(DamagedListError, re.escape(repr(name)), {name: {"bytes": 1, "sha256": hash_}})
    journal = stated["files"]["journal.sqlite"]
    for error, named, change in (
        (DamagedListError, r"published\.json", {"bytes": 2**37}),
        (DamagedListError, r"published\.json.*journal\.sqlite", {"bytes": -1}),
        (DamagedListError, r"published\.json.*journal\.sqlite.*SHA-256", {"sha256": "a"}),
        (RunError, r"run/journal\.sqlite", {"sha256": hash_}),
        (RunError, r"run/journal\.sqlite.*\b5\b", {"bytes": 5}),
    ):
        refused(error, named, {"journal.sqlite": journal | change})
    s3.pipe_file(path, b"{" * 1000)
    with pytest.raises(DamagedListError):
        load_run(ADDRESS)
    publish(run, ADDRESS, replace=True)
    assert load_run(ADDRESS).records.digest == read_run(run).records.digest


@pytest.mark.system
def test_a_store_that_refuses_or_is_not_there_is_told_in_a_line(run, s3, monkeypatch, capsys):
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    assert "s3://no-such-bucket/run" in refusal(capsys, "run", "publish", run, "s3://no-such-bucket/run")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # taken, and nobody listens
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*silent.getsockname()))
        for words in (["show", ADDRESS], ["run", "publish", run, ADDRESS]):
            said = refusal(capsys, *words)
            assert ADDRESS in said
            assert SECRET not in said
            assert KEY not in said
