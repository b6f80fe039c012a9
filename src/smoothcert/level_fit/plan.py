"""The plan of a chooser's fit: everything that can change the chooser."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from smoothcert.architectures.lookup import check_architecture
from smoothcert.errors import check_count, check_positive
from smoothcert.knobs import knob
from smoothcert.noise import NOISES
from smoothcert.sigma_levels import SigmaLevels


@dataclass(frozen=True, kw_only=True)
class LevelFitPlan:
    """One chooser among ``sigmas``, fitted on the votes of training inputs at every level."""

    sigmas: tuple[float, ...]
    noise: str = knob(
        "gaussian",
        "kind of noise, of the levels and of the chooser",
        choices=("smoothcert.noise", "NOISES"),
    )
    chooser_sigma: float | None = knob(
        None, "standard deviation of the chooser's noise (default: the largest level)"
    )
    inputs: int = knob(4000, "inputs that are voted on, drawn from those there are", group="votes")
    votes: int = knob(256, "votes for each input at each level", group="votes")
    validation: int = knob(1000, "of these inputs, so many are kept apart from the fit", group="votes")
    network: str | None = knob(
        None,
        "the chooser's network (default: lenet for images from 16×16 on, else small-cnn)",
        group="chooser",
    )
    epochs: int = knob(30, "passes over the inputs", group="chooser")
    batch: int = knob(64, "inputs of a step", group="chooser", spellings=("step-inputs",))
    copies: int = knob(8, "noisy copies of each input in a step", group="chooser")
    lr: float = knob(1e-3, "learning rate of Adam, which falls to 0 along a cosine", group="chooser")
    seed: int = knob(0, "names the random streams")

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigmas", self.levels.sigmas)
        NOISES[self.noise]  # an unknown name is an error that lists the known ones
        for name in ("inputs", "votes", "validation", "epochs", "batch", "copies"):
            check_count(name, getattr(self, name))
        check_count("seed", self.seed, least=0)
        check_positive("lr", self.lr)
        if self.network is not None:
            check_architecture(self.network)

    @property
    def levels(self) -> SigmaLevels:
        """The levels and the chooser's noise, as a plan of certification states them."""
        return SigmaLevels(tuple(self.sigmas), self.chooser_sigma)

    @property
    def noise_sigma(self) -> float:
        """σ of the chooser's noise."""
        return self.levels.noise_sigma

    def as_json(self) -> dict[str, Any]:
        """The fields that a statement has."""
        fields = asdict(self) | {"chooser_sigma": self.noise_sigma}
        return {"sigma_levels": list(fields.pop("sigmas")), **fields}
