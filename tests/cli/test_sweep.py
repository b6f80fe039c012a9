"""methods × σ × seeds → a table and a plot, resumable."""

import json
import re
from pathlib import Path

import pytest

from smoothcert.cli import main
from smoothcert.runs.run import read_run

from .output import refusal

pytest.importorskip("sklearn")

WORDS = ["sweep", "digits", "--methods", "gaussian", "consistency:lam=1", "--sigmas", "0.25", "--epochs", "1"]
SMALL = ["--train-inputs", "200", "--n", "200", "--every", "100", "--quiet"]


def results(out: Path) -> dict[str, list[tuple[int, float]]]:
    return {
        path.parent.name: [(record.index, record.radius) for record in read_run(path).records]
        for path in sorted(out.glob("*/certified"))
    }


@pytest.mark.slow
def test_a_table_a_plot_and_nothing_done_twice(tmp_path):
    main([*WORDS, "--seeds", "0", "--out", str(tmp_path), *SMALL])
    weights = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/model/checkpoint.pt")}
    first = results(tmp_path)
    main([*WORDS, "--seeds", "0", "1", "--out", str(tmp_path), *SMALL])
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    after = results(tmp_path)
    assert sorted(after) == [
        f"{method}-sigma0.25-seed{seed}" for method in ("consistency-lam=1", "gaussian") for seed in (0, 1)
    ]
    assert {name: after[name] for name in first} == first
    rows = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert [(row["method"], row["seeds"], row["inputs"]) for row in rows] == [
        ("gaussian", 2, 5),
        ("consistency:lam=1", 2, 5),
    ]
    assert "±" in (tmp_path / "table.md").read_text()
    assert (tmp_path / "certified-accuracy.png").read_bytes().startswith(b"\x89PNG")


def test_an_ablation_of_training_from_command_to_picture(tmp_path, capsys):
    """MACER's Table 11 in small: λ varies, then ACR is drawn over it, and the hours stand in a table."""
    methods = [f"macer:lam={lam},copies=2,batch_size=32" for lam in (1, 4)]
    words = ["sweep", "digits", "--methods", *methods, "--sigmas", "0.25", "--epochs", "2"]
    main([*words, "--ramp", "lam:0@1", "--out", str(tmp_path), *SMALL])
    runs = sorted(map(str, tmp_path.glob("*/certified")))
    trained = read_run(Path(runs[0])).manifest.origin.trained
    assert (trained["ramps"], trained["epochs"], trained["batch_size"]) == ('["lam:0@1"]', 2, 32)
    main(["plot", *runs, "--kind", "ablation", "--over", "lam", "--out", str(tmp_path / "lam.png")])
    assert (tmp_path / "lam.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    main(["table", *runs, "--layout", "training", "--json"])
    rows = json.loads(capsys.readouterr().out)
    assert [row["epochs"] for row in rows] == [2, 2]
    assert all(row["seconds"] > 0 for row in rows)
    main(["table", *runs, "--layout", "best", "--radii", "0,0.25"])
    table = capsys.readouterr().out
    assert all(f"| {method} |" in table for method in methods)


def test_a_diverged_training_is_told_and_the_others_go_on(tmp_path, capsys):
    methods = ["gaussian", "stability:lam=1e38"]
    words = ["sweep", "digits", "--methods", *methods, "--sigmas", "0.25", "--epochs", "2"]
    with pytest.raises(SystemExit) as caught:
        main([*words, "--lr", "0.5", "--out", str(tmp_path), *SMALL])
    assert caught.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"\b1\D+2\b.*stability-lam=1e38-sigma0\.25-seed0", last)
    (row,) = json.loads((tmp_path / "table.json").read_text())["rows"]
    assert row["method"] == "gaussian"
    cell = tmp_path / "gaussian-sigma0.25-seed0"  # its run can be attacked
    fast = ["--radii", "0.1", "--steps", "2", "--copies", "2", "--n", "100", "--json"]
    main(["attack", str(cell / "certified"), "--model", str(cell / "model"), *fast])
    assert json.loads(capsys.readouterr().out)


def test_settings_without_effect_are_told_once_and_of_which_methods(tmp_path, capsys):
    methods = ["gaussian", "consistency:ramp=lam:0@9", "gaussian:schedule=cosine"]
    words = ["sweep", "digits", "--methods", *methods, "--sigmas", "0.25", "0.5", "--seeds", "0", "1"]
    more = ["--epochs", "1", "--step-factor", "0.5", "--sigma-lr", "0.1", "--shard", "12/12"]
    shown = [word for word in SMALL if word != "--quiet"]
    main([*words, *more, "--out", str(tmp_path), *shown, "--log-format", "json"])
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    of_none, of_ramp, of_schedule = (one["message"] for one in events if one["event"] == "warning")
    assert re.search("^--sigma-lr .*--data-dependent$", of_none)
    assert re.search("^consistency:ramp=lam:0@9: --ramp lam:0@9 .* 1 ", of_ramp)
    assert re.search("^gaussian:schedule=cosine: --step-factor .*--schedule cosine$", of_schedule)


def test_training_that_would_learn_nothing_is_refused_before_any_other_begins(tmp_path, capsys):
    words = ["sweep", "digits", "--methods", "gaussian", "gaussian:ramp=lr:0@9", "--sigmas", "0.25"]
    told = refusal(capsys, *words, "--epochs", "1", *SMALL, "--out", tmp_path / "out")
    assert "lr:0@9" in told
    assert "warning:" not in told
    assert not (tmp_path / "out").exists()
