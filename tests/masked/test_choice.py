"""The choice of σ and β: shares by hand, rows that are kept apart, and the command that writes the model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from smoothcert import SmoothedClassifier, choose_masked, load_run
from smoothcert.cli import main
from smoothcert.errors import InvalidValueError
from smoothcert.masked.choice import MaskedPoint, best_of
from smoothcert.regions.changes import ChangeRegion

from .tables import small_table, written_table

tree = pytest.importorskip("sklearn.tree", reason="smoothcert[sklearn] is not installed")


def point(sigma: float, *tables: tuple[float, ...], labels: str = "aabb") -> MaskedPoint:
    return MaskedPoint(sigma, 0.5, tables, np.array(list(labels)), 1.0, 10, 0.1, 0.1)


def test_shares_are_counted_in_standard_deviations() -> None:
    one = point(0.5, (2.0, 1.0), (1.0,), (), (0.5, 0.25, 0.125))
    assert one.moves(1).tolist() == [0.5, 0, 0, 0.125]
    assert [one.share(0, move) for move in (0, 0.25, 0.5, 1.0, 1.01)] == [0.75, 0.75, 0.5, 0.25, 0]
    assert one.by_class(0, 0) == {"a": 1.0, "b": 0.5}
    assert one.share(2, 0) == 0.25
    # Half the ρ at twice the σ is the same distance.
    assert point(1.0, (1.0,)).share(0, 1.0) == point(0.5, (2.0,)).share(0, 1.0) == 1


def test_a_rare_class_counts_as_much_if_asked() -> None:
    common = point(1.0, *[(1.0,)] * 3, (), labels="aaab")
    both = point(1.0, (1.0,), (1.0,), (), (1.0,), labels="aaab")
    far = point(1.0, *[(9.0,)] * 3, (), labels="aaab")
    assert best_of([common, both], 0, 0.5, balanced=True) is both
    assert best_of([both, common], 0, 0.5, balanced=False) is both  # 3 of 4 each; the first of equal ones
    assert best_of([common, far], 0, 0.5, balanced=False) is far


def test_the_model_has_seen_none_of_the_rows_it_was_chosen_on() -> None:
    table, classes = small_table(300)
    seen: list[int] = []

    class Counts(tree.DecisionTreeClassifier):  # type: ignore[misc,name-defined]
        def fit(self, rows, labels):
            seen.append(len(labels))
            return super().fit(rows, labels)

    options = {"sigmas": [0.25, 0.5], "betas": [0.5, 0.9], "validation": 40, "n": 200, "copies": 3}
    found = choose_masked(Counts(min_samples_leaf=5, random_state=0), table, classes, changes=2, **options)  # type: ignore[arg-type]
    assert seen == [3 * 260] * 4
    assert [(one.sigma, one.beta) for one in found.points] == [
        (s, pytest.approx(b, abs=1e-9)) for b in (0.5, 0.9) for s in (0.25, 0.5)
    ]
    # At β = .5, two changes are never certified: .5² < ½.
    assert {one.share(2, 0) for one in found.points[:2]} == {0.0}
    assert found.best in found.points[2:]
    assert sum(one.votes for one in found.points) == 4 * 40 * (200 + 100)
    # The rows' tables are those of the certificates of the model that was kept.
    rows, noise = table.iloc[found.rows], found.model.smoothcert_noise_
    assert noise.beta == found.best.beta
    answers = SmoothedClassifier(found.model, noise=noise, n=200, seed=0).certify(rows)
    for answer, label, reached in zip(answers, classes[found.rows], found.best.tables):
        certified = isinstance(answer.region, ChangeRegion) and answer.label == label
        assert reached == (answer.region.table if certified else ())  # type: ignore[union-attr]
    again = choose_masked(Counts(min_samples_leaf=5, random_state=0), table, classes, changes=2, **options)  # type: ignore[arg-type]
    assert [one.tables for one in again.points] == [one.tables for one in found.points]


def test_mistakes_are_named() -> None:
    table, classes = small_table(30)
    for named, options in (
        ("validation.*30.*16", {"validation": 16}),
        ("beta.*1.5", {"betas": [0.5, 1.5], "validation": 5}),
        ("sigma.*0", {"sigmas": [0.0], "validation": 5}),
        ("sigmas", {"sigmas": [], "validation": 5}),
        ("move.*-1", {"move": -1.0}),
    ):
        with pytest.raises(InvalidValueError, match=named):
            choose_masked(tree.DecisionTreeClassifier(), table, classes, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=r"fit.*str"):
        choose_masked("tree", table, classes, validation=5)


def test_the_command_writes_a_model_to_certify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    spec = written_table(Path("a.csv"))
    words = ["--sigmas", "0.25,0.5", "--betas", "0.6", "--validation", "30", "--n", "200", "--copies", "2"]
    asked = ["fit", "masks", "sklearn.tree:DecisionTreeClassifier", "--dataset", "csv:a.csv", "--target", "y"]
    main([*asked, *words, "--out", "fits/a", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["dataset"] == spec
    assert len(set(told["rows"])) == 30
    assert told["chosen"]["sigma"] in (0.25, 0.5)
    assert {key: told[key] for key in ("points", "for", "note")} == {
        key: json.loads(Path("fits/a/choice.json").read_text())[key] for key in ("points", "for", "note")
    }
    assert Path("fits/a/trade-off.png").stat().st_size > 1000
    certified = ["certify", "fits/a/model.joblib", "--trust-pickle", "--dataset", spec, "--n", "200"]
    main([*certified, "--max", "5", "--quiet", "--out", "run"])
    assert load_run(Path("run")).manifest.plan.value("beta") == told["chosen"]["beta"]
    main([*asked, *words, "--out", "fits/b"])
    assert str(told["votes"]) in capsys.readouterr().out
