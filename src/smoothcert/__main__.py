"""The command `smoothcert`, and `python -m smoothcert`, which is what torchrun starts."""

import os
import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is still being imported ends it with one line."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, _end)
    # Before torch is loaded: threads that wait for each other let others work instead of spinning, which on a busy
    # machine is many times faster.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from smoothcert.cli import main as run

    if ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(*_: object) -> None:
    # No exception: one that is raised inside an import may be swallowed there, or come out as another.
    os.write(2, b"smoothcert: interrupted\n")
    os._exit(130)


if __name__ == "__main__":
    main()
