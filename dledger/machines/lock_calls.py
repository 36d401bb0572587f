"""Holds a lock during a block, and renews its lease meanwhile."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import trio

from dledger.core.patience import Patience
from dledger.entry import Entry
from dledger.errors import Discarded, OutcomeUnknown, OutsideLog, Rejected
from dledger.machines.command import Appender, Calls
from dledger.machines.lock_sight import LockSight
from dledger.machines.replicated_lock import Holding, ReplicatedLocks
from dledger.patient_limit import patient_limit
from dledger.unwrapping_nursery import unwrapping_nursery

# The holder counts its lease as over after this share of it, so before other clients do: clocks
# differ by far less than one part in ten.
HOLDERS_SHARE = 0.9
# A lease is renewed three times in its length: two renewals may be lost.
RENEWALS_IN_A_LEASE = 3
# While others append, a waiting client reads the log ten times in a lease, but at most twenty times
# a second. It appends an entry of its own only when the lock may be free, since many clients may
# wait for one lock.
LOOKS_IN_A_LEASE = 10
SHORTEST_LOOK_S = 0.05
# The release of a lock is sent once, within this time; its lease would end it anyway.
RELEASE_TIMEOUT_S = 1.0

_MISSED = (Rejected, Discarded, OutcomeUnknown)


@runtime_checkable
class ShowsEntries(Protocol):
    async def entries_from(self, first: int, wait_s: float) -> list[Entry]: ...


class LockNotAcquired(Rejected):
    """Another holder kept the lock until the time was over."""

    lock: str
    timeout_s: float
    _template = "lock {lock!r} was not free within {timeout_s:g} s"


class LockLost(OutcomeUnknown):
    """The lease ended before the block ended: another client may hold the lock."""

    lock: str
    _template = (
        "the lease of lock {lock!r} could not be renewed in time: what the block did at its end "
        "may have been done without the lock"
    )


class LockCalls(Calls):
    """Calls to locks through the log. Use a session of its own: calls must not wait behind
    appends.
    """

    def __init__(self, locks: ReplicatedLocks | str, appender: Appender) -> None:
        super().__init__(appender, locks if isinstance(locks, str) else locks.name)

    @asynccontextmanager
    async def hold(
        self, lock: str, *, lease_s: float = 10.0, timeout_s: float = math.inf
    ) -> AsyncIterator[int]:
        """Hold a lock during the block; yields the token to show to the protected resource.

        The block is cancelled when the lease cannot be renewed in time.

        Raises LockNotAcquired, LockLost, CommandRefused.
        """
        holder = secrets.token_hex(8)
        try:
            with patient_limit(timeout_s):
                token, began = await self._acquire(lock, holder, lease_s)
                timeout_s = math.inf
            if timeout_s < math.inf:
                raise LockNotAcquired(lock, timeout_s)
            with trio.CancelScope(deadline=began + HOLDERS_SHARE * lease_s) as block:
                async with unwrapping_nursery() as nursery:
                    nursery.start_soon(self._keep, lock, holder, lease_s, block)
                    yield token
                    nursery.cancel_scope.cancel()
            if block.cancelled_caught:
                raise LockLost(lock)
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(RELEASE_TIMEOUT_S):
                await self._release(lock, holder)

    async def _acquire(self, lock: str, holder: str, lease_s: float) -> tuple[int, float]:
        """Acquire the lock; return the token, and when the lease began on our clock."""
        lease_ms = math.ceil(1000 * lease_s)
        watch: _Watch | None = None
        while True:
            asked_at = trio.current_time()
            index, answer = await self._call_at("acquire", lock, holder, lease_ms)
            holding = Holding(*answer)  # type: ignore[misc]  # ReplicatedLocks answers a Holding
            if holding.holder == holder:
                return holding.token, asked_at
            if watch is None or watch.sight.holding != holding:
                watch = _Watch(LockSight(self.name, lock, holding))
            if watch.left_s() <= 0:
                await self._call("expire", lock, holding.token, holding.beat)
            else:
                await self._follow(watch, index + 1)

    async def _follow(self, watch: _Watch, first: int) -> None:
        """Follow the log from entry `first` until the lock may be free or its lease is over.

        An appender without `entries_from` shows no entries: then it returns after a pause.
        """
        while (left_s := watch.left_s()) > 0:
            if not isinstance(self._appender, ShowsEntries):
                await trio.sleep(watch.look_s)
                return
            try:
                entries = await self._appender.entries_from(first, min(left_s, watch.look_s))
            except OutsideLog:
                # The log has dropped the entry: ask again, but not at once.
                await trio.sleep(watch.look_s)
                return
            except _MISSED:
                entries = []
                await trio.sleep(min(left_s, watch.look_s))
            if watch.ends_by(entries):
                return
            if entries:
                first = entries[-1].index + 1
                # Others' entries come one by one on a busy group: read them together.
                await trio.sleep(min(max(watch.left_s(), 0.0), watch.look_s))

    async def _keep(self, lock: str, holder: str, lease_s: float, block: trio.CancelScope) -> None:
        while True:
            await trio.sleep(lease_s / RENEWALS_IN_A_LEASE)
            began = trio.current_time()
            try:
                renewed = await self._call("renew", lock, holder)
            except _MISSED:
                continue  # the block ends at its deadline, unless the next renewal succeeds
            if not renewed:
                block.cancel()
                return
            block.deadline = began + HOLDERS_SHARE * lease_s

    async def _release(self, lock: str, holder: str) -> None:
        try:
            await self._call("release", lock, holder)
        except _MISSED:
            return  # the lock ends with its lease


class _Watch:
    """A lease as a client that waits for the lock sees it.

    If this process was stopped for a while, perhaps the holder was stopped as well, so that time
    counts for little.
    """

    def __init__(self, sight: LockSight) -> None:
        self.sight = sight
        lease_s = sight.holding.lease_ms / 1000
        self.look_s = max(lease_s / LOOKS_IN_A_LEASE, SHORTEST_LOOK_S)
        self._lease_s = lease_s
        self._seen_at = trio.current_time()
        self._patience = Patience(self.look_s, self._seen_at)

    def left_s(self) -> float:
        """Return the seconds until the lease ends, if its holder does not renew it."""
        self._patience.look(now := trio.current_time())
        return self._seen_at + self._lease_s - self._patience.at(now)

    def ends_by(self, entries: Sequence[Entry]) -> bool:
        """Return whether the lock may be free after these entries; note renewals among them."""
        self._patience.look(now := trio.current_time())
        known = self.sight.holding
        if any(map(self.sight.ends_by, entries)):
            return True
        if self.sight.holding != known:
            self._seen_at = self._patience.at(now)
        return False
