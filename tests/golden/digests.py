"""Named cases and the SHA-256 of what each answers, once of its votes and once of all its numbers.

``votes`` takes whole numbers, classes and names only: streams, counts, soft sums, predicted classes, kinds of reasons
to stop. ``answers`` also takes radii, bounds and σ, as ``float.hex``, and the reasons' texts. Where ``votes`` is equal
and ``answers`` is not, arithmetic after the votes differs: a bound, a certificate, or the last bit of a quantile.

σ searches compute with logarithms, and two of them with gradients, whose last bits differ between processors: their
floats are rounded to six digits.

Only public names are used, and two beside them: ``SEARCHES``, and ``Progress`` to interrupt a run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from smoothcert import (
    CertifyPlan,
    Choice,
    ConstantChooser,
    Dataset,
    DiagonalGaussian,
    DiagonalUniform,
    Execution,
    Gaussian,
    LevelledClassifier,
    Numerics,
    Run,
    SmoothedClassifier,
    StatisticChooser,
    certify_dataset,
    load_run,
)
from smoothcert.evaluation.certification import Progress
from tests.golden import models
from tests.golden.models import IMAGES, LEVELS, POINTS, DyadicNet, ExactNet, SureNet, thresholds

PINNED = Path(__file__).parent / "digests.json"
ONE = Execution(workers=1)
TWO = Execution(workers=2)
PROCESSES = Execution(workers=2, backend="processes")
SMALL = {"n0": 48, "n": 400, "alpha": 0.01, "seed": 7, "levels": LEVELS}

Facts = list[dict[str, Any]]
"""For each input, or each state of one, plain values by name."""


@dataclass(frozen=True)
class Case:
    """A name, what makes its facts in a directory of its own, and how its floats are written."""

    name: str
    make: Callable[[Path], Facts]
    digits: int | None = None
    """Significant digits that floats are rounded to; None: none is lost."""
    slow: bool = False
    same: str | None = None
    """The case whose digests it must have: they differ only in how the work is done."""


CASES: dict[str, Case] = {}


def add(
    name: str,
    make: Callable[[Path], Facts],
    digits: int | None = None,
    *,
    slow: bool = False,
    same: str | None = None,
) -> None:
    assert name not in CASES, name
    CASES[name] = Case(name, make, digits, slow, same)


def digests(case: Case, directory: Path) -> dict[str, str]:
    """The case's two hashes."""
    facts = case.make(directory)
    whole = [{name: value for name, value in each.items() if name not in NOT_VOTES} for each in facts]
    return {"votes": _sha256(whole, case.digits), "answers": _sha256(facts, case.digits)}


def _sha256(facts: Facts, digits: int | None) -> str:
    text = json.dumps(_plain(facts, digits), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any, digits: int | None) -> Any:
    """The value as JSON has it; every float as text."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist(), digits)
    if isinstance(value, float):
        return value.hex() if digits is None else f"{value:.{digits}g}"
    if isinstance(value, dict):
        return {name: _plain(each, digits) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, digits) for each in value]
    return value


# What is said of an answer.

NOT_VOTES = {
    "radius",
    "norm",
    "sigma",
    "bounds",
    "volume_radius",
    "shift",
    "radius_off_grid",
    "search",
    "p_value",
}
NOT_VOTES |= {"reaches", "radii", "held", "stopped_text"}
"""Facts that ``votes`` leaves out."""


def fields(answer: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in names}


def stopped(reason: str | None) -> dict[str, Any]:
    """A reason to stop: the word before the colon is among ``votes``, the whole text among ``answers``."""
    return {"stopped": kind(reason), "stopped_text": reason}


def kind(reason: str | None) -> str | None:
    return reason and reason.partition(":")[0]


def tally(votes: Any) -> dict[str, Any] | None:
    """Every number of a tally."""
    if votes is None:
        return None
    stream = [votes.stream.seed, votes.stream.index, votes.stream.phase.name]
    return {"stream": stream, "range": [votes.start, votes.stop]} | fields(votes, "counts", "sums", "squares")


def certified(answers: Iterable[Any]) -> Facts:
    """What is pinned of certifications."""
    return [_certified(answer) for answer in answers]


def _certified(answer: Any) -> dict[str, Any]:
    facts = fields(
        answer, "index", "row", "predicted", "candidate", "label", "seed", "radius", "norm", "sigma"
    )
    facts |= fields(answer, "volume_radius", "shift", "radius_off_grid") | stopped(answer.stopped)
    facts |= {name: tally(getattr(answer, name)) for name in ("selection", "estimation")}
    facts["bounds"] = [answer.bounds.lower, answer.bounds.upper]
    if (search := answer.search) is not None:
        found = fields(search, "sigma", "reason", "start_radius", "radius", "evaluations")
        facts["search"] = [*found.values(), None if search.noise is None else search.noise.sigmas]
    if (levels := answer.levels) is not None:
        facts |= fields(levels, "home", "reaches", "radii")
        facts |= {name: tally(getattr(levels, name)) for name in ("chosen", "chooser")}
        facts["levels"] = [
            [each.level, tally(each.selection), tally(each.estimation), kind(each.stopped)]
            for each in levels.votes
        ]
    if answer.held is not None:
        facts["held"] = [answer.held.mask, answer.held.values]
    return facts


def predicted(answers: Iterable[Any]) -> Facts:
    """What is pinned of predictions."""
    names = ("index", "row", "predicted", "label", "seed", "p_value")
    return [fields(answer, *names) | {"tally": tally(answer.tally)} for answer in answers]


def streamed(state: Any) -> dict[str, Any]:
    """What is pinned of a state of a certification under way."""
    if state.certification is not None:
        return _certified(state.certification)
    bounds = [state.bounds.lower, state.bounds.upper]
    return fields(state, "votes", "chosen", "radius") | {"bounds": bounds, "answer": None}


def recorded(run: Run) -> Facts:
    """What is pinned of a run's records: all but the time they took."""
    names = ("index", "label", "predicted", "base", "radius", "sigma", "volume_radius")
    return [
        fields(record, *names)
        | stopped(record.stopped)
        | {name: tally(getattr(record, name)) for name in ("selection", "estimation")}
        for record in load_run(run.path).records
    ]


# What is asked of a model.


def smoothed(model: Any, sigma: Any = 0.25, execution: Execution = ONE, **fields: Any) -> SmoothedClassifier:
    """A smoothed classifier by a number or a noise; fields that are not the model's are the plan's."""
    names = ("outputs", "classes", "thread_safe", "input_shape", "noise")
    own = {name: fields.pop(name) for name in names if name in fields}
    fields = SMALL | fields
    if isinstance(sigma, float):
        return SmoothedClassifier(model, sigma=sigma, execution=execution, **own, **fields)
    return SmoothedClassifier(model, CertifyPlan(sigma, **fields), execution=execution, **own)


def certify(
    model: Callable[[], Any],
    inputs: Any,
    _: Path,
    *,
    labels: Any = None,
    index: int | None = None,
    **fields: Any,
) -> Facts:
    return certified(smoothed(model(), **fields).certify(inputs, index, labels))


def function(call: Any = thresholds) -> Callable[[], Any]:
    return lambda: call


def hold(columns: Any, _: Path, **fields: Any) -> Facts:
    return certified(smoothed(thresholds, **fields).holding(columns).certify(POINTS))


def hold_table(_: Path) -> Facts:
    """Named columns, of which one holds categories."""
    import pandas as pd

    table = pd.DataFrame(POINTS[:, :3].astype(np.float64), columns=["a", "b", "c"])
    table["kind"] = pd.Categorical(["x", "y", "x", "y", "x", "y"])

    return certified(smoothed(models.ByKind(), 0.5).holding(["kind"]).certify(table))


def levelled(chooser: Any, _: Path, *, model: Any = thresholds, inputs: Any = POINTS, **fields: Any) -> Facts:
    return certified(level_classifier(chooser, model, **fields).certify(inputs))


def level_classifier(chooser: Any, model: Any = thresholds, **fields: Any) -> LevelledClassifier:
    options = {"n0": 32, "n": 600, "chooser_n0": 32, "chooser_n": 600, "execution": ONE} | fields
    if not isinstance(chooser, ConstantChooser):
        options.setdefault("chooser_sigma", 0.5)
    return LevelledClassifier(
        model, chooser, sigmas=(0.25, 0.5, 1.0), seed=7, levels=LEVELS, alpha=0.01, **options
    )


def search(name: str, _: Path, *, model: Callable[[], Any] = ExactNet, **options: Any) -> Facts:
    from smoothcert.smoothing.search.base import SEARCHES

    plan = {name: options.pop(name) for name in ("bound", "outputs", "execution") if name in options}
    return certify(model, IMAGES[:4], _, search=SEARCHES[name](**options), sigma=0.5, **plan)


def predict(model: Callable[[], Any], inputs: Any, _: Path, *, n: int = 300, **fields: Any) -> Facts:
    until = fields.pop("until_decided", None)
    return predicted(smoothed(model(), **fields).predict(inputs, n, until_decided=until))


def predict_levels(_: Path) -> Facts:
    return predicted(level_classifier(models.by_second_feature).predict(POINTS, 300))


def held() -> Any:
    return smoothed(thresholds).holding([3, 4])


def predict_held(_: Path) -> Facts:
    return predicted(held().predict(POINTS, 300))


def stream(_: Path, **fields: Any) -> Facts:
    classifier = smoothed(thresholds, **fields)
    return [streamed(state) for x in POINTS[:3] for state in classifier.certify_stream(x)]


def onnx(directory: Path, **fields: Any) -> Facts:
    return certified(smoothed(models.save_onnx(directory / "exact.onnx"), **fields).certify(POINTS))


def tree(_: Path, **fields: Any) -> Facts:
    """A fitted decision tree: thresholds half-way between training points."""
    from sklearn.tree import DecisionTreeClassifier

    corners = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]], dtype=np.float32)
    fitted = DecisionTreeClassifier(random_state=0).fit(corners, ["low", "high", "high", "low"])
    return certified(smoothed(fitted, **fields).certify(POINTS[:, :2]))


def estimator(directory: Path) -> Facts:
    """The scikit-learn interface: fit with noise, predict, certify."""
    from smoothcert.estimator import SmoothedEstimator

    wrapped = SmoothedEstimator(
        models.ThresholdEstimator(), sigma=0.25, copies=2, votes=200, n0=48, n=400, alpha=0.01, random_state=3
    )
    wrapped.fit(POINTS, np.array(["p", "q", "r", "p", "q", "r"]))
    answers = certified(wrapped.certify(POINTS))
    return [*answers, {"predict": wrapped.predict(POINTS).tolist(), "p_value": wrapped.predict_proba(POINTS)}]


def run(
    classifier: Callable[[], Any], dataset: Callable[[], Dataset], directory: Path, **choice: Any
) -> Facts:
    """A data set certified into a run directory."""
    return recorded(certify_dataset(classifier(), dataset(), directory / "run", Choice(**choice)))


class StoppedEarlyError(Exception):
    """Ends a run after some of its records."""


def interrupted(
    classifier: Callable[[], Any], dataset: Callable[[], Dataset], directory: Path, after: int = 3
) -> Facts:
    """The same run, ended after a few records and resumed."""
    left = after

    def count(_: object) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise StoppedEarlyError

    try:
        certify_dataset(classifier(), dataset(), directory / "run", progress=Progress(record=count))
    except StoppedEarlyError:
        assert len(load_run(directory / "run").records) < len(dataset())
    return run(classifier, dataset, directory)


def planned(**fields: Any) -> Callable[[], SmoothedClassifier]:
    return partial(smoothed, thresholds, **fields)


def _fill() -> None:
    """The list of cases."""
    hard = partial(certify, ExactNet, IMAGES)
    soft = partial(certify, SureNet, IMAGES, bound="bernstein")
    for generator in ("sfc64", "philox"):
        for route in ("eager", "channels-last", "folded", "onnxruntime", "compiled"):
            kinds = {"hard": hard} if generator == "sfc64" or route in ("eager", "onnxruntime") else {}
            kinds |= {"soft": soft} if generator == "sfc64" or route == "eager" else {}
            for name, make in kinds.items():
                same = None if route == "eager" else f"{generator}-eager-{name}"
                numbers = Numerics(route=route, generator=generator)
                slow = route == "compiled"
                add(f"{generator}-{route}-{name}", partial(make, numerics=numbers), slow=slow, same=same)
    add("auto-route", hard)
    add("float64", partial(hard, numerics=Numerics(dtype="float64", route="eager")), same="sfc64-eager-hard")
    chunked = partial(hard, numerics=Numerics(route="eager", chunk=48, block=16))
    two = partial(chunked, execution=replace(TWO, batch=96))
    add("chunk-48-block-16", chunked)
    add("chunk-48-block-16-two-workers", two, same="chunk-48-block-16")
    add("soft-probabilities", partial(certify, DyadicNet, IMAGES, bound="hoeffding", outputs="probabilities"))

    # Blocks of ten passes; the noise of the first six is drawn at once, then that of the others.
    large = partial(
        certify, function(models.halves), models.LARGE, outputs="probabilities", thread_safe=True, n=1600
    )
    philox = Numerics(chunk=48, block=480, generator="philox")
    long = partial(large, numerics=Numerics(chunk=48, block=480))
    add("long-blocks", long)
    add("long-blocks-two-workers", partial(long, execution=TWO), same="long-blocks")
    add("long-blocks-soft", partial(long, bound="bernstein"))
    add("long-blocks-philox", partial(large, numerics=philox))
    add("long-blocks-stop", partial(long, stop=["gain:2%"]))
    add("long-blocks-uniform", partial(long, noise="uniform"))

    points = partial(certify, function(), POINTS)
    labels = partial(certify, function(models.labels_of), POINTS, outputs="labels", classes=3)
    dyadic = partial(certify, function(models.dyadic), POINTS)
    top_two = partial(points, bound="top-two")
    add("function-top-two", top_two)
    add("function-clopper-pearson", partial(points, bound="clopper-pearson"))
    add("function-labels", partial(labels, bound="top-two"), same="function-top-two")
    add("function-numbered", partial(points, index=100))
    add("function-off-grid", partial(certify, function(), POINTS + np.float32(0.003), levels=None))
    add("function-soft", partial(dyadic, bound="bernstein", outputs="probabilities"))
    threads = partial(top_two, execution=TWO, thread_safe=True)
    add("function-threads-2", threads, same="function-top-two")
    add("function-processes-2", partial(top_two, execution=PROCESSES), slow=True, same="function-top-two")
    eager = partial(hard, numerics=Numerics(route="eager"))
    add("torch-threads-2", partial(eager, execution=TWO), same="sfc64-eager-hard")
    add("torch-processes-2", partial(eager, execution=PROCESSES), slow=True, same="sfc64-eager-hard")
    add("onnx-file", onnx)
    add("onnx-file-two-workers", partial(onnx, execution=TWO), same="onnx-file")
    add("tree", tree)
    add("estimator", estimator)

    philox = Numerics(generator="philox")
    add("uniform", partial(points, noise="uniform"))
    add("uniform-philox", partial(points, noise="uniform", numerics=philox))
    scales = np.array([0.25, 0.5, 0.25, 1.0, 0.375])
    add("diagonal", partial(points, sigma=DiagonalGaussian(scales)))
    add("diagonal-uniform", partial(points, sigma=DiagonalUniform(scales)))
    picture = DiagonalGaussian(np.where(models._PIXEL % 3 == 0, 0.5, 0.25)[None])
    add("diagonal-images", partial(hard, sigma=picture))
    add("diagonal-images-philox", partial(hard, sigma=picture, numerics=philox))

    ladder = partial(search, "ladder", votes=16, round_votes=96)
    add("search-ladder", ladder, 6)
    add("search-ladder-two-workers", partial(ladder, execution=TWO), 6, same="search-ladder")
    add("search-ladder-soft", partial(search, "ladder", model=SureNet, votes=16, bound="bernstein"), 6)
    add("search-grid", partial(search, "grid", budget=120, rescue=True), 6)
    add("search-gradient", partial(search, "gradient", steps=12, lr=0.01), 6)
    add("search-gradient-unchecked", partial(search, "gradient", steps=6, lr=0.01, check_votes=0), 6)
    add("search-ellipsoid", partial(search, "ellipsoid", steps=6, check_votes=48), 6)

    by_feature = partial(levelled, models.by_second_feature)
    mean = StatisticChooser("mean", (0.5, 0.625))
    add("levels-chooser", by_feature)
    add("levels-two-workers", partial(by_feature, execution=TWO), same="levels-chooser")
    add("levels-constant", partial(levelled, ConstantChooser(1)))
    add("levels-statistic", partial(levelled, mean, model=ExactNet(), inputs=IMAGES))
    add("levels-three-models", partial(by_feature, model=[thresholds] * 3, noise="uniform"))
    add("levels-stop", partial(by_feature, stop=["decide:0.1"], n=2000))

    add("held", partial(hold, [3, 4]))
    add("held-philox", partial(hold, [3, 4], numerics=philox))
    add("held-uniform", partial(hold, [1], noise="uniform"))
    add("held-stop", partial(hold, [3, 4], stop=["decide:0.1"]))
    add("held-table", hold_table)

    wrong = models.labels_of(POINTS)
    wrong[1] = (wrong[1] + 1) % models.CLASSES
    many = partial(points, n=4000, n0=100)
    add("stop-decide", partial(many, stop=["decide:0.25"]))
    add("stop-decide-soft", partial(dyadic, stop=["decide:0.1"], bound="mixture", n=4000, n0=100))
    add("stop-gain-abstain", partial(many, stop=["gain:1%", "abstain"]))
    add("stop-grid", partial(many, stop=["grid:0.1,0.25,0.5"]))
    add("stop-pilot", partial(many, stop=["pilot:1%"]))
    add("stop-wrong", partial(many, labels=wrong, stop=["wrong"]))
    add("stop-looks", partial(many, stop=["decide:0.25"], bound="looks", n=3162))
    watched = partial(stream, bound="mixture-top-two", n=4000, n0=100)
    add("stream", watched)
    add("stream-two-workers", partial(watched, execution=TWO), same="stream")

    add("predict", partial(predict, ExactNet, IMAGES))
    add("predict-philox-soft", partial(predict, SureNet, IMAGES, bound="bernstein", numerics=philox))
    add("predict-until-decided", partial(predict, function(), POINTS, until_decided=2000))
    add("predict-held", predict_held)
    add("predict-levels", predict_levels)

    total = planned(stop=["total:9000,100"], n=2000)
    table, images = models.points_dataset, models.images_dataset
    pictures = partial(smoothed, ExactNet(), Gaussian(0.5), levels=None)
    levels = partial(level_classifier, models.by_second_feature)
    runs = {"run-plain": planned(), "run-total": total, "run-levels": levels, "run-held": held}
    for name, classifier in runs.items():
        resumed = f"{name.removesuffix('-plain')}-resumed"
        add(name, partial(run, classifier, table))
        add(resumed, partial(interrupted, classifier, table), same=name)
    add("run-wrong", partial(run, planned(stop=["wrong", "decide:0.2"], n=2000), table))
    add("run-every-other", partial(run, pictures, images, skip=2))


_fill()
