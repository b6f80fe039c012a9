"""Options made from dataclasses: what is read from their source is what they are, and one name has one meaning."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from smoothcert import CertifyPlan
from smoothcert.commands import main
from smoothcert.commands import written_knobs as written
from smoothcert.commands.made_options import merged, option, optional, options_class, sentence
from smoothcert.commands.plan_options import LineOptions, VoteOptions
from smoothcert.commands.sampling_options import NumericsOptions, SpeedOptions, numerics_of
from smoothcert.commands.written_knobs import registered, written_help, written_knobs
from smoothcert.empirical import AttackPlan
from smoothcert.empirical.diagnostics import LinePlan
from smoothcert.knobs import Knob, knobs_of
from smoothcert.noise_fit import FitPlan
from smoothcert.sampling import Execution, Numerics
from smoothcert.sigma_search import SEARCHES
from smoothcert.stopping import BUDGETS, STOP_RULES


def test_what_is_read_without_importing_is_what_the_classes_are() -> None:
    assert written_knobs("smoothcert.noise_fit.plan", "FitPlan") == knobs_of(FitPlan)
    votes = written_knobs("smoothcert.smoothing.plan", "CertifyPlan", only=("n0", "n", "alpha"))
    defaults = {field.name: field.default for field in dataclasses.fields(CertifyPlan)}
    assert vars(VoteOptions()) == {name: defaults[name] for name in ("n0", "n", "alpha")}
    assert all(knob.help and knob.kind is type(knob.default) for knob in votes)
    assert written_knobs("smoothcert.sampling.execution", "Execution") == knobs_of(Execution)
    assert written_knobs("smoothcert.sampling.numerics", "Numerics") == knobs_of(Numerics)
    assert vars(SpeedOptions()) == vars(Execution())
    assert numerics_of(NumericsOptions()) == Numerics()
    assert NumericsOptions().levels == defaults["levels"]
    assert written_knobs("smoothcert.empirical.results", "AttackPlan") == knobs_of(AttackPlan)
    assert written_knobs("smoothcert.empirical.diagnostics", "LinePlan") == knobs_of(LinePlan)
    assert LinePlan(0.5) == LinePlan(0.5, **vars(LineOptions()))
    found = registered("smoothcert.sigma_search", "SEARCHES")
    assert list(found) == SEARCHES.names()
    for name, where in found.items():
        assert written_knobs(*where) == knobs_of(SEARCHES[name]), name


ODD = """
from smoothcert.noise_fit.plan import RouteKind
from typing import ClassVar

@dataclass(frozen=True)
class Base:
    count: ClassVar[int] = 3
    first: int
    second: float = 2.5

@REGISTRY.register("odd")
@dataclass(frozen=True)
class Odd(Base):
    route: RouteKind | None = knob(None, "kind")
    second: float = knob(-1.0, "again")
"""


def test_bases_aliases_and_fields_declared_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    real = written._path_of
    monkeypatch.setattr(
        written, "_path_of", lambda module: tmp_path / "odd.py" if module.startswith("odd") else real(module)
    )
    first, second, route = written_knobs("odd.odd", "Odd")
    assert (first.name, first.kind, first.default) == ("first", int, dataclasses.MISSING)
    assert (second.name, second.default, second.help) == ("second", -1.0, "again")
    assert repr(route.kind) == "typing.Optional[typing.Literal['gradient', 'votes']]"
    assert registered("odd", "REGISTRY") == {"odd": ("odd.odd", "Odd")}
    for missing in (lambda: written_knobs("odd.odd", "Even"), lambda: written_help("odd.odd", "even")):
        with pytest.raises(LookupError, match=r"odd\.odd"):
            missing()


def test_certifys_help_names_every_stop_rule_and_budget(capsys: pytest.CaptureFixture[str]) -> None:
    main(["certify", "--help-all"])
    (panel,) = (part for part in capsys.readouterr().out.split("╭") if "│ --stop " in part)
    assert {*STOP_RULES, *BUDGETS} <= set(re.findall(r"[a-z]+", panel))


def test_merged_knobs_say_what_they_are_where() -> None:
    one = Knob("steps", int, 5, "how many")
    same, other = dataclasses.replace(one, default=7), Knob("steps", int, 9, "how far")
    both = Knob("factor", float, 4.0, "within")
    (steps, factor) = merged({"a": [one, both], "b": [same, both], "c": [other, both]})
    assert steps.help == "how many \\[a 5, b 7]; how far \\[c 9]"
    assert factor.help == "within \\[4.0]"
    (switch,) = merged({"a": [Knob("on", bool, False, "also")], "b": [Knob("on", bool, False, "also")]})
    assert switch.help == "also"
    (optional_one,) = merged({"a": [Knob("limit", float | None, None, "not above")]})
    assert (optional_one.help, optional_one.kind) == ("not above \\[a]", float)


def test_options_have_the_knobs_default_or_none() -> None:
    knob = sentence(Knob("n_steps", int, 5, "how many"))
    made = options_class("Made", [option(knob)], __name__)()
    unset = options_class("Unset", [optional(knob)], __name__)()
    assert (made.n_steps, unset.n_steps) == (5, None)
    assert knob.help == "How many."
    assert sentence(Knob("bare", int, 5)).help == ""
