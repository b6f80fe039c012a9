"""A run as one Parquet file: a row for each record in full precision; its statement and other files as metadata."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smoothcert.errors import DataError, OutputError, SmoothcertError
from smoothcert.extras import require
from smoothcert.files import (
    ALWAYS_ADMITTED,
    MOST_EXPANSION,
    check_expansion,
    checksum,
    opened_file,
    parse_json,
    write_atomically,
)
from smoothcert.runs.field_log import MOST_LINES
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record, Records
from smoothcert.runs.run import Run
from smoothcert.tally import Tally

_MANIFEST, _DIGEST = b"smoothcert.manifest", b"smoothcert.results_sha256"
_CHECKSUM = b"smoothcert.checksum"
_FILE = b"smoothcert.file:"
_MOST_KEPT = 2**29  # Arrow writes metadata twice, and in all they must stay below 2 GiB
_MOST_METADATA = 2**31 - 1
_SIGNATURE = b"PAR1"
_PLAIN = ("index", "label", "predicted", "radius", "sigma", "seconds", "base")
_LATER = ("volume_radius", "stopped")
"""Files of earlier versions have neither."""
_FOLLOWING = ("correct", "abstained")
"""They follow from the others, and are for readers of the table."""
_SIZES = ("radius", "sigma", "seconds", "volume_radius")
_TALLIES = ("selection", "estimation")
_TALLY_FIELDS = ("seed", "index", "phase", "start", "counts", "sums", "squares")
_LISTS = ("counts", "sums", "squares")
_TEXTS = ("stopped", *(f"{tally}_phase" for tally in _TALLIES))
_SHOWN = 200


def is_parquet(path: Path) -> bool:
    """Whether a file is one, whatever its name."""
    try:
        with opened_file(path) as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from None


def write_parquet(run: Run, path: Path) -> None:
    """Write the run in one step.

    Columns: the record's plain fields; correct and abstained, for readers of the table; and each tally's fields as
    ``selection_counts`` (a list), ``estimation_start`` and so on, null where a run has none. The files that a run keeps
    beside its journal (scales of its noise, searches, levels, pilots) go into the metadata.
    """
    arrow = require("pyarrow", "Parquet")
    stated = {_MANIFEST: json.dumps(run.manifest.as_json()).encode(), _DIGEST: run.records.digest.encode()}
    stated |= _packed_files(run.path)
    schema = _schema(arrow).with_metadata(stated | {_CHECKSUM: _checksum(stated, run.records)})
    try:
        table = arrow.Table.from_pylist([_row(record) for record in run.records], schema=schema)
    except (arrow.ArrowInvalid, OverflowError) as error:
        raise OutputError(f"{path}: a value of {run.path} doesn't fit 64 bits ({error})") from None
    _write(table, path)


def write_columns(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write a table that is not a run: a column for each name. Names of classes of several types become text."""
    arrow = require("pyarrow", "Parquet")
    _write(arrow.table({name: _column(arrow, values) for name, values in columns.items()}), path)


def _write(table: Any, path: Path) -> None:
    buffer = io.BytesIO()
    require("pyarrow.parquet", "Parquet").write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


def _column(arrow: Any, values: Sequence[Any]) -> Any:
    if all(value is None for value in values):
        return arrow.array(values, arrow.string())
    try:
        return arrow.array(values)
    except (arrow.ArrowInvalid, arrow.ArrowTypeError, arrow.ArrowNotImplementedError, OverflowError):
        return arrow.array([None if value is None else str(value) for value in values])


def read_parquet(path: Path) -> tuple[Manifest, Records, dict[str, bytes]]:
    """What :func:`write_parquet` wrote, to the last bit: statement, records, and the run's other files by name.

    Records that were changed since are refused.
    """
    arrow, parquet = (require(name, "Parquet") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        with opened_file(path) as file:
            names = parquet.ParquetFile(file, thrift_string_size_limit=_MOST_METADATA).schema_arrow.names
            texts = [name for name in _TEXTS if name in names]
            source = parquet.ParquetFile(file, thrift_string_size_limit=_MOST_METADATA, read_dictionary=texts)
            stated = source.schema_arrow.metadata or {}
            if _MANIFEST not in stated or _DIGEST not in stated:
                raise DataError(f"{path} was not written by smoothcert run export: it holds no manifest")
            _check_claims(path, source, arrow)
            table = source.read(use_threads=False)
            table.validate(full=True)
    except (arrow.ArrowException, OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} can't be read as Parquet ({error}); export the run again") from None
    try:
        manifest = Manifest.from_json(parse_json(stated[_MANIFEST]))
        records = _records(table, path)
        files = _unpacked_files(path, stated)
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, SmoothcertError) as error:
        raise DataError(f"{path} is damaged ({str(error)[:_SHOWN]}); export the run again") from None
    if records.digest != stated[_DIGEST].decode(errors="replace"):
        raise DataError(f"{path} was changed after its export: its records differ from its results_sha256")
    ours = {
        key: value for key, value in stated.items() if key in (_MANIFEST, _DIGEST) or key.startswith(_FILE)
    }
    # Files of earlier versions have none.
    if _CHECKSUM in stated and stated[_CHECKSUM] != _checksum(ours, records):
        raise DataError(f"{path} is damaged: its checksum doesn't match; export the run again")
    return manifest, records, files


def _checksum(stated: Mapping[bytes, bytes], records: Records) -> bytes:
    """Of the metadata, and of what the results' digest leaves out."""
    parts = [(key.hex(), value.hex()) for key, value in sorted(stated.items())]
    return checksum([parts, records.seconds.tolist()]).encode()


def _check_claims(path: Path, source: Any, arrow: Any) -> None:
    """Refuse other columns than a run's, and more values than the file's size speaks for: few bytes can repeat one."""
    expected = {field.name: field.type for field in _schema(arrow)}
    expected |= dict.fromkeys(_TEXTS, arrow.dictionary(arrow.int32(), arrow.string()))
    for field in source.schema_arrow:
        if field.name not in expected or field.type != expected[field.name]:
            raise DataError(
                f"{path} has the foreign column {field.name!r} of {field.type}; export the run again"
            )
    footer = source.metadata
    if footer.num_rows > MOST_LINES:
        raise DataError(f"{path} claims {footer.num_rows} inputs, where {MOST_LINES} are the most")
    groups = [footer.row_group(k) for k in range(footer.num_row_groups)]
    columns = [group.column(k) for group in groups for k in range(group.num_columns)]
    claimed = max(8 * sum(c.num_values for c in columns), sum(c.total_uncompressed_size for c in columns))
    check_expansion(str(path), claimed, path.stat().st_size)


def _packed_files(directory: Path) -> dict[bytes, bytes]:
    """Each kept file under its name; as text, because other readers of Parquet take metadata for UTF-8."""
    packed, size = {}, 0
    for name, kept in RunFiles(directory).kept():
        packed[_FILE + name.encode()] = content = base64.b64encode(zlib.compress(kept))
        size += len(content)
        if size > _MOST_KEPT:
            raise OutputError(
                f"the files beside the records of {directory} are too large for a Parquet file's metadata: keep "
                "the directory itself, or export as tsv"
            )
    return packed


def _unpacked_files(path: Path, stated: Mapping[bytes, bytes]) -> dict[str, bytes]:
    files, left = {}, max(ALWAYS_ADMITTED, MOST_EXPANSION * path.stat().st_size)
    for key, content in stated.items():
        if key.startswith(_FILE):
            name = key.removeprefix(_FILE).decode()
            if not RunFiles.keeps(name):  # names are paths
                raise DataError(f"no run keeps a file {name!r}")
            inflater = zlib.decompressobj()
            files[name] = inflater.decompress(base64.b64decode(content, validate=True), left)
            left -= len(files[name])
            if not inflater.eof or left <= 0:
                raise DataError(f"the file {name!r} is cut short, or far larger than its bytes speak for")
    return files


def _schema(arrow: Any) -> Any:
    whole, real, text, switch = arrow.int64(), arrow.float64(), arrow.string(), arrow.bool_()
    kinds = dict.fromkeys(_SIZES, real) | {"stopped": text, "phase": text} | dict.fromkeys(_FOLLOWING, switch)
    kinds |= {name: arrow.list_(whole) for name in _LISTS}
    fields = [(name, kinds.get(name, whole)) for name in (*_PLAIN, *_LATER, *_FOLLOWING)]
    fields += [(f"{tally}_{name}", kinds.get(name, whole)) for tally in _TALLIES for name in _TALLY_FIELDS]
    return arrow.schema(fields)


def _row(record: Record) -> dict[str, object]:
    row = {name: getattr(record, name) for name in (*_PLAIN, *_LATER, *_FOLLOWING)}
    for name in _TALLIES:
        tally: Tally | None = getattr(record, name)
        if tally is not None:
            row |= {f"{name}_{field}": value for field, value in tally.as_json().items()}
    return row


def _records(table: Any, path: Path) -> Records:
    columns = {name: _values(table.column(name), name in _TEXTS) for name in table.column_names}
    for name in _TALLIES:
        stated = zip(*(columns[f"{name}_{field}"] for field in _TALLY_FIELDS))
        columns[name] = [_tally(values) for values in stated]
    later = {name: columns.get(name, [None] * len(table)) for name in _LATER}
    read = Records.read({name: columns[name] for name in (*_PLAIN, *_TALLIES)} | later, path)
    records = read.take(read.index.argsort(kind="stable"))
    for _ in records:  # answers are of classes that their votes have
        pass
    return records


def _values(column: Any, is_text: bool) -> list[Any]:
    """A column's values; each distinct text once in memory, because few bytes can repeat a long one."""
    if not is_text:
        return list(column.to_pylist())
    values = []
    for chunk in column.chunks:
        texts = chunk.dictionary.to_pylist()
        values += [None if place is None else texts[place] for place in chunk.indices.to_pylist()]
    return values


def _tally(values: tuple[Any, ...]) -> Tally | None:
    stated = {field: value for field, value in zip(_TALLY_FIELDS, values) if value is not None}
    return Tally.from_json(stated) if "counts" in stated else None
