"""The lowest versions that pyproject.toml admits, as constraints for pip: ``python .github/floors.py [EXTRA ...]``.

``--torch VERSION`` takes another torch than the lowest one, for machines that have only that build.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path


def floors(extras: list[str]) -> dict[str, str]:
    """Lowest version by package, of the dependencies and of these extras; extras that name others are followed."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    optional = project["optional-dependencies"]
    wanted, lines = list(extras), list(project["dependencies"])
    for extra in wanted:
        for line in optional[extra]:
            inner = re.fullmatch(r"smoothcert\[(.*)\]", line)
            wanted += [name for name in inner[1].split(",") if name not in wanted] if inner else []
            lines += [] if inner else [line]
    lowest: dict[str, str] = {}
    for line in lines:
        if match := re.match(r"([\w.-]+)(?:\[.*?\])?>=([\w.]+)", line):
            name, version = match.groups()
            order = [int(part) for part in version.split(".")]
            if name not in lowest or order > [int(part) for part in lowest[name].split(".")]:
                lowest[name] = version
    return lowest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*")
    parser.add_argument("--torch")
    asked = parser.parse_args()
    for name, version in floors(asked.extras).items():
        print(f"{name}=={asked.torch if name == 'torch' and asked.torch else version}")
