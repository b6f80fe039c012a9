"""The pictures of README.md and docs/: ``python -m docs.screenshots`` makes them all again.

Commands run in a real terminal (a pty), pages open in a real browser; nothing is drawn by hand. Needs the dev extra and
chromium on the path, or named in SMOOTHCERT_CHROMIUM.
"""

from __future__ import annotations

import argparse
import fcntl
import html
import io
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS, LINES = 118, 60
PHONE = {"width": 360, "height": 740}
DESKTOP = {"width": 1200, "height": 900}
SITE = {"width": 1280, "height": 900}  # wide enough for its list of pages

_LIVE = re.compile(r"\x1b\[\?25[lh]|\x1b\[\d*[ABKJG]|\r")  # a bar that redraws itself


def terminal(command: str, directory: Path, seconds: float | None = None) -> str:
    """What a terminal of 118 columns gets from a command, with its colours; cut off so long after its bar appeared."""
    program, *rest = command.split()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    environment.pop("NO_COLOR", None)
    pid, end = pty.fork()
    if pid == 0:
        os.chdir(directory)
        os.execvpe(sys.executable, [sys.executable, "-m", program, *rest], environment)
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began, said = None, b""
    while True:
        try:
            part = os.read(end, 65536)
        except OSError:  # the other end is closed: how Linux says that a terminal's program has ended
            break
        if not part:
            break
        said += part
        if began is None and b"votes/s" in said:
            began = time.monotonic()
        if seconds is not None and began is not None and time.monotonic() - began > seconds:
            os.kill(pid, signal.SIGINT)
            break
    os.waitpid(pid, 0)
    return said.decode("utf-8")


def still(said: str) -> str:
    """The last state of what redraws itself: of the frames of a bar, the last one."""
    lines = []
    for line in said.replace("\r\n", "\n").split("\n"):
        frames = [frame for frame in _LIVE.split(line) if re.sub(r"\x1b\[[\d;]*m", "", frame).strip()]
        if frames:
            lines.append(frames[-1])
        elif not _LIVE.search(line):
            lines.append("")
    return "\n".join(lines).strip("\n")


def as_page(command: str, said: str) -> str:
    """A terminal's contents as a page: rich turns colours into styles."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(said), soft_wrap=True)
    body = console.export_html(theme=MONOKAI, inline_styles=True, code_format="<pre>{code}</pre>")
    return (
        "<!doctype html><meta charset=utf-8><style>body{margin:0;background:#0c0c0c;color:#d9d9d9;display:inline-block}"
        "pre{margin:0;padding:0 18px 16px;font:14px/1.35 'DejaVu Sans Mono',monospace}</style>"
        f"<pre style='padding:16px 18px 6px;color:#8ae234'>$ {html.escape(command)}</pre>{body}"
    )


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser."""
    from playwright.sync_api import sync_playwright

    program = os.environ.get("SMOOTHCERT_CHROMIUM") or shutil.which("chromium")
    if not program:
        sys.exit("no chromium: put one on the path or name it in SMOOTHCERT_CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False)
        yield browser
        browser.close()


def shoot(
    browser: Any,
    page: Path,
    out: Path,
    viewport: dict[str, int],
    *,
    dark: bool = False,
    at: str | None = None,
) -> None:
    """A picture of what a window of this size shows of a page, scrolled to ``at``."""
    context = browser.new_context(viewport=viewport, color_scheme="dark" if dark else "light")
    tab = context.new_page()
    tab.goto(page.as_uri())
    if at is not None:
        tab.locator(at).evaluate("place => place.scrollIntoView()")
    tab.wait_for_timeout(500)
    tab.screenshot(path=str(out))
    context.close()
    print(out.relative_to(ROOT))


def shoot_terminal(
    browser: Any, command: str, directory: Path, out: Path, seconds: float | None = None
) -> None:
    """A picture of a terminal after a command."""
    page = directory / f"{out.stem}.html"
    page.write_text(as_page(command, still(terminal(command, directory, seconds))), encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1100, "height": 200})
    tab.goto(page.as_uri())
    tab.locator("body").screenshot(path=str(out))
    tab.close()
    print(out.relative_to(ROOT))


def main() -> None:
    """Quickstart, what it leaves, the report and the site."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=Path, help="work here, and take a quickstart that is here already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, chromium() as browser:
        work = (options.keep or Path(made)).resolve()
        if not (work / "smoothcert-quickstart" / "certified-accuracy.png").exists():
            terminal("smoothcert quickstart", work)
        for picture in ("certified-accuracy.png", "digits.png"):
            shutil.copy(work / "smoothcert-quickstart" / picture, IMAGES / picture)
        runs = [f"smoothcert-quickstart/digits-sigma{sigma}" for sigma in ("0.25", "0.5")]
        shoot_terminal(browser, "smoothcert certify --help", work, IMAGES / "tour-help.png")
        shoot_terminal(browser, f"smoothcert table {' '.join(runs)}", work, IMAGES / "tour-table.png")
        model = "smoothcert-quickstart/model-sigma0.25"
        bar = f"smoothcert certify {model} --n 5000 --max 100 --out slow"
        shoot_terminal(browser, bar, work, IMAGES / "tour-bar.png", seconds=12)
        mistake = f"smoothcert certify {model} --bound cloper --out again"
        shoot_terminal(browser, mistake, work, IMAGES / "tour-mistake.png")
        terminal(f"smoothcert report {' '.join(runs)} --out report", work)
        report = work / "report" / "index.html"
        shoot(browser, report, IMAGES / "report-desktop.png", DESKTOP)
        shoot(browser, report, IMAGES / "report-dark.png", DESKTOP, dark=True)
        shoot(browser, report, IMAGES / "report-phone.png", PHONE)
        shoot(browser, report, IMAGES / "report-phone-table.png", PHONE, at="#groups")
        site = work / "site"
        build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(site)]
        subprocess.run(build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=True)
        shoot(browser, site / "guarantees.html", IMAGES / "tour-site.png", SITE)
        notebook = site / "notebooks" / "from-training-to-report.html"
        shoot(browser, notebook, IMAGES / "tour-notebook.png", SITE | {"height": 1500})


if __name__ == "__main__":
    main()
