"""The command line: one file per command, each a thin layer over the library."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from importlib import import_module

from cyclopts import App, CycloptsError, Parameter

import smoothcert
from smoothcert.commands.console import (
    end_event,
    give_up_output,
    guarded_output,
    help_console,
    interruptible,
    log_format,
    report_mistake,
    show_warnings,
    stderr,
)
from smoothcert.commands.help_pages import EVERYDAY, HELP_ALL, ShortPage, short_text, wants_all
from smoothcert.commands.mistakes import in_words, panel
from smoothcert.commands.radii import joined_radii
from smoothcert.commands.written_knobs import written_help

COMMANDS = (
    "quickstart",
    "data",
    "recipes",
    "methods",
    "train",
    "sweep",
    "fit-noise",
    "fit-levels",
    "plan",
    "certify",
    "merge",
    "remember",
    "predict",
    "serve",
    "serve-key",
    "attack",
    "diagnose",
    "sensitivity",
    "show",
    "table",
    "compare",
    "recertify",
    "verify",
    "plot",
    "report",
    "publish",
    "import-log",
    "export-log",
    "doctor",
)

# Their options are made from the objectives' knobs, which need torch.
_LOADED_WHEN_ASKED_FOR = {"train", "sweep"}

# No --no-… and no --empty-… but where an option says so.
_PLAIN = Parameter(negative="")

_HELP = """Certified robustness by randomized smoothing.

Noise is added to an input many times, the model votes, and the votes give a radius inside which no attack can
change the answer. Start with `smoothcert quickstart`; then `train`, `certify`, `table` and `plot`, or a `sweep` of
methods. Every command explains itself: `smoothcert certify --help`.
"""


def make_app(pages: Mapping[str, ShortPage] | None = None) -> App:
    """The application. Command modules import the library inside their functions, so that help is instant.

    ``pages`` print the help of their commands.
    """
    app = App(
        name="smoothcert",
        help=_HELP,
        version=smoothcert.__version__,
        help_format="markdown",
        help_flags=["--help", "-h", HELP_ALL],
        suppress_keyboard_interrupt=False,
        console=help_console(),
        error_console=stderr(),
        error_formatter=panel,
    )
    for position, name in enumerate(COMMANDS):
        function = name.replace("-", "_")
        module = f"smoothcert.commands.{function}"
        told = written_help(module, function)
        page = (pages or {}).get(name)
        app.command(
            f"{module}:{function}"
            if name in _LOADED_WHEN_ASKED_FOR
            else getattr(import_module(module), function),
            name=name,
            sort_key=position,
            help=told if page is None else short_text(told),
            help_formatter=page,
            default_parameter=_PLAIN,
        )
    app.register_install_completion_command(
        help="Let Tab complete commands and options in this shell: bash, zsh or fish."
    )
    return app


def main(tokens: list[str] | None = None) -> None:
    """Run the command line.

    Exit codes: 0 done, 1 a bug, 2 a mistake in the command or a file, 3 a certificate contradicted (attack),
    4 results that don't follow from their votes (verify) or a promise that fails here (doctor),
    5 results that couldn't be recomputed (verify), 130 interrupted.
    """
    show_warnings()
    words = sys.argv[1:] if tokens is None else tokens
    with log_format(words) as as_json:
        code = _run(words, as_json)
        if as_json:
            end_event(code)
    if code:
        sys.exit(code)


def _run(tokens: list[str], as_json: bool) -> int:
    """Run a command; its exit code, with every error told."""
    from smoothcert.errors import SmoothcertError
    from smoothcert.platforms import check_platform

    try:
        check_platform()
        with interruptible(), guarded_output():
            pages = {} if wants_all(tokens) else {name: ShortPage(EVERYDAY[name]) for name in EVERYDAY}
            app, words = make_app(pages), joined_radii(tokens)
            app(words, exit_on_error=False, print_error=not as_json, result_action="return_value")
            for page in pages.values():
                page.finish(help_console())
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except CycloptsError as error:
        if as_json:
            report_mistake(in_words(error), exit_code=2)
        return 2
    except SmoothcertError as error:
        report_mistake(str(error), exit_code=2)
        return 2
    except BrokenPipeError:
        # The reader of a pipe has seen enough (`… | head`); closing quietly is what it expects.
        give_up_output()
        return 0
    except (MemoryError, RecursionError) as error:
        report_mistake(
            f"{type(error).__name__}: what was asked, or what a file claims, needs more memory or depth than there is",
            exit_code=2,
        )
        return 2
    except OSError as error:
        give_up_output()
        # A file that was opened by its descriptor has that number for its name.
        name = None if isinstance(error.filename, int) else error.filename
        report_mistake(f"{name or 'input or output'}: {error.strerror or error}", exit_code=2)
        return 2
    except KeyboardInterrupt:
        report_mistake(
            "interrupted; train, certify and sweep go on where they stopped when given the same command again",
            exit_code=130,
        )
        return 130
    except Exception as error:
        if not as_json:
            raise
        report_mistake(f"{type(error).__name__}: {error}", exit_code=1, traceback=traceback.format_exc())
        return 1
    return 0
