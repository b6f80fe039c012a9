"""The commands: where each is, what it is for in a line, and which of its options the short help page explains.

Nothing of a command is imported until it runs or explains itself. Earlier names keep working,
are not shown, and one line names the new ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from smoothcert.plain_text import SPELLINGS

HELP_ALL = "--help-all"
_DATA = ("data-dir", "every", "max")


class Exit(IntEnum):
    """What the exit code of a command says (docs/scripts.md)."""

    DONE = 0
    BUG = 1
    MISTAKE = 2
    """In the command or a file."""
    CONTRADICTED = 3
    """attack: an input was broken closer than it is certified."""
    BROKEN = 4
    """verify: results that don't follow from their votes; doctor: a promise that fails here."""
    NOT_RECOMPUTED = 5
    """verify: answers that couldn't be recomputed from votes."""
    INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    """A command: ``where`` is MODULE:FUNCTION within this package."""

    where: str
    summary: str
    everyday: tuple[str, ...] = ()
    """Options of the short page, in its order; all of them where none are named."""
    usage: str | None = None
    resumes: bool = False
    """Whether the same command, given again, goes on where it was stopped."""


GROUPS: dict[str, dict[str, Command]] = {
    "Start": {
        "quickstart": Command(
            "quickstart:quickstart", "Train, certify and draw small networks, in a minute", resumes=True
        ),
        "data list": Command("catalogue:list_data", "Published data sets, and where they are looked for"),
        "data fetch": Command("catalogue:fetch_data", "Download published data sets and check them", resumes=True),
        "recipes": Command("catalogue:recipes", "Training methods and published settings, or one of them"),
    },
    "Do": {
        "train": Command(
            "train:train",
            "Train a classifier under noise",
            ("dataset", "out", "recipe", "objective", "architecture", "sigma", "epochs", "batch-size", "lr",
             "train-inputs", "data-dir", "device"),
            resumes=True,
        ),
        "certify": Command(
            "certify:certify",
            "Prove how robust a model is, input by input",
            ("model", "out", "dataset", "data-dir", "sigma", "n", "alpha", "max", "device", "dry-run"),
            resumes=True,
        ),
        "predict": Command(
            "predict:predict",
            "The smoothed classifier's classes, without radii",
            ("model", "dataset", "sigma", "n", "alpha", "seed", *_DATA, "device", "out"),
        ),
        "attack": Command(
            "attack:attack",
            "Attack a certified run, to see what the proof is worth",
            ("run", "model", "radii", "attack", "out", "dataset", "every", "max", "device", "lines"),
        ),
        "serve": Command(
            "serve:app",
            "Serve certified predictions over HTTP",
            ("model", "sigma", "n", "alpha", "memory", "host", "port", "api-keys", "device"),
        ),
    },
    "Read": {
        "show": Command("show:show", "One run in full, with what it proves about other inputs"),
        "table": Command("reading:table", "Certified accuracy and average certified radius of runs"),
        "plot": Command(
            "plot:plot", "Draw runs", ("out", "kind", "over", "name", "title", "width")
        ),
        "compare": Command("reading:compare", "Is one run better than another, or is it chance?"),
        "report": Command("reading:report", "One HTML page about runs, to read, check and sign"),
        "verify": Command(
            "verify:verify",
            "Check that a run's results follow from its votes",
            ("run", "digest", "replay", "model", "dataset", "data-dir", "device", "quiet", "json"),
        ),
    },
    "More": {
        "sweep": Command(
            "sweep:sweep",
            "Train and certify methods × σ × seeds, into one table",
            ("dataset", "methods", "sigmas", "seeds", "out", "architecture", "epochs", "lr", "n", *_DATA, "device"),
            resumes=True,
        ),
        "fit noise": Command(
            "fit:fit_noise",
            "Find a σ for each coordinate that makes certified regions large",
            ("model", "out", "init", "dataset", "scale", "max", "data-dir", "device"),
            resumes=True,
        ),
        "fit features": Command("fit:features", "Which features a model relies on, by a fit of its noise"),
        "fit int8": Command(
            "fit:int8",
            "A network in int8: another classifier, faster to certify",
            ("model", "out", "dataset", "sigma", "agreement", "max", "data-dir"),
        ),
        "fit masks": Command(
            "tables:fit_masks",
            "Train a classifier of tables for masks, and choose how many",
            ("estimator", "out", "dataset", "target", "sigmas", "betas", "changes", "move", "data-dir"),
        ),
        "run merge": Command("runs:merge", "One run from the shards of certify --shard"),
        "run recertify": Command("runs:recertify", "Another alpha or bound for votes that were cast before"),
        "run remember": Command("runs:remember", "Make certificates consistent by a region memory", resumes=True),
        "run publish": Command("runs:publish", "Put a finished run into object storage", resumes=True),
        "run import": Command("runs:import_log", "Make a run of a log, or of an exported run"),
        "run export": Command("runs:export_log", "Write a run as one file: TSV or Parquet"),
        "doctor": Command("doctor:doctor", "Check this machine: versions, promises, speed"),
    },
    "": {  # not shown
        "attack-lines": Command(
            "attack:lines",
            "Confidence on the way to an unrestricted adversary",
            ("model", "out", "dataset", "sigma", "each", "before", *_DATA, "quiet", "json"),
            "attack MODEL --lines [OPTIONS]",
        ),
        "experimental levels": Command(
            "levels:fit_levels",
            "Fit a chooser: one classifier whose σ follows the input",
            ("model", "out", "sigma-levels", "level-models", "dataset", "inputs", "network",
             "max", "data-dir", "device"),
            resumes=True,
        ),
    },
}  # fmt: skip

FAMILIES = {
    "data": "List or download published data sets",
    "fit": "Fit noise to a model, read features off a fit, quantise a network, or train for masks",
    "run": "Merge, recertify, remember, publish, import or export runs",
    "experimental": "Works and is tested; not recommended yet",
}
"""Commands that are a word in front of others."""

COMMANDS = {path: command for commands in GROUPS.values() for path, command in commands.items()}


def path_of(words: Sequence[str]) -> str | None:
    """The command that a command line names."""
    for length in (2, 1):
        if (path := " ".join(words[:length])) in COMMANDS:
            return path
    return None


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
_FORMER = {old: tuple(new.split()) for old, new in (line.split(" = ") for line in _RENAMED.split("\n")[1:-1])}
"""What is typed today, word by word, for each earlier name."""

_EVERYWHERE = {f"--{field}": f"--{option}" for field, option in SPELLINGS.items()}
_OF__FORMER: dict[tuple[str, ...], dict[str, str]] = {
    ("train",): {"--max": "--train-inputs"},
    ("fit", "noise"): {"--route": "--fit-by", "--batch": "--step-inputs", "--n0": "--step-samples"},
}
_HAD_FORMAT_JSON = (("certify", "--dry-run"), ("verify",), ("doctor",))
"""Commands whose ``--format json`` is ``--json``."""


def renamed(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words of a command line in today's spelling, and what was renamed: ``plan → certify --dry-run``."""
    if not words:
        return [], []
    command = _FORMER.get(words[0], tuple(words[:1]))
    changes = [_change(words[0], " ".join(command))] if command != (words[0],) else []
    ahead = list(words[1:])
    if changes == [] and ahead and (words[0], ahead[0]) in _OF__FORMER:
        command = (words[0], ahead.pop(0))
    options = _EVERYWHERE | _OF__FORMER.get(command, {})
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
