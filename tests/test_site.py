"""The documentation as a site, and its notebooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as CONTRIBUTING says; a link that leads nowhere fails it."""
    pytest.importorskip("material")
    pytest.importorskip("mkdocs_jupyter")
    pytest.importorskip("mkdocstrings")
    out = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return out


@pytest.mark.slow
def test_every_page_is_there_and_asks_no_other_host_for_anything(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert {"index.html", "guarantees.html", "reference.html", "contributing.html"} <= {
        page.name for page in pages
    }
    for page in pages:
        loaded = re.findall(
            r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(https?:[^\"' >]+)",
            page.read_text(encoding="utf-8"),
        )
        assert loaded == [], page.name


@pytest.mark.slow
def test_the_reference_is_made_from_docstrings_and_search_knows_it(site: Path) -> None:
    page = (site / "reference.html").read_text(encoding="utf-8")
    assert "the class the base model most often gives to x + noise" in page
    assert ":meth:" not in page
    assert "certify_stream" in (site / "search" / "search_index.js").read_text(encoding="utf-8")


EVERY_DAY = "from-training-to-report"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[] if path.stem == EVERY_DAY else pytest.mark.campaign) for path in NOTEBOOKS],
    ids=lambda path: path.stem,
)
@pytest.mark.filterwarnings("ignore")  # of the notebook's packages
def test_the_notebook_runs(path: Path, tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    pytest.importorskip("matplotlib")
    pytest.importorskip("sklearn")
    notebook = nbformat.read(path, as_version=4)
    client.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_is_kept_with_its_results(path: Path) -> None:
    """They are read on GitHub, where nothing is run; and a picture is among them."""
    text = path.read_text(encoding="utf-8")
    assert '"image/png"' in text
    assert '"output_type": "error"' not in text
    assert '"execution_count": null' not in text
    assert not re.search(r"/(tmp|home|work|root)/", text)


def test_there_are_three_notebooks() -> None:
    assert len(NOTEBOOKS) == 3
