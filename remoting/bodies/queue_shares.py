"""Assigns the queues of a topic to the members of a consumer group.

Every member computes the same from the same two lists, without talking to the others, or has its
broker do so. While the members disagree about the lists, a queue may have two readers, or none:
then messages are delivered twice, or a little later. Source: RocketMQ's
AllocateMessageQueueAveragely and AllocateMessageQueueAveragelyByCircle.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from remoting.bodies.message_queue import MessageQueue

Queue = TypeVar("Queue")


def allocate_averagely(
    client_id: str, queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> Sequence[MessageQueue]:
    """Return the queues that `client_id` reads: a run of neighbours of the sorted queues.

    The shares differ by at most one, and the first members have the longer ones. A client that is
    not in `client_ids` reads nothing, since the others leave no share for it.

    Args:
        client_id: the member.
        queues: all readable queues of one topic, in any order; duplicates count once.
        client_ids: the members of the group, in any order; duplicates count once.
    """
    members = sorted(set(client_ids))
    ordered = sorted(set(queues))
    if client_id not in members:
        return []
    return average_share(members.index(client_id), len(members), ordered)


def average_share(place: int, members: int, ordered: Sequence[Queue]) -> Sequence[Queue]:
    """Return the queues of one member, by the rule of `allocate_averagely`.

    Args:
        place: of the member among the sorted names of all.
        members: their number.
        ordered: the queues, sorted.
    """
    share, longer = divmod(len(ordered), members)
    begin = place * share + min(place, longer)
    return ordered[begin : begin + share + (1 if place < longer else 0)]


def readers_of(
    queues: Iterable[MessageQueue], client_ids: Iterable[str]
) -> Mapping[MessageQueue, str]:
    """Return the member that reads each queue of a topic, by the rule of `allocate_averagely`."""
    members = sorted(set(client_ids))
    ordered = sorted(set(queues))
    if not members:
        return {}
    share, longer = divmod(len(ordered), len(members))
    readers: dict[MessageQueue, str] = {}
    begin = 0
    for place, member in enumerate(members):
        end = begin + share + (1 if place < longer else 0)
        readers.update(dict.fromkeys(ordered[begin:end], member))
        begin = end
    return readers


def circle_share(place: int, members: int, ordered: Sequence[Queue]) -> Sequence[Queue]:
    """Return every `members`-th queue from the member's `place` on."""
    return ordered[place::members]
