"""Notices a disk that takes writes and never finishes a sync."""

from __future__ import annotations


class DiskWatch:
    """Tells since when entries wait to become durable without any progress."""

    __slots__ = ("_durable", "_limit_s", "_since")

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._durable = -1
        self._since: float | None = None

    def observe(self, last_index: int, durable: int, now: float) -> None:
        """Where the log and its durable part end now."""
        if durable >= last_index:
            self._since = None
        elif self._since is None or durable != self._durable:
            self._since = now
        self._durable = durable

    def stalled(self, now: float) -> bool:
        """Whether nothing became durable for the limit, though something waits."""
        return self._since is not None and now - self._since >= self._limit_s

    @property
    def deadline(self) -> float:
        """When the disk counts as stalled, if nothing moves until then."""
        return float("inf") if self._since is None else self._since + self._limit_s
