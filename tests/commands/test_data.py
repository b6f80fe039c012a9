"""`smoothcert data`: what is there, and fetching what isn't."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothcert import datasets
from smoothcert.commands import main
from smoothcert.datasets.published import CIFAR10, MNIST, PUBLICATIONS, PublishedFile
from smoothcert.errors import DataError
from tests.commands.test_bad_input import refusal
from tests.datasets.files import write_cifar_binary, write_mnist
from tests.downloads.server import Site, serving
from tests.downloads.test_fetching import packed


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.delenv("SMOOTHCERT_DATA", raising=False)


def known(path: Path) -> PublishedFile:
    content = path.read_bytes()
    return PublishedFile(path.name, len(content), hashlib.sha256(content).hexdigest())


@pytest.fixture
def small_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Site, np.ndarray]:
    """A site with files of MNIST's form, which are taken for the published ones."""
    for split in ("train", "test"):
        images, _ = write_mnist(tmp_path / "origin", split)
    files = sorted((tmp_path / "origin").iterdir())
    monkeypatch.setitem(PUBLICATIONS, "mnist", replace(MNIST, files=tuple(map(known, files))))
    return Site({f"/{path.name}": path.read_bytes() for path in files}), images


def test_what_was_fetched_is_what_readers_find(
    small_mnist: tuple[Site, np.ndarray], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site, images = small_mnist
    data = tmp_path / "data"
    with serving(site):
        main(["data", "fetch", "mnist", "--data-dir", str(data), "--mirror", site.address])
        assert f"mnist: fetched and checked, in {data / 'mnist'}" in capsys.readouterr().err
        read = datasets.load("mnist", "test", data)
        assert np.array_equal(read.stored[:, 0], images)  # type: ignore[call-overload]
        main(["data", "fetch", "mnist", "--data-dir", str(data), "--mirror", site.address, "--json"])
    assert len(site.asked) == 4
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"mnist": {"folder": str(data / "mnist"), "fetched": []}}
    assert shown.err == ""


def test_the_environment_names_the_folder(
    small_mnist: tuple[Site, np.ndarray], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMOOTHCERT_DATA", str(tmp_path / "data"))
    with serving(small_mnist[0]) as site:
        main(["data", "fetch", "mnist", "--quiet", "--mirror", site.address])
    assert len(datasets.load("mnist", "train")) == 6


def test_an_archive_becomes_what_readers_find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_without_a_network_it_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(Site()) as site:
        gone = site.address
    words = ["data", "fetch", "mnist", "--data-dir", tmp_path, "--mirror", gone.replace("//", "//me:geheim@")]
    shown = refusal(capsys, *words)
    assert f"{gone}train-images-idx3-ubyte.gz: Connection refused" in shown
    assert "--mirror URL" in shown
    assert "geheim" not in shown
    assert not list((tmp_path / "mnist").iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["fetch", "cifar", "--data-dir", "x"],
            "unknown published data set 'cifar'. Did you mean 'cifar10'?",
        ),
        (
            ["fetch", "mnist"],
            "name the folder for the files with --data-dir or the environment variable SMOOTHCERT_DATA",
        ),
        (["fetch", "--data-dir", "x"], "name what to fetch, such as smoothcert data fetch mnist"),
        (
            ["fetch", "mnist", "--data-dir", "x", "--mirror", "file:///tmp"],
            "must be an http or https address",
        ),
        (["fetsh", "mnist"], "fetch"),
    ],
)
def test_mistakes_are_named(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refusal(capsys, "data", *words)
    assert not list(tmp_path.iterdir())


def test_the_list_says_what_is_there_and_where_else_was_looked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_mnist(tmp_path / "MNIST" / "raw", "train", gzipped=False)
    write_mnist(tmp_path / "MNIST" / "raw", "test")
    write_cifar_binary(tmp_path / "cifar-10-batches-bin" / "test_batch.bin")
    main(["data", "list", "--data-dir", str(tmp_path)])
    rows = {
        cells[1].strip(): cells
        for line in capsys.readouterr().out.splitlines()
        if (cells := line.split("│"))[4:]
    }
    assert [cell.strip() for cell in rows["mnist"][2:5]] == ["11.6", "yes", str(tmp_path / "MNIST" / "raw")]
    assert rows["cifar10"][3].strip() == "1 of 6 files"
    assert rows["svhn"][3].strip() == "no"
    main(["data", "list", "svhn", "--data-dir", str(tmp_path), "--json"])
    (row,) = json.loads(capsys.readouterr().out).values()
    assert row["places"] == [str(tmp_path / "svhn"), str(tmp_path / "SVHN"), str(tmp_path)]
    assert row["folder"] is None


def test_a_missing_data_set_names_the_command_that_fetches_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"or fetch them: smoothcert data fetch mnist --data-dir data$"):
        datasets.load("mnist", "test", tmp_path)
    with pytest.raises(DataError, match=r"SMOOTHCERT_DATA$"):
        datasets.load("imagenet", "test", tmp_path)
