"""Earlier names of commands and options: they keep working, are not shown, and one line names the new ones."""

from __future__ import annotations

import re
from collections.abc import Sequence

from smoothcert.hints import SPELLINGS

_RENAMED = """
methods = recipes --methods
plan = certify --dry-run
diagnose = attack --lines
serve-key = serve key
fit-noise = fit noise
sensitivity = fit features
fit-levels = experimental levels
merge = run merge
recertify = run recertify
remember = run remember
publish = run publish
import-log = run import
export-log = run export
"""
COMMANDS = {
    old: tuple(new.split()) for old, new in (line.split(" = ") for line in _RENAMED.split("\n")[1:-1])
}
"""What is typed today, word by word, for each earlier name."""

_EVERYWHERE = {f"--{field}": f"--{option}" for field, option in SPELLINGS.items()}
_OF_COMMANDS: dict[tuple[str, ...], dict[str, str]] = {
    ("train",): {"--max": "--train-inputs"},
    ("fit", "noise"): {"--route": "--fit-by", "--batch": "--step-inputs", "--n0": "--step-samples"},
}
_HAD_FORMAT_JSON = (("certify", "--dry-run"), ("verify",), ("doctor",))
"""Commands whose ``--format json`` is ``--json``."""


def renamed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line in today's spelling, and what was renamed: ``plan → certify --dry-run``."""
    if not words:
        return [], []
    command = COMMANDS.get(words[0], tuple(words[:1]))
    changes = [_change(words[0], " ".join(command))] if command != (words[0],) else []
    ahead = list(words[1:])
    if changes == [] and ahead and (words[0], ahead[0]) in _OF_COMMANDS:
        command = (words[0], ahead.pop(0))
    options = _EVERYWHERE | _OF_COMMANDS.get(command, {})
    as_json = command in _HAD_FORMAT_JSON or (command[0] == "certify" and "--dry-run" in ahead)
    made = list(command)
    while ahead:
        word = ahead.pop(0)
        if word == "--":
            return [*made, word, *ahead], changes
        option, equals, value = word.partition("=")
        if as_json and option == "--format":
            value = value if equals else ahead.pop(0) if ahead else ""
            if value in ("json", "text"):
                made += ["--json"] if value == "json" else []
                changes.append(_change(f"--format {value}", "--json" if value == "json" else "the default"))
                continue
            made += [option, value]
        elif option in options:
            changes.append(_change(option, options[option]))
            made.append(f"{options[option]}{equals}{value}")
        else:
            made.append(word)
    return made, changes


def _change(before: str, after: str) -> str:
    return f"`{before}` is now `{after}`"


_LISTS = {"--radii", "--sigmas", "--seeds", "--sigma-levels", "--init", "--milestones", "--input-shape"}
"""Options that take several numbers."""
_NUMBERS = re.compile(r"[0-9.][0-9.,eE+-]*")


def joined(words: Sequence[str]) -> list[str]:
    """The words of a command with ``--radii 0 0.5`` written as ``--radii 0,0.5``: both mean the same everywhere.

    A number after a list with commas isn't part of it: it may be the name of a run.
    """
    made: list[str] = []
    ahead = list(words)
    while ahead:
        word = ahead.pop(0)
        if word == "--":
            return [*made, word, *ahead]
        option, equals, value = word.partition("=")
        if option not in _LISTS or not (equals or ahead):
            made.append(word)
            continue
        value = value if equals else ahead.pop(0)
        listed = "," in value.rstrip(",")
        while ahead and _NUMBERS.fullmatch(ahead[0]) and (value.endswith(",") or not listed):
            value = f"{value.removesuffix(',')},{ahead.pop(0)}"
        made += [option, value]
    return made
