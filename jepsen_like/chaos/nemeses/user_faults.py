"""Changes users and rules of brokers while clients work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.executor import Done, Executors
from jepsen_like.chaos.nemeses.user_orders import ALLOW_GUEST, DENY_GUEST, RENEW_SECRET

NEMESIS = "users"
# An administrator follows elections for 10 s, and tries again.
ANSWER_TIMEOUT_S = 30.0

Changes = Callable[[str, float], Awaitable[bool]]


def user_faults(change: Changes) -> Executors:
    """Return what changes users.

    Args:
        change: gives an order to the clients, and returns whether it was carried out in time.
    """

    @asynccontextmanager
    async def carried_out(group: Group, chance: Chance, kind: str) -> AsyncIterator[Done]:
        order = DENY_GUEST if kind == "take-rights" else RENEW_SECRET
        answered = int(await change(order, ANSWER_TIMEOUT_S))
        try:
            yield Done((), effect=lambda: {"answered": answered})
        finally:
            if order == DENY_GUEST:
                await change(ALLOW_GUEST, ANSWER_TIMEOUT_S)

    return {NEMESIS: carried_out}
