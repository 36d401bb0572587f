"""The workload, the same for every system, and its result."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

# How dledger's appends are called. Other systems have one way, and get one entry a call.
APPEND, SUBMIT, APPEND_MANY = "append", "submit", "append_many"
MANY = 64


@dataclass(frozen=True, slots=True)
class Workload:
    in_flight: int  # entries that wait for their acknowledgement at any moment
    body_bytes: int = 256
    call: str = APPEND
    batch: int = 1  # entries appended with one call
    warm_up_s: float = 2.0
    measured_s: float = 5.0

    def to_json(self) -> str:
        named = asdict(self)
        seconds = named.pop("measured_s")  # as all systems read it
        return json.dumps({**named, "seconds": seconds})

    @classmethod
    def from_json(cls, text: str) -> Workload:
        named = json.loads(text)
        measured_s = named.pop("seconds")
        return cls(**named, measured_s=measured_s)


@dataclass(frozen=True, slots=True)
class Measured:
    """`failed` counts appends that were refused or not answered."""

    entries_per_s: float
    median_ms: float
    p99_ms: float
    failed: int = 0

    @classmethod
    def from_line(cls, line: str) -> Measured | None:
        """Return the result that a member printed; None for any other line.

        Raises ValueError if no append was acknowledged in the measured time.
        """
        if not line.startswith("{"):
            return None
        found: dict[str, Any] = json.loads(line)
        if "entries_per_s" not in found:
            return None
        if "median_ms" not in found or not found["entries_per_s"]:
            raise ValueError(f"nothing was acknowledged, {found.get('failed', 0)} appends failed")
        return cls(**found)


def measured(latencies_s: list[float], batch: int, measured_s: float) -> Measured:
    """Return rate and percentiles of the calls that were answered in `measured_s`."""
    ordered = sorted(latencies_s) or [float("nan")]
    return Measured(
        entries_per_s=len(latencies_s) * batch / measured_s,
        median_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[len(ordered) * 99 // 100] * 1000,
    )
