"""Options that say how and where the model is evaluated, made from the dataclasses that they fill."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cyclopts import Group

from smoothcert.commands.made_options import OptionField, option, options_class, sentence
from smoothcert.commands.written_knobs import written_knobs, written_type

if TYPE_CHECKING:
    from smoothcert.sampling import Execution, Numerics

_SPEED = Group("Speed (never changes an answer)", sort_key=20)
_NUMERICS = Group("Numerics (part of the plan: may change a last bit)", sort_key=10)


def _speed_fields(*names: str) -> list[OptionField]:
    knobs = written_knobs("smoothcert.sampling.execution", "Execution", only=names)
    return [option(sentence(knob), _SPEED) for knob in knobs]


def _numerics_fields() -> list[OptionField]:
    """Dtype and route with the names they may have; blocks are for tests and no option."""
    module = "smoothcert.sampling.numerics"
    kinds = {name: written_type(module, name.capitalize()) for name in ("dtype", "route", "generator")}
    knobs = written_knobs(module, "Numerics", only=("dtype", "route", "chunk", "generator"))
    knobs += written_knobs("smoothcert.smoothing.plan", "CertifyPlan", only=("levels",))
    named = [replace(knob, kind=kinds.get(knob.name, knob.kind)) for knob in knobs]
    return [option(sentence(knob), _NUMERICS) for knob in named]


if TYPE_CHECKING:

    class DeviceOptions:
        """Device and workers, for commands that cast few votes."""

    class SpeedOptions(DeviceOptions):
        """What may change speed but never an answer."""

    class NumericsOptions:
        """What may change a last bit; ``levels`` is the plan's own."""

        dtype: str
        route: str
        chunk: int | None
        generator: str
        levels: int | None

else:
    DeviceOptions = options_class("DeviceOptions", _speed_fields("device", "workers"), __name__)
    SpeedOptions = options_class(
        "SpeedOptions",
        _speed_fields("device", "workers", "batch", "backend", "address", "gpus_per_worker"),
        __name__,
    )
    NumericsOptions = options_class("NumericsOptions", _numerics_fields(), __name__)


def execution_of(options: DeviceOptions) -> Execution:
    """The options as the engine takes them, on a device that can be reached."""
    from smoothcert.extras import require
    from smoothcert.sampling import Execution

    execution = Execution(**vars(options))
    execution.check_devices()
    if execution.backend == "ray":
        require("ray", "--backend ray")
    return execution


def numerics_of(options: NumericsOptions) -> Numerics:
    """The options as the plan takes them."""
    from smoothcert.sampling import Numerics

    return Numerics(options.dtype, options.route, options.chunk, generator=options.generator)
