"""``python -m tests.golden``: print the digests, pin them with ``--write``, or choose cases with ``--only NAME``.

``compare OLD_CHECKOUT`` compares votes of real networks; ``make-runs DIR`` makes the stored runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch

from tests.golden.digests import CASES, PINNED, digests


def pin(arguments: list[str]) -> int:
    """Print the digest of every case; with --write, pin them. 1 where one differs from what is pinned."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=pin.__doc__)
    parser.add_argument("--write", action="store_true", help="write digests.json")
    parser.add_argument("--only", action="append", metavar="NAME", help="cases whose name contains NAME")
    parser.add_argument("--fast", action="store_true", help="leave out the slow cases")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    pinned = json.loads(PINNED.read_text(encoding="utf-8")) if PINNED.exists() else {}
    chosen = [
        case
        for case in CASES.values()
        if (not options.only or any(each in case.name for each in options.only))
        and not (options.fast and case.slow)
    ]
    found, differ = {}, 0
    for case in chosen:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory:
            found[case.name] = digests(case, Path(directory))
        state = (
            "new"
            if case.name not in pinned
            else "equal"
            if pinned[case.name] == found[case.name]
            else "DIFFERENT"
        )
        differ += state == "DIFFERENT"
        hashes = " ".join(f"{kind} {value[:16]}" for kind, value in found[case.name].items())
        print(f"{case.name:32} {state:10} {hashes} {time.perf_counter() - began:6.2f} s", flush=True)
    if options.write:
        kept = {name: value for name, value in (pinned | found).items() if name in CASES}
        PINNED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    return int(differ > 0)


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["compare"]:
        from tests.golden.compare import compare

        return compare(arguments[1:])
    if arguments[:1] == ["make-runs"]:
        from tests.golden.make_runs import make_runs

        return make_runs(arguments[1:])
    return pin(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
