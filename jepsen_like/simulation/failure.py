"""The error of a run that broke a promise."""

from __future__ import annotations


class Failure(Exception):
    """A run broke a promise."""

    def __init__(self, seed: int, at_s: float, promise: str, how: str) -> None:
        self.seed = seed
        self.at_s = at_s
        self.promise = promise
        self.how = how
        super().__init__(f"seed {seed}, {at_s:.6f} s: {promise}: {how}")
