"""Hooks of mkdocs: pages that live outside docs/ join the site, and links are the same on GitHub and here."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changes.md",
    "benchmarks/README.md": "benchmarks.md",
}
"""Pages of the repository and what they are called in the site."""

_ROLE = re.compile(r":(?:func|meth|class|mod|attr|data):\s*<code>~?(?:[\w.]*\.)?(\w+)</code>")
_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that live elsewhere."""
    for source, name in ELSEWHERE.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:  # noqa: ARG001
    """Links are written relative to a file's place in the repository; here they become relative to its page."""
    name = page.file.src_uri
    source = next((path for path, known in ELSEWHERE.items() if known == name), f"docs/{name}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        place = ELSEWHERE.get(target, target.removeprefix("docs/"))
        return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(name) or '.')}{link[3]}"

    return _LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: Any, files: Files) -> str:  # noqa: ARG001
    """Docstrings name other things as Sphinx does; here the name is enough."""
    return _ROLE.sub(r"<code>\1</code>", html)


def on_post_page(output: str, page: Page, config: Any) -> str:  # noqa: ARG001
    """No page asks another host for anything: the stand-in for workers is ours."""
    place = posixpath.relpath("assets/file-worker.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace("https://unpkg.com/iframe-worker/shim", place)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:  # noqa: ARG001
    """The page for addresses that lead nowhere, too."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "assets/file-worker.js")
