"""A run as one Parquet file: a row for each record in full precision, the manifest in the file's metadata."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smoothcert.errors import DataError, MissingExtraError, OutputError, SmoothcertError
from smoothcert.files import write_atomically
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Record, results_digest
from smoothcert.runs.run import Run
from smoothcert.tally import Tally

_MANIFEST, _DIGEST = b"smoothcert.manifest", b"smoothcert.results_sha256"
_SIGNATURE = b"PAR1"
_TALLIES = ("selection", "estimation")
_TALLY_FIELDS = ("seed", "index", "phase", "start", "counts", "sums", "squares")
_LISTS = ("counts", "sums", "squares")


def is_parquet(path: Path) -> bool:
    """Whether a file is one, whatever its name."""
    try:
        with path.open("rb") as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}") from None


def write_parquet(run: Run, path: Path) -> None:
    """Write the run in one step.

    Columns: the record's plain fields; correct and abstained, for readers of the table; and each tally's fields as
    ``selection_counts`` (a list), ``estimation_start`` and so on, null where a run has none.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow).with_metadata(
        {_MANIFEST: json.dumps(asdict(run.manifest)), _DIGEST: results_digest(run.records)}
    )
    buffer = io.BytesIO()
    try:
        table = arrow.Table.from_pylist([_row(record) for record in run.records], schema=schema)
        parquet.write_table(table, buffer, compression="zstd")
    except (arrow.ArrowInvalid, OverflowError) as error:
        raise OutputError(f"{path}: a value of {run.path} doesn't fit 64 bits ({error})") from None
    write_atomically(path, buffer.getvalue())


def read_parquet(path: Path) -> tuple[Manifest, list[Record]]:
    """What :func:`write_parquet` wrote, to the last bit; a file that was changed since is refused."""
    arrow, parquet = _pyarrow()
    try:
        table = parquet.read_table(path)
    except (arrow.ArrowException, OSError) as error:
        raise DataError(f"{path} can't be read as Parquet ({error}); export the run again") from None
    stated = table.schema.metadata or {}
    if _MANIFEST not in stated or _DIGEST not in stated:
        raise DataError(f"{path} was not written by smoothcert export-log: it holds no manifest")
    try:
        manifest = Manifest(**json.loads(stated[_MANIFEST]))
        records = [_record(row) for row in table.to_pylist()]
    except (ValueError, KeyError, TypeError, SmoothcertError) as error:
        raise DataError(f"{path} is damaged ({error}); export the run again") from None
    if results_digest(records) != stated[_DIGEST].decode():
        raise DataError(f"{path} was changed after its export: its records differ from its results_sha256")
    return manifest, records


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError("pyarrow", "parquet", "Parquet") from None
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    whole, real = arrow.int64(), arrow.float64()
    fields = [(name, whole) for name in ("index", "label", "predicted")]
    fields += [(name, real) for name in ("radius", "sigma", "seconds")]
    fields += [("base", whole), ("volume_radius", real), ("stopped", arrow.string())]
    fields += [("correct", arrow.bool_()), ("abstained", arrow.bool_())]
    kinds = {name: arrow.list_(whole) for name in _LISTS} | {"phase": arrow.string()}
    fields += [(f"{tally}_{name}", kinds.get(name, whole)) for tally in _TALLIES for name in _TALLY_FIELDS]
    return arrow.schema(fields)


def _row(record: Record) -> dict[str, object]:
    row: dict[str, object] = {
        name: getattr(record, name)
        for name in (
            "index",
            "label",
            "predicted",
            "radius",
            "sigma",
            "seconds",
            "base",
            "volume_radius",
            "stopped",
            "correct",
            "abstained",
        )
    }
    for name in _TALLIES:
        tally: Tally | None = getattr(record, name)
        if tally is not None:
            row |= {f"{name}_{field}": value for field, value in tally.as_json().items()}
    return row


def _record(row: dict[str, Any]) -> Record:
    selection, estimation = (_tally(row, name, _TALLY_FIELDS) for name in _TALLIES)
    return Record(
        row["index"],
        row["label"],
        row["predicted"],
        row["radius"],
        row["sigma"],
        row["seconds"],
        selection,
        estimation,
        row["base"],
        row.get("volume_radius"),  # files of earlier versions have neither
        row.get("stopped"),
    )


def _tally(row: dict[str, Any], name: str, fields: Sequence[str]) -> Tally | None:
    if row[f"{name}_counts"] is None:
        return None
    stated = {field: row[f"{name}_{field}"] for field in fields}
    return Tally.from_json({field: value for field, value in stated.items() if value is not None})
