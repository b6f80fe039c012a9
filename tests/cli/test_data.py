"""`smoothcert data`: what is there, and fetching what isn't."""

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothcert import datasets
from smoothcert.cli import main
from smoothcert.datasets.published import CIFAR10, MNIST, PUBLICATIONS, PublishedFile
from smoothcert.errors import DataError
from smoothcert.plain_text import command
from tests.datasets.files import write_cifar_binary, write_mnist
from tests.downloads.server import Site, serving
from tests.downloads.test_downloads import packed

from .output import names, refusal, rows


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)


def known(path: Path) -> PublishedFile:
    content = path.read_bytes()
    return PublishedFile(path.name, len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def small_mnist(tmp_path, monkeypatch) -> tuple[Site, np.ndarray]:
    """A site with files of MNIST's form, which are taken for the published ones."""
    for split in ("train", "test"):
        images, _ = write_mnist(tmp_path / "origin", split)
    files = sorted((tmp_path / "origin").iterdir())
    monkeypatch.setitem(PUBLICATIONS, "mnist", replace(MNIST, files=tuple(map(known, files))))
    return Site({f"/{path.name}": path.read_bytes() for path in files}), images


def test_what_was_fetched_is_what_readers_find(small_mnist, tmp_path, capsys):
    site, images = small_mnist
    data = tmp_path / "data"
    with serving(site):
        main(["data", "fetch", "mnist", "--data-dir", str(data), "--mirror", site.address])
        assert str(data / "mnist") in capsys.readouterr().err
        read = datasets.load("mnist", "test", data)
        assert np.array_equal(read.stored[:, 0], images)  # type: ignore[call-overload]
        main(["data", "fetch", "mnist", "--data-dir", str(data), "--mirror", site.address, "--json"])
    assert len(site.asked) == 4
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"mnist": {"folder": str(data / "mnist"), "fetched": []}}
    assert shown.err == ""


def test_the_environment_names_the_folder(small_mnist, tmp_path, monkeypatch):
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path / "data"))
    with serving(small_mnist[0]) as site:
        main(["data", "fetch", "mnist", "--quiet", "--mirror", site.address])
    assert len(datasets.load("mnist", "train")) == 6


def test_an_archive_becomes_what_readers_find(tmp_path, monkeypatch):
    members = []
    for seed, (path, _) in enumerate(CIFAR10.members):
        pixels, _ = write_cifar_binary(tmp_path / "origin" / path, seed=seed)
        members.append((path, (tmp_path / "origin" / path).read_bytes()))
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(packed(("cifar-10-batches-bin/readme.html", b""), *members))
    sizes = tuple((path, len(content)) for path, content in members)
    small = replace(CIFAR10, files=(known(archive),), members=sizes)
    monkeypatch.setitem(PUBLICATIONS, "cifar10", small)
    with serving(Site({f"/{archive.name}": archive.read_bytes()})) as site:
        main(["data", "fetch", "cifar10", "--data-dir", str(tmp_path / "data"), "--mirror", site.address])
    assert len(datasets.load("cifar10", "train", tmp_path / "data")) == 20
    read = datasets.load("cifar10", "test", tmp_path / "data")
    assert np.array_equal(read.stored[:].reshape(4, -1), pixels)
    assert not list((tmp_path / "data").rglob("*.tar.gz*"))


def test_without_a_network_it_is_one_line(tmp_path, capsys):
    with serving(Site()) as site:
        gone = site.address
    words = ["data", "fetch", "mnist", "--data-dir", tmp_path, "--mirror", gone.replace("//", "//me:geheim@")]
    shown = refusal(capsys, *words)
    assert f"{gone}train-images-idx3-ubyte.gz" in shown
    assert "--mirror" in shown
    assert "geheim" not in shown
    assert not list((tmp_path / "mnist").iterdir())


def test_mistakes_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words, named in [
        (["fetch", "cifar", "--data-dir", "x"], ["'cifar'", "'cifar10'"]),
        (["fetch", "mnist"], ["--data-dir", "SMOOTHCERT_DATA"]),
        (["fetch", "--data-dir", "x"], list(PUBLICATIONS)),
        (["fetch", "mnist", "--data-dir", "x", "--mirror", "file:///tmp"], ["--mirror", "'file'"]),
        (["fetsh", "mnist"], ['"fetsh"', '"fetch"']),
    ]:
        assert names(refusal(capsys, "data", *words), *named)
        assert not list(tmp_path.iterdir())


def test_the_list_says_what_is_there_and_where_else_was_looked(tmp_path, capsys):
    write_mnist(tmp_path / "MNIST" / "raw", "train", gzipped=False)
    write_mnist(tmp_path / "MNIST" / "raw", "test")
    write_cifar_binary(tmp_path / "cifar-10-batches-bin" / "test_batch.bin")
    main(["data", "list", "--data-dir", str(tmp_path)])
    table = {name: cells for name, *cells in rows(capsys.readouterr().out)}
    assert (table["mnist"][0], table["mnist"][2]) == ("11.6", str(tmp_path / "MNIST" / "raw"))
    assert re.findall(r"\d+", table["cifar10"][1]) == ["1", "6"]
    assert len({table[name][1] for name in ("mnist", "cifar10", "svhn")}) == 3  # all, some and none
    main(["data", "list", "--data-dir", str(tmp_path), "--json"])
    found = json.loads(capsys.readouterr().out)
    there = {name: (row["files_there"], row["files"]) for name, row in found.items()}
    assert (there["mnist"], there["cifar10"], there["svhn"][0]) == ((4, 4), (1, 6), 0)
    assert found["svhn"]["places"] == [str(tmp_path / "svhn"), str(tmp_path / "SVHN"), str(tmp_path)]
    assert found["svhn"]["folder"] is None


def test_a_missing_data_set_names_the_command_that_fetches_it(tmp_path):
    with pytest.raises(DataError, match=f"`{command('data', 'fetch', 'mnist', data_dir='data')}`"):
        datasets.load("mnist", "test", tmp_path)
    with pytest.raises(DataError, match="SMOOTHCERT_DATA") as caught:
        datasets.load("imagenet", "test", tmp_path)
    assert command("data") not in str(caught.value)


def test_data_alone_lists(capsys):
    main(["data", "list", "--json"])
    listed = capsys.readouterr().out
    main(["data", "--json"])
    assert capsys.readouterr().out == listed
    main(["data"])
    assert "mnist" in capsys.readouterr().out
