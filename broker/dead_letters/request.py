"""Reads and checks an operator's request to redrive dead letters."""

from typing import Final, NamedTuple

from broker.errors import RequestRefused
from broker.topics.names import check_group_name
from remoting.bodies.json_object import JsonObject
from remoting.wire.command import Command

# Redriven by one request: one append, some 10 ms of the event loop.
MAX_LETTERS: Final = 256

# Message ids in one request; operators pick them.
MAX_IDS: Final = 1000
MAX_BODY_BYTES: Final = 256 * 1024

TO_GROUP: Final = "GROUP"
TO_TOPIC: Final = "TOPIC"

_LAST_MS: Final = (1 << 63) - 1


class RedriveRequest(NamedTuple):
    """The dead letters to redrive, and their target.

    Attributes:
        queue_id: the queue of the dead letter topic.
        offset: the first one in it.
        to_topic: whether they go to their original topic, for all of its groups; else to the retry
            topic of their group.
        most: no more than so many are redriven.
        begin_ms: they became dead letters at this time at the earliest, milliseconds since 1970.
        end_ms: and at this time at the latest.
        ids: only those that have one of these ids; all when empty.
        is_dry: only count.
    """

    group: str
    queue_id: int
    offset: int
    to_topic: bool
    most: int
    begin_ms: int
    end_ms: int
    ids: frozenset[str]
    is_dry: bool


def read_redrive_request(command: Command) -> RedriveRequest:
    """Read the request. Raises RequestRefused (29): an invalid value."""
    group = command.name("consumerGroup")
    check_group_name(group)
    most = command.int32("maxMsgNums", MAX_LETTERS)
    queue_id, offset = command.int32("queueId", 0), command.integer("beginOffset", 0)
    target = command.fields.get("target", TO_GROUP)
    for value, is_right, what in (
        (most, 1 <= most <= MAX_LETTERS, f"maxMsgNums: give 1 to {MAX_LETTERS}"),
        (queue_id, queue_id >= 0, "queueId: give 0 or more"),
        (offset, offset >= 0, "beginOffset: give 0 or more"),
        (target, target in (TO_GROUP, TO_TOPIC), f"target: give {TO_GROUP} or {TO_TOPIC}"),
    ):
        if not is_right:
            raise RequestRefused.invalid(f"{value!r:.40} as {what}")
    ids: list[str] = []
    if command.body:
        ids = JsonObject.parse("dead letters", command.body, MAX_BODY_BYTES).texts("msgIds")
    if len(ids) > MAX_IDS:
        raise RequestRefused.invalid(f"{len(ids)} message ids: at most {MAX_IDS}")
    return RedriveRequest(
        group,
        queue_id,
        offset,
        target == TO_TOPIC,
        most,
        command.integer("beginTimestamp", 0),
        command.integer("endTimestamp", _LAST_MS),
        frozenset(ids),
        command.boolean("dryRun"),
    )
