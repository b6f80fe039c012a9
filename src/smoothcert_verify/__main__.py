"""``python -m smoothcert_verify RUN``: what ``smoothcert verify RUN`` answers, where there is nothing but Python."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from smoothcert_verify.reading import RunError
from smoothcert_verify.report import seen
from smoothcert_verify.run import verify_run

_CANT_BE_READ, _INTERRUPTED = 2, 130
_EXIT_CODES = """exit codes:
  0  everything was recomputed and follows
  4  something doesn't follow: the inputs are named
  5  there are answers that couldn't be recomputed: a memory's, an imported log's, a theorem that isn't known here
  2  a mistake in the command, or a run that can't be read"""


def main(words: Sequence[str] | None = None) -> int:
    """Verify the run that is named, print what was found, and give the exit code."""
    parser = argparse.ArgumentParser(
        prog="smoothcert-verify",
        description="Check that a run's every class, radius and abstention follows from its votes and its plan.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", help="run directory of certify, run recertify, run remember or run import")
    parser.add_argument("--digest", help="expected SHA-256 of the results; any other is a problem")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with every problem")
    parser.add_argument("--format", choices=("text", "json"), help=argparse.SUPPRESS)  # before --json
    parser.add_argument("--memory", type=Path, help="SQLite file of the region memory that answered")
    parser.add_argument("--quiet", action="store_true", help="print problems only")
    options = parser.parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _verify(options)
    except RunError as error:
        message = str(error)
    except (MemoryError, RecursionError) as error:
        message = f"{type(error).__name__}: what a file claims needs more memory or depth than there is"
    except BrokenPipeError:
        # The reader of a pipe has seen enough (`… | head`); the interpreter would complain as it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        message = f"{error.filename or 'input or output'}: {error.strerror or error}"
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    print(f"{parser.prog}: {seen(message)}", file=sys.stderr)
    return _CANT_BE_READ


def _verify(options: argparse.Namespace) -> int:
    if "://" in options.run:
        raise RunError(f"{options.run} is an address: copy the run, or use smoothcert verify")
    report = verify_run(Path(options.run), options.digest, memory=options.memory).report
    if options.json or options.format == "json":
        print(report.as_json())
    else:
        for line, _ in report.as_text(options.quiet):
            print(line)
    sys.stdout.flush()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
