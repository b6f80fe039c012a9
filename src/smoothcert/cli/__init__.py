"""The command line: thin over the library. Commands are in :mod:`smoothcert.cli.commands`."""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cyclopts import App, CycloptsError, Group, Parameter

if TYPE_CHECKING:
    from smoothcert.cli.help_pages import ShortPage

import smoothcert
from smoothcert.cli import console
from smoothcert.cli.commands import (
    COMMANDS,
    FAMILIES,
    GROUPS,
    HELP_ALL,
    Command,
    Exit,
    joined,
    path_of,
    renamed,
)

_HELP = """Certified robustness by randomized smoothing.

Noise is added to an input many times, the model votes, and the votes give a radius inside which no attack can change
the answer. Begin with `smoothcert quickstart`.
"""
_WHERE_NEXT = "Every command explains itself: `smoothcert certify --help`."


_HELP_FLAGS = ["--help", "-h", HELP_ALL]
_PANELS = {
    title: Group(title, sort_key=order, show=bool(title))
    for order, title in enumerate((*GROUPS, "Commands", "Options"))
}


def make_app(words: Sequence[str] = (), page: ShortPage | None = None) -> App:
    """The application for a command line, of which no more is imported than its command.

    ``page`` prints the help of that command.
    """
    plain = Parameter(negative="")  # no --no-… and no --empty-… but where an option says so
    app = App(
        name="smoothcert",
        help=_HELP,
        help_epilogue=None if words else _WHERE_NEXT,
        version=smoothcert.__version__,
        version_format="plaintext",
        help_format="markdown",
        help_flags=_HELP_FLAGS,
        help_formatter=page,
        default_parameter=plain,
        group_commands=_PANELS["Options"],
        suppress_keyboard_interrupt=False,
        console=console.help_console(),
        error_console=console.stderr(),
        error_formatter=_mistake_panel,
    )
    families: dict[str, App] = {}
    for title, commands in GROUPS.items():
        group = _PANELS[title]
        for position, (path, command) in enumerate(commands.items()):
            family, _, name = path.rpartition(" ")
            parent = app
            if family:
                if family not in families:
                    families[family] = App(
                        name=family,
                        help=FAMILIES[family],
                        group=group,
                        group_commands=_PANELS["Commands"],
                        help_flags=_HELP_FLAGS,
                        sort_key=position,
                        show=bool(title),
                    )
                    app.command(families[family])
                parent = families[family]
            parent.command(
                f"smoothcert.cli.{command.where}",
                name=name,
                help=command.summary if path != path_of(words) else _text_of(command, page),
                group=group if parent is app else None,
                sort_key=position,
                show=bool(title) or None,
                **({} if command.usage is None else {"usage": f"Usage: {app.name[0]} {command.usage}"}),
            )
    app.command(
        "smoothcert.cli.help_pages:install_completion",
        name="--install-completion",
        help="Let Tab complete commands and options in this shell",
        sort_key=99,
    )
    return app


def _text_of(command: Command, page: ShortPage | None) -> str:
    module, _, name = command.where.partition(":")
    target = getattr(import_module(f"smoothcert.cli.{module}"), name)
    function = target.default_command if isinstance(target, App) else target
    from smoothcert.cli.help_pages import short_text

    text = (function.__doc__ or "").partition("Parameters\n    ---")[0]
    return short_text(text) if page is not None else "\n".join(line.strip() for line in text.splitlines())


def _mistake_panel(error: CycloptsError) -> Any:
    from smoothcert.cli.help_pages import mistake_panel

    return mistake_panel(error)


def parsed(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """A command line in today's words, lists with commas; and what of it has a new name."""
    words, changes = renamed(tokens)
    if words[:1] == ["data"] and all(word.startswith("-") and word not in _HELP_FLAGS for word in words[1:2]):
        words.insert(1, "list")
    if words[:1] == ["attack"] and "--lines" in words:
        words = ["attack-lines", *(word for word in words[1:] if word != "--lines")]
    return joined(words), changes


def _short_page(words: Sequence[str]) -> ShortPage | None:
    """What prints the short help page, where that is asked for."""
    path = path_of(words)
    if path is None or HELP_ALL in words or not {"--help", "-h"} & {*words}:
        return None
    from smoothcert.cli.help_pages import ShortPage

    return ShortPage(COMMANDS[path].everyday)


def main(tokens: list[str] | None = None) -> None:
    """Run the command line; it ends with one of the codes of :class:`Exit`."""
    console.show_warnings()
    given = sys.argv[1:] if tokens is None else tokens
    with console.log_format(parsed(given)[0]) as as_json:
        code = _run(given, as_json)
        if as_json:
            console.end_event(code)
    if code:
        sys.exit(code)


def _run(given: Sequence[str], as_json: bool) -> int:
    from smoothcert.errors import SmoothcertError
    from smoothcert.files import check_platform

    words, changes = parsed(given)
    path = path_of(words)
    try:
        check_platform()
        with console.interruptible(), console.guarded_output():
            if changes:
                console.warn(f"{'; '.join(changes)}: the earlier spelling still works")
            page = _short_page(words)
            app = make_app(words, page)
            app(words, exit_on_error=False, print_error=not as_json, result_action="return_value")
            if page is not None:
                page.finish(console.help_console())
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except CycloptsError as error:
        if as_json:
            from smoothcert.cli.help_pages import in_words

            console.report_mistake(in_words(error), exit_code=Exit.MISTAKE)
        return Exit.MISTAKE
    except SmoothcertError as error:
        console.report_mistake(str(error), exit_code=Exit.MISTAKE)
        return Exit.MISTAKE
    except BrokenPipeError:
        # The reader of a pipe has seen enough (`… | head`); closing quietly is what it expects.
        console.give_up_output()
        return Exit.DONE
    except (MemoryError, RecursionError) as error:
        console.report_mistake(
            f"{type(error).__name__}: what was asked, or what a file claims, needs more memory or depth than there is",
            exit_code=Exit.MISTAKE,
        )
        return Exit.MISTAKE
    except OSError as error:
        console.give_up_output()
        # A file that was opened by its descriptor has that number for its name.
        name = None if isinstance(error.filename, int) else error.filename
        console.report_mistake(
            f"{name or 'input or output'}: {error.strerror or error}", exit_code=Exit.MISTAKE
        )
        return Exit.MISTAKE
    except KeyboardInterrupt:
        resumes = path is not None and COMMANDS[path].resumes and "--dry-run" not in words
        again = f"; rerun the same command to resume: {shlex.join(['smoothcert', *given])}" if resumes else ""
        console.report_mistake(f"interrupted{again}", exit_code=Exit.INTERRUPTED)
        return Exit.INTERRUPTED
    except Exception as error:
        if not as_json:
            raise
        console.report_mistake(
            f"{type(error).__name__}: {error}", exit_code=Exit.BUG, traceback=traceback.format_exc()
        )
        return Exit.BUG
    return Exit.DONE
