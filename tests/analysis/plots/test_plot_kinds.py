"""Every kind of picture: the numbers it draws, worked out another way, and what it refuses."""

import itertools
import math
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from smoothcert.analysis.metrics import envelope_steps, pointwise_band
from smoothcert.analysis.plots import drawing
from smoothcert.analysis.plots.ablation import ablation_lines, plot_ablation
from smoothcert.analysis.plots.curves import (
    certified_areas,
    input_dimension,
    plot_area,
    plot_certified_accuracy,
    plot_envelope,
)
from smoothcert.analysis.plots.drawing import draw_steps
from smoothcert.analysis.plots.sigma import improved_sigmas, input_sigmas, plot_sigma
from smoothcert.analysis.plots.training import plot_training
from smoothcert.analysis.plots.votes import (
    VotePlan,
    common_plan,
    confidence_of,
    plot_confidence,
    shown_radii,
    strips,
)
from smoothcert.bounds.base import BOUNDS
from smoothcert.errors import InvalidValueError
from smoothcert.perturb.gaussian import Gaussian
from smoothcert.perturb.uniform import Uniform
from smoothcert.regions.bodies import L2Ball
from smoothcert.runs.records import Record
from smoothcert.runs.run import Run, create_run
from smoothcert.runs.side_files import EpochMetrics
from smoothcert.tally import SOFT_UNIT, Phase, Stream, Tally
from tests.analysis.made_runs import FIVE_AND_TWO, made_run
from tests.analysis.texts import numbers

VARYING = tuple(replace(record, sigma=0.1 * (1 + record.index)) for record in FIVE_AND_TWO)


def ablated(n: int, name: str = "a", records: tuple[Record, ...] = FIVE_AND_TWO, **plan: Any) -> Run:
    run = made_run(f"{name}-n{n}", records, n=n, **plan)
    return replace(run, manifest=run.manifest.stating(origin={"method": name}))


def two_sizes() -> list[Run]:
    better = (*FIVE_AND_TWO[:-1], replace(FIVE_AND_TWO[-1], radius=0.4))
    return [ablated(100), ablated(1000, seed=1), ablated(1000, seed=2, records=better)]


def test_the_band_is_clopper_pearsons_at_each_step():
    low, high = pointwise_band(np.array([1.0, 3 / 7, 0.0]), 7)
    assert low[1] == pytest.approx(stats.beta.ppf(0.025, 3, 5), rel=1e-9)
    assert high[1] == pytest.approx(stats.beta.ppf(0.975, 4, 4), rel=1e-9)
    # All of 7: (α/2)^(1/7) below, 1 above; none of 7 mirrors it.
    assert (low[0], high[0]) == (pytest.approx(0.025 ** (1 / 7), rel=1e-9), 1.0)
    assert (low[2], high[2]) == (0.0, pytest.approx(1 - 0.025 ** (1 / 7), rel=1e-9))


def test_a_band_can_be_left_out(tmp_path):
    for name, band in (("auto", None), ("with", True), ("without", False)):
        plot_certified_accuracy([made_run()], tmp_path / f"{name}.svg", band=band)
    auto, with_band, without = (
        (tmp_path / f"{name}.svg").read_bytes() for name in ("auto", "with", "without")
    )
    assert auto == with_band != without
    assert b"PolyCollection" in with_band or b"FillBetween" in with_band
    assert b"PolyCollection" not in without
    assert b"FillBetween" not in without


def test_the_envelope_is_the_best_at_each_radius_and_of_runs_of_one_label(tmp_path, monkeypatch):
    low = tuple(Record(k, 1, 1, 0.3, 0.25, 0.0) for k in range(4))
    far = tuple(Record(k, 1, 1 if k < 2 else 2, 0.9, 0.25, 0.0) for k in range(4))
    radii, best = envelope_steps([made_run("low", low), made_run("far", far)])
    assert radii.tolist() == [0.0, 0.3, 0.9]
    assert best.tolist() == [1.0, 0.5, 0.0]
    other = tuple(Record(k, 1, 1, 0.5, 0.25, 0.0) for k in range(4))
    runs = [
        replace(made_run(name, records), alias=alias)
        for name, records, alias in (("a", low, "x"), ("b", far, "x"), ("c", other, "y"))
    ]
    drawn: list[list[list[float]]] = []

    def noted(axes: Any, radii: Any, accuracy: Any, *more: Any, **style: Any) -> Any:
        drawn.append([radii.tolist(), accuracy.tolist()])
        return draw_steps(axes, radii, accuracy, *more, **style)

    monkeypatch.setattr("smoothcert.analysis.plots.drawing.draw_steps", noted)
    plot_envelope(runs, tmp_path / "a.svg")
    assert drawn == [[[0.0, 0.3, 0.9], [1.0, 0.5, 0.0]], [[0.0, 0.5], [1.0, 0.0]]]
    drawn.clear()
    plot_envelope([replace(run, alias=str(k)) for k, run in enumerate(runs)], tmp_path / "b.svg")
    assert len(drawn) == 3  # the runs themselves, over one envelope


def test_an_envelope_is_of_one_data_set_and_the_same_inputs(tmp_path):
    runs = [
        replace(run, manifest=run.manifest.stating(data={"name": name}))
        for run, name in ((made_run("a"), "mnist"), (made_run("b"), "cifar10"))
    ]
    with pytest.raises(InvalidValueError, match=r"mnist.*cifar10"):
        plot_envelope(runs, tmp_path / "a.png")
    with pytest.raises(InvalidValueError, match=r"\b6\b.*\b7\b"):
        plot_envelope([made_run(), made_run("b", FIVE_AND_TWO[1:])], tmp_path / "a.png")


def test_an_ablation_over_sigma_is_of_models_trained_alike():
    def run(sigma: float, **facts: Any) -> Run:
        made = ablated(100, sigma=sigma)
        stated = made.manifest.origin.but(trained={"sigma": sigma, **facts})
        digest = {"sha256": f"{sigma:g}"[-1] * 64}
        return replace(made, manifest=made.manifest.stating(origin=stated, model=digest))

    (line,) = ablation_lines([run(0.25, epochs=2), run(0.5, epochs=2)], "sigma")
    assert line.values == (0.25, 0.5)
    with pytest.raises(InvalidValueError, match=r"epochs: 2, 4"):
        ablation_lines([run(0.25, epochs=2), run(0.5, epochs=4)], "sigma")


def test_an_ablation_is_acr_over_one_field(tmp_path):
    (line,) = ablation_lines(two_sizes(), "n")
    assert (line.method, line.values) == ("a", (100, 1000))
    # Radii 0.5 + 1.0 + 0.2 + 0.5 over 7 inputs; one of the two seeds has 0.4 for the last, which else is 0.
    assert line.acr[0].mean == pytest.approx(2.2 / 7)
    assert line.acr[0].sd is None
    assert line.acr[1].mean == pytest.approx(2.4 / 7)
    assert line.acr[1].sd == pytest.approx(0.4 / 7 / math.sqrt(2))
    runs = [ablated(n, name) for name in "ab" for n in (1000, 100)]
    assert [(line.method, line.values) for line in ablation_lines(runs, "n")] == [
        ("a", (100, 1000)),
        ("b", (100, 1000)),
    ]
    unnamed = [made_run(f"n{n}", n=n) for n in (10, 100)]
    assert [line.values for line in ablation_lines(unnamed, "n")] == [(10, 100)]
    runs = [ablated(100, **{"sigma_search.steps": steps}) for steps in (10, 100)]
    (line,) = ablation_lines(runs, "steps")
    assert line.values == (10, 100)
    first = ablated(100, alpha=0.001)
    again = ablated(100, alpha=0.01, recertified_from={"results_sha256": "a" * 64})
    (line,) = ablation_lines([first, again], "alpha")
    assert line.values == (0.001, 0.01)
    runs = [
        made_run("x", bound=name, votes=votes)
        for name, votes in (("two-class", "hard"), ("bernstein", "soft"))
    ]
    (line,) = ablation_lines(runs, "bound")
    assert line.values == ("bernstein", "two-class")
    plot_ablation(runs, "bound", tmp_path / "a.png")


def test_spreads_are_of_the_same_inputs_and_distinct_models():
    first, second, third = two_sizes()
    assert ablation_lines([first, second, third], "n")

    def of_model(run: Run, digest: str) -> Run:
        return replace(run, manifest=run.manifest.stating(model={"sha256": digest}))

    fewer = replace(third, records=third.records[:-1])
    for runs, named in (
        ([first, second, fewer], "a-n1000"),
        ([of_model(run, "m") for run in (first, second, third)], "a-n1000"),
        ([of_model(ablated(100), "1"), of_model(ablated(1000), "2")], r"a-n100\b.*a-n1000\b"),
    ):
        with pytest.raises(InvalidValueError, match=named):
            ablation_lines(runs, "n")


def test_ablations_that_compare_more_or_nothing():
    for runs, over, message in [
        ([ablated(100), ablated(1000, alpha=0.01)], "n", r"'n'.*alpha: 0\.001, 0\.01"),
        ([ablated(100), ablated(100)], "n", r"'n'.*\b100\b"),
        ([ablated(100), ablated(1000)], "K", r"'K'.*\bsigma\b"),
        ([ablated(100), ablated(1000), ablated(1000)], "n", r"n = 1000.*--method"),
    ]:
        with pytest.raises(InvalidValueError, match=message):
            ablation_lines(runs, over)


def test_where_sigma_helped(tmp_path):
    fixed = made_run("fixed")
    # Input 2 is wrong in both, whatever its radius; 4 loses; 6 wins though it had none.
    moved = [(0, 0.6), (1, 1.0), (2, 9.0), (3, 0.0), (4, 0.1), (5, 0.7), (6, 0.1)]
    records = [
        replace(record, radius=radius, sigma=0.2 + index / 10)
        for record, (index, radius) in zip(fixed.records, moved)
    ]
    run = made_run("moved", tuple(records))
    assert improved_sigmas(run, fixed).tolist() == pytest.approx([0.2, 0.7, 0.8])
    plot_sigma([run], tmp_path / "a.png")
    create_run(tmp_path / "fixed", fixed.manifest, list(fixed.records))
    plot_sigma([run], tmp_path / "b.png", against=tmp_path / "fixed")
    assert (tmp_path / "a.png").read_bytes() != (tmp_path / "b.png").read_bytes()
    with pytest.raises(InvalidValueError, match=r"\bfew\b.*\b1\b.*\bmoved\b"):
        improved_sigmas(run, made_run("few", fixed.records[:1]))


def trained_with(lam: float, seed: int = 0, method: str = "macer", **facts: Any) -> Run:
    run = made_run(f"{method}-{lam}-{seed}", seed=seed)
    stated = {"objective": "macer", "objective.lam": lam, "epochs": 9, "seed": seed, "seconds": lam} | facts
    origin = {"method": f"{method}:lam={lam:g}", "trained": stated}
    return replace(
        run, manifest=run.manifest.stating(origin=origin, model={"sha256": f"{method}{lam}{seed}"})
    )


def test_an_ablation_over_a_knob_of_training():
    runs = [trained_with(lam, seed) for lam in (4.0, 1.0) for seed in (0, 1)]
    for over in ("lam", "objective.lam", "training.objective.lam"):
        (line,) = ablation_lines(runs, over)
        assert (line.method, line.values) == ("macer", (1.0, 4.0))
        assert all(spread.sd is not None for spread in line.acr)
    with pytest.raises(InvalidValueError, match=r"training\.epochs: 8, 9"):
        ablation_lines([trained_with(1.0), trained_with(4.0, epochs=8)], "lam")
    with pytest.raises(InvalidValueError, match=r"\blog\b.*'training\.objective\.lam'"):
        ablation_lines([trained_with(1.0), made_run("log")], "training.objective.lam")


@pytest.mark.parametrize("n", [100, 1000, 100_000])
def test_the_attainable_radius_is_the_closed_form(n):
    plan = VotePlan(Gaussian(0.5), BOUNDS["clopper-pearson"], 0.001)
    for share in (Fraction("0.8"), Fraction("0.99")):
        k = int(share * n)
        expected = 0.5 * stats.norm.ppf(stats.beta.ppf(0.001, k, n - k + 1))
        assert plan.radius(share, n) == pytest.approx(expected, rel=1e-7)
    assert plan.radius(Fraction(1), n) == pytest.approx(0.5 * stats.norm.ppf(0.001 ** (1 / n)), rel=1e-7)
    hoeffding = VotePlan(Uniform(1.0), BOUNDS["hoeffding"], 0.001)
    lower = 0.99 - math.sqrt(math.log(1000) / (2 * n))
    assert hoeffding.radius(Fraction("0.99"), n) == pytest.approx(2 * math.sqrt(3) * (lower - 0.5), rel=1e-7)


def test_curves_hold_for_one_plan_and_show_some_of_many_points(tmp_path):
    assert common_plan([]) == VotePlan(Gaussian(1.0), BOUNDS["clopper-pearson"], 0.001)
    assert common_plan([made_run(), made_run(n=5)]).noise == Gaussian(0.25)
    with pytest.raises(InvalidValueError, match=r"\bsigma\b.*0\.25.*0\.5"):
        common_plan([made_run(), made_run(sigma=0.5)])
    with pytest.raises(InvalidValueError, match="--bound"):
        common_plan([made_run(bound=None)])
    assert shown_radii(made_run()) == [0.0, 0.2, 0.5, 0.5, 1.0]
    many = tuple(Record(k, 1, 1, k / 2990, 0.25, 0.0) for k in range(2991))
    assert shown_radii(made_run(records=many)) == pytest.approx([k / 299 for k in range(300)])
    assert shown_radii(made_run(records=(Record(0, 1, -1, 0.0, 0.25, 0.0),))) == []
    with pytest.raises(InvalidValueError, match=r"\b8\b.*\b9\b"):
        plot_confidence([made_run()] * 9, tmp_path / "a.png")
    assert input_sigmas(made_run(records=VARYING)).tolist() == pytest.approx([0.1 * k for k in range(1, 8)])
    with pytest.raises(InvalidValueError, match=r"\bmade\b.*0\.25"):
        input_sigmas(made_run())


def test_confidence_comes_from_the_votes(tmp_path):
    def record(index: int, label: int, predicted: int, votes: int) -> Record:
        selection = Tally(Stream(0, index, Phase.SELECTION), 0, 10, (10, 0))
        estimation = Tally(Stream(0, index, Phase.ESTIMATION), 0, 1000, (votes, 1000 - votes))
        return Record(index, label, predicted, 0.1 * (predicted >= 0), 0.25, 0.0, selection, estimation)

    records = (record(0, 0, 0, 990), record(1, 1, 0, 800), record(2, 0, -1, 510))
    found = confidence_of(made_run(records=records))
    for part, votes in ((found.right, 990), (found.wrong, 800), (found.abstained, 510)):
        assert part.tolist() == pytest.approx([stats.beta.ppf(0.001, votes, 1001 - votes)], rel=1e-7)
    assert found.unknown == 0
    sums = (900 * SOFT_UNIT, 100 * SOFT_UNIT)
    votes = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 1000, (1000, 0), sums, sums)
    record = Record(0, 0, 0, 0.1, 0.25, 0.0, replace(votes, stream=Stream(0, 0, Phase.SELECTION)), votes)
    found = confidence_of(made_run(records=(record,), bound="hoeffding"))
    assert found.right.tolist() == pytest.approx([0.9 - math.sqrt(math.log(1000) / 2000)], rel=1e-9)
    selection = Tally(Stream(0, 0, Phase.SELECTION), 0, 10, (10, 0))
    none = Tally(Stream(0, 0, Phase.ESTIMATION), 0, 0, (0, 0))
    run = made_run(
        records=(Record(0, 1, -1, 0.0, 0.25, 0.0, selection, none, stopped="wrong"),), stop=["wrong"]
    )
    found = confidence_of(run)
    assert (found.right.size, found.wrong.size, found.abstained.size, found.unknown) == (0, 0, 0, 1)
    plot_confidence([run], tmp_path / "none.svg")
    assert (tmp_path / "none.svg").stat().st_size > 0


def test_confidence_of_a_log_comes_from_the_radii():
    found = confidence_of(made_run())
    assert sorted(found.right) == pytest.approx(stats.norm.cdf([0.0, 0.8, 2.0, 2.0, 4.0]))
    assert found.wrong.tolist() == pytest.approx([stats.norm.cdf(12.0)])
    assert (found.abstained.size, found.unknown) == (0, 1)
    for plan in ({"bound": None}, {"bound": "two-class"}, {"noise": "uniform"}):
        with pytest.raises(InvalidValueError, match=r"\bmade\b.*--bound clopper-pearson"):
            confidence_of(made_run(**plan))


def test_areas_are_log_volumes_in_a_dimension_that_is_given_or_known(tmp_path):
    radii = [0.2, 0.5, 0.5, 1.0]
    areas = certified_areas(made_run(), 2)
    assert (areas + math.log(math.pi)).tolist() == pytest.approx(
        [L2Ball(np.zeros(2), r).log_volume() for r in radii]
    )
    # Ellipses count with their volume, not with the ball inside: semi-axes 0.2 and 5 make a disc of radius 1.
    stretched = [replace(record, volume_radius=5 * record.radius) for record in FIVE_AND_TWO if record.radius]
    found = certified_areas(made_run(records=tuple(stretched)), 2)
    assert found.tolist() == pytest.approx([2 * math.log(5 * r) for r in radii])
    run = made_run()
    named = replace(run, manifest=run.manifest.stating(data={"name": "cifar10"}))
    assert (input_dimension([named]), input_dimension([named], 5)) == (3072, 5)
    assert input_dimension([run, made_run(dimension=13)]) == 13
    for wrong in ([run], [replace(run, manifest=run.manifest.stating(data={"name": "npz:mine"}))]):
        with pytest.raises(InvalidValueError, match="--dimension"):
            input_dimension(wrong)
    with pytest.raises(InvalidValueError, match=r"dimension.*\b0\b"):
        input_dimension([named], 0)
    nothing = (Record(0, 1, -1, 0.0, 0.25, 0.0),)
    with pytest.raises(InvalidValueError):
        plot_area([made_run(records=nothing)], tmp_path / "a.png", dimension=2)
    plot_area([made_run()], tmp_path / "b.png", dimension=2)
    assert [path.name for path in tmp_path.iterdir()] == ["b.png"]


def test_points_of_six_runs_never_lie_on_each_other():
    for votes in ([1000] * 6, [1000, 10_000, 1000, 10_000, 1000, 1000], [100]):
        edges = sorted((centre - width / 2, centre + width / 2) for centre, width in strips(votes))
        assert all(left[1] < right[0] for left, right in itertools.pairwise(edges))
        for (centre, _), n in zip(strips(votes), votes):
            assert abs(centre - math.log10(n)) < 0.5  # nearer to its own n than to any tenfold
    assert strips([1000])[0][0] == 3.0


def acrs(epochs: range, **stated: Any) -> list[EpochMetrics]:
    facts: dict[str, Any] = {"acr": 0.3, "acr_inputs": 100, "acr_votes": 1000, "sigma": 0.25, "norm": "l2"}
    return [EpochMetrics(k, 1.0, 0.5, "test", 0.01, 1.0, **facts | stated) for k in epochs]


def drawn_training(monkeypatch: pytest.MonkeyPatch, out: Path, *trainings: Any, **options: Any) -> Any:
    """The figure of a plot, as it is when it is written."""
    kept: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(drawing, "save_figure", lambda figure, *_: kept.append(figure))
        plot_training(list(trainings), out, **options)
    kept[0].draw_without_rendering()
    return kept[0]


def legend_of(figure: Any) -> list[str]:
    """The heading, then each line's label."""
    legend = figure.legends[0]
    texts = [legend.get_title(), *legend.get_texts()]
    return [text.get_text().replace("\n", " ").replace("\u00a0", " ") for text in texts]


def test_of_trainings_the_acr_is_drawn_where_all_have_one(tmp_path, monkeypatch):
    checked = [EpochMetrics(k, 1.0, 0.5, "test", 0.01, 1.0, acr=0.3 if k == 2 else None) for k in (1, 2)]
    plain = [replace(one, acr=None) for one in checked]
    under_way = [*checked, replace(plain[0], epoch=3, loss=-1.0)]
    out = tmp_path / "picture.svg"
    for runs, shown in (
        ([("a", checked)], "0.300"),
        ([("a", checked), ("b", plain)], "50.0"),
        ([("a", under_way)], "0.300"),
    ):
        label = legend_of(drawn_training(monkeypatch, out, *runs))[1]
        assert set(numbers(label)) == {shown, "2"}, "the figure and the epoch of its measurement"
        assert "test" in label.split()
    plot_training([("a", under_way)], tmp_path / "loss.svg", figure="loss")
    for without in ("first", "second"):
        with pytest.raises(InvalidValueError, match=rf"\b{without}\b.*--acr-every"):
            plot_training([("first", checked), (without, plain)], out, figure="acr")
    with pytest.raises(InvalidValueError, match=r"figure.*'speed'"):
        plot_training([("a", checked)], out, figure="speed")
    assert not out.exists()


def test_no_line_joins_acrs_of_other_votes(tmp_path, monkeypatch):
    mixed = [*acrs(range(1, 17), acr_votes=20), *acrs(range(17, 21), acr_votes=3000)]
    figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("run", mixed, "digits"))
    assert [list(line.get_xdata()) for line in figure.axes[0].lines] == [
        list(range(1, 17)),
        list(range(17, 21)),
    ]
    heading, *labels = legend_of(figure)
    assert "digits" in heading
    assert "σ = 0.25" in heading
    assert set(numbers(heading)) == {"100", "0.25"}
    assert all("run" in label and "test" in label for label in labels)
    assert [set(numbers(label)) for label in labels] == [
        {"1", "16", "0.300", "20"},
        {"17", "20", "0.300", "3000"},
    ]
    assert "ℓ2" in figure.axes[0].get_ylabel()
    loss = drawn_training(monkeypatch, tmp_path / "a.svg", ("run", mixed), figure="loss")
    assert len(loss.axes[0].lines) == 1, "the loss is one all the way"


def test_what_acrs_rest_on_stands_in_the_heading_or_beside_each(tmp_path, monkeypatch):
    unstated = dict.fromkeys(("acr_inputs", "acr_votes", "sigma", "norm"))
    one, other, old = acrs(range(1, 3)), acrs(range(1, 3), acr_inputs=50), acrs(range(1, 3), **unstated)
    held_out = [replace(each, validated_on="holdout") for each in one]
    figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", one), ("b", held_out))
    heading, first, second = legend_of(figure)
    assert set(numbers(heading)) == {"100", "1000", "0.25"}
    assert "test" in first
    assert "holdout" in second
    assert set(numbers(first)) == set(numbers(second)) == {"0.300", "2"}
    figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", one), ("b", other))
    assert [set(numbers(text)) for text in legend_of(figure)] == [
        {"1000", "0.25"},
        {"0.300", "2", "100"},
        {"0.300", "2", "50"},
    ]
    figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", old))
    assert legend_of(figure)[0], "inputs and votes are not stated"
    assert not numbers(legend_of(figure)[0])
    figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", [*old, *acrs(range(3, 5))]))
    assert len(figure.axes[0].lines) == 2, "what isn't stated may be another"
    ball = acrs(range(1, 3), norm="l1")
    with pytest.raises(InvalidValueError, match=r"l2.*l1"):
        plot_training([("a", one), ("b", ball)], tmp_path / "none.svg")
    figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", one), ("b", ball), figure="accuracy")
    assert [re.findall("ℓ[12]", text) for text in legend_of(figure)] == [[], ["ℓ2"], ["ℓ1"]]


def test_long_numbers_do_not_push_the_axis_off_the_sheet(tmp_path, monkeypatch):
    for width, acr in itertools.product(("page", "column"), (0.0175, 0.000175)):
        epochs = acrs(range(1, 3), acr=acr)
        figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", epochs), width=width)
        (axes,) = figure.axes
        assert axes.yaxis.get_tightbbox().x0 >= 0
        assert axes.get_tightbbox().x1 <= figure.bbox.x1


@pytest.mark.filterwarnings("error")
def test_epochs_are_whole_numbers_and_a_learning_rate_of_nothing_is_drawn(tmp_path, monkeypatch):
    for epochs in (1, 2, 3, 30):
        figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", acrs(range(1, epochs + 1))))
        assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())
    for rates in ((0.0, 0.0), (0.0, 0.1), (0.001, 0.1)):
        stated = [replace(one, learning_rate=rate) for one, rate in zip(acrs(range(1, 3)), rates)]
        figure = drawn_training(monkeypatch, tmp_path / "a.svg", ("a", stated), figure="learning_rate")
        assert figure.axes[0].get_yscale() == ("log" if rates[0] else "linear")
