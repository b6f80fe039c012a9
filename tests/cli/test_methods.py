"""`smoothcert methods`: the objectives listed, explained and as JSON."""

import dataclasses
import json

import pytest

from smoothcert.cli import main
from smoothcert.knobs import knob
from smoothcert.objectives import OBJECTIVES, Objective
from smoothcert.training.recipe import describe
from tests.cli.output import refusal


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")


def test_all_are_listed_with_their_cost(capsys):
    main(["methods"])
    shown = capsys.readouterr().out
    for name in OBJECTIVES:
        method = describe(name)
        assert all(text in shown for text in (name, method.summary, method.cost, method.paper))


def test_each_is_explained_with_its_knobs_and_recipes(capsys):
    for name in OBJECTIVES.names():
        main(["methods", name])
        shown, method = " ".join(capsys.readouterr().out.split()), describe(name)
        assert " ".join(method.text.split()) in shown, name
        for each in method.knobs:
            assert f"--{each.name.replace('_', '-')} " in shown, name
            assert each.help in shown, name
        assert f"mnist-{name}-0.25" in shown, name
        assert method.cost in shown, name


def test_no_word_is_cut_on_a_narrow_terminal(monkeypatch, capsys):
    for columns in ("50", "60", "80"):
        monkeypatch.setenv("COLUMNS", columns)
        main(["methods"])
        assert "…" not in capsys.readouterr().out, columns


def test_json_and_an_unknown_name(capsys):
    main(["methods", "--json"])
    assert set(json.loads(capsys.readouterr().out)) == set(OBJECTIVES)
    main(["methods", "stability", "--json"])
    (method,) = json.loads(capsys.readouterr().out).values()
    (lam,) = describe("stability").knobs
    assert method["knobs"] == [{"name": "lam", "default": 2.0, "help": lam.help}]
    assert method["passes"] == {"rows": 1, "attack_forward": 0, "attack_backward": 0, "training": 2}
    assert "'macer'" in refusal(capsys, "methods", "mace")


def test_brackets_are_text(monkeypatch, capsys):
    @dataclasses.dataclass(frozen=True)
    class Toy(Objective):
        """A loss over [a, b] and [bold]."""

        paper = "Nobody [n], 2030"
        weight: float = knob(1.0, "in [low, high]")

        def loss(self, *_: object) -> object:  # type: ignore[override]
            return None

    monkeypatch.setitem(OBJECTIVES._members, "toy", Toy)
    for words in (["methods"], ["methods", "toy"]):
        main(words)
        shown = capsys.readouterr().out
        assert (Toy.__doc__ or "").rstrip(".") in shown
        assert Toy.paper in shown
    assert "[low, high]" in shown
