"""`smoothcert --install-completion`: Tab completes commands and options, after the user has agreed to the change."""

from __future__ import annotations

import sys
from typing import Literal


def install_completion(shell: Literal["bash", "zsh", "fish"] | None = None, *, yes: bool = False) -> None:
    """Let Tab complete commands and options in this shell.

    Parameters
    ----------
    shell
        bash, zsh or fish (default: the one that this runs in).
    yes
        Change the files without asking.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell
    from cyclopts.completion.install import get_default_completion_path

    from smoothcert.cli import make_app
    from smoothcert.cli.console import note
    from smoothcert.errors import InvalidValueError

    try:
        chosen = shell or detect_shell()
    except ShellDetectionError:
        raise InvalidValueError("--shell is missing: the shell is unknown; give bash, zsh or fish") from None
    app = make_app()
    script = get_default_completion_path(chosen, app.name[0])
    startup = {"bash": "~/.bashrc", "zsh": "~/.zshrc"}.get(chosen)
    changes = f"This writes {script}"
    if startup is not None:
        changes += f" and adds a line to {startup} that loads it, unless it is there"
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidValueError(f"{changes}. Add --yes to agree")
        note(f"{changes}.")
        if input("Change these files? [y/N] ").strip().lower() not in ("y", "yes"):
            note("nothing was changed")
            return
    app.install_completion(shell=chosen)
    print(f"{script}: completion for {chosen}; it works in shells that are started from now on")
