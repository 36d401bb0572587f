"""Writes what the replica decided to the store: pushes, truncations, no-ops, proposals."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.core.entry_handler import (
    Accepted,
    ConfigurationEntry,
    NoopEntry,
    Restart,
    Truncation,
    Write,
)
from dledger.core.messages import PushRequest
from dledger.entry import Body, Magic
from dledger.errors import DiskFailed, DiskFull, InvariantBroken
from dledger.node.batches import Batches
from dledger.node.entry_cache import EntryCache
from dledger.store.batch import BatchFacts, verify_batch
from dledger.store.index_unit import UNIT, UNIT_BYTES
from dledger.store.log_store import LogStore

# The body of a leader's no-op at an index.
NoopBodies = Callable[[int], bytes]


def empty_noop(_index: int) -> bytes:
    """An empty body for a no-op."""
    return b""


class LogWriter:
    """The one writer of a store. Shared by the node and by the simulation of it.

    `noop_body`: the body of a leader's no-op at an index, see `dledger.store.noop_body`.
    """

    __slots__ = ("_batches", "_noop_body", "_store", "cache")

    def __init__(
        self, store: LogStore, batches: Batches, noop_body: NoopBodies = empty_noop
    ) -> None:
        self._store = store
        self._batches = batches
        self._noop_body = noop_body
        self.cache = EntryCache(store)

    def carry_out(self, write: Write) -> None:
        """Do one write. Raises DiskFailed, or InvariantBroken if it contradicts the log."""
        if isinstance(write, Accepted):
            self._push(write.push, write.first)
        elif isinstance(write, Truncation | Restart):
            self._batches.forget()
            self.cache.forget()
            if isinstance(write, Truncation):
                self._store.truncate_after(write.index)
            else:
                self._store.restart(write.begin)
        elif isinstance(write, NoopEntry):
            self._own(write.term, Magic.NOOP, self._noop_body(write.index), write.index)
        elif isinstance(write, ConfigurationEntry):
            self._own(write.term, Magic.CONFIGURATION, write.body, write.index)

    def _own(self, term: int, magic: Magic, body: bytes, index: int) -> None:
        """Append an entry that the core counts already, so that it cannot be refused."""
        try:
            self.append(term, magic, (body,), index)
        except DiskFull as error:
            cause = error.__cause__
            if not isinstance(cause, OSError):
                raise
            raise DiskFailed("append to", str(cause.filename), cause) from error

    def append(self, term: int, magic: Magic, bodies: Sequence[Body], first: int) -> int:
        """Append a leader's own entries, the first at `first`; return the last index."""
        written = self._store.append(term, magic, bodies)
        if written.first != first:
            raise InvariantBroken(f"the store appended at {written.first}, the core at {first}")
        self.cache.add(written.entries)
        if written.raw is not None:
            self._batches.keep(written.entries, written.raw)
        return written.last

    def _push(self, push: PushRequest, first: int) -> None:
        raw, facts = push.payload, push.facts
        if not isinstance(facts, BatchFacts):
            raise InvariantBroken("a push was accepted though its entries were not checked")
        if first > push.prev_index + 1:
            # A resent push, whose first entries are in the log already.
            unit_at = (first - facts.first_index) * UNIT_BYTES
            _, pos, *_ = UNIT.unpack_from(facts.index_units, unit_at)
            raw = raw[pos - facts.first_pos :]
            store = self._store
            facts = verify_batch(raw, first, store.chain_at(first - 1), store.last_term)
        self._store.write_batch(raw, facts)
        for run in facts.entries:
            self.cache.add(run)
