"""The page: payload, style and script in one file that asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from smoothcert.errors import OutputError
from smoothcert.files import write_atomically
from smoothcert.plain_text import shown_name
from smoothcert.report.payload import ReportOptions, make_payload
from smoothcert.runs import read_run

FILE_NAME = "index.html"
_SCRIPTS = ("dom.js", "curves.js", "figures.js", "compare.js", "explorer.js", "page.js")
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


@dataclass(frozen=True)
class WrittenReport:
    """The file, its size in bytes, and the headline of every run."""

    path: Path
    size: int
    headlines: tuple[str, ...]


def write_report(paths: Sequence[Path], out: Path, options: ReportOptions) -> WrittenReport:
    """Read the runs and write ``out``/index.html; of their votes no more is decoded than is shown."""
    names = unique_names(paths)
    runs = [replace(read_run(path), alias=name) for path, name in zip(paths, names)]
    payload = make_payload(runs, options, out)
    page = render_page(payload)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{out} can't be made: {error.strerror}; choose another --out") from None
    target = out / FILE_NAME
    write_atomically(target, page)
    return WrittenReport(target, len(page), tuple(headline_lines(payload)))


def render_page(payload: dict[str, Any]) -> bytes:
    """The whole file; it states its own size."""
    first, *more = (run["name"] for group in payload["groups"] for run in group["runs"])
    title = f"Certified robustness: {first}" + (f" and {len(more)} more" if more else "")
    script = "'use strict';\n(function () {\n" + "\n".join(_asset(name) for name in _SCRIPTS) + "})();\n"
    parts = {
        "policy": content_policy(script),
        "title": html.escape(title),
        "style": _filled(_asset("page.css"), {"dark": _asset("dark.css")}),
        "statements": "".join(f"<p>{html.escape(line)}</p>" for line in headline_lines(payload)),
        "data": embedded_json(payload),
        "script": script,
    }
    template, size, page = _asset("page.html"), 0, b""
    # The number's own length changes the size by a few bytes: three rounds settle it.
    for _ in range(3):
        text = _filled(template, {**parts, "size": str(size)})
        page = text.encode(errors="replace")  # a folder's name may be no valid text
        size = len(page)
    return page


def content_policy(script: str) -> str:
    """Nothing may be fetched, and no script runs but this one."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )


def embedded_json(value: Any) -> str:
    """JSON that can't end the element it stands in, whatever its texts say."""
    # In ASCII, which escapes U+2028, U+2029 and halves of surrogate pairs on the way.
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return re.sub("[<>&]", lambda character: _UNSAFE[character[0]], text)


def headline_lines(payload: dict[str, Any]) -> Iterable[str]:
    """Every run's name and headline, one line each."""
    for group in payload["groups"]:
        for run in group["runs"]:
            statement = run["statement"]
            yield f"{run['name']}: {statement['lead']}{statement['figure']}{statement['rest']}"


def unique_names(paths: Sequence[Path]) -> list[str]:
    """The directories' names; those that several share are told apart by their parent or a number."""
    names = [shown_name(path.resolve().name or str(path)) for path in paths]
    longer = [f"{shown_name(path.resolve().parent.name)}/{name}" for path, name in zip(paths, names)]
    names = [long if names.count(name) > 1 else name for name, long in zip(names, longer)]
    return [
        name if names.count(name) == 1 else f"{name} ({names[:place].count(name) + 1})"
        for place, name in enumerate(names)
    ]


def _filled(template: str, parts: dict[str, str]) -> str:
    """In one pass: text from the data that looks like a place is left alone."""
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], template)


def _asset(name: str) -> str:
    return (files("smoothcert.report") / "assets" / name).read_text(encoding="utf-8")
