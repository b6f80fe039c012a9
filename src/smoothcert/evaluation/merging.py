"""Merging shards: the run that one process would have made, from the directories of a batch queue's jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from smoothcert.errors import InvalidValueError, RunError
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.records import Records
from smoothcert.runs.run import Run, create_run, read_run
from smoothcert.runs.statement import Shard


def merge(paths: Sequence[Path], out: Path, on_read: Callable[[], None] = lambda: None) -> Run:
    """Write the run that the shards in ``paths`` are the parts of; its results have the digest of a single process's.

    Refused unless they say the same but for their number, none is missing, doubled or unfinished, and the same
    versions made all of them. ``on_read`` is called after each shard.
    """
    runs = []
    for path in paths:
        runs.append(read_run(path))
        on_read()
    shards = _by_number(runs)
    first = shards[1]
    for run in shards.values():
        _check_same(first, run)
    data = {key: value for key, value in first.manifest.data.as_json().items() if key != "shard"}
    manifest = first.manifest.stating(data=data)
    created = min(run.manifest.created for run in shards.values())
    records = Records.joined([run.records for run in shards.values()])
    create_run(out, Manifest.of(**manifest.as_json() | {"created": created}), records, _side_files(shards))
    return read_run(out)


def _by_number(runs: Sequence[Run]) -> Mapping[int, Run]:
    """The shards in their order; RunError where there is no one of a number, or more than one, or only a part."""
    if not runs:
        raise InvalidValueError("merge needs the directories of all shards of a run, got none")
    found: dict[int, Run] = {}
    counts = set()
    for run in runs:
        if run.manifest.data.shard is None:
            raise RunError(f"{run.path} is a whole run, no shard: shards are made with certify --shard I/N")
        shard = Shard.parse(run.manifest.data.shard)
        counts.add(shard.of)
        if shard.number in found:
            raise RunError(f"{found[shard.number].path} and {run.path} are both shard {shard}: name one")
        found[shard.number] = run
    if len(counts) > 1:
        raise RunError(f"these are shards of {' and of '.join(map(str, sorted(counts)))} parts: name one set")
    (count,) = counts
    missing = [str(Shard(number, count)) for number in range(1, count + 1) if number not in found]
    if missing:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise RunError(
            f"missing: shard {named} of the run. Certify with --shard {missing[0]} and the other options as they "
            "were, or name its directory"
        )
    for run in found.values():
        if run.shortfall is not None:
            raise RunError(
                f"{run.path} (shard {run.manifest.data.shard}) holds {run.shortfall}: rerun its certify "
                "command to resume it"
            )
    return dict(sorted(found.items()))


def _check_same(first: Run, run: Run) -> None:
    differences = [each for each in first.manifest.differences(run.manifest) if "data.shard" not in each]
    here, there = first.manifest.versions, run.manifest.versions
    differences += [
        f"versions.{name}: {first.path} has {here.get(name)}, {run.path} {there.get(name)}"
        for name in sorted(here | there)
        if here.get(name) != there.get(name)
    ]
    if differences:
        named = "\n  ".join(differences)
        raise RunError(
            f"{run.path} doesn't belong to {first.path}:\n  {named}\n"
            "Certify it again with the options and versions of the others."
        )


def _side_files(shards: Mapping[int, Run]) -> dict[str, bytes]:
    """What the shards keep beside their journals: lines are joined, and files of one input stay what they are."""
    files: dict[str, bytes] = {}
    for run in shards.values():
        for name, content in RunFiles(run.path).kept():
            if name in (RunFiles.searches.name, RunFiles.levels.name):
                # A last line that was cut off must not spoil the first of the next shard.
                files[name] = files.get(name, b"") + content.removesuffix(b"\n") + b"\n"
            elif files.setdefault(name, content) != content:
                raise RunError(f"{run.path / name} differs from that of another shard")
    return files
