"""Hooks of mkdocs: generated references, pages from outside docs/, and links that work on GitHub and on the site."""

from __future__ import annotations

import inspect
import posixpath
import re
import sys
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


def python_names() -> str:
    """Every public name by group: mkdocstrings makes the text, and the fields of data classes are a table."""
    sys.path.insert(0, str(ROOT))
    from tests.public_api import GROUPS, doc_of_field, found, members_of

    lines: list[str] = []
    for title, names in GROUPS.items():
        lines += [f"## {title}", ""]
        for name in names:
            value = found(name)
            if not callable(value):
                lines += [f"### {name}", "", f"`{value!r}`", ""]
                continue
            members = list(members_of(value)) if inspect.isclass(value) else []
            shown = [member for kind, member, _ in members if kind != "field"]
            style = "numpy" if "\n----" in inspect.cleandoc(value.__doc__ or "") else "google"
            lines += [f"::: {value.__module__}.{value.__qualname__}", "    options:"]
            lines += [f"      docstring_style: {style}", "      inherited_members: true"]
            lines += [f"      members: [{', '.join(shown)}]" if shown else "      members: false", ""]
            rows = [
                "| " + f"`{member}: {text}`".replace("|", "\\|") + f" | {doc_of_field(value, member)} |"
                for kind, member, text in members
                if kind == "field"
            ]
            lines += ["| field | |", "|---|---|", *rows, ""] if rows else []
    return "\n".join(lines)


def commands() -> str:
    """What ``--help-all`` says of every command."""
    from smoothcert.cli import make_app
    from smoothcert.cli.commands import GROUPS

    lines: list[str] = []
    for title, group in GROUPS.items():
        lines += [f"## {title or 'Others'}", ""]
        for path in group:
            node: Any = make_app(path.split())
            for word in path.split():
                node = node[word]
            text = node.generate_docs(output_format="markdown", heading_level=3).split("\n", 1)[1]
            text = re.sub(r"\bdocs/([\w-]+\.md)\b", r"[\1](\1)", text).replace("[ARGS...]", "…")
            text = re.sub(r"```console\n(\S+)", rf"```console\nsmoothcert {path}", text, count=1)
            lines += [f"### smoothcert {path}", "", text, ""]
    return "\n".join(lines)


_SOURCE = re.compile(r"\[(`[^`\]]+`)\]\((?:\.\./)*(?:tests|src)/[^)]*\)")
"""Links to files that are no pages: on the site their text remains."""

GENERATED = {"reference.md": python_names, "commands.md": commands}
"""Pages with a marker, in place of which the text of a function is put."""
MARKER = "<!-- generated -->"


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:  # noqa: ARG001
    """Links are written relative to a file's place in the repository; here they become relative to its page."""
    if page.file.src_uri in GENERATED:
        markdown = markdown.replace(MARKER, GENERATED[page.file.src_uri]())
    name = page.file.src_uri
    source = next((path for path, known in ELSEWHERE.items() if known == name), f"docs/{name}")

    def moved(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        place = ELSEWHERE.get(target, target.removeprefix("docs/"))
        return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(name) or '.')}{link[3]}"

    return _LINK.sub(moved, _SOURCE.sub(r"\1", markdown))


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
