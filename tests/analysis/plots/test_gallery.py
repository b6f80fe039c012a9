from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smoothcert.analysis import plot_gallery
from smoothcert.errors import InvalidValueError
from smoothcert.runs import Record

DIGITS = [str(k) for k in range(10)]
LONG = ["airplane", "an extraordinarily long name"]


def some_records(count: int, classes: int = 10) -> list[Record]:
    """Of every three, one abstains and one is wrong."""
    records = []
    for k in range(count):
        label = k % classes
        predicted = (-1, (label + 1) % classes, label)[k % 3]
        records.append(Record(k, label, predicted, 0.0 if predicted < 0 else k / count, 0.25, 0.0))
    return records


@pytest.mark.parametrize(
    ("shape", "names"),
    [((1, 8, 8), DIGITS), ((30, 8, 8), DIGITS), ((12, 1, 8, 8), LONG), ((3, 3, 6, 8), LONG)],
)
def test_a_picture_is_made(tmp_path: Path, shape: tuple[int, ...], names: list[str]) -> None:
    pictures = np.random.default_rng(0).random(shape)
    out = tmp_path / "gallery.png"
    plot_gallery(pictures, some_records(shape[0], len(names)), names, out, "a $title")
    assert out.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_of_many_inputs_a_part_is_shown(tmp_path: Path) -> None:
    out = tmp_path / "gallery.svg"
    plot_gallery(np.zeros((500, 2, 2)), some_records(500), DIGITS, out, "many")
    assert out.read_bytes().count(b"<image ") == 144


@pytest.mark.parametrize(
    ("pictures", "records", "names", "message"),
    [
        (np.zeros((2, 8)), some_records(2), DIGITS, r"N×H×W.*\(2, 8\)"),
        (np.zeros((2, 4, 8, 8)), some_records(2), DIGITS, r"N×H×W.*\(2, 4, 8, 8\)"),
        (np.full((2, 8, 8), 16.0), some_records(2), DIGITS, r"\b16\.0\b"),
        (np.full((2, 8, 8), np.nan), some_records(2), DIGITS, r"\bnan\b"),
        (np.zeros((2, 8, 8)), some_records(3), DIGITS, r"\b2\b.*\b3\b"),
        (np.zeros((0, 8, 8)), [], DIGITS, r"\b0\b.*\b0\b"),
        (np.zeros((2, 8, 8)), some_records(2), ["0"], r"\b2\b.*class_names.*\b1\b"),
    ],
)
def test_refusals(
    tmp_path: Path, pictures: np.ndarray, records: list[Record], names: list[str], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        plot_gallery(pictures, records, names, tmp_path / "gallery.png", "title")
    assert not list(tmp_path.iterdir())


def test_suffix(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match=r"\.pdf, \.png, \.svg"):
        plot_gallery(np.zeros((1, 8, 8)), some_records(1), DIGITS, tmp_path / "gallery.bmp", "title")
