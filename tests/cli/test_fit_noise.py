"""`fit-noise`, `certify --noise FIT`, `sensitivity` and the pictures of fits, as typed."""

import csv
import json
import re
import shutil
from dataclasses import MISSING
from pathlib import Path

import numpy as np
import pytest

from smoothcert.cli import main
from smoothcert.experimental.levels.choosers import LevelFitPlan
from smoothcert.knobs import knobs_of
from smoothcert.runs.run import read_run
from smoothcert.smoothing.fits.fit import read_fit
from smoothcert.smoothing.fits.plan import FitPlan

from .output import names, refusal, rows

QUICK = ["--max", "200", "--validation", "8", "--validation-n", "64", "--step-samples", "4"]
FITTED = ["--init", "0.25", *QUICK, "--sub-epochs", "1", "--step-inputs", "48"]


@pytest.fixture(scope="module")
def fit(digits_model, build_once) -> Path:
    words = ["fit", "noise", str(digits_model), *FITTED, "--lr", "0.02", "--quiet", "--out"]
    return build_once("noise-fit", lambda out: main([*words, str(out)]))


@pytest.fixture(scope="module")
def run(digits_model, fit, build_once) -> Path:
    words = ["certify", str(digits_model), "--noise", str(fit), "--n", "300", "--max", "12", "--quiet"]
    return build_once("run-of-noise-fit", lambda out: main([*words, "--out", str(out)]))


def test_a_fit_leaves_everything_behind(fit):
    files = {path.name for path in fit.iterdir()}
    assert files >= {"run.json", "sigmas.npy", "sigma.png", "metrics.jsonl", "sub-epochs"}
    sigmas = np.load(fit / "sigmas.npy")
    assert (sigmas.shape, sigmas.dtype) == ((1, 8, 8), np.float64)
    # Corners of digits are empty, their middle isn't.
    assert sigmas[0, [0, 0, 7, 7], [0, 7, 0, 7]].min() > sigmas[0, 2:6, 2:6].mean()
    statement = json.loads((fit / "run.json").read_text())
    assert (statement["kind"], statement["plan"]["init"], statement["data"]["used"]) == (
        "fit-noise",
        0.25,
        200,
    )
    assert statement["model"]["sha256"]
    assert read_fit(fit).manifest.origin.split == "train"


def test_the_same_command_again_and_another_one(digits_model, fit, tmp_path, capsys):
    copy = shutil.copytree(fit, tmp_path / "copy")
    words = ["fit", "noise", digits_model, *FITTED, "--out", copy]
    main([str(word) for word in [*words, "--lr", "0.02", "--json"]])
    (told,) = json.loads(capsys.readouterr().out)["fits"]
    assert told["sub_epoch"] == 1
    assert (copy / "sigmas.npy").read_bytes() == (fit / "sigmas.npy").read_bytes()
    assert names(refusal(capsys, *words), "plan.lr", 0.02)


def test_a_certified_run_holds_its_noise(run, fit):
    done = read_run(run)
    assert done.manifest.plan.noise == "diagonal-gaussian"
    assert np.array_equal(np.load(run / "sigmas.npy"), np.load(fit / "sigmas.npy"))
    for record in done.records:
        if not record.abstained:
            assert record.volume_radius is not None
            assert record.volume_radius > record.radius > 0


def test_certify_takes_a_file_of_sigmas(digits_model, fit, run, tmp_path):
    words = ["certify", digits_model, "--n", "300", "--max", "1", "--quiet"]
    main([str(word) for word in [*words, "--noise", fit / "sigmas.npy", "--out", tmp_path / "file"]])
    assert read_run(tmp_path / "file").records[0].volume_radius == read_run(run).records[0].volume_radius
    given = f"uniform:{fit / 'sigmas.npy'}"
    main([str(word) for word in [*words, "--noise", given, "--out", tmp_path / "uniform"]])
    plan = read_run(tmp_path / "uniform").manifest.plan
    assert (plan.noise, plan.norm) == ("diagonal-uniform", "l1")


def test_what_certify_refuses(digits_model, fit, tmp_path, capsys):
    words = ["certify", digits_model, "--n", "300", "--max", "5", "--out", tmp_path / "run", "--noise"]
    np.save(tmp_path / "small.npy", np.ones(4))
    np.save(tmp_path / "bad.npy", np.zeros((1, 8, 8)))
    for more, named in (
        ([f"uniform:{fit}"], ["diagonal-gaussian", "--noise uniform"]),
        ([fit, "--sigma", "0.25"], ["--sigma 0.25", f"--noise {fit}"]),
        (["laplace"], ["'laplace'"]),
        ([tmp_path / "small.npy"], [(4,), (1, 8, 8)]),
        ([tmp_path / "bad.npy"], ["sigmas", 0.0, (0, 0, 0)]),
    ):
        assert names(refusal(capsys, *words, *more), *named)
    assert not (tmp_path / "run").exists()


def test_a_fit_of_another_model_is_named_but_used(fit, tmp_path, monkeypatch, capsys):
    (tmp_path / "other.py").write_text(
        "def scores(batch):\n    return batch.reshape(len(batch), -1)[:, :10]\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["certify", "other:scores", "--dataset", "digits", "--n", "64", "--max", "2", "--out", "run"]
    main([*words, "--noise", str(fit)])
    assert names(capsys.readouterr().err, fit, "small-cnn", "scores")


@pytest.mark.slow
def test_a_ladder_with_its_blanket(digits_model, tmp_path, capsys):
    out = tmp_path / "ladder"
    words = ["fit", "noise", str(digits_model), "--init", "0.2:0.4:0.2", *QUICK, "--sub-epochs", "2"]
    main([*words, "--groups", "rows", "--out", str(out)])
    shown = capsys.readouterr()
    assert [row[0] for row in rows(shown.out)] == ["0.2", "0.4"]
    assert re.search(r"\btrain\b", shown.out)  # what the figures are about
    assert re.search(r"\b0\.4\b.*\b2\b", shown.err)
    files = {path.name for path in out.iterdir()}
    assert files == {"0.2", "0.4", "blanket.json", "blanket.csv", "clean-accuracy.png"}
    points = json.loads((out / "blanket.json").read_text())
    with (out / "blanket.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(points) == 6
    assert any(point["kept"] for point in points)
    for kind in ("clean-accuracy", "noise"):
        picture = tmp_path / f"{kind}.svg"
        main(["plot", str(out), "--kind", kind, "--out", str(picture)])
        assert picture.stat().st_size > 1000
    message = refusal(capsys, "certify", digits_model, "--noise", out, "--out", tmp_path / "run")
    assert str(out / "0.2") in message


def test_pictures_of_fits_and_of_runs(fit, run, tmp_path):
    for source in (fit, run, fit / "sigmas.npy"):
        out = tmp_path / "picture.png"
        main(["plot", str(source), "--kind", "noise", "--out", str(out)])
        assert out.stat().st_size > 1000
    main(["plot", str(run), "--kind", "area", "--out", str(tmp_path / "area.png")])


def test_sensitivity_of_images(fit, run, tmp_path, capsys):
    out = tmp_path / "heat.png"
    main(["fit", "features", str(fit), "--run", str(run), "--out", str(out), "--json"])
    told = json.loads(capsys.readouterr().out)
    sigmas = np.load(fit / "sigmas.npy")
    first, last = told["features"][0], told["features"][-1]
    assert first["sigma"] == sigmas.min()
    assert last["sigma"] == sigmas.max()
    assert first["rank"] == 1
    # The region of median size has semi-axis σ_i·gap, and its equal-volume radius is the geometric mean of those.
    records = [record for record in read_run(run).records if record.correct]
    median = np.median([record.volume_radius for record in records])
    gap = median / np.exp(np.log(sigmas).mean())
    assert first["half_width"] == pytest.approx(gap * sigmas.min(), rel=1e-9)
    assert out.stat().st_size > 1000
    main(["fit", "features", str(fit)])
    shown = rows(capsys.readouterr().out)
    assert [re.findall(r"\d+", row[1]) for row in shown if not row[0].isdigit()] == [["24"]]
    assert len(shown) - 1 + 24 == sigmas.size  # the row tells how many are left out


def test_sensitivity_lists_the_groups_that_share_a_scale(digits_model, tmp_path, capsys):
    out = str(tmp_path / "rows")
    words = ["fit", "noise", str(digits_model), *FITTED, "--lr", "0.02", "--groups", "rows"]
    main([*words, "--quiet", "--out", out])
    main(["fit", "features", out, "--json"])
    features = json.loads(capsys.readouterr().out)["features"]
    assert sorted(feature["name"] for feature in features) == [f"row {k}" for k in range(8)]
    sigmas = np.load(Path(out) / "sigmas.npy")
    for feature in features:
        assert feature["sigma"] == pytest.approx(sigmas[0, int(feature["name"][-1]), 3])
    assert [feature["sigma"] for feature in features] == sorted(feature["sigma"] for feature in features)
    assert max(feature["rank"] for feature in features) <= 8


def test_what_sensitivity_refuses(digits_model, fit, tmp_path, capsys):
    plain = tmp_path / "plain"
    main(["certify", str(digits_model), "--n", "100", "--max", "2", "--quiet", "--out", str(plain)])
    unfinished = shutil.copytree(fit, tmp_path / "unfinished")
    (unfinished / "sigmas.npy").unlink()
    assert f"--noise {fit}" in refusal(capsys, "fit", "features", fit, "--run", plain)
    assert names(refusal(capsys, "fit", "features", plain), plain, "fit", "noise")
    assert str(tmp_path / "nothing") in refusal(capsys, "fit", "features", tmp_path / "nothing")
    assert names(refusal(capsys, "fit", "features", unfinished), unfinished, "fit", "noise")


def test_mistakes_are_named(digits_model, tmp_path, capsys):
    for words, named in [
        (["--init", "0"], ["init", 0.0]),
        (["--init", "0.2", "--groups", "patch:9"], [8, "'patch:9'"]),
        (["--init", "0.2", "--rank", "9"], ["rank", 8, 9]),
        (["--init", "0.2", "--validation", "5000"], [1297, 5000, "--validation 324"]),
        (["--init", "0.2", "--scale", "std"], [(0, 0, 0), "--scale"]),
    ]:
        message = refusal(capsys, "fit", "noise", digits_model, *words, "--out", tmp_path / "fit")
        assert names(message, *named)
        assert not (tmp_path / "fit").exists()


TABLE = """
import numpy as np

def scores(batch):
    # Leans on the first feature, a little on the second, never on the third.
    score = batch[:, 0] + 10 * batch[:, 1]
    return np.stack([score, -score], 1)
"""


@pytest.mark.slow
def test_features_with_names_and_units_of_their_own(tmp_path, monkeypatch, capsys):
    generator = np.random.default_rng(0)
    x = (generator.normal(size=(150, 3)) * [1.0, 0.01, 1000.0]).astype(np.float32)
    y = (x[:, 0] + 10 * x[:, 1] < 0).astype(np.int64)
    np.savez(tmp_path / "table.npz", x=x, y=y, feature_names=np.array(["dose [mg]", "pH", "$ income"]))
    (tmp_path / "mine.py").write_text(TABLE)
    monkeypatch.chdir(tmp_path)
    data = ["--dataset", "table.npz"]
    words = ["fit", "noise", "mine:scores", *data, "--scale", "std", "--init", "0.2", "--validation", "30"]
    main([*words, "--votes", "32", "--out", "fit", "--quiet"])
    fit = read_fit(tmp_path / "fit")
    assert fit.manifest.plan.route == "votes"
    main(["certify", "mine:scores", *data, "--noise", "fit", "--n", "300", "--out", "run", "--quiet"])
    main(["fit", "features", "fit", "--run", "run", "--out", "bars.png"])
    shown = capsys.readouterr().out
    assert shown.index("dose [mg]") < shown.index("pH") < shown.index("$ income")
    assert "±" in shown
    assert (tmp_path / "bars.png").stat().st_size > 1000
    message = refusal(capsys, *words, "--route", "gradient", "--out", "other")
    assert names(message, "scores", "--fit-by votes")


def test_a_memorys_regions_say_nothing_of_a_feature(fit, run, tmp_path, capsys):
    kept = tmp_path / "kept"
    main(["run", "remember", str(run), "--memory", str(tmp_path / "memory"), "--out", str(kept), "--quiet"])
    assert str(kept) in refusal(capsys, "fit", "features", fit, "--run", kept)


@pytest.mark.parametrize(("command", "plan"), [("fit noise", FitPlan), ("experimental levels", LevelFitPlan)])
def test_help_shows_every_field_its_default_and_its_group(command, plan, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    main([*command.split(), "--help-all"])
    lines = capsys.readouterr().out.splitlines()
    panels: dict[str | None, set[int]] = {}
    for knob in knobs_of(plan):
        name = (knob.option or knob.name).replace("_", "-")
        if name != "sigmas":  # --sigma-levels
            (line,) = (line for line in lines if line.lstrip("│ *").startswith(f"--{name} "))
            if knob.default not in (MISSING, None) and knob.name != "route":
                assert f"[default: {knob.default}]" in line, name
            panels.setdefault(knob.group, set()).add(
                sum(one.startswith("╭") for one in lines[: lines.index(line)])
            )
    if plan is FitPlan:
        assert panels.keys() > {"gradient", "votes", "validation"}
        # Each group has a panel of its own.
        assert sum(map(len, panels.values())) == len(panels) == len(set.union(*panels.values()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "renamed",
    [
        [("--n0", "--step-samples", "3"), ("--batch", "--step-inputs", "50")],
        [("--route", "--fit-by", "votes")],
    ],
)
def test_the_old_spellings_give_the_same_fit(renamed, digits_model, tmp_path, capsys):
    few = ["--max", "24", "--validation", "4", "--validation-n", "32", "--sub-epochs", "1", "--quiet"]
    few += ["--groups", "channel", "--tried", "8", "--votes", "8", "--init", "0.25"]
    for name, position in (("old", 0), ("new", 1)):
        options = [word for each in renamed for word in (each[position], each[2])]
        main(["fit", "noise", str(digits_model), *few, *options, "--out", str(tmp_path / name)])
    before, after = (read_fit(tmp_path / name) for name in ("old", "new"))
    assert before.manifest.plan == after.manifest.plan
    assert before.noise == after.noise
    main(["fit", "noise", "--help-all"])
    shown = capsys.readouterr().out.replace("--validation-n0", "").split()
    for old, new, value in renamed:
        message = refusal(
            capsys, "fit", "noise", digits_model, *few, old, value, new, value, "--out", tmp_path
        )
        assert names(message, new)
        assert old not in shown


@pytest.mark.parametrize("command", [["show"], ["table"], ["report", "--out", "page"]])
def test_a_fit_is_no_run(fit, capsys, command):
    name, *options = command
    assert f"--noise {fit}" in refusal(capsys, name, fit, *options)
