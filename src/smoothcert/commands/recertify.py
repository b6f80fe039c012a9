"""`smoothcert recertify`: another alpha or bound for votes that were cast before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from smoothcert.commands.options import BoundName, OutputOptions
from smoothcert.commands.run_argument import RunPath

# Refused with a reason instead of "unknown option".
_Refused = Parameter(show=False)


def recertify(
    run: RunPath,
    *,
    out: Path,
    alpha: float | None = None,
    bound: BoundName | None = None,
    sigma: Annotated[float | None, _Refused] = None,
    noise: Annotated[str | None, _Refused] = None,
    n: Annotated[int | None, _Refused] = None,
    n0: Annotated[int | None, Parameter(name="--n0", show=False)] = None,
    seed: Annotated[int | None, _Refused] = None,
    output: OutputOptions = OutputOptions(),
) -> None:
    """Compute a run's certificates anew from its stored votes, at another alpha or with another bound.

    A run keeps the votes of every input, so this takes seconds and no model. Certificates hold as if the run had been
    certified this way from the start, and are the same to the last bit where each input has n votes (no `--stop` but
    wrong); other rules, and choosers of σ levels, would have ended the voting elsewhere. Another σ, noise, n, n0 or
    seed needs new votes: that is `certify`. Without `--alpha` and `--bound` it checks that the results follow from the
    votes.

    **Choose alpha and bound for the whole run, and before you see what they give.** Trying several and keeping the
    best, or choosing per input, voids the promise: certificates would be wrong more often than alpha says. The new
    run records which run it was made from.

    Soft votes (hoeffding, bernstein) hold the hard ones too, but not the other way round; with a hard bound the
    certificates are about the classifier smoothed by hard votes.

    Example: `smoothcert recertify runs/digits-cert --bound clopper-pearson --out runs/digits-cert-cp`

    Parameters
    ----------
    run
        Run directory made by certify; an unfinished one is taken as far as it goes.
    out
        Directory of the new run.
    alpha
        Probability that a certificate is wrong (default: the run's).
    bound
        top-two, clopper-pearson, hoeffding or bernstein (default: the run's).
    """
    from smoothcert.commands.certify_view import show_run
    from smoothcert.commands.console import note
    from smoothcert.evaluation.recertification import CHANGEABLE, as_if_certified
    from smoothcert.evaluation.recertification import recertify as write_recertified
    from smoothcert.runs import read_run
    from smoothcert.runs.statement import PlanStatement

    source = read_run(run)
    made = write_recertified(
        source, out, alpha=alpha, bound=bound, sigma=sigma, noise=noise, n=n, n0=n0, seed=seed
    )
    quiet = output.silent
    if source.shortfall is not None:
        note(f"{run} holds {source.shortfall}; what it adds later won't be in {out}", quiet)
    before, after = ({key: one.manifest.plan.value(key) for key in CHANGEABLE} for one in (source, made))
    if before != after and not as_if_certified(source, made.manifest.plan.known(PlanStatement.bound)):
        stops = " ".join(source.manifest.plan.stops)
        if source.manifest.plan.sigma_levels is not None:
            stops = " ".join(filter(None, (stops, "what chooser and levels had to show")))
        note(
            f"the certificates hold, but certify with {_stated(after)} would have stopped at other numbers of votes: "
            f"{run} stopped by {stops} with {_stated(before)}",
            quiet,
        )
    show_run(made, output)


def _stated(plan: dict[str, object]) -> str:
    return " and ".join(f"{key} {value}" for key, value in plan.items())
