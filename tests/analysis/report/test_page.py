"""The file: one, whole, with nothing in it that the data could have written."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from smoothcert.analysis.report import ReportOptions, write_report
from smoothcert.analysis.report.page import embedded_json
from tests.analysis.report.made_reports import HOSTILE, statement, toy_records, toy_run


def written(tmp_path: Path, **options: Any) -> str:
    run = toy_run(tmp_path / "run", toy_records(), statement(**options))
    report = write_report([run], tmp_path / "report", ReportOptions())
    assert report.path == tmp_path / "report" / "index.html"
    content = report.path.read_bytes()
    assert report.size == len(content)
    return content.decode()


def test_the_policy_allows_this_script_and_no_network(tmp_path):
    page = written(tmp_path)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "innerHTML" not in page
    assert "insertAdjacentHTML" not in page


def test_text_from_the_data_stays_text(tmp_path):
    data = {"name": HOSTILE, "sha256": "b" * 64, "inputs": 40, "skip": 1}
    page = written(tmp_path, data=data, bound=HOSTILE)
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert "<img" not in page
    (embedded,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(embedded)["groups"][0]["name"] == HOSTILE


def test_embedded_json_survives_everything():
    texts = ["</script>", "<!--", "a & b", "\u2028\u2029", "{{script}}", "\udcff", "é💡", '"\\']
    embedded = embedded_json(texts)
    assert json.loads(embedded) == texts
    assert not re.search("[<>&\u2028\u2029]", embedded)
    embedded.encode("ascii")


def test_the_page_states_its_size_and_its_statement_without_scripts(tmp_path):
    report = write_report([toy_run(tmp_path / "run", toy_records())], tmp_path / "report", ReportOptions())
    page = report.path.read_text()
    (stated,) = re.findall(r'name="page-size" content="(\d+)"', page)
    assert int(stated) == len(page.encode())
    (fallback,) = re.findall(r"<noscript>(.*?)</noscript>", page, re.DOTALL)
    (headline,) = report.headlines
    assert re.match(r"run: .*\d %", headline)
    assert f"<p>{html.escape(headline)}</p>" in fallback


def test_places_named_in_the_data_are_left_alone(tmp_path):
    run = toy_run(tmp_path / "{{script}}", toy_records())
    page = write_report([run], tmp_path / "report", ReportOptions()).path.read_text()
    assert re.search(r"<title>[^<]*\{\{script\}\}</title>", page)
