"""A place that holds the published files under their names, and the requests that it is sent."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from http.client import HTTPResponse
from typing import IO, Any, cast
from urllib import request
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit

from smoothcert.errors import InvalidValueError

_SECONDS = 30.0  # that a server may be silent


@dataclass(frozen=True)
class Mirror:
    """An http or https folder. Its address is shown without ``user:password@``, which is sent to it alone."""

    address: str
    credentials: str | None = field(default=None, repr=False)

    def address_of(self, name: str) -> str:
        """Where it has a file."""
        return self.address + quote(name)

    def ask(self, name: str, start: int) -> HTTPResponse:
        """The answer to a request for a file from byte ``start`` on; proxies are those of the environment."""
        asked = request.Request(self.address_of(name), headers={"Accept-Encoding": "identity"})
        if start:
            asked.add_header("Range", f"bytes={start}-")
        if self.credentials is not None:
            # Not sent on to another host by a redirect.
            asked.add_unredirected_header("Authorization", f"Basic {self.credentials}")
        return cast(HTTPResponse, _opener().open(asked, timeout=_SECONDS))


def read_mirror(text: str) -> Mirror:
    """``https://HOST/FOLDER``; a mistake in it is told without repeating what may be a password."""
    try:
        parts = urlsplit(text.strip())
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        raise InvalidValueError("a --mirror can't be read: write https://HOST/FOLDER") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidValueError(
            f"a --mirror must be an http or https address, got the scheme {parts.scheme!r}: write https://HOST/FOLDER, "
            "or copy files that are on this machine into the data directory"
        )
    if parts.query or parts.fragment:
        raise InvalidValueError(
            f"the --mirror at {parts.hostname} has a ? or #: write https://HOST/FOLDER, file names are added to it"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = quote(parts.path.rstrip("/"), safe="/%:@~!$&'()*+,;=")
    user = None
    if parts.username is not None or parts.password is not None:
        pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
        user = base64.b64encode(pair.encode()).decode()
    return Mirror(f"{parts.scheme}://{host}{port}{path}/", user)


class _NoOtherScheme(request.HTTPRedirectHandler):
    """Follows a redirection within a scheme, or from http to https."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> request.Request | None:
        """The next request; HTTPError where it would leave the scheme."""
        if urlsplit(newurl).scheme not in {"https", req.type}:
            raise HTTPError(req.full_url, code, msg, headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> request.OpenerDirector:
    """Knows http and https and nothing else: urllib's own would open files and ftp, too."""
    opener = request.OpenerDirector()
    for handler in (
        request.ProxyHandler(),
        request.HTTPHandler(),
        request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        _NoOtherScheme(),
    ):
        opener.add_handler(handler)
    return opener
