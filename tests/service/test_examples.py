"""The examples that run a server: what they say to `smoothcert serve` is what it knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smoothcert.commands import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.mark.parametrize("name", ["smoothcert.service", "Containerfile"])
def test_every_option_is_one_of_the_servers(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["serve", "--help-all"])
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    text = (EXAMPLES / name).read_text()
    begin = text.index("ExecStart=") if name.endswith("service") else text.index("ENTRYPOINT")
    told = text[begin:] if name == "Containerfile" else re.sub(r"\\\n", " ", text[begin:]).splitlines()[0]
    options = set(re.findall(r"--[a-z][a-z-]+", told))
    assert options, "it gives some"
    assert options <= known, f"unknown to serve: {sorted(options - known)}"
