"""The error of a run that broke a promise."""

from __future__ import annotations

from dledger.declared_error import DeclaredError


class Failure(DeclaredError):
    """A run broke a promise."""

    seed: int
    at_s: float
    promise: str
    how: str
    _template = "seed {seed}, {at_s:.6f} s: {promise}: {how}"
