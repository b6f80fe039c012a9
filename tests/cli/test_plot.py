"""`smoothcert plot`: every kind from the command line, and options that belong to another kind."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from smoothcert.analysis.plots.drawing import picture
from smoothcert.analysis.plots.kinds import PLOTS, checked, run_labels
from smoothcert.cli import main
from smoothcert.cli import plot as plot_command
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import Run, read_run
from smoothcert.runs.side_files import EpochMetrics, write_epochs

from .output import refusal
from .test_table import RECORDS, make

pytest.importorskip("matplotlib")


@pytest.mark.parametrize(
    "words",
    [
        ["--kind", "accuracy", "--no-band"],
        ["--kind", "envelope"],
        ["--kind", "ablation", "--over", "n"],
        ["--kind", "sigma"],
        ["--kind", "samples"],
        ["--kind", "confidence"],
        ["--kind", "area", "--width", "column"],
        ["--kind", "area", "--dimension", "3"],
    ],
    ids=" ".join,
)
def test_every_kind(tmp_path, words, capsys):
    records = [replace(record, sigma=0.25 * (1 + record.index)) for record in RECORDS]
    runs = [make(tmp_path / f"n{n}", records, n=n) for n in (100, 1000)]
    main(["plot", *map(str, runs), *words, "--out", str(tmp_path / "picture.svg")])
    assert (tmp_path / "picture.svg").stat().st_size > 1000
    assert capsys.readouterr().err == ""


def test_a_title_stands_above_every_kind(tmp_path, monkeypatch):
    """A title makes the picture taller and leaves the rest of it alone."""
    title = "On $x$ _and_ so on"
    drawn: list[list[str]] = []

    def draw(things: list[object], out: Path, width: str, **_: object) -> None:
        with picture(out, 4.0, 3.0) as figure:
            pass
        drawn.append([text.get_text() for text in figure.texts])

    monkeypatch.setattr(plot_command, "_read", lambda *_: [("a", [])])
    for kind in sorted(PLOTS):
        drawn.clear()
        monkeypatch.setitem(
            PLOTS.load(), kind, replace(PLOTS[kind], draw=draw, options=dict(PLOTS[kind].options))
        )
        over = ["--over", "n"] if kind == "ablation" else []
        for name, words in (("plain", []), ("titled", ["--title", title])):
            main(["plot", "a", "--kind", kind, *over, *words, "--out", str(tmp_path / f"{name}.png")])
        assert drawn == [[], [title]], kind
        plain, titled = (read_png_size(tmp_path / f"{name}.png") for name in ("plain", "titled"))
        assert plain[0] == titled[0], kind
        assert plain[1] < titled[1], kind


def read_png_size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[16:24]
    return int.from_bytes(header[:4], "big"), int.from_bytes(header[4:], "big")


def test_labels_name_the_runs_in_their_order(tmp_path, monkeypatch):
    runs = [make(tmp_path / name, RECORDS) for name in ("b", "a")]
    called = []
    for kind in ("accuracy", "envelope", "samples", "confidence"):
        original = PLOTS[kind]

        def draw(things: list[Run], **_: object) -> None:
            called.append([run.name for run in things])

        monkeypatch.setitem(PLOTS.load(), kind, replace(original, draw=draw))
        words = ["--kind", kind, "--out", str(tmp_path / "p.png")]
        main(["plot", *map(str, runs), "--labels", "First, of all", "$2$", *words])
    assert called == [["First, of all", "$2$"]] * 4


def test_labels_reach_the_legend_and_shared_facts_stand_there_once(tmp_path):
    runs = [read_run(make(tmp_path / name, RECORDS)) for name in ("b", "a")]
    renamed = [replace(run, alias=f"Method {k}") for k, run in enumerate(runs)]
    heading, labels = run_labels(renamed, checked(renamed))
    assert heading is not None
    assert "σ = 0.25" in heading
    assert all(label.startswith(run.name) for run, label in zip(renamed, labels, strict=True))
    assert not any("σ" in label or "bound" in label for label in labels)
    assert all("ACR" in label for label in labels)
    alone, (label,) = run_labels(runs[:1], checked(runs[:1]))
    assert alone is None
    assert "σ = 0.25" in label


def test_labels_that_name_nothing(tmp_path, capsys):
    runs = [str(make(tmp_path / f"n{n}", RECORDS, n=n)) for n in (100, 1000)]
    for words, named in [
        (["--labels", "one"], r"--name\D+1\D+2\b"),
        (["--kind", "ablation", "--over", "n", "--labels", "one", "two"], "--kind ablation.*--name"),
    ]:
        assert re.search(named, refusal(capsys, "plot", *runs, *words, "--out", str(tmp_path / "p.png")))


def test_samples_needs_no_run_and_one_under_way_is_said_to_be(tmp_path, capsys):
    main(["plot", "--kind", "samples", "--out", str(tmp_path / "picture.pdf")])
    assert (tmp_path / "picture.pdf").stat().st_size > 1000
    main(["plot", str(make(tmp_path / "begun", RECORDS[:1])), "--out", str(tmp_path / "picture.png")])
    assert re.search(r"/begun: 1\D+2\b", capsys.readouterr().err)


def test_refusals(tmp_path, capsys):
    make(tmp_path / "run")
    make(tmp_path / "empty", [])
    make(tmp_path / "other", norm="l1")
    for words, named in [
        ([], ["`smoothcert plot --help`"]),
        (["run", "--kind", "ablation"], ["--over n"]),
        (["run", "--over", "n"], ["--over", "--kind ablation", "--kind accuracy"]),
        (["run", "--kind", "envelope", "--band"], ["--band", "--kind accuracy", "--kind envelope"]),
        (["run", "--dimension", "3"], ["--dimension", "--kind area", "--kind accuracy"]),
        (["run", "--kind", "sigma"], ["/run:", "σ = 0.25"]),
        (["run", "empty"], ["/empty:"]),
        (["run", "other"], ["run (l2)", "other (l1)"]),
    ]:
        given = [str(tmp_path / word) if (tmp_path / word).exists() else word for word in words]
        out = tmp_path / "picture.png"
        message = refusal(capsys, "plot", *given, "--out", out)
        assert all(part in message for part in named)
        assert not out.exists()


def trained(path: Path, **changes: object) -> Path:
    path.mkdir(parents=True)
    write_epochs(path, [EpochMetrics(k, 1.0, 0.5, "test", 0.01, 1.0, **changes) for k in (1, 2)])  # type: ignore[arg-type]
    return path


def written(picture: Path) -> str:
    """What is written in an SVG file, which draws each line's letters as curves with a comment."""
    return " ".join(re.findall(r"<!-- (.*?) -->", picture.read_text()))


def test_trainings_of_one_name_or_of_several_data_sets_are_told_apart(tmp_path):
    out = tmp_path / "out.svg"
    paths = [trained(tmp_path / folder / "run") for folder in ("a", "b")]
    main(["plot", *map(str, paths), "--kind", "training", "--out", str(out)])
    assert all(part in out.read_text() for part in ("a: 50.0", "b: 50.0"))
    paths = [trained(tmp_path / name) for name in ("one", "other", "unknown")]
    for path, dataset in zip(paths, ("digits", "mnist")):
        Manifest.of("train", {}, {}, {"name": dataset}).save(path)
    main(["plot", *map(str, paths), "--kind", "training", "--out", str(out)])
    assert re.search(r"one: [^:]* 2 \(digits\) other: [^:]* 2 \(mnist\) unknown: ", written(out))
    unknown = written(out).partition("unknown: ")[2]
    assert not re.search("digits|mnist", unknown.partition(")")[0])


def test_a_damaged_training_is_drawn_without_what_is_no_figure(tmp_path, capsys):
    path = trained(tmp_path / "run")
    with (path / "metrics.jsonl").open("a") as file:
        for odd in ({"accuracy": 55}, {"learning_rate": -1}, {"acr": -3}, {"epoch": -2}):
            fields = EpochMetrics(3, 1.0, 0.5, "test", 0.01, 1.0).as_json() | odd
            file.write(json.dumps(fields) + "\n")
    for figure in ("accuracy", "learning_rate", "loss"):
        out = tmp_path / f"{figure}.svg"
        main(["plot", str(path), "--kind", "training", "--figure", figure, "--out", str(out)])
        assert re.search(r"run: .* epoch 2$", written(out)), "the last epoch of whose figures all make sense"
    assert capsys.readouterr().err == ""
