"""`smoothcert verify`: does a run's every result follow from its votes?"""

from __future__ import annotations

import json
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from smoothcert.commands.options import ModelOptions
from smoothcert.commands.run_argument import RunPath
from smoothcert.commands.sampling_options import SpeedOptions, execution_of

if TYPE_CHECKING:
    from smoothcert.verification import Checked, Report

DOESNT_FOLLOW, NOT_RECOMPUTED = 4, 5
_REPLAY = Group("Casting votes again", sort_key=3)
_SHOWN = 20


@Parameter(name="*", group=_REPLAY, consume_multiple=True)
@dataclass(frozen=True)
class ReplayOptions:
    """Which votes to cast again, and with what."""

    replay: int | None = None
    """Number of inputs whose votes are cast again."""
    model: str | None = None
    """The model to cast them with, which must be the one that was certified. What the run names as its model is never
    loaded."""
    chooser: str | None = None
    """The chooser of a run with σ levels, which must be the one it was certified with."""
    level_models: list[str] | None = None
    """The models of its levels, smallest σ first, where each has its own; the last must be --model."""
    dataset: Annotated[str | None, Parameter(alias="-d")] = None
    """The data set (default: what the model was trained on)."""
    split: Literal["test", "train"] = "test"
    """Its split."""
    data_dir: Path | None = None
    """Where its files are (default: the environment variable SMOOTHCERT_DATA)."""
    seed: int | None = None
    """Draw the inputs by this seed (default: one from the operating system, which is shown): one that the run's maker
    couldn't know."""

    def check(self) -> None:
        """Refuse options that contradict each other."""
        from smoothcert.errors import InvalidValueError

        if self.replay is None:
            for name in ("model", "chooser", "level_models", "dataset", "data_dir", "seed"):
                if getattr(self, name) is not None:
                    option = f"--{name.replace('_', '-')}"
                    raise InvalidValueError(
                        f"{option} is for casting votes again: add --replay with the number of inputs"
                    )
        elif self.replay < 1:
            raise InvalidValueError(
                f"--replay is the number of inputs to cast again, at least 1; got {self.replay}"
            )
        elif self.model is None:
            raise InvalidValueError(
                "--replay needs --model: what a run names as its model is never loaded unless you name it yourself"
            )
        elif self.level_models is not None and self.level_models[-1:] != [self.model]:
            raise InvalidValueError(
                f"the last of --level-models is the largest level's and must be --model, {self.model}; got "
                f"{' '.join(self.level_models)}"
            )


def verify(
    run: RunPath,
    *,
    digest: str | None = None,
    replaying: ReplayOptions = ReplayOptions(),
    model_options: ModelOptions = ModelOptions(),
    speed: SpeedOptions = SpeedOptions(),
    format: Literal["text", "json"] = "text",
    quiet: bool = False,
) -> None:
    """Check that a run's every class, radius and abstention follows from its votes and its plan.

    Made for runs of unknown origin. It trusts nothing: bounds, quantiles and radii are computed anew in
    whole numbers and 60-digit intervals, without the code that made the run, and nothing is opened but the run's own
    files. Streams, numbers of votes, labels' range, hashes and the results' digest are checked, too.

    Votes alone can't show that they are the model's. `--replay 20 --model MODEL` casts those of 20 inputs again and
    compares them. What is still left to believe is listed at the end: that the seed was chosen before the inputs, for
    one.

    The exit code is 0 if everything was recomputed and follows, 4 if something doesn't follow (the inputs are named),
    5 if there are answers that couldn't be recomputed (a memory's, an imported log's, a theorem that this version
    doesn't know), 2 if the run can't be read.

    Example: `smoothcert verify runs/digits-cert --replay 20 --model runs/digits`

    Parameters
    ----------
    run
        Run directory made by certify, recertify, remember or import-log; finished or not.
    digest
        Expected SHA-256 of the results; any other is a problem.
    format
        text, or json: one object with every problem on standard output.
    quiet
        Print problems only.
    """
    from smoothcert.commands.console import progress_bar, report_mistake
    from smoothcert.verification import verify_run
    from smoothcert.verification.statement import UnknownTheoremError

    replaying.check()
    silent = quiet or format == "json"
    replays = replaying.replay is not None
    try:
        with progress_bar("verifying", "inputs", silent) as bar:
            checked = verify_run(
                run, digest, lambda total: bar.begin(total, total), bar.one, keep_records=replays
            )
    except UnknownTheoremError as error:
        report_mistake(str(error), exit_code=NOT_RECOMPUTED)
        sys.exit(NOT_RECOMPUTED)
    if replays:
        _replay(run, checked, replaying, model_options, speed, silent)
    report = checked.report
    if format == "json":
        print(json.dumps(report.as_json(), ensure_ascii=False))
    else:
        _show(report, quiet)
    if not report.holds:
        sys.exit(DOESNT_FOLLOW)
    if report.rests_on_trust:
        sys.exit(NOT_RECOMPUTED)


def _replay(
    run: Path,
    checked: Checked,
    replaying: ReplayOptions,
    model_options: ModelOptions,
    speed: SpeedOptions,
    silent: bool,
) -> None:
    from smoothcert import datasets
    from smoothcert.commands.console import progress_bar
    from smoothcert.commands.level_options import load_chooser
    from smoothcert.commands.model_argument import declared_as, level_classifiers, load_named_model
    from smoothcert.errors import InvalidValueError
    from smoothcert.verification.level_replay import LevelReplay
    from smoothcert.verification.replay import Replay, chosen_records

    assert replaying.model is not None
    assert replaying.replay is not None
    plan = checked.statement.plan
    options = declared_as(model_options, checked.statement.model.get("declared"))
    named = load_named_model(replaying.model, options, "hard" if plan is None else plan.kind.votes)
    spec = named.dataset_or(replaying.dataset)
    inputs = datasets.load(spec, replaying.split, replaying.data_dir)
    models = level_classifiers(replaying.model, named, replaying.level_models, options)
    execution = execution_of(speed)
    if plan is not None and plan.levels is not None:
        chooser = None if replaying.chooser is None else load_chooser(replaying.chooser)
        replay: Replay = LevelReplay(run, checked.statement, models, chooser, inputs, execution)
    elif replaying.chooser is not None or len(models) > 1:
        raise InvalidValueError(
            f"--chooser and --level-models are for runs with sigma levels, and {run} has none"
        )
    else:
        replay = Replay(run, checked.statement, models[-1], inputs, execution)
    replay.check_names(spec, replaying.split, checked.report)
    replay.check_labels(checked.records, checked.report)
    seed = secrets.randbits(32) if replaying.seed is None else replaying.seed
    chosen = chosen_records(checked.records, replaying.replay, seed)
    with progress_bar("casting votes again", "votes", silent) as bar:
        bar.begin(replay.votes_of(chosen), len(chosen))
        replay.check(chosen, checked.report, bar.advance)
    if len(chosen) < len(checked.records):
        checked.report.notes.append(f"the inputs whose votes were cast again were drawn by --seed {seed}")


def _show(report: Report, quiet: bool) -> None:
    from smoothcert.commands.console import print_list, say

    if quiet and report.holds and not report.rests_on_trust:
        return
    of = "" if report.finished in (None, True) else f" of {report.expected}"
    say(
        f"{report.run}: {report.records}{of} inputs, {_verdict(report)}",
        style=None if report.holds else "bold red",
    )
    print_list("What doesn't follow", _problems(report))
    if quiet:
        return
    print_list("Verified" if report.holds else "Checked", report.verified)
    print_list("Believed, because a run can't show it", report.believed)
    print_list("Note", report.notes)
    say(f"results SHA-256 {report.results_sha256}")


def _verdict(report: Report) -> str:
    if not report.holds:
        inputs = f" for {len(report.inputs)} of them" if report.inputs else ""
        return f"the results don't follow{inputs}"
    if not report.recomputed:
        return f"nothing is wrong, and nothing could be recomputed (exit code {NOT_RECOMPUTED})"
    if report.recomputed < report.records:
        return f"{report.recomputed} verified, the others rest on a memory"
    return "verified"


def _problems(report: Report) -> list[str]:
    found = [
        problem.message if problem.index is None else f"input {problem.index}: {problem.message}"
        for problem in report.problems
    ]
    if len(found) <= _SHOWN:
        return found
    inputs = ", ".join(map(str, report.inputs[:500]))
    return [
        *found[:_SHOWN],
        f"and {len(found) - _SHOWN} more (--format json has them all); inputs with problems: {inputs}",
    ]
