"""How full the state of a broker is when requests are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.limits import MAX_MESSAGE_BYTES, MAX_QUEUES_PER_TOPIC, BrokerLimits
from broker.pop.limits import MAX_IN_FLIGHT_PER_QUEUE

_LIMITS: Final = BrokerLimits()

# Room for the broker's own topics and groups, and for those that requests make.
_ROOM: Final = 2_000


@dataclass(frozen=True)
class Fullness:
    """How many there are of each. The defaults are what the limits allow.

    Attributes:
        topics: one topic's groups and one group's topics are as many.
        queues: of one topic, each with a message.
        groups: consumer groups.
        offset_tables: pairs of group and topic with offsets.
        locks: queues that are locked.
        filters: SQL92 conditions.
        transactions: open ones.
        delayed: messages that wait for their time, all the same one.
        clients: consumers of one group, and as many producers of one group.
        subscriptions: of one consumer.
        keyed: messages with one key.
        flying: messages of a queue that were popped and not acknowledged.
        lite: lite topics of one parent, each with a message, which one group has subscribed to.
        held: pulls, and as many pops, that wait.
        users: with a hundred rules each.
        large: messages of one key, delayed messages of one time, and dead letters, that are as
            large as messages may be. The limits allow more: 64 are enough to see.
        large_bytes: how large.
    """

    topics: int = _LIMITS.max_topics - _ROOM
    queues: int = MAX_QUEUES_PER_TOPIC
    groups: int = _LIMITS.max_groups - _ROOM
    offset_tables: int = _LIMITS.max_offset_tables - 10 * _ROOM
    locks: int = _LIMITS.max_locks - 10 * _ROOM
    filters: int = _LIMITS.max_filters
    transactions: int = _LIMITS.max_open_transactions - _ROOM
    delayed: int = 100_000
    clients: int = _LIMITS.max_clients - _ROOM
    subscriptions: int = _LIMITS.max_subscriptions
    keyed: int = 20_000
    flying: int = MAX_IN_FLIGHT_PER_QUEUE
    lite: int = 200_000
    held: int = _LIMITS.max_held_pulls
    users: int = 1_000
    large: int = 64
    large_bytes: int = MAX_MESSAGE_BYTES - 1024


def evenly_full(count: int) -> Fullness:
    """Equal numbers of each, for tests that count instructions; inputs are always the same."""
    return Fullness(
        topics=count,
        queues=300,
        groups=count,
        offset_tables=3 * count,
        locks=count,
        filters=count,
        transactions=count,
        delayed=10 * count,
        clients=count,
        users=count,
        subscriptions=100,
        keyed=10 * count,
        flying=count,
        lite=20 * count,
        held=count,
        large=32,
        large_bytes=256 * 1024,
    )
