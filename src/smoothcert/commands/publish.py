"""`smoothcert publish`: a finished run in object storage, for all who may read it there."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from smoothcert.commands.options import OutputOptions


def publish(
    run: Path,
    to: str,
    *,
    with_model: bool = False,
    replace: bool = False,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Put a finished run into object storage: `show`, `table`, `report`, `verify` and the like read it from there.

    All files are read back and compared before the list that makes them a run is written, so that an upload that is
    killed can't be mistaken for one; the same command completes it. Credentials come from the environment or the
    provider's own files, are never part of the address, and are neither shown nor kept.

    Example: `smoothcert publish runs/digits-cert s3://bucket/certified/digits`

    Then: `smoothcert show s3://bucket/certified/digits`

    Parameters
    ----------
    run
        Directory of a finished run.
    to
        s3://BUCKET/PREFIX; gs://, az:// or abfs:// where gcsfs or adlfs is installed; file:///DIRECTORY.
    with_model
        A training run's weights and checkpoint, too.
    replace
        Replace another run that is there.
    """
    from smoothcert.runs.publishing import publish as publish_run

    done = publish_run(run, to, with_model=with_model, replace=replace)
    if output.json:
        print(json.dumps(asdict(done)))
    elif not output.quiet:
        said = "files" if done.uploaded else "files were there already"
        print(f"{done.place}: {done.files} {said}, {done.bytes / 1e6:.2f} MB, read back and compared")
