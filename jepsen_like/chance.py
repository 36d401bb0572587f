"""Every choice of a run, as a function of its seed.

Each purpose draws from a stream of its own, so that one more draw in one place does not shift the
choices of all others: a run stays alike when a fault is taken out of it.
"""

from __future__ import annotations

from random import Random


class Chance(Random):
    """One stream of choices, made from the seed of the run and the purpose of the stream."""

    def __init__(self, seed: int, purpose: str) -> None:
        # A text seeds through SHA-512, never through hash(): the same in every process.
        super().__init__(f"{seed}/{purpose}")

    def happens(self, probability: float) -> bool:
        """Return whether an event of this probability happens now."""
        return self.random() < probability

    def wait_s(self, mean_s: float) -> float:
        """Draw the seconds until an event that comes every `mean_s` seconds on the average."""
        return self.expovariate(1.0 / mean_s)
