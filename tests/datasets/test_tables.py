"""Tables: types and codes of columns, splits, separators, and what is wrong with a file, by line and name."""

from pathlib import Path

import numpy as np
import pytest

from smoothcert.datasets import load
from smoothcert.datasets.tables import TableOptions, as_frame, with_options
from smoothcert.errors import DataError, InvalidValueError
from smoothcert.perturb.columns import Columns
from tests.cli.output import names

ROWS = [
    ("age", "job", "code", "y"),
    ("30", "clerk", "1", "no"),
    ("41", "nurse", "2", "yes"),
    ("52", "clerk", "3", "no"),
    ("23", "pilot", "1", "yes"),
    ("64", "", "2", "no"),
    ("35", "nurse", "3", "yes"),
    ("46", "clerk", "1", "no"),
    ("57", "pilot", "2", "yes"),
    ("28", "nurse", "3", "no"),
    ("69", "clerk", "1", "yes"),
    ("31", "clerk", "2", "no"),
    ("42", "nurse", "3", "yes"),
]


def written(path: Path, rows: list[tuple[str, ...]] = ROWS, separator: str = ",") -> str:
    path.write_text("".join(separator.join(row) + "\n" for row in rows))
    return f"csv:{path}?target=y"


def both(spec: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows and labels, the training split's first."""
    splits = [load(spec, split) for split in ("train", "test")]
    return np.concatenate([one.stored for one in splits]), np.concatenate([one.labels for one in splits])


def test_columns_are_typed_and_categories_get_codes_in_order(tmp_path):
    data = load(written(tmp_path / "a.csv"), "train")
    assert data.columns == Columns(("age", "job", "code"), {"job": ("clerk", "nurse", "pilot")})
    assert data.classes == ("no", "yes")
    stored, labels = both(written(tmp_path / "a.csv"))
    found = {row[0]: (row[1], row[2], label) for row, label in zip(stored.tolist(), labels.tolist())}
    known = {"clerk": 0, "nurse": 1, "pilot": 2, "": 3}  # an empty cell has the code after the last
    assert found == {
        float(age): (known[job], float(code), ["no", "yes"].index(y)) for age, job, code, y in ROWS[1:]
    }


def test_declared_columns_are_categories_and_ignored_ones_are_not_there(tmp_path):
    spec = written(tmp_path / "a.csv") + "&categorical=code&ignore=job"
    data = load(spec, "train")
    assert data.columns == Columns(("age", "code"), {"code": (1, 2, 3)})
    stored, _ = both(spec)
    assert sorted(stored[:, 1].tolist()) == [0] * 4 + [1] * 4 + [2] * 4


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_found_in_the_header(separator, tmp_path):
    plain = load(written(tmp_path / "plain.csv"), "test")
    data = load(written(tmp_path / "other.csv", separator=separator), "test")
    assert np.array_equal(data.stored, plain.stored)
    named = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}[separator]
    assert np.array_equal(load(f"{data.name}&separator={named}", "test").stored, plain.stored)


def test_quotes_byte_order_marks_and_blank_lines(tmp_path):
    path = tmp_path / "a.csv"
    lines = ['"age";"job";"y"', *(f'{age};"a;{age % 3}";"{"no" if age % 2 else "yes"}"' for age in range(20))]
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n\r\n".join(lines).encode())
    data = load(f"csv:{path}?target=y", "train")
    assert data.columns == Columns(("age", "job"), {"job": ("a;0", "a;1", "a;2")})


def test_a_row_stays_in_its_split_when_others_come_and_go(tmp_path):
    rng = np.random.default_rng(0)
    rows = [(f"{x:.6f}", f"k{c}", str(c % 2)) for x, c in zip(rng.random(400), rng.integers(5, size=400))]
    header = ("x", "kind", "y")
    first = load(written(tmp_path / "a.csv", [header, *rows]), "test")
    assert 50 <= len(first) <= 110  # a fifth of 400, five standard deviations either way at most
    order = rng.permutation(400)
    again = load(written(tmp_path / "b.csv", [header, *(rows[k] for k in order[:300]), *rows[:5]]), "test")
    assert set(map(tuple, again.stored.tolist())) <= set(map(tuple, first.stored.tolist()))
    train = load(written(tmp_path / "a.csv", [header, *rows]), "train")
    assert len(train) + len(first) == 400
    # Equal inputs with different answers are in one split.
    twice = [header, *rows, *((x, kind, "1" if y == "0" else "0") for x, kind, y in rows)]
    assert len(load(written(tmp_path / "c.csv", twice), "test")) == 2 * len(first)


def test_a_file_of_test_rows(tmp_path):
    train = written(tmp_path / "a.csv")
    written(tmp_path / "b.csv", [ROWS[0], ("50", "baker", "2", "yes"), ("51", "clerk", "1", "no")])
    spec = f"{train}&test={tmp_path / 'b.csv'}"
    assert len(load(spec, "train")) == len(ROWS) - 1
    data = load(spec, "test")
    assert data.columns is not None
    assert data.columns.categories["job"] == ("baker", "clerk", "nurse", "pilot")
    assert data.stored.tolist() == [[50, 0, 2], [51, 1, 1]]
    assert data.labels.tolist() == [1, 0]


def test_a_table_as_a_model_has_it(tmp_path):
    stored, _ = both(written(tmp_path / "a.csv"))
    columns = Columns(("code", "job", "age"), {"code": (3, 2), "job": ("pilot", "clerk")})
    data = load(written(tmp_path / "a.csv"), "test").encoded_by(columns)
    assert data.columns == columns
    before = load(written(tmp_path / "a.csv"), "test").stored.tolist()
    for row, (age, job, code) in zip(data.stored.tolist(), before):
        assert row == [{3: 0, 2: 1, 1: 2}[code], {0: 1, 1: 2, 2: 0, 3: 2}[job], age]
    assert data.fingerprint() != load(written(tmp_path / "a.csv"), "test").fingerprint()
    # Categories that the model has as numbers.
    declared = load(written(tmp_path / "a.csv") + "&categorical=code", "test")
    assert np.array_equal(declared.encoded_by(Columns(("code",))).stored[:, 0], [row[2] for row in before])
    with pytest.raises(DataError) as caught:
        data.encoded_by(Columns(("salary",)))
    assert names(str(caught.value), "'salary'", "age")
    with pytest.raises(DataError, match="job"):
        data.encoded_by(Columns(("job",)))
    assert len(stored) == len(ROWS) - 1


def test_frames_hold_what_the_file_says(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    spec = written(tmp_path / "a.csv") + "&categorical=code"
    table, target = as_frame(load(spec, "train"))
    file = pandas.read_csv(tmp_path / "a.csv").set_index("age")
    for row, answer in zip(table.itertuples(), target):
        there = file.loc[row.age]
        assert (row.code, answer) == (there.code, there.y)
        assert row.job == there.job or (pandas.isna(row.job) and pandas.isna(there.job))


def test_parquet_has_the_types_of_the_file(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="smoothcert[parquet] is not installed")
    plain = load(written(tmp_path / "a.csv"), "train")
    table = pandas.read_csv(tmp_path / "a.csv")
    table["zip"] = table["code"].astype(str)
    table["old"] = table["age"] > 40
    table["job"] = table["job"].astype("category")
    table.to_parquet(tmp_path / "a.parquet")
    data = load(f"parquet:{tmp_path / 'a.parquet'}?target=y", "train")
    assert data.columns is not None
    assert data.columns.categories == {
        "job": ("clerk", "nurse", "pilot"), "zip": ("1", "2", "3"), "old": (False, True)
    }  # fmt: skip
    stored, labels = both(data.name)
    again, answers = both(plain.name)
    order, other = stored[:, 0].argsort(), again[:, 0].argsort()
    assert np.array_equal(stored[order, :3], again[other])
    assert np.array_equal(labels[order], answers[other])


FAULTS = {
    "no target": (ROWS, "", ["--target", "age", "job"]),
    "unknown target": (ROWS, "target=z", ["'z'"]),
    "unknown categorical": (ROWS, "target=y&categorical=cod", ["'cod'", "'code'"]),
    "target ignored": (ROWS, "target=y&ignore=y", ["'y'", "--ignore"]),
    "nothing left": (ROWS, "target=y&ignore=age,job,code", ["--ignore"]),
    "ragged": ([*ROWS, ("1", "clerk")], "target=y", ["14", "2", "4"]),
    "no number": (
        [*ROWS, ("", "clerk", "1", "no")],
        "target=y",
        ["14", "'age'", "--categorical", "--ignore"],
    ),
    "nan": ([*ROWS, ("nan", "clerk", "1", "no")], "target=y", ["14", "'age'"]),
    "infinite": ([*ROWS, ("1e999", "clerk", "1", "no")], "target=y", ["14", "'1e999'"]),
    "text among numbers": ([*ROWS, ("old", "clerk", "1", "no")], "target=y", ["14", "'old'", "'age'"]),
    "no class": ([*ROWS, ("1", "clerk", "1", "")], "target=y", ["14", "'y'"]),
    "one class": ([row for row in ROWS if row[3] != "no"], "target=y", ["'y'", "1"]),
    "a name twice": ([("age", "age", "code", "y"), *ROWS[1:]], "target=y", ["'age'"]),
    "no rows": (ROWS[:1], "target=y", []),
    "one column": ([("y",), ("no",), ("yes",)], "target=y", ["--separator"]),
    "texts": (
        [("x", "y"), *((f"name {k}", str(k % 2)) for k in range(60))],
        "target=y",
        ["'x'", "60", "--ignore", "--categorical"],
    ),
    "equal rows": ([ROWS[0], ROWS[1], (*ROWS[1][:3], "yes")], "target=y", ["2"]),
    "separator": (ROWS, "target=y&separator=::", ["'::'", "semicolon"]),
    "option": (ROWS, "target=y&sep=;", ["'sep'"]),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_is_named(fault, tmp_path):
    rows, options, named = FAULTS[fault]
    written(tmp_path / "a.csv", rows)
    with pytest.raises((DataError, InvalidValueError)) as caught:
        load(f"csv:{tmp_path / 'a.csv'}{'?' if options else ''}{options}", "train")
    for one in named:
        assert one in str(caught.value)


@pytest.mark.parametrize(
    ("content", "named"), [(b"", "a.csv"), (b"\xff\xfe\x00", "UTF-8"), (b'a,y\n"1,0\n', "a.csv")]
)
def test_files_that_are_no_tables(content, named, tmp_path):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(DataError) as caught:
        load(f"csv:{tmp_path / 'a.csv'}?target=y", "train")
    assert named in str(caught.value)
    with pytest.raises(DataError, match=r"missing\.csv"):
        load(f"csv:{tmp_path / 'missing.csv'}?target=y")


def test_damaged_parquet(tmp_path):
    pytest.importorskip("pyarrow", reason="smoothcert[parquet] is not installed")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and so on PAR1")
    with pytest.raises(DataError, match=r"a\.parquet"):
        load(f"parquet:{tmp_path / 'a.parquet'}?target=y", "train")


def test_options_are_written_as_they_are_read(tmp_path):
    options = TableOptions("y&z", ("a,b", "c=d"), ("100%",), ";", "more?.csv")
    assert TableOptions.parse(options.spec("t.csv")) == ("t.csv", options)
    assert with_options("csv:t.csv?target=y", {"ignore": ("id",)}) == "csv:t.csv?target=y&ignore=id"
    assert with_options("t.parquet", {"target": "y"}) == "t.parquet?target=y"
    assert with_options("mnist", {}) == "mnist"
    with pytest.raises(InvalidValueError, match="--target"):
        with_options("mnist", {"target": "y"})


def test_bank(shared):
    train, test = (load("bank", split, shared / "data") for split in ("train", "test"))
    assert len(train) + len(test) == 4521
    assert len(test) >= 500
    columns = train.columns
    assert columns is not None
    assert columns == test.columns
    assert [columns.names[place] for place in columns.numeric] == [
        "age", "balance", "day", "duration", "campaign", "pdays", "previous"
    ]  # fmt: skip
    assert [len(values) for values in columns.categories.values()] == [12, 3, 4, 2, 2, 2, 3, 12, 4]
    assert np.concatenate([train.labels, test.labels]).sum() == 521
