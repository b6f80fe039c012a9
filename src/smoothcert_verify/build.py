"""``python -m smoothcert_verify.build OUT.pyz``: the verifier as one file, which any Python from 3.11 on runs.

The same sources give the same bytes; their SHA-256 is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import sys
import zipfile
from pathlib import Path

_START = b"#!/usr/bin/env python3\n"
_MAIN = """import sys

if sys.version_info < (3, 11):
    sys.exit("smoothcert-verify needs Python 3.11 or later, this is " + sys.version.split()[0])
from smoothcert_verify.__main__ import main

sys.exit(main())
"""


def archive() -> bytes:
    """The zip application: the package's sources, and a main module that starts it."""
    folder = Path(__file__).parent
    files = {f"{folder.name}/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}
    content = io.BytesIO(_START)
    content.seek(len(_START))
    with zipfile.ZipFile(content, "a", zipfile.ZIP_DEFLATED) as made:
        for name, source in {"__main__.py": _MAIN.encode(), **files}.items():
            member = zipfile.ZipInfo(name)  # of 1980: no clock goes into the file
            member.compress_type, member.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            made.writestr(member, source)
    return content.getvalue()


def main() -> None:
    """Write it."""
    out, content = _parser().parse_args().out, archive()
    try:
        out.write_bytes(content)
        out.chmod(0o755)
    except OSError as error:
        sys.exit(f"{out} can't be written: {error.strerror}")
    print(f"{hashlib.sha256(content).hexdigest()}  {out}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("smoothcert_verify.build", description="Make the verifier one file.")
    parser.add_argument("out", type=Path, help="the file to write, such as smoothcert-verify.pyz")
    return parser


if __name__ == "__main__":
    main()
