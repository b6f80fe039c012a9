"""The networks that are measured, with random weights: speed doesn't depend on what they have learnt."""

from __future__ import annotations

from dataclasses import dataclass

from smoothcert.health.networks import CLASSES, RandomNetwork

__all__ = ["CLASSES", "NETWORKS", "Network"]


@dataclass(frozen=True)
class Network(RandomNetwork):
    """One network, and how many votes an input gets in a run of sensible length."""

    votes: int
    memory_votes: tuple[int, int]


NETWORKS = {
    network.name: network
    for network in (
        Network("lenet", "lenet", (1, 28, 28), votes=30_000, memory_votes=(10_000, 100_000)),
        Network("resnet20", "cifar_resnet20", (3, 32, 32), votes=4_000, memory_votes=(2_000, 10_000)),
    )
}
