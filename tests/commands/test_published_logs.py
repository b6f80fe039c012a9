"""Published table rows, reproduced to the printed digit by `import-log` and `table`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from smoothcert.commands import main


def test_every_published_row(shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = shared / "peer-logs"
    with (logs / "published.tsv").open(newline="") as file:
        published = list(csv.DictReader(file, delimiter="\t"))
    assert len(published) == 24
    for row in published:
        run = tmp_path / row["file"].removesuffix(".tsv.gz")
        main(["import-log", str(logs / row["file"]), "--sigma", row["sigma"], "--out", str(run)])
        radii = [name for name, value in row.items() if name[:1].isdigit() and value]
        capsys.readouterr()
        main(["table", str(run), "--radii", ",".join(radii), "--format", "csv"])
        (found,) = csv.DictReader(capsys.readouterr().out.splitlines())
        assert found["inputs"] == "10000"
        assert float(found["acr"]) == float(row["acr"]), run.name
        assert [found[radius] for radius in radii] == [row[radius] for radius in radii], run.name
