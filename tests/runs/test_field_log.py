import gzip
import hashlib
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothcert.errors import DataError, InvalidValueError
from smoothcert.runs.field_log import FieldLog, import_manifest, read_field_log, write_field_log
from smoothcert.runs.records import Record

HEADER = "idx\tlabel\tpredict\tradius\tcorrect\ttime\n"
LINES = "0\t7\t7\t0.953\t1\t0:00:01.303068\n20\t2\t-1\t0.0\t0\t0:00:00.5\n40\t1\t3\t1.2e-05\t0\t1:02:03\n"
RECORDS = [
    Record(0, 7, 7, 0.953, 0.25, 1.303068),
    Record(20, 2, -1, 0.0, 0.25, 0.5),
    Record(40, 1, 3, 1.2e-05, 0.25, 3723.0),
]


def read(tmp_path: Path, content: str | bytes, name: str = "log.tsv") -> FieldLog:
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_field_log(path, 0.25)


def test_variants_of_text(tmp_path):
    for text in (
        HEADER + LINES,
        (HEADER + LINES).replace("\n", "\r\n"),
        "\ufeff" + HEADER + LINES,
        HEADER + LINES.replace("\n", "\t \n") + "\n  \n\t\n",
        (HEADER + LINES).rstrip("\n"),
        (HEADER + LINES) + "   ",
    ):
        assert read(tmp_path, text) == FieldLog(RECORDS, None)
    for name in ("log.tsv.gz", "log"):
        assert read(tmp_path, gzip.compress((HEADER + LINES).encode()), name).records == RECORDS
    for tail in ("6", "60\t1\t1\t0.9", "60\t1\t1\t0.953\t1", "60\t1\t1\t0.953\t1\t0:0"):  # cut off
        assert read(tmp_path, HEADER + LINES + tail) == FieldLog(RECORDS, tail)


def test_times(tmp_path):
    for text, seconds in {
        "0:00:01.303068": 1.303068, "0:00:14": 14.0, "1 day, 0:00:01": 86_401.0,
        "2 days, 3:00:00.5": 183_600.5, "30:00:00": 108_000.0, "12.75": 12.75, "3e-2": 0.03,
    }.items():  # fmt: skip
        assert read(tmp_path, f"{HEADER}0\t1\t1\t0.5\t1\t{text}\n").records[0].seconds == seconds


def test_which_columns_there_may_be(tmp_path):
    log = read(tmp_path, "idx\tlabel\tpredict\tradius\tcorrect\n5\t1\t1\t0.1234\t1\n")
    assert log.records == [Record(5, 1, 1, 0.1234, 0.25, 0.0)]
    text = "idx\tradius_proxy\tmin_sigma\tpredict\tlabel\tcorrect\tradius\ttime\n3\tx\t0.1\t4\t4\t1\t0.5\t2\n"
    assert read(tmp_path, text).records == [Record(3, 4, 4, 0.5, 0.25, 2.0)]
    text = "idx\tlabel\tpredict\tradius\tcorrect\tsigma\n0\t1\t1\t0.5\t1\t0.3\n1\t1\t1\t0.5\t1\t0.4\n"
    assert [record.sigma for record in read(tmp_path, text).records] == [0.3, 0.4]


def test_a_cut_off_radius_is_never_taken_for_a_radius(tmp_path):
    # 1.2e-05 cut after three characters would claim 1.2.
    text = "idx\tlabel\tpredict\tcorrect\tradius\n0\t1\t1\t1\t0.5\n1\t1\t1\t1\t1.2"
    log = read(tmp_path, text)
    assert (len(log.records), log.dropped_tail) == (1, "1\t1\t1\t1\t1.2")


def test_bad_lines_are_named(tmp_path):
    for line, named in [
        ("hello", r"\b1\b.*\b6\b"),
        ("1\t2\t2\t0.5\t1\t1\t9", r"\b7\b.*\b6\b"),
        ("0\t7\t7\t0.9\t1\t1", r"\bidx\b.*\b0\b.*\b2\b"),
        ("1\t2\t2\tnan\t1\t1", r"\bradius\b.*'nan'"),
        ("1\t2\t2\tinf\t1\t1", r"\bradius\b.*'inf'"),
        ("1\t2\t2\t1e999\t1\t1", r"\bradius\b.*'1e999'"),
        ("1\t2\t2\t-0.5\t1\t1", r"\bradius\b.*'-0\.5'"),
        ("1\t2\t2\t\t1\t1", r"\bradius\b.*''"),
        ("1\t2\t3\t0.5\t1\t1", r"\bcorrect\b.*\b1\b.*\blabel 2\b.*\bpredict 3\b.*\b0\b"),
        ("1\t2\t2\t0.5\t0\t1", r"\bcorrect\b.*\b0\b.*\blabel 2\b.*\bpredict 2\b.*\b1\b"),
        ("1\t2\t2\t0.5\tyes\t1", r"\bcorrect\b.*'yes'"),
        ("x\t2\t2\t0.5\t1\t1", r"\bidx\b.*'x'"),
        ("1\t-1\t-1\t0.0\t0\t1", r"\blabel\b.*'-1'"),
        ("1\t2\t-2\t0.5\t0\t1", r"\bpredict\b.*'-2'"),
        ("1\t2\t-1\t0.5\t0\t1", r"\bradius\b.*\b0\.5\b"),
        ("1\t2\t2\t0.5\t1\tsoon", r"\btime\b.*'soon'"),
        ("1\t2\t2\t0.5\t1\t-3", r"\btime\b.*'-3'"),
    ]:
        text = HEADER + "0\t7\t7\t0.953\t1\t1\n" + line + "\n2\t2\t2\t0.5\t1\t1\n"
        with pytest.raises(DataError, match=rf"log\.tsv\D*\b3\b.*{named}") as caught:
            read(tmp_path, text)
        assert repr(line) in str(caught.value)


def test_bad_files_are_named(tmp_path):
    for content, named in [
        (b"", r"\bidx\b"),
        (b" \n\n", r"\bidx\b"),
        (HEADER.encode(), ""),
        (HEADER.encode() + b"0\t1", ""),
        (b"0\t7\t7\t0.953\t1\t1\n", r"\b1\b.*'0\\t7\\t7\\t0\.953\\t1\\t1'.*\bidx\b"),
        (b"idx,label,predict,radius,correct,time\n", r"\b1\b.*\bidx, label, predict, radius, correct\b"),
        (b"idx\tlabel\tpredict\tradius\ttime\n", r"\b1\b.*radius\\ttime'.*\bcorrect\b"),
        (b"idx\tidx\tlabel\tpredict\tradius\tcorrect\n", r"\b1\b.*\bidx\b"),
        (b"\xff\xfe\x00", "0xff"),
        (gzip.compress(LINES.encode() * 50, mtime=0)[:-20], "gzip"),
        (b"idx\tlabel\tpredict\tradius\tcorrect\tsigma\n0\t1\t1\t0.5\t1\t0\n", r"\bsigma\b.*'0'"),
    ]:
        with pytest.raises(DataError, match=rf"log\.tsv.*{named}"):
            read(tmp_path, content)


def test_a_missing_file_and_a_sigma_that_is_none_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.tsv"):
        read_field_log(tmp_path / "none.tsv", 0.25)
    with pytest.raises(InvalidValueError, match=r"sigma.*-1"):
        read_field_log(tmp_path / "none.tsv", -1.0)


def test_written_log():
    stream = io.StringIO()
    write_field_log([Record(3, 1, 1, 0.99999, 0.25, 3723.25), Record(4, 1, -1, 0.0, 0.25, 0.0)], stream)
    assert stream.getvalue() == (
        HEADER + "3\t1\t1\t0.9999\t1\t1:02:03.250000\n4\t1\t-1\t0.0000\t0\t0:00:00.000000\n"
    )
    with pytest.raises(InvalidValueError, match=r"digits.*\b0\b"):
        write_field_log([], io.StringIO(), digits=0)


radii = st.floats(min_value=0, max_value=100, allow_nan=False)


@given(radius=radii, digits=st.integers(1, 6))
def test_a_written_radius_is_never_above_the_certified_one(radius, digits):
    stream = io.StringIO()
    write_field_log([Record(0, 1, 1, radius, 0.25, 0.0)], stream, digits)
    written = float(stream.getvalue().split("\n")[1].split("\t")[3])
    assert radius - 2 * 10.0**-digits < written <= radius


@given(
    answers=st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9), radii), min_size=1, max_size=20),
    sigmas=st.lists(st.floats(0.01, 10), min_size=1, max_size=3),
    microseconds=st.integers(0, 10**12),
)
def test_round_trip_keeps_all_but_digits(tmp_path_factory, answers, sigmas, microseconds):
    records = [
        Record(
            7 * k, label, predicted, radius * (predicted >= 0), sigmas[k % len(sigmas)], microseconds / 1e6
        )
        for k, (label, predicted, radius) in enumerate(answers)
    ]
    path = tmp_path_factory.mktemp("log") / "log.tsv"
    with path.open("w", encoding="utf-8") as stream:
        write_field_log(records, stream)
    again = read_field_log(path, sigmas[0]).records
    for before, after in zip(records, again, strict=True):
        assert (after.index, after.label, after.predicted) == (before.index, before.label, before.predicted)
        assert after.sigma == before.sigma
        assert after.seconds == pytest.approx(before.seconds, abs=1e-6, rel=1e-12)
        assert before.radius - 2e-4 < after.radius <= before.radius


@pytest.fixture
def log(tmp_path) -> Path:
    (tmp_path / "log.tsv").write_text(HEADER + LINES)
    return tmp_path / "log.tsv"


def test_import_manifest(log):
    manifest = import_manifest(log, 0.25)
    assert manifest.kind == "import"
    unknown = dict.fromkeys(("bound", "n0", "n", "alpha"))
    assert manifest.plan.as_json() == {"noise": "gaussian", "sigma": 0.25, "norm": "l2"} | unknown
    assert (manifest.model.as_json(), manifest.origin.as_json()) == ({}, {})
    sha256 = hashlib.sha256(log.read_bytes()).hexdigest()
    assert manifest.data.as_json() == {"name": None, "log": "log.tsv", "log_sha256": sha256}
    given = {"noise": "uniform", "bound": "clopper-pearson", "n0": 100, "n": 1000, "alpha": 0.01}
    manifest = import_manifest(log, 0.5, data_name="mnist", method="macer", **given)  # type: ignore[arg-type]
    assert manifest.plan.as_json() == given | {"sigma": 0.5, "norm": "l1"}
    assert manifest.data.name == "mnist"
    assert manifest.origin.as_json() == {"method": "macer"}


@pytest.mark.parametrize(
    "wrong", [{"noise": "laplace"}, {"bound": "none"}, {"n": 0}, {"n0": 0}, {"alpha": 1.0}, {"sigma": 0.0}]
)
def test_import_manifest_refuses(log, wrong):
    ((name, value),) = wrong.items()
    with pytest.raises(InvalidValueError, match=rf"\b{name}\b.*{value}"):
        import_manifest(log, **{"sigma": 0.25, **wrong})  # type: ignore[arg-type]
