"""`smoothcert verify`: does a run's every result follow from its votes?"""

from __future__ import annotations

import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter
from rich.text import Text

from smoothcert import datasets
from smoothcert.cli.arguments import NamedModel, RunPath, declared_as, level_classifiers, load_named_model
from smoothcert.cli.console import progress_bar, show_parts
from smoothcert.cli.options import ModelOptions, OutputOptions
from smoothcert.cli.plan_options import SpeedOptions, execution_of, listed
from smoothcert.errors import InvalidValueError, RunError

if TYPE_CHECKING:
    from smoothcert_verify import Checked

_REPLAY = Group("Casting votes again", sort_key=3)


@Parameter(name="*", group=_REPLAY)
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
    level_models: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True, converter=listed)] = None
    """The models of its levels, smallest σ first, where each has its own; the last must be --model."""
    dataset: Annotated[str | None, Parameter(alias="-d")] = None
    """The data set (default: what the model was trained on)."""
    stated_data: bool = False
    """Take data set, split and folder that the run states, unless given here: reads files at paths that it names."""
    split: Literal["test", "train"] | None = None
    """Its split (default: test)."""
    data_dir: Path | None = None
    """Where its files are (default: the environment variable SMOOTHCERT_DATA)."""
    seed: int | None = None
    """Draw the inputs by this seed (default: one from the operating system, which is shown): one that the run's maker
    couldn't know."""

    def check(self) -> None:
        """Refuse options that contradict each other."""
        if self.replay is None:
            for name in ("model", "chooser", "level_models", "dataset", "stated_data", "data_dir", "seed"):
                if getattr(self, name) not in (None, False):
                    option = f"--{name.replace('_', '-')}"
                    raise InvalidValueError(f"{option} is for casting votes again: add --replay N")
        elif self.replay < 1:
            raise InvalidValueError(f"--replay must be at least 1 input to cast again; got {self.replay}")
        elif self.model is None:
            raise InvalidValueError(
                "--replay needs --model: what a run names as its model is never loaded unless you name it yourself"
            )
        elif self.level_models is not None and self.level_models[-1:] != (self.model,):
            raise InvalidValueError(
                f"the last of --level-models is the largest level's and must be --model, {self.model}; got "
                f"{' '.join(self.level_models)}"
            )


def verify(
    run: RunPath,
    *,
    digest: str | None = None,
    memory: Path | None = None,
    replaying: ReplayOptions = ReplayOptions(),
    model_options: ModelOptions = ModelOptions(),
    speed: SpeedOptions = SpeedOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Check that a run's every class, radius and abstention follows from its votes and its plan.

    Made for runs of unknown origin. It trusts nothing: bounds, quantiles and radii are computed anew in
    whole numbers and 60-digit intervals, without the code that made the run, and nothing is opened but the run's own
    files. Streams, numbers of votes, labels' range, hashes and the results' digest are checked as well.

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
        Run directory made by certify, or by run recertify, remember or import; finished or not.
    digest
        Expected SHA-256 of the results; any other is a problem.
    memory
        SQLite file of the region memory that the answers came out of: its chain of records is checked.
    """
    from smoothcert_verify import RunError as UnreadableRunError
    from smoothcert_verify import verify_run

    replaying.check()
    replays = replaying.replay is not None
    try:
        with progress_bar("verifying", "inputs") as bar:
            checked = verify_run(run, digest, lambda total: bar.begin(total, total), bar.one, replays, memory)
        if replays and not checked.intact:
            checked.report.notes.append(
                "no votes were cast again: the statement is not the one they were cast under"
            )
        elif replays:
            _replay(run, checked, replaying, model_options, speed)
    except UnreadableRunError as error:
        raise RunError(str(error)) from None
    report = checked.report
    if output.json:
        print(report.as_json())
    else:  # with --quiet problems only
        show_parts(Text(line, style) for line, style in report.as_text(output.quiet))
    if report.exit_code:
        sys.exit(report.exit_code)


def _data_of(
    checked: Checked, replaying: ReplayOptions, named: NamedModel
) -> tuple[str, Literal["test", "train"], Path | None]:
    """Data set, split and folder: as given, or where the user allows it as the run states them."""
    origin = checked.statement.fields.get("origin")
    stated = origin if replaying.stated_data and isinstance(origin, dict) else {}
    spec, split, folder = (stated.get(name) for name in ("dataset", "split", "data_dir"))
    if replaying.stated_data and not isinstance(spec, str) and replaying.dataset is None:
        raise InvalidValueError("--stated-data: the run states no data set to read; give --dataset")
    if replaying.dataset is None and not isinstance(spec, str) and named.dataset is None:
        raise InvalidValueError(
            "--dataset is missing: give it, or --stated-data to read the data that the run states"
        )
    chosen = replaying.split or ("train" if split == "train" else "test")
    there = Path(folder) if isinstance(folder, str) else None
    given = replaying.dataset or (spec if isinstance(spec, str) else None)
    return named.dataset_or(given), chosen, replaying.data_dir or there


def _replay(
    run: Path, checked: Checked, replaying: ReplayOptions, model_options: ModelOptions, speed: SpeedOptions
) -> None:
    from smoothcert.cli.levels import load_chooser
    from smoothcert.datasets.tables import encoded_as
    from smoothcert.replay import LevelReplay, Replay, chosen_records

    assert replaying.model is not None
    assert replaying.replay is not None
    plan = checked.statement.plan
    options = declared_as(model_options, checked.statement.model.get("declared"))
    named = load_named_model(replaying.model, options, "hard" if plan is None else plan.kind.votes)
    spec, split, data_dir = _data_of(checked, replaying, named)
    inputs = datasets.load(spec, split, data_dir)
    if plan is not None:
        inputs = encoded_as(inputs, plan.fields)
    models = level_classifiers(replaying.model, named, replaying.level_models, options)
    execution = execution_of(speed)
    if plan is not None and plan.levels is not None:
        chooser = None if replaying.chooser is None else load_chooser(replaying.chooser)
        replay: Replay = LevelReplay(run, checked.statement, models, chooser, inputs, execution)
    elif replaying.chooser is not None or len(models) > 1:
        raise InvalidValueError(f"--chooser and --level-models are for sigma levels, and {run} has none")
    else:
        replay = Replay(run, checked.statement, models[-1], inputs, execution)
    replay.check_names(spec, split, checked.report)
    replay.check_labels(checked.records, checked.report)
    seed = secrets.randbits(32) if replaying.seed is None else replaying.seed
    chosen = chosen_records(checked.records, replaying.replay, seed)
    with progress_bar("casting votes again", "votes") as bar:
        bar.begin(replay.votes_of(chosen), len(chosen))
        replay.check(chosen, checked.report, bar.advance)
    if len(chosen) < len(checked.records):
        checked.report.notes.append(f"the inputs whose votes were cast again were drawn by --seed {seed}")
