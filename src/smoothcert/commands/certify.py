"""`smoothcert certify`: prove how robust a model is, input by input, into a run that survives a kill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothcert.commands.asked import CertificationOptions
from smoothcert.commands.options import Held, ModelName, ModelOptions, OutputOptions, held_columns


def certify(
    model: ModelName,
    *,
    out: Path,
    options: CertificationOptions = CertificationOptions(),
    hold: Held = None,
    memory: str | None = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Certify a model on a data set.

    For each input, `n0` noisy votes choose a class and `n` fresh ones bound its probability; the radius that
    follows holds with probability 1 − alpha. Results go to the run directory `--out`, one record per input.
    Kill it at any moment: the same command goes on where it stopped and ends with the same bits.

    Noise is added in the units of the inputs (pixels in [0, 1] for the image sets; a file's own units for .npz).
    Normalisation belongs inside the model: a model that wants normalised inputs must do it itself.

    With `--stop` an input gets as many votes as it needs, at most `n`: often a few percent of them, and the promise
    is the same (docs/adaptive.md).

    With `--sigma-search`, other samples first choose each input's own σ, starting at `--sigma`. With `--chooser`, σ
    follows the input as part of the classifier itself (docs/levels.md).

    Example: `smoothcert certify runs/digits --sigma 0.25 --n 10000 --out runs/digits-cert`

    Parameters
    ----------
    out
        Run directory; made, or continued if it holds the same run.
    memory
        Then pass the certificates through this memory, as `smoothcert remember` does, so that no two answers contradict
        each other: the answers go to `--out`, the certificates to a directory beside it, OUT-certificates.
    """
    from smoothcert.analysis.trained import TRAINED
    from smoothcert.commands.certify_view import certify_with_bar, show_run
    from smoothcert.commands.console import note, warn
    from smoothcert.commands.noise_argument import foreign_fit
    from smoothcert.commands.remember import remember_with_bar
    from smoothcert.hints import beside, command
    from smoothcert.noise import NOISES
    from smoothcert.smoothing.adaptive import expected_votes
    from smoothcert.smoothing.holding import HoldingClassifier
    from smoothcert.smoothing.plan import former_default

    if memory is not None:
        _check_memory(memory, hold, options.shard, out, options.levels.asked)
    # With a memory, the certificates that it is asked about afterwards go beside the answers.
    certified = out if memory is None else out.with_name(f"{out.name}-certificates")
    asked = options.of(model, former_default(certified), hold)
    named, noise, data_name, inputs = asked.named, asked.noise, asked.data_name, asked.inputs
    classifier, execution = asked.classifier, asked.classifier.execution
    low, high = inputs.value_range()
    quiet = output.silent
    note(f"{inputs.name}: inputs lie in [{low:g}, {high:g}]; σ is in the same units", quiet)
    planned = classifier.plan.noise
    one_sigma = planned.sigma if classifier.plan.sigma_levels is None else None
    for departure in named.departures(planned.name, one_sigma, inputs):
        warn(departure, output.quiet)
    if (expected := expected_votes(classifier.plan)) is not None and expected >= classifier.plan.n:
        warn(
            f"{classifier.plan.budget.text} costs more than it saves at n = {classifier.plan.n}: with its pilot of "
            f"{classifier.plan.budget.pilot_votes} an input gets about {expected:.0f} votes. Leave it out, take a "
            "smaller pilot (pilot:1%,200) or a larger n",
            output.quiet,
        )
    columns = held_columns(hold)
    voting = classifier if columns is None else classifier.holding(columns)
    noisy = inputs.input_shape
    if isinstance(voting, HoldingClassifier):
        noisy = (int((~voting.mask(noisy)).sum()),)
    if lost := classifier.plan.for_shape(noisy).rounding_of(inputs.levels):
        note(
            f"not all inputs are points of the noise's grid: each certificate is about the point nearest to its input. "
            f"Subtract {lost:.3g} from a radius for one that holds for any numbers, as the statements of show do; "
            "--levels Q chooses a grid that has the multiples of 1/Q",
            quiet,
        )
    if classifier.base.most_workers == 1 and execution.worker_count() > 1:
        note(
            f"{classifier.base.name} is evaluated by one worker; --thread-safe lets all of them do it", quiet
        )
    if (warning := foreign_fit(noise, classifier, inputs.input_shape)) is not None:
        note(warning, quiet)
    if noise not in NOISES:
        note(
            "σ differs between coordinates: σ below is the geometric mean, and a radius that of the largest ball "
            f"inside the region. By volume: `{command('plot', out, kind='area', out=beside(out, 'area.png'))}`",
            quiet,
        )
    if classifier.plan.search is not None:
        note(
            "σ is searched for each input: each certificate is about the classifier frozen at that input's own σ. An "
            "input nearby may get another σ and another answer; only a region memory rules that out.",
            quiet,
        )
    origin: dict[str, Any] = {
        "model": model,
        "architecture": options.model_options.architecture,
        "dataset": data_name,
        "split": options.data.split,
        "data_dir": None if options.data.data_dir is None else str(options.data.data_dir),
        "input_range": [low, high],
    }
    if named.trained_range is not None:
        origin["trained_range"] = list(named.trained_range)
    described = {
        **vars(options.model_options),
        "hold": hold,
        "chooser": options.levels.chooser,
        "level_models": options.levels.level_models,
    }
    origin |= {
        key: str(value) if isinstance(value, Path) else value
        for key, value in described.items()
        if value not in (None, getattr(ModelOptions, key, None))
    }
    if named.method is not None:
        origin["method"] = named.method
    if named.trained:
        origin[TRAINED] = dict(named.trained)
    run = certify_with_bar(voting, inputs, certified, asked.choice, origin, quiet=quiet)
    if memory is None:
        show_run(run, output)
    if classifier.plan.search is not None:
        from smoothcert.sigma_search.log import in_words, read_found

        done = set(run.records.index.tolist())
        found = [one for index, one in read_found(certified).items() if index in done]
        note(in_words(found, classifier.plan.noise.sigma), quiet)
    if memory is not None:
        remember_with_bar(run, inputs, memory, out, output)


def _check_memory(memory: str, hold: list[str] | None, shard: str | None, out: Path, levelled: bool) -> None:
    """Refuse, before any vote, what no memory takes, and one that isn't installed."""
    from smoothcert.errors import InvalidValueError
    from smoothcert.region_memory.stores import store_for

    if hold is not None:
        raise InvalidValueError("a memory's regions are of whole inputs: leave --hold or --memory out")
    if levelled:
        raise InvalidValueError(
            "with sigma levels it is one classifier already, which needs no memory: leave --memory out"
        )
    if shard is not None:
        raise InvalidValueError(
            "answers depend on the order of questions: merge the shards, then pass the whole run through the memory "
            "with smoothcert remember"
        )
    if not out.name:
        raise InvalidValueError(f"--out must be a directory with a name, got {str(out)!r}")
    store_for(memory.removeprefix("sqlite:"))
