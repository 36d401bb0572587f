"""Holds a lock for the length of a block, and renews it meanwhile."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from dledger.core.patience import Patience
from dledger.errors import Discarded, OutcomeUnknown, Rejected
from dledger.machines.command import Appender, Calls
from dledger.machines.replicated_lock import Holding, ReplicatedLocks
from dledger.patient_limit import patient_limit
from dledger.unwrapping_nursery import unwrapping_nursery

# The holder counts its lease as over after this share of it, so before other clients do: clocks
# differ by far less than one part in ten.
HOLDERS_SHARE = 0.9
# A lease is renewed three times in its length: two renewals may be lost.
RENEWALS_IN_A_LEASE = 3
# A waiting client asks ten times in a lease, but at most twenty times a second: each request is an
# entry of the log.
LOOKS_IN_A_LEASE = 10
SHORTEST_LOOK_S = 0.05
# The release of a lock is sent once, within this time; its lease would end it anyway.
RELEASE_TIMEOUT_S = 1.0

_MISSED = (Rejected, Discarded, OutcomeUnknown)


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
        seen: Holding | None = None
        seen_at = look_s = 0.0
        patience = Patience(look_s, 0.0)
        while True:
            asked_at = trio.current_time()
            answer = await self._call("acquire", lock, holder, lease_ms)
            holding = Holding(*answer)  # type: ignore[misc]  # what _acquire of the object gives
            if holding.holder == holder:
                return holding.token, asked_at
            if holding != seen:
                seen, seen_at = holding, trio.current_time()
                look_s = max(seen.lease_ms / 1000 / LOOKS_IN_A_LEASE, SHORTEST_LOOK_S)
                patience = Patience(look_s, seen_at)
            # If this process did nothing for a while, perhaps its holder did not either.
            patience.look(now := trio.current_time())
            if patience.at(now) - seen_at >= seen.lease_ms / 1000:
                await self._call("expire", lock, seen.token, seen.beat)
            else:
                await trio.sleep(look_s)

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
