"""A server of files on this machine that can misbehave in the ways that servers do."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.waiting import join


@dataclass
class Site:
    """Its files by path, how it gives them, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the connections to come are cut, one each."""
    chunked: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    """Instead of what it would say of the size of what it sends."""
    redirects: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str | None, str | None]] = field(default_factory=list)
    address: str = ""
    shift: int = 0
    """Bytes by which the part it sends differs from the one asked for."""
    hold: threading.Event | None = None
    """Sends half a file and waits for this."""


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    """The site while it is up."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            site.asked.append((self.path, self.headers["Range"], self.headers["Authorization"]))
            if self.path in site.redirects:
                self.send_response(302)
                self.send_header("Location", site.redirects[self.path])
                self.end_headers()
                return
            if self.path not in site.files:
                self.send_error(404)
                return
            content = site.files[self.path]
            start = 0
            if site.ranges and (told := re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")):
                start = int(told[1]) + site.shift
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            for name, value in site.headers.items():
                self.send_header(name, value)
            if not site.chunked and not site.headers:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            content = content[start:]
            if site.cut_after:
                content = content[: site.cut_after.pop(0)]
            elif site.hold is not None:
                self.wfile.write(content[: len(content) // 2])
                site.hold.wait(60)
                return
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.address = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        if site.hold is not None:
            site.hold.set()
        server.shutdown()
        join(thread)
        server.server_close()
