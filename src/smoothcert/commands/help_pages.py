"""Help in two lengths: `--help` shows what most people need, `--help-all` every option.

The short page has the first two paragraphs, the first example, and the first sentence about each everyday option; the
names of the others follow, so that the page doesn't hide that they exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel, InlineText
from rich.console import Console, ConsoleOptions
from rich.markdown import Markdown
from rich.text import Text

HELP_ALL = "--help-all"

_OUTPUT = ("quiet", "json", "log-format")
_DATA = ("data-dir", "skip", "max")
EVERYDAY: dict[str, tuple[str, ...]] = {
    "train": ("dataset", "out", "recipe", "objective", "architecture", "sigma", "noise", "epochs", "batch-size",
              "lr", "max", "data-dir", "device", *_OUTPUT),
    "sweep": ("dataset", "methods", "sigmas", "seeds", "out", "architecture", "epochs", "lr", "n", *_DATA, "device",
              *_OUTPUT),
    "fit-noise": ("model", "out", "init", "dataset", "scale", "max", "data-dir", "device", *_OUTPUT),
    "fit-levels": ("model", "out", "sigma-levels", "level-models", "dataset", "chooser-sigma", "inputs", "votes",
                   "network", "max", "data-dir", "device", *_OUTPUT),
    "certify": ("model", "out", "dataset", "sigma", "noise", "n", "alpha", "bound", "stop", "sigma-search", *_DATA,
                "device", "quiet", "json"),
    "plan": ("model", "dataset", "sigma", "n", "alpha", "stop", "workers", "device", "pilot-inputs",
             "price-per-hour", *_DATA, "format", "quiet"),
    "predict": ("model", "dataset", "sigma", "noise", "n", "alpha", "seed", *_DATA, "device", *_OUTPUT),
    "serve": ("model", "sigma", "n", "alpha", "memory", "host", "port", "api-keys", "deadline", "device", *_OUTPUT),
    "attack": ("run", "model", "radii", "attack", "steps", "copies", "out", "dataset", *_DATA, "device", *_OUTPUT),
    "diagnose": ("model", "out", "dataset", "sigma", "each", "before", *_DATA, *_OUTPUT),
    "verify": ("run", "digest", "replay", "model", "dataset", "data-dir", "format", "quiet"),
}  # fmt: skip
"""Options on the short page of each command that has one; the page of any other has them all."""

_MANY = 4  # choices
_PARAGRAPHS = 2


def wants_all(tokens: Sequence[str]) -> bool:
    """Whether the long page is asked for."""
    return HELP_ALL in tokens


def short_text(text: str) -> str:
    """The beginning of a command's help, and its first example."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    examples = [part for part in paragraphs if part.startswith("Example: ")]
    told = [part for part in paragraphs if not part.startswith(("Example: ", "Then: "))]
    return "\n\n".join([*told[:_PARAGRAPHS], *examples[:1]])


def first_sentence(text: str) -> str:
    """Up to a stop with a capital after it, or the end of the paragraph."""
    paragraph = text.split("\n\n")[0]
    return re.split(r"(?<=[a-z0-9)`\]]\.)\s+(?=[A-Z])", paragraph, maxsplit=1)[0]


class ShortPage(DefaultFormatter):
    """Gathers the everyday options of a command from its panels; :meth:`finish` prints them and names the others."""

    def __init__(self, everyday: Sequence[str]) -> None:
        super().__init__()
        self._everyday = {f"--{name}": place for place, name in enumerate(everyday)}
        self._kept: list[HelpEntry] = []
        self._others: dict[str, list[str]] = {}

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:  # noqa: ARG002
        """Take what the short page needs of a panel."""
        for entry in panel.entries:
            if self._everyday.keys() & {*entry.names}:
                self._kept.append(_shortened(entry))
            else:
                self._others.setdefault(str(panel.title), []).append(entry.display_labels[0])

    def finish(self, console: Console) -> None:
        """Print the options, and the names of the others by group; nothing if no page was asked for."""
        if not self._kept:
            return
        kept = sorted(self._kept, key=lambda entry: min(self._everyday.get(name, 99) for name in entry.names))
        panel = HelpPanel(format="parameter", title="What most people need", entries=kept)
        super().__call__(console, console.options, panel)
        if self._others:
            console.print(Text.assemble("More, explained by ", (HELP_ALL, "bold"), ":"))
        for title, names in self._others.items():
            heading = re.sub(r" \(.*", "", title)
            console.print(Text.assemble((f"  {heading}: ", "dim"), " ".join(names)))


def _shortened(entry: HelpEntry) -> HelpEntry:
    changes: dict[str, Any] = {}
    told = getattr(entry.description, "primary_renderable", None)
    if isinstance(told, Markdown):
        text = first_sentence(told.markup)
        changes["description"] = InlineText.from_format(text, format="markdown")
        if entry.choices is not None and (
            len(entry.choices) > _MANY or all(one in text for one in entry.choices)
        ):
            changes["choices"] = None
    if entry.default == "False":  # every switch's
        changes["default"] = None
    return entry.copy(**changes)
