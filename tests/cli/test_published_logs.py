"""Published table rows, reproduced to the printed digit by `import-log` and `table`."""

import csv
import re
from pathlib import Path

import pytest

from smoothcert.cli import main

Rows = list[dict[str, str]]


def radii_of(row: dict[str, str]) -> list[str]:
    return [name for name, value in row.items() if name[:1].isdigit() and value]


@pytest.fixture(
    scope="module",
    params=[1, pytest.param(None, marks=pytest.mark.slow)],
    ids=["one setting", "every setting"],
)
def published(shared, request) -> Rows:
    """Rows of one data set at one noise, or of all of them."""
    with (shared / "peer-logs" / "published.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    settings = list(dict.fromkeys((row["dataset"], row["sigma"]) for row in rows))[: request.param]
    return [row for row in rows if (row["dataset"], row["sigma"]) in settings]


@pytest.fixture(scope="module")
def runs(shared, published, build_once) -> list[Path]:
    def build(folder: Path) -> None:
        for row in published:
            stated = ["--sigma", row["sigma"], "--method", row["method"], "--dataset", row["dataset"]]
            out = folder / row["file"].removesuffix(".tsv.gz")
            main(["run", "import", str(shared / "peer-logs" / row["file"]), *stated, "--out", str(out)])

    folder = build_once(f"published-logs-{len(published)}", build)
    return [folder / row["file"].removesuffix(".tsv.gz") for row in published]


def test_every_published_row_in_one_paper_table(published, runs, capsys):
    radii = max((radii_of(row) for row in published), key=len)
    capsys.readouterr()
    main(["table", *map(str, runs), "--layout", "paper", "--radii", ",".join(radii), "--format", "csv"])
    found = {
        (row["dataset"], row["sigma"], row["method"]): row
        for row in csv.DictReader(capsys.readouterr().out.splitlines())
    }
    assert len(found) == len(published)
    for row in published:
        printed = found[row["dataset"], row["sigma"], row["method"]]
        assert (printed["inputs"], printed["seeds"]) == ("10000", "1")
        assert printed["acr"] == f"{float(row['acr']):.3f}"
        assert [printed[radius] for radius in radii_of(row)] == [row[radius] for radius in radii_of(row)]


def test_the_bold_ones_are_the_best_published(published, runs, capsys):
    capsys.readouterr()
    main(["table", *map(str, runs), "--layout", "paper", "--radii", "0.00,0.50", "--format", "latex"])
    text = capsys.readouterr().out
    for dataset, sigma in {(row["dataset"], row["sigma"]) for row in published}:
        rivals = [row for row in published if (row["dataset"], row["sigma"]) == (dataset, sigma)]
        for row in rivals:
            cells = [f"{float(row['acr']):.3f}", row["0.00"], row["0.50"]]
            columns = [[float(rival[name]) for rival in rivals] for name in ("acr", "0.00", "0.50")]
            marked = [
                rf"\textbf{{{cell}}}" if float(cell) == max(column) else cell
                for cell, column in zip(cells, columns)
            ]
            assert f"{row['method']} & {' & '.join(marked)} \\\\" in text


def test_logs_of_several_seeds_are_pooled(shared, tmp_path, capsys):
    """SmoothMix's Table 5: `import-log --seed` says which logs differ in their seed alone."""

    def imported(eta: int, seed: int) -> str:
        log = shared / "peer-logs" / f"mnist-sigma0.25-smoothmix-eta{eta}.tsv.gz"
        stated = ["--sigma", "0.25", "--method", "smoothmix", "--dataset", "mnist", "--seed", str(seed)]
        main(["run", "import", str(log), *stated, "--out", str(tmp_path / str(seed))])
        return str(tmp_path / str(seed))

    def paper_rows(*runs: str) -> Rows:
        capsys.readouterr()
        main(["table", *runs, "--layout", "paper", "--radii", "0", "--format", "csv"])
        return list(csv.DictReader(capsys.readouterr().out.splitlines()))

    first = imported(eta=1, seed=0)
    (row,) = paper_rows(first, imported(eta=5, seed=1))
    assert (row["method"], row["seeds"]) == ("smoothmix", "2")
    assert float(row["acr_sd"]) > 0
    rows = paper_rows(first, imported(eta=1, seed=7))
    assert [row["seeds"] for row in rows] == ["1", "1"], "one log under two seeds is one model"


def test_a_logs_own_sigmas_are_shown(tmp_path, capsys):
    log = tmp_path / "own.tsv"
    rows = [f"{k}\t0\t0\t0.5\t1\t{sigma}\t0:00:01" for k, sigma in enumerate((0.05, 0.12, 0.3))]
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\tsigma\ttime\n" + "\n".join(rows) + "\n")
    main(["run", "import", str(log), "--sigma", "0.12", "--out", str(tmp_path / "run")])
    lowest_highest_median = r"0\.05\D+0\.3\D+0\.12\b"
    assert re.search(lowest_highest_median, capsys.readouterr().out)
    main(["table", str(tmp_path / "run")])
    assert re.search(lowest_highest_median, capsys.readouterr().err)
