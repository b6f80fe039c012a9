"""`smoothcert recipes`: the shipped recipes listed, printed and as JSON."""

import json
import re

import pytest

from smoothcert.cli import main
from smoothcert.objectives import OBJECTIVES
from smoothcert.training.recipe import read_recipe, shipped_recipes
from tests.cli.output import refusal


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def test_all_are_listed_with_epochs_figure_and_source(capsys, monkeypatch):
    main(["recipes"])
    lines = capsys.readouterr().out.splitlines()
    rows = {cells[0]: cells for line in lines if (cells := re.split(r"  +", line.strip()))[1:]}
    assert set(shipped_recipes()) <= set(rows)
    published = ["90", "1.819", "Jeong et al. 2021 (SmoothMix), Table 5"]  # 1.8185
    assert rows["mnist-smoothmix-1.0"][1:4] == published
    assert rows["cifar10-resnet18-gaussian-0.25"][2] == "–"
    monkeypatch.setenv("COLUMNS", "60")
    main(["recipes"])
    shown = capsys.readouterr().out
    assert "…" not in shown, "a narrow screen cuts no name and no figure"
    assert all(name in shown for name in shipped_recipes())


def test_one_is_printed_as_toml_and_a_part_of_a_name_lists_those_that_have_it(tmp_path, capsys):
    main(["recipes", "mnist-smoothmix-1.0"])
    path = tmp_path / "mnist-smoothmix-1.0.toml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    assert read_recipe(path) == shipped_recipes()["mnist-smoothmix-1.0"]
    main(["recipes", "svhn-macer"])
    shown = capsys.readouterr().out
    assert "svhn-macer-440-0.25" in shown
    assert "svhn-macer-440-0.5" in shown
    assert "svhn-gaussian" not in shown


def test_json_and_an_unknown_name(capsys):
    main(["recipes", "--json"])
    assert set(json.loads(capsys.readouterr().out)) == {*shipped_recipes(), *OBJECTIVES}
    main(["recipes", "mnist-macer-1.0", "--json"])
    ((name, recipe),) = json.loads(capsys.readouterr().out).items()
    assert (name, recipe["sigma"], recipe["published_acr"]) == ("mnist-macer-1.0", 1.0, 1.595)
    assert recipe["objective"] == {"name": "macer", "lam": 6.0, "gamma": 8.0, "beta": 16.0, "copies": 16}
    assert "'mnist-macer-0.5'" in refusal(capsys, "recipes", "mnist-macr-0.5")
