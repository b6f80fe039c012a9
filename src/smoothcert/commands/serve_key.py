"""`smoothcert serve-key`: a new key for a caller of a server."""

from __future__ import annotations

import sys
from pathlib import Path

from smoothcert.commands.options import OutputOptions


def serve_key(
    name: str,
    *,
    api_keys: Path,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Make an API key for a caller of `smoothcert serve`: printed once, kept as a hash.

    Example: `smoothcert serve-key alice --api-keys keys.txt`

    Parameters
    ----------
    name
        Whose it is: letters, digits, dots, - and _.
    api_keys
        The file with a line for each key, its hash alone; made if missing. To withdraw a key, delete its line and
        restart the server.
    """
    from smoothcert.commands.console import note
    from smoothcert.service.keys import new_key

    key = new_key(api_keys, name)
    note(f"the key of {name}, which is shown this once; {api_keys} has its hash alone", output.silent)
    sys.stdout.write(key + "\n")
