"""Holds a lock for the length of a block, and renews it meanwhile."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, runtime_checkable

import trio

from dledger.entry import Entry
from dledger.errors import Discarded, OutcomeUnknown, OutsideLog, Rejected
from dledger.machines.command import Appender, Calls
from dledger.machines.lock_sight import LockSight
from dledger.machines.replicated_lock import Holding, ReplicatedLocks
from dledger.unwrapping_nursery import unwrapping_nursery

# The holder counts its lease as over after this share of it, so before other clients do: clocks
# differ by far less than one part in ten.
HOLDERS_SHARE = 0.9
# A lease is renewed three times in its length: two renewals may be lost.
RENEWALS_IN_A_LEASE = 3
# A waiting client reads the log ten times in a lease, but at most twenty times a second, while
# others append. It appends an entry of its own only when the lock may be free, since many clients
# may wait for one lock.
LOOKS_IN_A_LEASE = 10
SHORTEST_LOOK_S = 0.05
# The release of a lock is sent once, within this time; its lease would end it anyway.
RELEASE_TIMEOUT_S = 1.0

_MISSED = (Rejected, Discarded, OutcomeUnknown)


@runtime_checkable
class ShowsEntries(Protocol):
    """A node or a session."""

    async def entries_from(self, first: int, wait_s: float) -> list[Entry]:
        """As Session.entries_from."""
        ...


class LockNotAcquired(Rejected):
    """Another holder kept the lock until the time was over."""

    def __init__(self, lock: str, timeout_s: float) -> None:
        self.lock = lock
        self.timeout_s = timeout_s
        super().__init__(f"lock {lock!r} was not free within {timeout_s:g} s")


class LockLost(OutcomeUnknown):
    """The lease ended before the block did: another client may hold the lock."""

    def __init__(self, lock: str) -> None:
        self.lock = lock
        super().__init__(
            f"the lease of lock {lock!r} could not be renewed in time: what the block did "
            "at its end may have been done without the lock"
        )


class LockCalls(Calls):
    """Calls to locks through the log. Give it its own session: it must not queue behind appends."""

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
            with trio.move_on_after(timeout_s):
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
        seen: Holding | None = None
        seen_at = 0.0
        while True:
            asked_at = trio.current_time()
            index, answer = await self._call_at("acquire", lock, holder, lease_ms)
            holding = Holding(*answer)  # type: ignore[misc]  # what _acquire of the object gives
            if holding.holder == holder:
                return holding.token, asked_at
            if holding != seen:
                seen, seen_at = holding, trio.current_time()
            if trio.current_time() - seen_at >= seen.lease_ms / 1000:
                await self._call("expire", lock, seen.token, seen.beat)
            else:
                seen, seen_at = await self._watched(
                    LockSight(self.name, lock, seen), seen_at, index
                )

    async def _watched(self, sight: LockSight, seen_at: float, index: int) -> tuple[Holding, float]:
        """Follow the log from behind entry `index` until the lock may be free or its lease is over.

        Returns the holding then, and when it was seen first. An appender without `entries_from`
        shows no entries: then it returns after a pause.
        """
        lease_s = sight.holding.lease_ms / 1000
        look_s = max(lease_s / LOOKS_IN_A_LEASE, SHORTEST_LOOK_S)
        first = index + 1
        while (left_s := seen_at + lease_s - trio.current_time()) > 0:
            if not isinstance(self._appender, ShowsEntries):
                await trio.sleep(look_s)
                break
            try:
                entries = await self._appender.entries_from(first, left_s)
            except OutsideLog:
                await trio.sleep(look_s)  # the log has dropped the entry: ask anew, but not at once
                break
            except _MISSED:
                entries = []
            known = sight.holding
            if any(map(sight.ends_by, entries)):
                break
            if sight.holding != known:
                seen_at = trio.current_time()
            if entries:
                first = entries[-1].index + 1
            # Others' entries come one by one on a busy group: read them together.
            await trio.sleep(min(look_s, max(seen_at + lease_s - trio.current_time(), 0.0)))
        return sight.holding, seen_at

    async def _keep(self, lock: str, holder: str, lease_s: float, block: trio.CancelScope) -> None:
        while True:
            await trio.sleep(lease_s / RENEWALS_IN_A_LEASE)
            began = trio.current_time()
            try:
                renewed = await self._call("renew", lock, holder)
            except _MISSED:
                continue  # the block ends at its deadline, unless the next one succeeds
            if not renewed:
                block.cancel()
                return
            block.deadline = began + HOLDERS_SHARE * lease_s

    async def _release(self, lock: str, holder: str) -> None:
        try:
            await self._call("release", lock, holder)
        except _MISSED:
            return  # the lease ends it
