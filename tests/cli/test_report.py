"""certify → report on digits: the file, what is printed, and mistakes."""

import json
from pathlib import Path

from smoothcert.cli import main

from .output import names, refusal


def embedded(page: Path) -> dict[str, object]:
    text = page.read_text(encoding="utf-8").partition('id="data">')[2].partition("</script>")[0]
    found: dict[str, object] = json.loads(text)
    return found


def test_a_page_with_pictures_found_through_the_run(digits_run, tmp_path, capsys):
    main(["report", str(digits_run), "--radius", "0.25", "--out", str(tmp_path / "page")])
    shown = capsys.readouterr().out
    assert all(part in shown for part in ("ℓ2", " 0.25 ", " 99 %"))
    assert f"{tmp_path / 'page' / 'index.html'}:" in shown.splitlines()[-1]
    (group,) = embedded(tmp_path / "page" / "index.html")["groups"]  # type: ignore[misc, attr-defined]
    assert group["data"]["kind"] == "pictures"
    assert len(group["data"]["inputs"]) == 20
    assert "smoothcert certify" in group["runs"][0]["provenance"]["command"]


def test_json_and_quiet(digits_run, tmp_path, capsys):
    main(["report", str(digits_run), "--out", str(tmp_path), "--inputs", "3", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert Path(found["page"]) == tmp_path / "index.html"
    assert found["bytes"] == (tmp_path / "index.html").stat().st_size
    assert len(found["headlines"]) == 1
    main(["report", str(digits_run), "--out", str(tmp_path), "--quiet"])
    assert capsys.readouterr().out == ""


def test_mistakes_are_named(digits_run, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for words, out, named in (
        ([], tmp_path, ["smoothcert report --help"]),
        ([tmp_path / "nowhere"], tmp_path, [tmp_path / "nowhere"]),
        ([digits_run, "--radius", "-1"], tmp_path, ["radius", -1.0]),
        ([digits_run, "--split", "train"], tmp_path, ["--split"]),
        ([digits_run], tmp_path / "file", [tmp_path / "file", "--out"]),
    ):
        assert names(refusal(capsys, "report", *words, "--out", out), *named)
