"""One serving process: asks without pause, and writes down every answer it was given. It is there to be killed."""

import json
import os
import sys

import numpy as np

from smoothcert.smoothing.memory import RegionMemory
from smoothcert.smoothing.stores.base import StoreError
from tests.smoothing.memory.toys import awkward_point, awkward_radius, saying, statement


def main(address: str, seed: str, diary: str, norm: str) -> None:
    rng = np.random.default_rng(int(seed))
    file = os.open(diary, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    about = statement((2,), norm)
    while True:
        try:
            memory = RegionMemory.open(address, about)
            break
        except StoreError:
            if "postgres" not in address:
                raise
    balls = [stored.region for _, stored in memory.answers()]
    while True:
        x = awkward_point(balls[-30:], (2,), rng) * 1.0
        radius = min(awkward_radius(x, balls[-30:], rng), 0.3)
        # Classes at random: processes contradict one another as often as they can.
        answer = memory.answer(x, saying(int(rng.integers(4)), radius, norm))
        if answer.region is not None:
            balls.append(answer.region)
        entry = {
            "x": [c.hex() for c in x.tolist()],
            "predicted": answer.predicted,
            "radius": answer.radius.hex(),
            "source": answer.source,
            "record": answer.record,
        }
        os.write(file, json.dumps(entry).encode() + b"\n")  # in the kernel's hands: a kill can't take it back


if __name__ == "__main__":
    main(*sys.argv[1:5])
