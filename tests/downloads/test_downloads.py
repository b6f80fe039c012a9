"""Downloads against a server that breaks off, lies and redirects: a file that has its name is the published one."""

import gzip
import hashlib
import io
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert import downloads
from smoothcert.datasets.published import PUBLICATIONS, Publication, PublishedFile
from smoothcert.downloads import Watch, fetch, read_mirror
from smoothcert.errors import DataError, InvalidValueError, OutputError
from tests.datasets.files import shared_data
from tests.downloads.server import Site, serving
from tests.waiting import join, unanswered, until

CONTENT = bytes(range(256)) * 2000  # several chunks


@pytest.fixture(autouse=True)
def direct_and_patient(monkeypatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(downloads, "_PAUSE", 0.0)


@pytest.fixture
def site() -> Iterator[Site]:
    with serving(Site({"/one.bin": CONTENT})) as up:
        yield up


def published(
    content: bytes = CONTENT, name: str = "one.bin", mirrors: tuple[str, ...] = (), **more: object
) -> Publication:
    file = PublishedFile(name, len(content), hashlib.sha256(content).hexdigest())
    return Publication("toy", ("toy", "TOY"), (file,), mirrors, **more)  # type: ignore[arg-type]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_comes_whole_and_a_second_time_nothing_is_asked(site, tmp_path):
    told: list[object] = []
    watch = Watch(lambda size, files: told.append((size, files)), told.append, lambda: told.append("done"))
    done = fetch(published(mirrors=(site.address,)), tmp_path, watch=watch)
    assert (done.folder, done.fetched) == (tmp_path / "toy", ("one.bin",))
    assert (done.folder / "one.bin").read_bytes() == CONTENT
    assert told[0] == (len(CONTENT), 1)
    assert sum(part for part in told if isinstance(part, int)) == len(CONTENT)
    assert told[-1] == "done"
    before = (done.folder / "one.bin").stat()
    assert fetch(published(mirrors=(site.address,)), tmp_path).fetched == ()
    assert (done.folder / "one.bin").stat().st_mtime_ns == before.st_mtime_ns
    assert len(site.asked) == 1
    assert names(tmp_path) == ["one.bin"]


def test_a_broken_line_is_taken_up_where_it_broke(site, tmp_path):
    site.cut_after = [1000, 70_000]
    fetch(published(), tmp_path, [site.address])
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT
    assert [asked[1] for asked in site.asked] == [None, "bytes=1000-", "bytes=71000-"]


def test_a_server_without_ranges_begins_anew(site, tmp_path):
    site.ranges, site.cut_after = False, [1000]
    fetch(published(), tmp_path, [site.address])
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT


def test_what_an_earlier_try_left_is_gone_on_with(site, tmp_path):
    site.cut_after = [50] * downloads._TRIES
    with pytest.raises(DataError, match=r"one\.bin.*\b250\b.*\b512000\b.*--mirror.*\b250\b"):
        fetch(published(), tmp_path, [site.address])
    assert names(tmp_path) == ["one.bin.part"]
    site.asked.clear()
    begun: list[int] = []
    fetch(published(), tmp_path, [site.address], Watch(begin=lambda size, _: begun.append(size)))
    assert begun == [len(CONTENT) - 250]
    assert site.asked[0][1] == "bytes=250-"
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["one.bin"]


@pytest.mark.parametrize("left", [b"x" * 300, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 7)])
def test_a_damaged_beginning_is_thrown_away(site, tmp_path, left):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.bin.part").write_bytes(left)
    fetch(published(), tmp_path, [site.address])
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (CONTENT[:-1] + b"\0", r"SHA-256.*[0-9a-f]{12}….*[0-9a-f]{12}…"),
        (CONTENT[:-1], r"\b511999\b.*\b512000\b"),
        (CONTENT + b"more", r"\b512000\b"),
        (b"<html>log in</html>", r"\b19\b.*\b512000\b"),
        (b"", r"\b0\b.*\b512000\b"),
    ],
    ids=["other bytes", "too short", "too long", "page", "empty"],
)
def test_another_file_is_refused_and_the_next_mirror_asked(tmp_path, site, sent, named, chunked):
    with serving(Site({"/one.bin": sent}, chunked=chunked)) as wrong:
        with pytest.raises(DataError, match=rf"{wrong.address}one\.bin: .*{named}"):
            fetch(published(), tmp_path, [wrong.address])
        assert "one.bin" not in names(tmp_path)
        fetch(published(), tmp_path, [wrong.address, site.address])
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["one.bin"]


@pytest.mark.parametrize("sent", [CONTENT[:-1], CONTENT + b"more"])
def test_a_file_of_another_size_is_not_even_taken(tmp_path, sent):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.bin.part").write_bytes(CONTENT[:700])
    received: list[int] = []
    for ranges in (True, False):
        with (
            serving(Site({"/one.bin": sent}, ranges)) as wrong,
            pytest.raises(DataError, match=rf"\b{len(sent)}\b.*\b512000\b"),
        ):
            fetch(published(), tmp_path, [wrong.address], Watch(received=received.append))
    assert received == []
    assert (tmp_path / "toy" / "one.bin.part").read_bytes() == CONTENT[:700]


def test_another_part_than_was_asked_for_is_refused(tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.bin.part").write_bytes(CONTENT[:700])
    with (
        serving(Site({"/one.bin": CONTENT}, shift=-100)) as wrong,
        pytest.raises(DataError, match=r"one\.bin"),
    ):
        fetch(published(), tmp_path, [wrong.address])
    assert len(wrong.asked) == 1, "such a server is not asked again"
    assert (tmp_path / "toy" / "one.bin.part").read_bytes() == CONTENT[:700]


def test_a_part_longer_than_a_servers_file_begins_anew(site, tmp_path):
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.bin.part").write_bytes(CONTENT[:700])
    with serving(Site({"/one.bin": b"short"})) as wrong:
        fetch(published(), tmp_path, [wrong.address, site.address])
    assert wrong.asked[0][1] == "bytes=700-"
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("told", ["9" * 5000, "-5", "٣", "a lot", "512000, 512000"])
def test_nonsense_about_a_size_is_a_refusal(tmp_path, told):
    told = told.encode().decode("latin-1")
    with (
        serving(Site({"/one.bin": CONTENT}, headers={"Content-Length": told})) as wrong,
        pytest.raises(DataError, match=rf"one\.bin.*{told[:20]}.*\b512000\b"),
    ):
        fetch(published(), tmp_path, [wrong.address])


def test_a_server_that_does_not_speak_http_is_one_message(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(DataError, match="BadStatusLine"):
            fetch(published(), tmp_path, [f"http://127.0.0.1:{server.getsockname()[1]}"])
        join(thread)


def test_a_proxy_of_the_environment_is_asked_and_its_refusal_told(site, tmp_path, monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("http_proxy", site.address)
    monkeypatch.setenv("https_proxy", site.address.replace("//", "//me:s3cret@"))
    with pytest.raises(DataError, match=r"http://host\.invalid/one\.bin.*\b404\b"):
        fetch(published(), tmp_path, ["http://host.invalid/"])
    assert site.asked[0][0] == "http://host.invalid/one.bin"
    with pytest.raises(DataError, match=r"https://host\.invalid/one\.bin.*\b501\b") as caught:
        fetch(published(), tmp_path, ["https://host.invalid/"])
    assert "s3cret" not in str(caught.value)


def test_no_more_is_written_than_was_published(tmp_path):
    with serving(Site({"/one.bin": CONTENT * 3}, chunked=True)) as endless:
        received: list[int] = []
        with pytest.raises(DataError):
            fetch(published(), tmp_path, [endless.address], Watch(received=received.append))
    assert sum(received) <= len(CONTENT)


def test_a_missing_file_is_sought_at_the_next_mirror(site, tmp_path):
    with serving(Site()) as empty:
        fetch(published(), tmp_path / "found", [empty.address, site.address])
        with pytest.raises(DataError, match=rf"{empty.address}one\.bin.*\b404\b.*--mirror"):
            fetch(published(), tmp_path / "lost", [empty.address])
    assert names(tmp_path / "lost") == []


def test_mirrors_that_are_named_replace_the_usual_ones(site, tmp_path):
    with serving(Site()) as named, pytest.raises(DataError):
        fetch(published(mirrors=(site.address,)), tmp_path, [named.address])
    assert site.asked == []


def test_a_redirection_to_a_file_of_ours_is_not_followed(site, tmp_path):
    secret = tmp_path / "one.bin"
    secret.write_bytes(CONTENT)
    for target in (secret.as_uri(), "ftp://127.0.0.1/one.bin", "data:,x", site.address + "moved/one.bin"):
        site.redirects["/moved/one.bin"] = target
        with pytest.raises(DataError, match=r"moved/one\.bin.*\b302\b"):
            fetch(published(), tmp_path / "data", [site.address + "moved"])
    assert names(tmp_path / "data") == []


def test_a_redirection_is_followed_without_credentials(site, tmp_path):
    with serving(Site(redirects={"/one.bin": site.address + "one.bin"})) as door:
        fetch(published(), tmp_path, [door.address.replace("//", "//me:s3cret@")])
        assert door.asked == [("/one.bin", None, "Basic bWU6czNjcmV0")]
    assert site.asked == [("/one.bin", None, None)]


def test_https_is_not_left():
    from urllib.error import HTTPError
    from urllib.request import Request

    from smoothcert.downloads import _SameScheme

    secure = Request("https://host/one")
    with pytest.raises(HTTPError):
        _SameScheme().redirect_request(secure, io.BytesIO(), 302, "", {}, "http://host/one")
    assert _SameScheme().redirect_request(secure, io.BytesIO(), 302, "", {}, "https://other/one") is not None


def test_other_addresses_are_no_mirrors():
    for text in [
        "file:///etc/passwd",
        "ftp://h/x",
        "data",
        "",
        "http://",
        "http://u:hidden@h:port/",
        "http://h/?hidden=1",
    ]:
        with pytest.raises(InvalidValueError, match="--mirror") as caught:
            read_mirror(text)
        assert "hidden" not in str(caught.value)


def test_a_password_is_never_shown(site, tmp_path):
    port = site.address.rpartition(":")[2]
    for address in (
        f"http://me:p%40ss@127.0.0.1:{port}nowhere/",
        "http://me:p%40ss@host.invalid/",
        "http://me:p%40ss@[::1]:1/",
    ):
        with pytest.raises(DataError) as caught:
            fetch(published(), tmp_path, [address])
        assert "p%40ss" not in str(caught.value)
        assert "p@ss" not in str(caught.value)
    assert "cEBzcw" not in repr(read_mirror("http://me:p%40ss@host/"))


def test_a_file_that_is_not_the_published_one_is_left_alone(site, tmp_path):
    mine = tmp_path / "toy" / "one.bin"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    with pytest.raises(DataError, match=rf"{mine}.*SHA-256"):
        fetch(published(), tmp_path, [site.address])
    assert mine.read_bytes() == b"mine"
    assert site.asked == []


def test_links_are_not_written_through(site, tmp_path):
    target = tmp_path / "precious"
    target.write_bytes(b"precious")
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "one.bin.part").symlink_to(target)
    with pytest.raises(OutputError, match=r"one\.bin\.part"):
        fetch(published(), tmp_path, [site.address])
    assert target.read_bytes() == b"precious"


def test_two_processes_do_not_write_one_file(site, tmp_path):
    site.hold = threading.Event()
    failures: list[BaseException] = []

    def first() -> None:
        try:
            fetch(published(), tmp_path, [site.address])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    until(lambda: (tmp_path / "toy" / "one.bin.part").exists() and site.asked)
    with pytest.raises(OutputError, match=r"one\.bin\.part"):
        fetch(published(), tmp_path, [site.address])
    held, site.hold = site.hold, None
    held.set()
    join(thread)
    assert failures == []
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT


@pytest.mark.system
def test_killed_midway_it_goes_on(site, tmp_path):
    program = (
        "import sys; from pathlib import Path; from tests.downloads.test_downloads import published; "
        "from smoothcert.downloads import fetch; fetch(published(), Path(sys.argv[1]), [sys.argv[2]])"
    )
    site.hold = threading.Event()
    words = [sys.executable, "-c", program, str(tmp_path), site.address]
    child = subprocess.Popen(words, cwd=Path(__file__).parents[2])
    part = tmp_path / "toy" / "one.bin.part"
    try:
        until(
            lambda: child.poll() is not None or (part.exists() and part.stat().st_size == len(CONTENT) // 2)
        )
        assert child.poll() is None
    finally:
        child.kill()
        child.wait(timeout=60)
    assert names(tmp_path) == ["one.bin.part"]
    held, site.hold = site.hold, None
    held.set()
    fetch(published(), tmp_path, [site.address])
    assert site.asked[-1][1] == f"bytes={len(CONTENT) // 2}-"
    assert (tmp_path / "toy" / "one.bin").read_bytes() == CONTENT


def test_a_full_disk_is_told_and_what_came_is_kept(site, tmp_path, monkeypatch):
    def full(file: io.FileIO, content: bytes) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(downloads, "_write", full)
    with pytest.raises(OutputError, match=rf"one\.bin.*{os.strerror(28)}"):
        fetch(published(), tmp_path, [site.address])
    assert names(tmp_path) == ["one.bin.part"]


def packed(*members: tuple[str, bytes] | tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


BATCHES = (("toy/a.bin", 5), ("toy/b.bin", 3))
GOOD = (("toy/a.bin", b"aaaaa"), ("toy/b.bin", b"bbb"))


def fetch_archive(tmp_path: Path, content: bytes) -> Publication:
    publication = published(content, "all.tar.gz", members=BATCHES)
    with serving(Site({"/all.tar.gz": content})) as up:
        fetch(publication, tmp_path, [up.address])
    return publication


def test_an_archive_is_unpacked_and_its_files_are_known_the_next_time(tmp_path):
    publication = fetch_archive(tmp_path, packed(("toy/readme.html", b"hello"), *GOOD))
    folder = tmp_path / "toy"
    assert names(tmp_path) == ["SHA256SUMS", "a.bin", "b.bin"]
    assert (folder / "a.bin").read_bytes() == b"aaaaa"
    check = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, timeout=60)
    assert check.returncode == 0
    with unanswered() as nowhere:
        assert fetch(publication, tmp_path, [nowhere]).fetched == ()
        sums = (folder / "SHA256SUMS").read_text()
        (folder / "SHA256SUMS").write_text(sums.splitlines(keepends=True)[0])
        with pytest.raises(DataError, match=rf"{nowhere}all\.tar\.gz"):
            fetch(publication, tmp_path, [nowhere])
        (folder / "SHA256SUMS").write_text(sums)
        (folder / "a.bin").write_bytes(b"other")
        with pytest.raises(DataError, match=r"a\.bin.*SHA256SUMS"):
            fetch(publication, tmp_path, [nowhere])


def test_members_that_nobody_asked_for_go_nowhere(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    fetch_archive(
        tmp_path / "data",
        packed(
            ("../evil", b"x"),
            ("toy/../../evil", b"x"),
            (str(outside / "evil"), b"x"),
            link("toy", str(outside)),
            link("toy/c.bin", "/etc/passwd"),
            ("toy/a.bin/../evil", b"x"),
            ("elsewhere/a.bin", b"other"),
            ("a.bin", b"other"),
            *GOOD,
        ),
    )
    assert names(tmp_path) == ["SHA256SUMS", "a.bin", "b.bin"]
    assert (tmp_path / "data" / "toy" / "a.bin").read_bytes() == b"aaaaa"
    assert not (tmp_path / "data" / "toy").is_symlink()


@pytest.mark.parametrize(
    ("members", "named"),
    [
        ((link("toy/a.bin", "/etc/passwd"), GOOD[1]), r"toy/a\.bin"),
        ((GOOD[1], link("toy/a.bin", "toy/b.bin", tarfile.LNKTYPE)), r"toy/a\.bin"),
        ((("toy/a.bin", b"longer than was published"), GOOD[1]), r"toy/a\.bin"),
        ((GOOD[0], GOOD[0], GOOD[1]), r"toy/a\.bin"),
        ((GOOD[0],), r"\b1\b.*\b2\b"),
        ((("toy/huge", bytes(2**24 + 9000)), *GOOD), rf"\b{2**24 + 8}\b"),
    ],
)
def test_an_archive_of_another_kind_is_refused(tmp_path, members, named):
    with pytest.raises(DataError, match=rf"all\.tar\.gz.*{named}"):
        fetch_archive(tmp_path, packed(*members))  # type: ignore[arg-type]
    assert not (tmp_path / "toy" / "SHA256SUMS").exists()
    assert not any(path.is_symlink() for path in tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "content",
    [b"no archive", gzip.compress(b"no archive"), packed(*GOOD)[:60]],
    ids=["no gzip", "no tar", "cut off"],  # gzip writes the time into what would be a name otherwise
)
def test_a_damaged_archive_is_one_message(tmp_path, content):
    with pytest.raises(DataError, match=r"all\.tar\.gz"):
        fetch_archive(tmp_path, content)


def test_batches_that_are_there_stay_and_others_are_refused(tmp_path):
    folder = tmp_path / "toy"
    folder.mkdir()
    (folder / "a.bin").write_bytes(b"aaaaa")
    before = (folder / "a.bin").stat().st_mtime_ns
    fetch_archive(tmp_path, packed(*GOOD))
    assert (folder / "a.bin").stat().st_mtime_ns == before
    (folder / "SHA256SUMS").unlink()
    (folder / "b.bin").write_bytes(b"new")
    with pytest.raises(DataError, match=r"toy/b\.bin"):
        fetch_archive(tmp_path, packed(*GOOD))
    assert (folder / "b.bin").read_bytes() == b"new"


def test_the_hashes_are_those_of_real_files():
    folder = shared_data() / "mnist"
    for file in PUBLICATIONS["mnist"].files:
        content = (folder / file.name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.size, file.sha256)
    sizes = dict(PUBLICATIONS["cifar10"].members)
    for path in (shared_data() / "cifar-10-batches-bin").glob("*.bin"):
        assert path.stat().st_size == sizes[f"cifar-10-batches-bin/{path.name}"]


def test_what_is_known_is_well_formed():
    for publication in PUBLICATIONS.values():
        assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) for file in publication.files)
        assert [read_mirror(mirror).address for mirror in publication.mirrors] == list(publication.mirrors)


def zipped(content: bytes, name: str = "one.bin") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("names.txt", "of columns")
        archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "wrong", [None, b"no archive", zipped(CONTENT, "other.bin"), zipped(CONTENT[:-1]), zipped(CONTENT + b"0")]
)
def test_a_file_inside_a_zip_is_the_published_one(wrong, tmp_path):
    files = {"/good/one.zip": zipped(CONTENT)} | ({} if wrong is None else {"/bad/one.zip": wrong})
    told: list[int] = []
    with serving(Site(files)) as site:
        wanted = published(mirrors=(f"{site.address}/bad/",), zipped="one.zip")
        with pytest.raises(DataError, match=r"one\.bin.*/bad/one\.zip"):
            fetch(wanted, tmp_path)
        assert names(tmp_path) == []
        wanted = replace(wanted, mirrors=(*wanted.mirrors, f"{site.address}/good/"))
        done = fetch(wanted, tmp_path, watch=Watch(received=told.append))
        assert (done.folder / "one.bin").read_bytes() == CONTENT
        assert sum(told) == len(CONTENT)
        assert fetch(wanted, tmp_path).fetched == ()
    assert names(tmp_path) == ["one.bin"]
