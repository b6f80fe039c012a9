"""The plan of a fit: everything that can change the resulting σ vector."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from smoothcert.errors import InvalidValueError, check_count, check_positive, check_probability
from smoothcert.knobs import knob
from smoothcert.perturb.base import NOISES
from smoothcert.registry import check_name, suggesting_fields

CALIBRATION, VALIDATION, VOTES = 2000, 200, 250
"""Of a network in int8: rows that ranges are taken from, inputs held out for its statement, noisy copies of each."""

RouteKind = Literal["gradient", "votes"]
ScaleKind = Literal["none", "std"]


@suggesting_fields
@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """One fit from one starting constant. Defaults are the paper's for MNIST, in pixels; the validation is smaller.

    The paper's rate .001 moves σ of normalised inputs; one of their units is 0.3081 in pixels, so a step is 3.081e-4
    here. docs/nonuniform.md has the settings of its other data sets.
    """

    init: float
    """Where every σ starts, in the units of the inputs."""
    noise: str = knob(
        "gaussian",
        "kind of noise: gaussian certifies ellipsoids; uniform stretched ℓ1 balls",
        choices="smoothcert.perturb.base:NOISES",
    )
    route: RouteKind = knob(
        "gradient",
        "how σ is moved: gradient (torch models, the default for them) or votes (any model: each group is tried "
        "larger and smaller)",
        option="fit_by",
    )
    groups: str = knob(
        "pixel",
        "which coordinates share a σ: pixel (none), channel, rows, patch:K, a list 0,0,1 or a .json or .npy file of "
        "labels",
    )
    rank: int | None = knob(None, "for images: ln σ has this rank over rows and columns, instead of groups")
    scale: ScaleKind = knob(
        "none",
        "where σ starts: at --init, or (std) at --init times each coordinate's standard deviation over the data, for "
        "features in units of their own",
    )
    sub_epochs: int = knob(5, "passes over the inputs (gradient) or sweeps over the groups (votes)")
    decay: float = knob(0.5, "the step is multiplied by this after each sub-epoch")
    lr: float = knob(3.081e-4, "step of a σ where it starts, by Adam", group="gradient")
    batch: int = knob(128, "inputs of a step", group="gradient", option="step_inputs")
    n0: int = knob(32, "samples of each input in a step", group="gradient", option="step_samples")
    beta: float = knob(
        1.0,
        "the model's scores are multiplied by this before the softmax; raise it for a model that is right but unsure",
        group="gradient",
    )
    factor: float = knob(4.0, "how far a group's σ is tried up and down in the first sweep", group="votes")
    votes: int = knob(64, "votes for each input at each σ tried", group="votes")
    tried: int = knob(128, "inputs that each sweep votes on", group="votes")
    validation: int = knob(256, "inputs kept apart for it", group="validation")
    validation_n0: int = knob(32, "votes that choose the class", group="validation")
    validation_n: int = knob(256, "votes that bound its probability", group="validation")
    alpha: float = knob(0.001, "level of those bounds", group="validation")
    seed: int = knob(0, "names the random streams")

    def __post_init__(self) -> None:
        check_positive("init", self.init)
        NOISES[self.noise]  # an unknown name is an error that lists the known ones
        check_name("route", self.route, get_args(RouteKind))
        check_name("scale", self.scale, get_args(ScaleKind))
        for each in fields(self):
            if each.type == "int":
                check_count(each.name, getattr(self, each.name), least=0 if each.name == "seed" else 1)
        check_positive("lr", self.lr)
        check_positive("beta", self.beta)
        if not 0 < self.decay <= 1:
            raise InvalidValueError(f"decay must lie above 0 and not above 1, got {self.decay}")
        if not 1 < self.factor <= 64:
            raise InvalidValueError(f"factor must lie above 1 and not above 64, got {self.factor}")
        check_probability("alpha", self.alpha)
        if self.rank is not None:
            check_count("rank", self.rank)
            if self.groups != "pixel":
                raise InvalidValueError(
                    f"--rank {self.rank} and --groups are mutually exclusive: leave one out"
                )
            if self.route == "votes":
                raise InvalidValueError("rank needs gradients: with --fit-by votes, use --groups instead")

    def as_json(self) -> dict[str, Any]:
        """Every field that the route uses, in plain values."""
        unused = (
            {"lr", "batch", "n0", "beta", "rank"} if self.route == "votes" else {"factor", "votes", "tried"}
        )
        return {name: value for name, value in asdict(self).items() if name not in unused}
