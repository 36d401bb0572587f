"""What goes with a topic or a group, in every part of the state, and what it costs."""

from __future__ import annotations

import time

import msgpack
import pytest

from broker.assignment.commands import SetMode
from broker.dead_letters.commands import Redrive
from broker.features import REGISTRY, empty_state
from broker.filters.commands import PutFilter
from broker.groups.commands import DeleteGroup, Forbid, PutGroup
from broker.groups.config import ConsumerGroup
from broker.lite.commands import LiteGiven, PopLite, PutLite, ResetLite
from broker.locks.commands import LockQueues
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.log.fold import fold
from broker.log.state import BrokerState
from broker.log.state_snapshot import captured
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.pop.commands import Pop
from broker.resets.commands import EndReset, ResetOffsets
from broker.topics.commands import DeleteTopic, PutTopic
from remoting.bodies.topic_config import TopicConfig
from tests.broker.log.test_broker_fold import Log

TOPIC, GROUP = "TheTopic", "TheGroup"

# Rows that name no topic and no group; and those that outlive them.
OF_NOBODY = {
    *("numbers", "times", "quarters", "passed over", "lock clock", "leader place", "settings"),
    *("users", "access rules"),  # a rule for a topic is there before the topic, and after it
    *("delayed", "halves", "ends of transactions", "resumed transactions"),
}
OUTLIVES = {"ended topics"}


def rows_naming(state: BrokerState, name: str) -> set[str]:
    """The kinds of rows that have a name somewhere."""
    chunks = [msgpack.unpackb(chunk, strict_map_key=False) for chunk in captured(state)]
    return {what for what, rows in chunks if name in repr(rows)}


def deletion_of_topic(topic: str) -> LogCommand:
    return DeleteTopic(topic, 9, with_locks=True, keeps_ends=True)


def deletion_of_group(group: str) -> LogCommand:
    return DeleteGroup(group, with_offsets=True, with_locks=True)


def everything(log: Log) -> None:
    """Rows of all kinds that name the topic, the group or both."""

    def add(command: LogCommand) -> None:
        log.append(encode_log_command(command))

    put = PutTopic(TopicConfig(TOPIC, 4, 4), 1, max_topics=99)
    add(put)
    log.append_record(TOPIC, 0, 0)
    add(deletion_of_topic(TOPIC))
    add(put)  # so that it begins with 1
    log.append_record(TOPIC, 0, 1)
    add(PutGroup(ConsumerGroup(GROUP), max_groups=9))
    add(CommitOffsets([CommittedOffset(GROUP, TOPIC, 0, 1)], 1, log.end))
    add(ResetOffsets(GROUP, TOPIC, {1: 1, 2: 1}, 1, log.end))
    add(EndReset(GROUP, TOPIC, 2, 1, 1))
    add(LockQueues(GROUP, "client", True, 1, [(TOPIC, 0)]))
    add(PutFilter(GROUP, TOPIC, "a = 1", 1, 9))
    add(SetMode(TOPIC, GROUP, "POP", 1, 9))
    add(Forbid(GROUP, TOPIC, True, 9))
    add(Pop(GROUP, TOPIC, 3, 1, 2, 1, 1, (), None, True, log.end))
    log.append_record(TOPIC, 2, 1, attached=encode_log_command(PutLite("a", 9, 9)))
    log.append_record(TOPIC, 2, 2, attached=encode_log_command(PutLite("a", 9, 9)))
    add(ResetLite(GROUP, TOPIC, [("a", 0)], 1))
    add(PopLite(GROUP, TOPIC, 1, 2, "", [LiteGiven("a", 0, 1, 0, False)], log.end))
    letter = encode_log_command(Redrive(TOPIC, 0, 1, log.end, 1))
    log.append_record(TOPIC, 1, 1, attached=letter)


def test_nothing_that_names_a_deleted_topic_or_group_is_left_in_any_part() -> None:
    kinds = {rows.what for part in REGISTRY.parts for rows in part.rows}
    log, whole = Log(), empty_state()
    everything(log)
    assert set(fold(whole, log.entries).results) == {None}
    named = rows_naming(whole, TOPIC) | rows_naming(whole, GROUP)
    # A kind of rows that is not known here must be added to `everything`, or to OF_NOBODY.
    assert named | OUTLIVES | OF_NOBODY == kinds | {"numbers"}
    assert not named & OF_NOBODY
    for name, deletion in (
        (TOPIC, deletion_of_topic(TOPIC)),
        (GROUP, deletion_of_group(GROUP)),
    ):
        state = empty_state()
        fold(state, log.entries)
        fold(state, [log.append(encode_log_command(deletion))])
        log.entries.pop()
        assert rows_naming(state, name) <= OUTLIVES


@pytest.mark.parametrize("what", ["topic", "group"])
def test_a_deletion_costs_the_same_however_much_belongs_to_it_and_to_others(what: str) -> None:
    """Processor time of 25 deletions, with 20 times as many offsets, locks, filters and modes."""

    def taken(pairs: int) -> float:
        """The least of two times: the state is made once, and has enough to delete."""
        log, state = Log(), empty_state()
        bodies: list[LogCommand] = []
        for number in range(pairs):
            many, one = f"many{number}", f"one{number % 60}"
            topic, group = (one, many) if what == "topic" else (many, one)
            bodies.append(PutTopic(TopicConfig(topic, 1, 1), 1))
            bodies.append(CommitOffsets([CommittedOffset(group, topic, 0, 1)], 1))
            bodies.append(LockQueues(group, "client", True, 1, [(topic, 0)]))
            bodies.append(PutFilter(group, topic, "a = 1", 1, pairs))
            bodies.append(SetMode(topic, group, "POP", 1, pairs))
            bodies.append(Forbid(group, topic, True, pairs))
        fold(state, [log.append(encode_log_command(body)) for body in bodies])
        deletion = deletion_of_topic if what == "topic" else deletion_of_group
        times = []
        for numbers in (range(25), range(25, 50)):
            entries = [log.append(encode_log_command(deletion(f"one{one}"))) for one in numbers]
            began = time.thread_time()
            fold(state, entries)
            times.append(time.thread_time() - began)
        return min(times)

    few, many = min(taken(300) for _ in range(2)), taken(6000)
    assert many < 5 * few + 0.005  # seconds
