"""The plan of a fit: everything that can change the σ vector found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from smoothcert.errors import InvalidValueError, check_count, check_positive, check_probability
from smoothcert.knobs import knob
from smoothcert.noise_fit.objective import NoiseKind
from smoothcert.registry import unknown_name

RouteKind = Literal["gradient", "votes"]
ScaleKind = Literal["none", "std"]


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """One fit from one starting constant. Defaults are the paper's for MNIST; n0 and the validation are smaller."""

    init: float
    noise: NoiseKind = knob("gaussian", "gaussian (ellipsoids) or uniform (stretched ℓ1 balls)")
    route: RouteKind = knob("gradient", "gradient (torch models) or votes (any model, few groups)")
    groups: str = knob("pixel", "coordinates that share a σ")
    rank: int | None = knob(None, "for images: ln σ is a matrix of this rank over rows and columns")
    scale: ScaleKind = knob("none", "start at init, or at init times each coordinate's standard deviation")
    sub_epochs: int = knob(5, "passes over the inputs, or sweeps over the groups")
    decay: float = knob(0.5, "after each of them the step is multiplied by this")
    lr: float = knob(1e-3, "gradient: step of σ at its start, by Adam")
    batch: int = knob(128, "gradient: inputs of a step")
    n0: int = knob(8, "gradient: samples of each input in a step")
    beta: float = knob(1.0, "gradient: the model's scores are multiplied by this before the softmax")
    factor: float = knob(4.0, "votes: a group's σ is tried at this factor up and down, in the first sweep")
    votes: int = knob(64, "votes: votes for each input and each σ tried")
    tried: int = knob(128, "votes: inputs that each sweep votes on")
    validation: int = knob(256, "inputs kept apart to measure accuracy and area after each sub-epoch")
    validation_n0: int = knob(32, "votes that choose the class there")
    validation_n: int = knob(256, "votes that bound its probability there")
    alpha: float = knob(0.001, "level of those bounds")
    seed: int = 0

    def __post_init__(self) -> None:
        check_positive("init", self.init)
        for name, value, known in (
            ("noise", self.noise, ["gaussian", "uniform"]),
            ("route", self.route, ["gradient", "votes"]),
            ("scale", self.scale, ["none", "std"]),
        ):
            if value not in known:
                raise unknown_name(name, value, known)
        for name in (
            "sub_epochs",
            "batch",
            "n0",
            "votes",
            "tried",
            "validation",
            "validation_n0",
            "validation_n",
        ):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
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
                    f"rank and groups are two answers to one question: leave --rank {self.rank} or --groups out"
                )
            if self.route == "votes":
                raise InvalidValueError(
                    "rank needs gradients: leave it out with --route votes and use --groups"
                )

    def as_json(self) -> dict[str, Any]:
        """Every field that the route uses, in plain values."""
        unused = (
            {"lr", "batch", "n0", "beta", "rank"} if self.route == "votes" else {"factor", "votes", "tried"}
        )
        return {name: value for name, value in asdict(self).items() if name not in unused}
