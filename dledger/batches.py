"""Cuts the log into pushes: how many entries fit, and their bytes, read once for all peers."""

from __future__ import annotations

from collections import OrderedDict

from dledger.store.log_store import LogStore

# Pushes kept for the other peers, which as a rule want the same ones in the same turn.
_KEPT_BATCHES = 16


class Batches:
    """A BatchSizer over the store that keeps what it read last."""

    __slots__ = ("_kept", "_max_bytes", "_store")

    def __init__(self, store: LogStore, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._kept: OrderedDict[int, tuple[int, bytes]] = OrderedDict()

    def batch_end(self, first: int, last: int) -> int:
        """The last index of the push that begins at `first` and ends at `last` at most."""
        kept = self._kept.get(first)
        # A small push goes out only if nothing more could go with it.
        if kept is not None and (
            kept[0] == last or (kept[0] < last and 2 * len(kept[1]) > self._max_bytes)
        ):
            return kept[0]
        end, raw = self._store.read_run(first, last, self._max_bytes)
        self.keep(first, end, raw)
        return end

    def keep(self, first: int, end: int, raw: bytes) -> None:
        """These bytes of entries first..end are at hand: a push may be made of them."""
        if len(raw) > self._max_bytes and end > first:
            return
        self._kept[first] = (end, raw)
        if len(self._kept) > _KEPT_BATCHES:
            self._kept.popitem(last=False)

    def payload(self, first: int, end: int) -> bytes:
        """The bytes of entries first..end, a push that `batch_end` cut."""
        kept = self._kept.get(first)
        if kept is not None and kept[0] == end:
            return kept[1]
        return self._store.read(first, end, self._max_bytes)

    def forget(self) -> None:
        """The log was cut: what was read may be no part of it any more."""
        self._kept.clear()
