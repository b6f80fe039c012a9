from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets import load
from smoothcert.errors import DataError

X = np.arange(12, dtype=np.float32).reshape(3, 4)
Y = np.array([0, 2, 1])


def save(folder: Path, **arrays: object) -> Path:
    path = folder / "data.npz"
    np.savez(path, **arrays)  # type: ignore[arg-type]
    return path


def test_one_pair_serves_as_either_split(tmp_path):
    for inputs, labels in (("x", "y"), ("images", "labels"), ("inputs", "labels"), ("data", "target")):
        path = save(tmp_path, **{inputs: X, labels: Y})
        for split in ("train", "test"):
            dataset = load(f"npz:{path}", split)
            assert (dataset.name, dataset.classes) == (f"npz:{path}", ("0", "1", "2"))
            np.testing.assert_array_equal(dataset.stored, X)
            np.testing.assert_array_equal(dataset.labels, Y)
            assert load(str(path)).fingerprint() == dataset.fingerprint()


def test_pairs_by_split(tmp_path):
    path = save(tmp_path, x_train=X, y_train=Y, x_test=X[:2] + 1, y_test=[0, 1])
    train, test = load(str(path), "train"), load(str(path), "test")
    np.testing.assert_array_equal(train.stored, X)
    np.testing.assert_array_equal(test.stored, X[:2] + 1)
    assert train.classes == test.classes == ("0", "1", "2"), "the splits of a file agree on the classes"
    with pytest.raises(DataError, match=r"x_test/y_test.*x_train, y_train"):
        load(str(save(tmp_path, x_train=X, y_train=Y)), "test")


def test_values_and_names_are_used_as_they_are(tmp_path):
    for dtype in (np.uint8, np.int64, np.bool_, np.float16, np.float64, ">f4"):
        values = (X * 20).astype(dtype)
        dataset = load(str(save(tmp_path, x=values, y=Y)))
        assert dataset.scale == 1
        assert dataset.stored.dtype == values.dtype
        np.testing.assert_array_equal(dataset.inputs(slice(None)), values.astype(np.float32))
        assert len(dataset.fingerprint()) == 64
    for names in (["cat", "dog", "éléphant", "fly"], [b"cat", b"dog", b"ant", b"fly"]):
        dataset = load(str(save(tmp_path, x=X, y=Y, classes=names)))
        assert (len(dataset.classes), dataset.classes[:2]) == (4, ("cat", "dog"))
    for labels in ([0.0, 2.0, 1.0], np.array([0, 2, 1], np.uint8), np.array([0, 2, 1], np.float16)):
        dataset = load(str(save(tmp_path, x=X, y=labels)))
        assert (dataset.labels.dtype, dataset.labels.tolist()) == (np.int64, [0, 2, 1])


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"x": X}, "x_test/y_test"),
        ({}, "x_test/y_test"),
        ({"x": X[:2], "y": Y}, r"\b2\b.*\b3\b"),
        ({"x": X, "y": [0, 1.5, 1]}, r"'y'.*1\.5.*\b1\b"),
        ({"x": X, "y": [0, np.nan, 1]}, r"'y'.*nan.*\b1\b"),
        ({"x": X, "y": [0, 1, np.inf]}, r"'y'.*inf.*\b2\b"),
        ({"x": X, "y": [0, -1, 1]}, r"'y'.*-1\b.*\b1\b"),
        ({"x": X, "y": [0, 10**12, 1]}, rf"'y'.*{10**12}.*\b1\b"),
        ({"x": X, "y": np.array([0, 1, 2**64 - 1], np.uint64)}, rf"'y'.*{2**64 - 1}.*\b2\b"),
        ({"x": X, "y": ["a", "b", "c"]}, "'y'.*<U1"),
        ({"x": X, "y": Y[:, None]}, r"'y'.*\(3, 1\).*labels\.ravel"),
        ({"x": X, "y": Y, "classes": ["a", "b"]}, r"\b2\b.*\b1\b"),
        ({"x": X, "y": Y, "classes": [["a"]]}, r"'classes'.*\(1, 1\)"),
        ({"x": X, "y": Y, "classes": [b"\xff", b"a", b"b"]}, "'classes'.*UTF-8"),
        ({"x": X[:, 0], "y": Y}, r"\(3,\)"),
        ({"x": X[:, :0], "y": Y}, r"\(3, 0\)"),
        ({"x": X[:0], "y": Y[:0]}, "empty"),
        ({"x": X * 1j, "y": Y}, "'x'.*complex64"),
        ({"x": [["a"]] * 3, "y": Y}, "'x'.*<U1"),
        ({"x": X.astype(np.float64) * 1e300, "y": Y}, r"float32.*'x'.*1e\+300.*\b0\b.*\(1,\)"),
    ],
)
def test_wrong_arrays_are_named(tmp_path, arrays, named):
    path = save(tmp_path, **arrays)
    with pytest.raises(DataError, match=rf"data\.npz.*{named}"):
        load(f"npz:{path}")


def test_first_value_that_is_not_finite_is_named_and_objects_are_refused(tmp_path):
    for value in (np.nan, np.inf, -np.inf):
        images = np.zeros((3, 1, 2, 2))
        images[1, 0, 1, 0] = images[2, 0, 0, 0] = value
        with pytest.raises(DataError, match=rf"'x'.*{value}.*\b1\b.*\(0, 1, 0\)"):
            load(str(save(tmp_path, x=images, y=Y)))
    for key in ("x", "y", "classes"):
        path = save(tmp_path, **{"x": X, "y": Y, key: np.array([[1], [1, 2], None], dtype=object)})
        with pytest.raises(DataError, match=rf"data\.npz.*'{key}'.*np\.savez"):
            load(str(path))


def test_truncated_and_flipped_archives_are_refused_by_one_exception(tmp_path):
    path = save(tmp_path, x=X, y=Y)
    original = path.read_bytes()
    for kept in (0, 1, 3, 4, 100, -30, -1):
        path.write_bytes(original[:kept])
        with pytest.raises(DataError, match=r"data\.npz"):
            load(str(path))
    messages: list[str] = []
    for position in range(len(original)):
        damaged = bytearray(original)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            load(str(path))
        except DataError as error:
            messages.append(str(error))
    assert len(messages) > len(original) / 2
    assert all("data.npz" in message for message in messages)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"absent\.npz"):
        load(str(tmp_path / "absent.npz"))
    single = tmp_path / "single.npy"
    np.save(single, X)
    with pytest.raises(DataError, match=r"single\.npy.*\.npz"):
        load(f"npz:{single}")
    text = tmp_path / "text.npz"
    text.write_text("x,y\n1,2\n")
    with pytest.raises(DataError, match=r"text\.npz"):
        load(str(text))
