"""The command line: one file per command, each a thin layer over the library."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError

import smoothcert
from smoothcert.commands.console import report_mistake, show_warnings

_MODULES = {
    "quickstart": "From nothing to certified digits in about a minute.",
    "train": "Train a classifier under noise.",
    "certify": "Certify a model on a data set, resumably.",
    "predict": "Answer with the smoothed classifier, or abstain.",
    "table": "Certified accuracy and ACR of runs.",
    "plot": "Certified accuracy against radius, as a picture.",
    "import-log": "Turn another project's TSV log into a run.",
    "export-log": "Write a run as the field's TSV log.",
}

_HELP = """Certified robustness by randomized smoothing.

Noise is added to an input many times, the model votes, and the votes give a radius inside which no attack can
change the answer. Start with `smoothcert quickstart`; then `train`, `certify`, `table` and `plot`.
Every command explains itself: `smoothcert certify --help`.
"""


def make_app() -> App:
    """The application; a command's module is imported only when that command is used."""
    app = App(name="smoothcert", help=_HELP, version=smoothcert.__version__, help_format="markdown")
    for name, summary in _MODULES.items():
        function = name.replace("-", "_")
        app.command(f"smoothcert.commands.{function}:{function}", name=name, help=summary)
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
