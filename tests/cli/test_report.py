"""certify → report on digits: the file, what is printed, and mistakes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smoothcert.cli import main
from tests.conftest import BuildOnce


@pytest.fixture(scope="module")
def run(digits_model: Path, build_once: BuildOnce) -> Path:
    words = ["certify", str(digits_model), "--n", "1000", "--max", "20", "--every", "3", "--quiet"]
    return build_once("report-run", lambda out: main([*words, "--out", str(out)]))


def refusal(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    with pytest.raises(SystemExit) as caught:
        main(["report", *(str(word) for word in words)])
    assert caught.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def embedded(page: Path) -> dict[str, object]:
    text = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    found: dict[str, object] = json.loads(text)
    return found


def test_a_page_with_pictures_found_through_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["report", str(run), "--radius", "0.25", "--out", str(tmp_path / "page")])
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("ℓ2", " 0.25 ", " 99 %"))
    assert f"{tmp_path / 'page' / 'index.html'}:" in shown.splitlines()[-1]
    (group,) = embedded(tmp_path / "page" / "index.html")["groups"]  # type: ignore[misc, attr-defined]
    assert group["data"]["kind"] == "pictures"
    assert len(group["data"]["inputs"]) == 20
    assert "smoothcert certify" in group["runs"][0]["provenance"]["command"]


def test_json_and_quiet(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["report", str(run), "--out", str(tmp_path), "--inputs", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert Path(found["page"]) == tmp_path / "index.html"
    assert found["bytes"] == (tmp_path / "index.html").stat().st_size
    assert len(found["headlines"]) == 1
    main(["report", str(run), "--out", str(tmp_path), "--quiet"])
    assert capsys.readouterr().out == ""


def test_mistakes_are_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "`smoothcert report --help`" in refusal(capsys, "--out", tmp_path)
    assert str(tmp_path / "nowhere") in refusal(capsys, tmp_path / "nowhere", "--out", tmp_path)
    assert re.search(r"radius.*-1\.0", refusal(capsys, run, "--radius", "-1", "--out", tmp_path))
    assert "--split" in refusal(capsys, run, "--split", "train", "--out", tmp_path)
    (tmp_path / "file").write_text("")
    message = refusal(capsys, run, "--out", tmp_path / "file")
    assert str(tmp_path / "file") in message
    assert "--out" in message
