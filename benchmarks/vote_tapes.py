"""``python -m benchmarks.vote_tapes RUN --out TAPE.npz``: the papers' 100 000 votes of each input, block by block.

Because the v-th vote of an input's stream is always the same draw, whatever is to be known of a way to stop can be read
off a tape: it would have seen exactly these votes. Interrupted, it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from smoothcert import SmoothedClassifier
from smoothcert.commands.model_argument import load_named_model
from smoothcert.commands.options import ModelOptions
from smoothcert.datasets import load
from smoothcert.evaluation import Choice
from smoothcert.sampling import Draw, Job, Procedure
from smoothcert.smoothing.voting import engine_for
from smoothcert.tally import Phase

N0, PILOT_VOTES, N = 100, 1000, 100_000


@dataclass(frozen=True)
class Tapes:
    """``blocks[i, b, c]``: votes for class c in block b of input i; the last block may be cut off at n."""

    sigma: float
    block: int
    indices: NDArray[np.int64]
    labels: NDArray[np.int64]
    selection: NDArray[np.int64]
    pilot: NDArray[np.int64]
    blocks: NDArray[np.uint16]

    def save(self, path: Path) -> None:
        """Write all of it."""
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **vars(self))
        part.replace(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it back."""
        with np.load(path) as file:
            return cls(float(file["sigma"]), int(file["block"]), *(file[name] for name in _ARRAYS))


_ARRAYS = ("indices", "labels", "selection", "pilot", "blocks")


def taping(block: int) -> Procedure[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16]]]:
    """All votes of one input, a tally for each block."""
    selection = yield Draw(Phase.SELECTION, N0)
    pilot = yield Draw(Phase.PILOT, PILOT_VOTES)
    rows = []
    for start in range(0, N, block):
        tally = yield Draw(Phase.ESTIMATION, min(block, N - start))
        rows.append(tally.counts)
    return np.array(selection.counts), np.array(pilot.counts), np.array(rows, dtype=np.uint16)


def main() -> None:
    """Tape the chosen inputs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="training run")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--skip", type=int, default=100)
    parser.add_argument("--max", type=int)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    named = load_named_model(options.model, ModelOptions(), "hard")
    data = load(named.dataset_or(None), "test", options.data_dir)
    sigma = named.sigma_or(None)
    classifier = SmoothedClassifier(named.classifier, sigma=sigma, seed=0, levels=data.levels)
    plan = classifier.prepare(data.input_shape)
    prepared, layout = classifier.prepared(data.input_shape), plan.numerics.layout()
    done = Tapes.load(options.out) if options.out.exists() else None
    taped = {} if done is None else {int(i): k for k, i in enumerate(done.indices)}
    chosen = Choice(options.skip, options.max).indices(len(data))
    jobs = (Job(i, data.input(i), plan.noise, taping(layout.block)) for i in chosen if i not in taped)
    kept = (
        {i: (done.selection[k], done.pilot[k], done.blocks[k]) for i, k in taped.items()}
        if done is not None
        else {}
    )
    saved = time.monotonic()
    for finished in engine_for(plan, prepared, classifier.execution).run(jobs):
        kept[finished.job.index] = finished.answer
        if time.monotonic() - saved > 60 or len(kept) == len(chosen):
            order = sorted(kept)
            Tapes(
                sigma,
                layout.block,
                np.array(order),
                data.labels[order],
                *(np.stack([kept[i][part] for i in order]) for part in range(3)),
            ).save(options.out)
            saved = time.monotonic()
            print(f"{len(kept)} of {len(chosen)}", flush=True)


if __name__ == "__main__":
    main()
