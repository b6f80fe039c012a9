"""The examples that run a server: what they say to `smoothcert serve` is what it knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smoothcert.commands import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def test_every_option_is_one_of_the_servers(capsys: pytest.CaptureFixture[str]) -> None:
    main(["serve", "--help-all"])
    known = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out))
    service = re.sub(r"\\\n", " ", (EXAMPLES / "smoothcert.service").read_text())
    container = (EXAMPLES / "Containerfile").read_text()
    for words in (
        service[service.index("ExecStart=") :].splitlines()[0],
        container[container.index("ENTRYPOINT") :],
    ):
        options = set(re.findall(r"--[a-z][a-z-]+", words))
        assert options, "it gives some"
        assert options <= known, f"unknown to serve: {sorted(options - known)}"
