"""What explains a command: help in two lengths, and mistakes with a guess at what was meant.

`--help` has the beginning of a command's text, an example and the first sentence about each everyday option, on at most
40 lines of 80 columns; `--help-all` has everything.

`smoothcert --install-completion`: Tab completes commands and options, after the user has agreed to the change.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, Literal

from cyclopts import CoercionError, CycloptsError, CycloptsPanel
from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel, InlineText
from rich.console import Console, ConsoleOptions
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from smoothcert.cli.commands import HELP_ALL
from smoothcert.registry import closest

_MANY = 4  # choices
_LENGTH = 420  # characters of a command's text
_GUESSED = "Did you mean"
_CHOICES = re.compile(r"Choose from: (.*)\.$", re.DOTALL)


def short_text(text: str) -> str:
    """The beginning of a command's help, and its first example."""
    paragraphs = [" ".join(part.split()) for part in text.strip().split("\n\n")]
    examples = [part for part in paragraphs if part.startswith("Example: ")]
    told = [part for part in paragraphs if not part.startswith(("Example: ", "Then: "))]
    kept, length = told[:1], len(told[0])
    for part in told[1:2]:
        for each in sentences(part):
            if (length := length + len(each)) > _LENGTH:
                break
            kept = [*kept, each] if len(kept) == 1 else [kept[0], f"{kept[1]} {each}"]
    return "\n\n".join([*kept, *examples[:1]])


def sentences(text: str) -> list[str]:
    """The sentences of a text's first paragraph: each ends with a stop that has a capital after it."""
    return re.split(r"(?<=[a-z0-9)`\]]\.)\s+(?=[A-Z`])", text.split("\n\n")[0])


class ShortPage(DefaultFormatter):
    """Gathers the everyday options of a command from its panels; :meth:`finish` prints them and where the rest is."""

    def __init__(self, everyday: Sequence[str]) -> None:
        super().__init__()
        self._everyday = {f"--{name}": place for place, name in enumerate(everyday)}
        self._kept: list[HelpEntry] = []
        self._groups: dict[str, int] = {}

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Take what the short page needs of a panel."""
        if panel.format == "command":
            super().__call__(console, options, panel)
            return
        for entry in panel.entries:
            if not self._everyday or self._everyday.keys() & {*entry.names}:
                self._kept.append(_shortened(entry))
            else:
                heading = re.sub(r" \(.*", "", str(panel.title))
                self._groups[heading] = self._groups.get(heading, 0) + 1

    def finish(self, console: Console) -> None:
        """Print the options, and which kinds there are of others; nothing if no page was asked for."""
        if self._kept:
            if self._everyday:
                self._kept.sort(key=lambda entry: min(self._everyday.get(name, 99) for name in entry.names))
            super().__call__(
                console, console.options, HelpPanel(format="parameter", title="Options", entries=self._kept)
            )
        if self._groups:
            count = sum(self._groups.values())
            kinds = "; ".join(name for name in self._groups if name not in ("Parameters", "Output"))
            told = f"{count} more options" if not kinds else f"{count} more options ({kinds})"
            console.print(Text.assemble(f"{told}: ", (HELP_ALL, "bold")))


def _shortened(entry: HelpEntry) -> HelpEntry:
    changes: dict[str, Any] = {}
    told = getattr(entry.description, "primary_renderable", None)
    if isinstance(told, Markdown):
        text = sentences(told.markup)[0]
        changes["description"] = InlineText.from_format(text, format="markdown")
        if entry.choices is not None and (
            len(entry.choices) > _MANY or all(choice in text for choice in entry.choices)
        ):
            changes["choices"] = None
    if entry.default == "False":  # every switch's
        changes["default"] = None
    return entry.copy(**changes)


def in_words(error: CycloptsError) -> str:
    """The parser's message; where a value is none of the choices and it has no guess, the one that may be meant."""
    message = str(error)
    listed = _CHOICES.search(message)
    if not isinstance(error, CoercionError) or error.token is None or listed is None or _GUESSED in message:
        return message
    guesses = closest(error.token.value, re.findall(r'"([^"]+)"', listed[1]))
    return f'{message} {_GUESSED} "{guesses[0]}"?' if guesses else message


def mistake_panel(error: CycloptsError) -> Panel:
    """As it is shown; the parser's own colours where there is nothing to add."""
    words = in_words(error)
    return CycloptsPanel(error if words == str(error) else words)


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
