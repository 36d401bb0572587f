"""What is measured: the same work for every system."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Workload:
    """Appends of one size, so many at a time, for so long."""

    name: str
    in_flight: int  # entries that wait for their acknowledgement at any moment
    batch: int  # entries handed in with one call
    body_bytes: int = 256
    warm_up_s: float = 2.0
    seconds: float = 5.0

    def to_json(self) -> str:
        """One line, for the command line of a member."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Workload:
        """The workload in such a line."""
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Measured:
    """What came out."""

    entries_per_s: float
    median_ms: float
    p99_ms: float


def measured(latencies_s: list[float], batch: int, seconds: float) -> Measured:
    """Rate and percentiles of the calls that were answered in `seconds`."""
    ordered = sorted(latencies_s) or [float("nan")]
    return Measured(
        entries_per_s=len(latencies_s) * batch / seconds,
        median_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[len(ordered) * 99 // 100] * 1000,
    )
