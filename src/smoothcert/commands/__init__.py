"""The command line: one file per command, each a thin layer over the library."""

from __future__ import annotations

import sys
from importlib import import_module

from cyclopts import App, CycloptsError

import smoothcert
from smoothcert.commands.console import report_mistake, show_warnings

COMMANDS = ("quickstart", "train", "certify", "predict", "table", "plot", "import-log", "export-log")

_HELP = """Certified robustness by randomized smoothing.

Noise is added to an input many times, the model votes, and the votes give a radius inside which no attack can
change the answer. Start with `smoothcert quickstart`; then `train`, `certify`, `table` and `plot`.
Every command explains itself: `smoothcert certify --help`.
"""


def make_app() -> App:
    """The application. Command modules import the library inside their functions, so that help comes at once."""
    app = App(
        name="smoothcert",
        help=_HELP,
        version=smoothcert.__version__,
        help_format="markdown",
        suppress_keyboard_interrupt=False,
    )
    for position, name in enumerate(COMMANDS):
        function = name.replace("-", "_")
        module = import_module(f"smoothcert.commands.{function}")
        app.command(getattr(module, function), name=name, sort_key=position)
    return app


def main(tokens: list[str] | None = None) -> None:
    """Run the command line. Exit codes: 0 done, 1 a bug, 2 a mistake in what was asked, 130 interrupted."""
    from smoothcert.errors import SmoothcertError

    show_warnings()
    try:
        make_app()(tokens, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        sys.exit(2)
    except SmoothcertError as error:
        report_mistake(str(error))
        sys.exit(2)
    except BrokenPipeError:
        # The reader of a pipe has seen enough (`… | head`); closing quietly is what it expects.
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        report_mistake(f"{error.filename or 'input or output'}: {error.strerror or error}")
        sys.exit(2)
    except KeyboardInterrupt:
        report_mistake("interrupted; give the same command again to go on where it stopped")
        sys.exit(130)
