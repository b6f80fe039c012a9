"""Answers for many inputs: a list and columns; errors name rows; answers read in a line."""

import re
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from smoothcert import ABSTAIN, Certification, Certifications, SmoothedClassifier, certify_dataset
from smoothcert.errors import InvalidValueError, MissingExtraError, RunError, SmoothcertError
from smoothcert.smoothing.inputs import SmallNoiseWarning

X = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 0.0], [4.0, 1.0]])


def sign(batch: np.ndarray) -> np.ndarray:
    return np.stack([batch[:, 0], -batch[:, 0]], 1)


class Named:
    """An estimator whose names are numbers, and not their own places."""

    def __init__(self, names: list[Any]) -> None:
        self.classes_ = np.array(names)

    def predict(self, batch: np.ndarray) -> np.ndarray:
        return self.classes_[(batch[:, 0] <= 0).astype(int)]


def smoothed(model: Any = sign, **options: Any) -> SmoothedClassifier:
    return SmoothedClassifier(model, sigma=1.0, n=400, seed=0, **options)


def certified(model: Any = sign) -> Certifications:
    return smoothed(model).certify(X)


def test_answers_are_a_list_and_columns():
    answers = certified()
    assert isinstance(answers, list)
    assert len(answers) == 4
    assert [answer.row for answer in answers] == [0, 1, 2, 3]
    assert answers.predicted.tolist() == [answer.predicted for answer in answers] == [0, 1, ABSTAIN, 0]
    assert answers.radius.tolist() == [answer.radius for answer in answers]
    assert answers.abstained.tolist() == [False, False, True, False]
    assert list(answers.label) == [None] * 4
    assert isinstance(answers[1], Certification)
    assert isinstance(answers[1:], Certifications)
    assert answers[1:].predicted.tolist() == [1, ABSTAIN, 0]
    assert isinstance(smoothed().certify(X[0]), Certification), "one input has one answer"


def test_figures_are_those_of_runs():
    answers = certified()
    least = answers.radius[[0, 1, 3]].min()
    assert answers.accuracy([0, 1, 0, 0]) == 0.75
    assert answers.accuracy([0, 0, 0, 0], [0.0, least, 99.0]).tolist() == [0.5, 0.5, 0.0]
    assert answers.acr(torch.tensor([0, 0, 0, 0])) == pytest.approx(answers.radius[[0, 3]].sum() / 4)
    with pytest.raises(InvalidValueError, match=r"\by\b.*\b4\b.*\b2\b"):
        answers.acr([0, 1])
    assert answers.acr(np.zeros(4)) == answers.acr([0, 0, 0, 0])
    for bad in (np.nan, np.inf, -1, 0.5, "a", None):
        with pytest.raises(InvalidValueError, match=rf"\by\b.*{re.escape(repr(bad))}"):
            answers.acr([bad] * 4)
    with pytest.raises(RunError):
        answers[:0].acr([])


def test_labels_go_by_the_models_own_names():
    for names, y, refused in [
        (["yes", "no"], ["yes", "no", "no", "yes"], None),
        (["yes", "no"], [0, 1, 1, 0], None),  # text leaves numbers free
        ([7, 3], [7, 3, 3, 7], None),
        ([1, 0], [1, 0, 0, 1], None),  # by name, never by place
        ([7, 3], [0, 1, 1, 0], r"\b0\b.*\b7, 3\b"),
        (["yes", "no"], ["yes", "no", "perhaps", "yes"], "'perhaps'.*'yes', 'no'"),
        (["yes", "no"], [0, 1, 2, 0], r"\b2\b.*'yes', 'no'"),
    ]:
        answers = certified(Named(names))
        assert list(answers.label) == [names[0], names[1], None, names[0]]
        if refused is not None:
            with pytest.raises(InvalidValueError, match=refused):
                answers.accuracy(y)
        else:
            assert answers.accuracy(y) == 0.75


def test_classes_in_another_order_keep_their_names():
    answers = smoothed(Named(["yes", "no"])).in_order((1, 0)).certify(X)
    assert answers.predicted.tolist() == [1, 0, ABSTAIN, 1]
    assert list(answers.label) == ["yes", "no", None, "yes"]
    assert answers.accuracy(["yes", "no", "no", "yes"]) == 0.75


def test_answers_read_in_a_line():
    answers = certified(Named(["yes", "no"]))
    first = repr(answers[0])
    assert first.startswith("Certification(row=0, predicted=0, label='yes', radius=")
    assert "\n" not in first
    shown = float(first.split("radius=")[1].split(",")[0])
    assert 0 <= answers[0].radius - shown < 1e-3, "a printed radius is certified, too"
    assert "radius=0" in repr(answers[2])
    assert [repr(answer) in repr(answers) for answer in answers] == [True] * 4
    many = repr(Certifications([answers[0]] * 100))
    assert len(many) < 12 * len(first)
    assert re.search(rf"\b{100 - many.count(first)}\b", many), "it says how many are left out"
    prediction = smoothed(Named(["yes", "no"])).predict(X)[1]
    assert repr(prediction).startswith("Prediction(row=1, predicted=1, label='no', p_value=")


def test_tables(monkeypatch, tmp_path):
    answers = certified(Named(["yes", "no"]))
    columns = answers.to_dict()
    assert columns["row"] == [0, 1, 2, 3]
    assert columns["label"] == ["yes", "no", None, "yes"]
    assert columns["radius"] == answers.radius.tolist()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[tables\]"):
        answers.to_dataframe()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[parquet\]"):
        answers.to_parquet(tmp_path / "answers.parquet")


def test_tables_hold_the_columns_as_they_are(tmp_path):
    pytest.importorskip("pandas")
    parquet = pytest.importorskip("pyarrow.parquet")
    for names in (None, ["yes", "no"], [7, 3]):
        answers = certified(sign if names is None else Named(names))
        table = answers.to_dataframe()
        assert {name: table[name].tolist() for name in table.columns} == answers.to_dict()
        assert [type(one) for one in table["label"]] == [type(one) for one in answers.label]
        path = answers.to_parquet(tmp_path / "answers.parquet")
        assert parquet.read_table(path).to_pydict() == answers.to_dict()
    first, second, *_ = certified()
    mixed = Certifications([replace(first, label="yes"), replace(second, label=3)])
    path = mixed.to_parquet(str(tmp_path / "mixed.parquet"))
    assert parquet.read_table(path).to_pydict()["label"] == ["yes", "3"]


def test_a_plot_shows_what_accuracy_says(monkeypatch):
    figures = pytest.importorskip("matplotlib.figure")
    answers, axes = certified(), figures.Figure().subplots()
    assert answers.plot([0, 0, 0, 0], ax=axes, label="mine") is axes
    (line,) = axes.get_lines()
    radii, shown = line.get_data()
    beyond = np.nextafter(radii, np.inf)
    assert shown.tolist() == (100 * answers.accuracy([0, 0, 0, 0], [0.0, *beyond[1:]])).tolist()
    assert line.get_label() == "mine"
    assert "ℓ2" in axes.get_xlabel()
    of_labels = axes.get_ylabel()
    axes = figures.Figure().subplots()
    answers.plot(ax=axes)
    assert axes.get_lines()[0].get_ydata()[0] == 75.0, "an abstention is no certificate"
    assert "%" in axes.get_ylabel()
    assert axes.get_ylabel() != of_labels
    with pytest.raises(InvalidValueError):
        answers[:0].plot()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"smoothcert\[plot\]"):
        answers.plot()


def test_a_bar_when_asked_for(capsys):
    plain = smoothed().certify(X)
    assert capsys.readouterr() == ("", "")
    shown = smoothed().certify(X, progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "4/4" in printed.err
    assert shown.radius.tolist() == plain.radius.tolist()


def test_loaders():
    from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset, WeightedRandomSampler

    inputs = torch.from_numpy(X)
    for data in (TensorDataset(inputs, torch.zeros(4)), TensorDataset(inputs)):
        answers = smoothed().certify(DataLoader(data, batch_size=3))
        assert answers.radius.tolist() == certified().radius.tolist()
        with pytest.raises(InvalidValueError, match="shuffle=False"):
            smoothed().certify(DataLoader(data, shuffle=True))
        for sampler in (SubsetRandomSampler(range(4)), WeightedRandomSampler([1.0] * 4, 4)):
            with pytest.raises(InvalidValueError, match=r"shuffle=False.*sampler"):
                smoothed().certify(DataLoader(data, sampler=sampler))
    with pytest.raises(InvalidValueError, match=r"\(2,\), \(3,\)"):
        smoothed().certify(DataLoader([torch.zeros(2), torch.zeros(3)]))
    with pytest.raises(InvalidValueError, match=r"\(inputs, targets\)"):
        smoothed().certify(DataLoader([{"x": row} for row in X]))
    assert smoothed().certify(inputs).radius.tolist() == certified().radius.tolist()


# ------------------------------------------------------------------------------------------------------------- rows


def test_errors_name_the_row():
    bad = X.copy()
    bad[2, 1] = np.nan
    for ask in (smoothed().certify, smoothed().predict):
        with pytest.raises(InvalidValueError, match=r"\b2\b.*\bnan\b.*\(1,\)"):
            ask(bad)
    with pytest.raises(InvalidValueError, match=r"\b12\b.*\bnan\b"):
        smoothed().certify(bad, index=10)  # the number that the caller gave

    def broken(batch: np.ndarray) -> np.ndarray:
        return np.where(batch > 20, np.nan, sign(batch))

    far = np.array([[1.0, 1.0], [1.0, 30.0]])
    with pytest.raises(SmoothcertError, match=r"^\D*(1|\[0, 1\]|\[1, 0\]):.*NaN"):
        smoothed(broken).certify(far)
    far[1, 1] = 1e30
    with pytest.raises(SmoothcertError, match=r"\b1\b.*1e\+30.*--dtype float64"):
        smoothed().certify(far)


def test_inputs_of_another_shape_are_told_both():
    for shape in ((5,), (3, 5), (2, 3, 13)):
        with pytest.raises(InvalidValueError) as caught:
            smoothed(input_shape=(13,)).certify(np.zeros(shape))
        assert "(13,)" in str(caught.value)
        assert str(shape) in str(caught.value)


def test_numbers_that_other_classes_spell_are_no_labels():
    answers = certified(Named(["1", "2"]))
    assert answers.accuracy(["1", "2", "1", "1"]) == 0.75
    with pytest.raises(InvalidValueError, match=r"\by\b.* 1\b.*'1', '2'"):
        answers.accuracy([1, 2, 1, 1])
    assert certified(Named(["0", "1"])).accuracy([0, 1, 0, 0]) == 0.75, "here both readings agree"
    assert certified(Named(["cat", "dog"])).accuracy([0, 1, 0, 0]) == 0.75


def test_labels_beyond_the_classes_and_radii_below_zero_are_mistakes():
    with pytest.raises(InvalidValueError, match=r"\by\b.*\b2\b.*\b0\b.*\b1\b"):
        certified().accuracy([1, 2, 1, 1])
    for radii in (-0.5, [0.0, float("nan")], "far", [[0.0, 1.0]], [1j]):
        with pytest.raises(InvalidValueError, match=rf"radii.*{re.escape(repr(radii))}"):
            certified().accuracy([0, 1, 0, 0], radii)


@pytest.mark.parametrize("names", [["1", "2"], [1, 2], ["yes", "no"], [True, False]])
def test_labels_that_stop_the_voting_are_those_of_accuracy(names):
    """By their numbers, 1 would be the second class, and every right answer a wrong one."""
    named = smoothed(Named(names), stop=("wrong",))
    y = [names[0], names[1], names[0], names[1]]  # the last is wrong
    answers = named.certify(X, labels=y)
    assert answers.abstained.tolist() == [False, False, True, True]
    assert answers.accuracy(y) == 0.5
    with pytest.raises(InvalidValueError, match=r"labels.*\b4\b.*'maybe'"):
        named.certify(X, labels=["maybe"] * 4)


def test_the_label_of_a_stream_goes_by_name():
    named = smoothed(Named([1, 2]), stop=("wrong",), bound="mixture")
    *_, last = named.certify_stream(X[0], label=1)
    assert last.certification.label == 1


def test_noise_that_is_tiny_beside_the_inputs_is_told(tmp_path):
    """Pixels from 0 to 255 and σ of pixels in [0, 1]; columns without noise have ranges of their own."""
    pixels = np.array([[0, 255], [255, 3]], dtype=np.uint8)
    with pytest.warns(SmallNoiseWarning, match=r"0\.39 %"):
        smoothed().certify(pixels)
    with pytest.warns(SmallNoiseWarning, match="0 to 255"):
        certify_dataset(smoothed(), pixels, tmp_path / "run", labels=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        smoothed().certify(pixels / 255)
        smoothed(hold=[1]).certify(np.array([[3.0, 1e4], [-3.0, 0.0]]))


def test_a_list_of_arrays_is_a_batch_whatever_their_axes():
    def darker(batch: np.ndarray) -> np.ndarray:
        means = batch.reshape(len(batch), -1).mean(1)
        return np.stack([means, -means], 1)

    pictures = [np.full((2, 2), 3.0), np.full((2, 2), -3.0)]
    assert smoothed(darker).certify(pictures).predicted.tolist() == [0, 1]


def test_images_of_pil_are_refused_with_the_array_to_give():
    images = pytest.importorskip("PIL.Image", reason="smoothcert[images] is not installed")
    with pytest.raises(InvalidValueError, match="255"):
        smoothed().certify([images.new("L", (2, 2))])


def test_labels_in_the_place_of_a_choice_are_a_mistake_that_names_labels(tmp_path):
    with pytest.raises(InvalidValueError, match="labels="):
        certify_dataset(smoothed(), X, tmp_path / "run", np.array([0, 1, 0, 0]))  # type: ignore[arg-type]
