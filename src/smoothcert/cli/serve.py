"""`smoothcert serve`: certified predictions over HTTP, and `serve key`: a new key for a caller."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from smoothcert.analysis.facts import guessing
from smoothcert.cli.arguments import NamedModel, load_named_model
from smoothcert.cli.commands import HELP_ALL
from smoothcert.cli.console import note, warn
from smoothcert.cli.options import BoundName, ModelName, ModelOptions, NoiseText, OutputOptions, Sigma
from smoothcert.cli.plan_options import EngineOptions, SearchText, VoteOptions, search_of
from smoothcert.engine.execution import Execution
from smoothcert.errors import InvalidValueError, RunError, SmoothcertError
from smoothcert.extras import require
from smoothcert.models.numerics import Numerics
from smoothcert.runs.layout import RunFiles
from smoothcert.runs.manifest import Manifest
from smoothcert.runs.run import read_run
from smoothcert.service.limits import EngineLimits, Limits
from smoothcert.smoothing.plan import ANYTIME_BOUND, CertifyPlan

if TYPE_CHECKING:
    from smoothcert.service.secrets import Secret
    from smoothcert.smoothing.classifier import SmoothedClassifier

app = App(
    name="serve",
    help_flags=["--help", "-h", HELP_ALL],
    default_parameter=Parameter(negative=""),
    group_commands=Group("Commands", sort_key=99),
)

_PICTURES, _OTHERS, _IN_TABLES = 1.0, 100.0, 1e9  # the largest number to expect, where the model doesn't say
_LIMITS = Group("Limits (whatever is beyond them is refused)", sort_key=8)


@Parameter(name="*", group=_LIMITS)
@dataclass(frozen=True)
class LimitOptions:
    """What one request, and one caller, may ask for."""

    deadline: float = 10.0
    """Seconds after which a request that doesn't say is answered with the radius reached so far."""
    max_deadline: float = 300.0
    """Seconds that a request may ask for."""
    max_body: int = 8 << 20
    """Bytes of a request."""
    max_inputs: int = 64
    """Inputs of a request."""
    max_queue: int = 1024
    """Inputs that may wait, of all callers together; more get 429."""
    max_waiting: int = 256
    """Inputs that may wait, of one caller; more get 429."""
    max_requests: int = 600
    """Requests of one caller a minute."""
    max_votes: int = 100_000_000
    """Votes for one caller a minute."""
    max_connections: int = 512
    """Connections at once."""
    keep: int = 65_536
    """Inputs whose votes are kept, to continue with when asked again."""

    def limits(self) -> Limits:
        """As the service takes them."""
        return Limits(
            body=self.max_body,
            inputs=self.max_inputs,
            deadline=min(self.deadline, self.max_deadline),
            longest=self.max_deadline,
            requests_per_minute=self.max_requests,
            votes_per_minute=self.max_votes,
            connections=self.max_connections,
            engine=EngineLimits(self.max_queue, min(self.max_waiting, self.max_queue), self.keep),
        )


@app.default
def serve(
    model: ModelName,
    *,
    sigma: Sigma = None,
    noise: NoiseText = None,
    votes: VoteOptions = VoteOptions(),
    bound: BoundName | None = None,
    sigma_search: SearchText = None,
    memory: str | None = None,
    plan_from: Path | None = None,
    input_shape: Annotated[tuple[str, ...] | None, Parameter(consume_multiple=True)] = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_keys: Path | None = None,
    open: bool = False,
    allow_host: list[str] | None = None,
    seed: int | None = None,
    secret_file: Path | None = None,
    grace: float = 10.0,
    limits: LimitOptions = LimitOptions(),
    model_options: ModelOptions = ModelOptions(),
    engine: EngineOptions = EngineOptions(),
    output: OutputOptions = OutputOptions(),
) -> None:
    """Serve a smoothed classifier: ask for a class and get, with it, the radius inside which it can't be changed.

    `POST /v1/predict`, `/v1/certify` and `/v1/certify/stream` take JSON, .npy files and pictures; `/v1/plan` says what
    is promised; at `/` is a page to try it. Every answer is a certificate that holds whenever it is read off: a
    deadline answers with the radius reached so far. With probability 1 − alpha no answer ever given about an input is
    wrong, however often it is asked about (docs/serving.md).

    Example: `smoothcert serve runs/digits --sigma 0.25 --n 10000`

    Parameters
    ----------
    bound
        One that holds whenever voting stops: mixture-top-two (the default), mixture, looks or looks-top-two.
    memory
        Remember every answer, so that none contradicts another: an SQLite file, made if missing (sqlite:FILE), or
        postgresql://USER@HOST/DATABASE#SCHEMA, which several servers may share. Needed for --sigma-search.
    plan_from
        A run made by certify on this very model: its noise, σ, n0, n and α are taken, and a bound that holds whenever
        voting stops.
    input_shape
        Of an input, such as 1,28,28 or 1 28 28; for models that don't say.
    host
        Address to listen at. Others than this machine's own need --api-keys, or --open.
    port
        Port to listen at; 0 takes a free one.
    api_keys
        File with the hashes of the callers' keys, made by `smoothcert serve key`.
    open
        Let everybody in who can reach the host, without a key.
    allow_host
        A further name that the server is reached by; only asked about where there are no keys.
    seed
        Fixes all votes, so that answers can be reproduced. Anyone who knows it can look for inputs that it flatters:
        for tests and figures, not for strangers.
    secret_file
        Keeps the secret that votes follow from, in a file that only you can read; made if missing. Without, every start
        draws another, and what is promised is for each life of the server.
    grace
        Seconds that questions under way may take when the server is stopped; then they are answered as they stand.
    """
    from smoothcert.cli.tables import perturbation_of
    from smoothcert.perturb.base import Noise

    require("fastapi", "serve")
    require("uvicorn", "serve")
    require("prometheus_client", "serve")
    from smoothcert.service.application import make_application
    from smoothcert.service.secrets import Keys
    from smoothcert.service.server import LOOPBACK, is_loopback, make_server
    from smoothcert.service.service import Service

    _check_host(host, api_keys, open, is_loopback(host))
    keys = None if api_keys is None else Keys.read(api_keys)
    secret = _secret(seed, secret_file)
    execution, searched = engine.execution, search_of(sigma_search)
    _check_model(model)
    named = load_named_model(model, model_options, "hard")
    shape = _shape(named, input_shape)
    if plan_from is not None:
        if sigma is not None or noise is not None or searched is not None or votes != VoteOptions():
            raise InvalidValueError(
                "--plan-from takes noise, σ and votes from a run: leave --sigma, --noise, --n0, --n, --alpha and "
                "--sigma-search out"
            )
        classifier = _plan_of(plan_from, named, shape, execution, bound or ANYTIME_BOUND)
    else:
        perturbation = perturbation_of(named, noise, sigma, None)
        plan = {"bound": bound or ANYTIME_BOUND, **vars(votes), **engine.plan_fields, "search": searched}
        sigma = sigma if perturbation is None else None
        classifier = named.smoothed(execution, sigma, noise=perturbation or named.noise_or(noise), **plan)
    usual = _PICTURES if len(shape) == 3 else _OTHERS
    expected = named.trained_range or (0.0, usual if isinstance(classifier.plan.noise, Noise) else _IN_TABLES)
    classifier.settle_for(classifier.plan.levels, max(abs(end) for end in expected))
    if seed is not None:
        warn(
            f"--seed {seed} fixes every vote: anyone who knows it can look for inputs that it flatters, and for those "
            "nothing is promised. Leave it out where strangers ask"
        )
    if (doubt := guessing(Path(model), len(named.classifier.class_names or ()) or 2)) is not None:
        warn(doubt)
    address = None if memory is None else memory.removeprefix("sqlite:")
    service = Service(classifier, shape, secret=secret, limits=limits.limits(), memory=address)
    # With keys a page from elsewhere can do nothing; opened to all, the name doesn't matter.
    anyone = keys is not None or (open and not is_loopback(host))
    hosts = None if anyone else LOOPBACK | {host.lower(), *(name.lower() for name in allow_host or ())}
    application = make_application(service, keys, hosts)

    def started(url: str) -> None:
        told: dict[str, Any] = {"url": url, "plan": service.engine.plan_hash}
        if output.json:
            sys.stdout.write(json.dumps(told) + "\n")
            sys.stdout.flush()
        note(f"serving {classifier.base.name} at {url} (Ctrl-C ends it)")

    server = make_server(application, host, port, grace, started)
    try:
        asyncio.run(server.serve())
    except SystemExit:  # uvicorn's way to say that it couldn't begin
        raise InvalidValueError(
            f"can't listen at {host}, port {port}: it is taken, or not this machine's; --port 0 takes a free one"
        ) from None
    finally:
        service.close()
    if service.engine.broken:
        raise SmoothcertError("the voting engine failed, and nothing could be answered: start it again")


def _check_model(model: str) -> None:
    path = Path(model)
    if not path.is_dir() or not RunFiles(path).statement.exists():
        return
    manifest = Manifest.load(path)
    if manifest.kind != "train":
        raise RunError(
            f"{model} is a run of kind {manifest.kind!r}, which names a model but holds none: give the model, and "
            f"--plan-from {model} to take its noise and votes"
        )


def _plan_of(
    path: Path, named: NamedModel, shape: tuple[int, ...], execution: Execution, bound: str
) -> SmoothedClassifier:
    """The model smoothed as a run of certificates says; refused for a run of another model."""
    from smoothcert.smoothing.classifier import SmoothedClassifier

    run = read_run(path)
    if run.manifest.model.held is not None:
        raise RunError(f"{path} certifies with some coordinates held, which isn't served")
    if run.manifest.plan.sigma_levels is not None:
        raise RunError(f"{path} certifies by levels of σ, which aren't served: give --sigma")
    if run.manifest.model.sha256 != named.classifier.fingerprint(shape):
        raise RunError(f"{path} is of another model ({run.manifest.model.name}): give the one it certified")
    stated = CertifyPlan.from_statement(run.manifest.plan, path)
    plan = replace(stated, bound=bound, stop=(), seed=None, numerics=Numerics(stated.numerics.dtype))
    return SmoothedClassifier(named.classifier, plan, execution=execution)


def _check_host(host: str, api_keys: Path | None, everybody: bool, loopback: bool) -> None:
    if not loopback and api_keys is None and not everybody:
        raise InvalidValueError(
            f"--host {host} can be reached by others: give --api-keys FILE (`serve key` makes keys), or "
            "--open to let everybody in"
        )
    if api_keys is not None and everybody:
        raise InvalidValueError("--open and --api-keys are mutually exclusive: leave one out")


def _secret(seed: int | None, path: Path | None) -> Secret:
    from smoothcert.service.secrets import Secret

    if seed is not None and path is not None:
        raise InvalidValueError("--seed and --secret-file are mutually exclusive: leave one out")
    if seed is not None:
        return Secret.of_seed(seed)
    return Secret.fresh() if path is None else Secret.in_file(path)


def _shape(named: NamedModel, given: Sequence[str] | None) -> tuple[int, ...]:
    if given is None:
        known = named.input_shape or named.classifier.input_shape
        if known is None:
            raise InvalidValueError("--input-shape is missing, and the model doesn't say: write 1,28,28, say")
        return tuple(known)
    sizes = ",".join(given).replace("x", ",").split(",")
    if not all(size.strip().isdecimal() and int(size) > 0 for size in sizes):
        raise InvalidValueError(f"--input-shape must be sizes such as 1,28,28, got {' '.join(given)!r}")
    return tuple(int(size) for size in sizes)


@app.command(name="key")
def serve_key(name: str, *, api_keys: Path, output: OutputOptions = OutputOptions()) -> None:  # noqa: ARG001  (console)
    """Make an API key for a caller of `smoothcert serve`: printed once, kept as a hash.

    Example: `smoothcert serve key alice --api-keys keys.txt`

    Parameters
    ----------
    name
        Whose it is: letters, digits, dots, - and _.
    api_keys
        The file with a line for each key, its hash alone; made if missing. To withdraw a key, delete its line and
        restart the server.
    """
    from smoothcert.service.secrets import new_key

    key = new_key(api_keys, name)
    note(f"the key of {name}, which is shown this once; {api_keys} has its hash alone")
    sys.stdout.write(key + "\n")
