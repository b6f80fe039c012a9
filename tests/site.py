"""The documentation as a site, and its notebooks: ``python -m tests.site build``, ``python -m tests.site notebooks``.

Steps of ``make check`` and not tests of the default run: they take a minute and depend on packages of the site.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from smoothcert.cli.commands import COMMANDS
from tests.public_api import GROUPS

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
LIMIT = 600  # seconds


def build() -> None:
    """Built as CONTRIBUTING says: a link that leads nowhere fails it; no page loads anything from another host."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)],
            cwd=ROOT,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
            timeout=LIMIT,
            check=True,
        )
        pages = list(out.rglob("*.html"))
        assert {"index.html", "guarantees.html", "reference.html", "contributing.html"} <= {
            p.name for p in pages
        }
        for page in pages:
            loaded = re.findall(
                r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?(https?:[^\"' >]+)",
                page.read_text(encoding="utf-8"),
            )
            assert loaded == [], (page.name, loaded)
        reference = (out / "reference.html").read_text(encoding="utf-8")
        assert all(f"{name.rpartition('.')[2]}" in reference for names in GROUPS.values() for name in names)
        assert ":meth:" not in reference
        commands = (out / "commands.html").read_text(encoding="utf-8")
        assert all(
            f"smoothcert {path}</h3>" in re.sub(r"<a [^>]*>[^<]*</a>", "", commands) for path in COMMANDS
        )
        assert "certify_stream" in (out / "search" / "search_index.js").read_text(encoding="utf-8")
    print(f"{len(pages)} pages")


def notebooks() -> None:
    """Each one runs in an empty directory, and is kept with its results: they are read where nothing is run."""
    import nbformat
    from nbclient import NotebookClient

    assert NOTEBOOKS
    for path in NOTEBOOKS:
        text = path.read_text(encoding="utf-8")
        assert '"image/png"' in text, path
        assert '"output_type": "error"' not in text, path
        assert '"execution_count": null' not in text, path
        assert not re.search(r"/(tmp|home|work|root)/", text), path
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(
                nbformat.read(path, as_version=4),
                timeout=LIMIT,
                kernel_name="python3",
                resources={"metadata": {"path": folder}},
            ).execute()
        print(path.name)


if __name__ == "__main__":
    {"build": build, "notebooks": notebooks}[sys.argv[1]]()
