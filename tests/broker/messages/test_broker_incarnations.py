"""Topics that are deleted and made again: no offset of the old one lies in the new one."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.features import REGISTRY, empty_state
from broker.formats.commands import RaiseFormat
from broker.log.entry import INCARNATIONS_VERSION, encode_log_command
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state_snapshot import captured, restored
from broker.messages import ended_topics
from broker.messages.record_facts import UNIT
from broker.messages.state import MESSAGES
from broker.offsets.state import OFFSETS
from broker.retention.commands import KeepLogFrom
from broker.topics.commands import DeleteTopic, PutTopic
from remoting.bodies.topic_config import TopicConfig
from remoting.wire.codes import RequestCode, ResponseCode
from tests.broker.log.test_broker_fold import Log, with_topic
from tests.broker.one_broker import Client, Clock, running_broker
from tests.broker.pop.popping_broker import PopClient
from tests.broker.store.test_broker_queue_rebuild import KeptLog, machine_in, mended
from tests.examples import examples

TOPICS = ("A", "B", "C")
QUEUES = 2


def deletion(topic: str, *, keeps_ends: bool = True) -> bytes:
    return encode_log_command(DeleteTopic(topic, 9, with_locks=True, keeps_ends=keeps_ends))


def test_a_topic_made_again_begins_where_the_longest_queue_of_the_old_one_ended() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    for offset in range(3):
        log.append_record("A", 1, offset)
    log.append_record("A", 0, 0)
    log.append(deletion("A"))
    with_topic(log)
    late = log.append_record("A", 0, 1)  # it was on its way when the topic was deleted
    first = log.append_record("A", 0, 3)
    folded = fold(state, log.entries)
    assert isinstance(folded.results[late.index], EntryRefused)
    assert folded.results[first.index] is None
    assert folded.arrivals["A", 0].first_offset == 3
    messages = state[MESSAGES]
    assert (messages.queue_end("A", 0), messages.queue_end("A", 1)) == (4, 3)
    assert restored(captured(state), REGISTRY) == state


def test_a_topic_that_was_made_again_without_messages_goes_on_counting() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append_record("A", 0, 0)
    for _ in range(3):
        log.append(deletion("A"))
        with_topic(log)
    fold(state, log.entries)
    assert state[MESSAGES].queue_end("A", 0) == 1


def test_a_deletion_of_an_earlier_version_means_what_it_meant() -> None:
    log, state = Log(), empty_state()
    with_topic(log)
    log.append_record("A", 0, 0)
    log.append(deletion("A", keeps_ends=False))
    with_topic(log)
    assert fold(state, log.entries).results == [None] * 4
    assert state[MESSAGES].queue_end("A", 0) == 0


def test_when_too_many_names_were_used_new_ones_begin_behind_all_that_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ended_topics, "MAX_ENDED_TOPICS", 2)
    log, state = Log(), empty_state()
    for topic, count in (("A", 5), ("B", 1), ("C", 2), ("D", 0)):
        with_topic(log, topic)
        first = 5 if topic == "D" else 0  # A is forgotten when D is made
        for offset in range(first, first + count):
            log.append_record(topic, 0, offset)
        log.append(deletion(topic))
    fold(state, log.entries)
    for topic in "ABCDE":
        with_topic(log, topic)
    fold(state, log.entries[-5:])
    ends = {topic: state[MESSAGES].queue_end(topic, 0) for topic in "ABCDE"}
    assert ends == {"A": 5, "B": 5, "C": 2, "D": 5, "E": 5}
    assert restored(captured(state), REGISTRY) == state


class TopicLives(RuleBasedStateMachine):
    """A member's state and consume queues, beside a plain model of both."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.machine = machine_in(self.folder)
        self.log = Log()
        self.kept = 0  # the first entry that retention has left
        self.queues: dict[tuple[str, int], dict[int, int]] = {}  # offset -> place in the log
        self.existing: set[str] = set()
        self.begins: dict[str, int] = {}
        self.named: set[tuple[str, int, int]] = set()  # offsets that were ever given
        self.is_unique = True

    def teardown(self) -> None:
        self.machine.close()
        shutil.rmtree(self.folder)

    def apply(self, *bodies: bytes) -> None:
        self.machine.apply([self.log.append(body) for body in bodies])

    def end(self, topic: str, queue_id: int) -> int:
        return (
            max(self.queues.get((topic, queue_id), {}), default=self.begins.get(topic, 0) - 1) + 1
        )

    @rule(topic=st.sampled_from(TOPICS))
    def put(self, topic: str) -> None:
        self.apply(encode_log_command(PutTopic(TopicConfig(topic, QUEUES, QUEUES), 5)))
        self.existing.add(topic)

    @rule(topic=st.sampled_from(TOPICS), keeps_ends=st.sampled_from([True, True, False]))
    def delete(self, topic: str, keeps_ends: bool) -> None:
        self.apply(deletion(topic, keeps_ends=keeps_ends))
        if topic not in self.existing:
            return
        self.existing.remove(topic)
        ends = [self.end(topic, queue_id) for queue_id in range(QUEUES)]
        self.begins[topic] = max(ends) if keeps_ends else 0
        self.is_unique &= keeps_ends or not max(ends)
        for queue_id in range(QUEUES):
            self.queues.pop((topic, queue_id), None)

    @rule(
        topic=st.sampled_from(TOPICS), queue_id=st.integers(0, QUEUES - 1), count=st.integers(1, 5)
    )
    def send(self, topic: str, queue_id: int, count: int) -> None:
        for _ in range(count):
            offset = self.end(topic, queue_id)
            entry = self.log.append_record(topic, queue_id, offset)
            self.machine.apply([entry])
            if topic not in self.existing:
                continue
            assert not self.is_unique or (topic, queue_id, offset) not in self.named
            self.named.add((topic, queue_id, offset))
            self.queues.setdefault((topic, queue_id), {})[offset] = entry.body_pos

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.integers(0, QUEUES - 1))
    def send_with_an_old_offset(self, topic: str, queue_id: int) -> None:
        if offset := self.end(topic, queue_id):
            self.machine.apply([self.log.append_record(topic, queue_id, offset - 1)])

    @precondition(lambda self: len(self.log.entries) > self.kept)
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.log.entries[self.kept :]))
        self.apply(encode_log_command(KeepLogFrom(entry.index, entry.pos, 9)))
        kept = self.machine.log_kept_from()
        self.kept = max(self.kept, kept)

    @rule(is_own=st.booleans())
    def restart(self, is_own: bool) -> None:
        """Go on from a snapshot of its own, or of another member: with other files."""
        before = self.machine.state
        chunks = list(self.machine.snapshot())
        self.machine.queues.close()
        self.machine = machine_in(self.folder)
        if not is_own:
            shutil.rmtree(self.folder / "consumequeue", ignore_errors=True)
        self.machine.restore(iter(chunks))
        assert self.machine.state == before
        if self.machine.queues.damaged:
            mended(self.machine, KeptLog(self.log, self.kept))

    @invariant()
    def queues_are_as_in_the_model(self) -> None:
        messages = self.machine.state[MESSAGES]
        kept = messages.kept_position
        for topic in self.existing:
            for queue_id in range(QUEUES):
                known = self.queues.get((topic, queue_id), {})
                end = self.end(topic, queue_id)
                assert messages.queue_end(topic, queue_id) == end
                if not known:
                    continue
                left = {offset: place for offset, place in known.items() if place >= kept}
                begin = min(left, default=end)
                queues = self.machine.queues
                assert queues.end(topic, queue_id) == end
                assert queues.begin(topic, queue_id, kept) == begin
                units = queues.read(topic, queue_id, begin, 1000)
                assert [one[0] for one in UNIT.iter_unpack(units)] == list(left.values())


TestTopicLives = TopicLives.TestCase
TestTopicLives.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)


# --- what clients see -----------------------------------------------------------------------------

OF_GROUP: dict[str, Any] = {"consumerGroup": "g", "topic": "T", "queueId": 0}


async def test_a_consumer_of_the_old_topic_is_sent_to_the_first_message_of_the_new_one(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        raised = encode_log_command(RaiseFormat(INCARNATIONS_VERSION))
        with trio.fail_after(5):
            broker.parts.log.submit([raised], lambda _outcome: None)
            await client.heartbeat("c", "g", "T")
            for number in range(10):
                assert (await client.send("T", b"old%d" % number)).code == 0
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=4, **OF_GROUP)
            assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
            assert (await client.send("T", b"new")).code == 0
        # At once for who was at the end, and with an answer that clients know for the others.
        assert (await client.pull("T", 10)).code == ResponseCode.SUCCESS
        moved = await client.pull("T", 4)
        assert (moved.code, moved.fields["nextBeginOffset"]) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "10",
        )
        # What it committed went with the old topic; a group without an offset misses nothing.
        asked = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **OF_GROUP)
        assert asked.fields["offset"] == "10"
        # What it commits now of the old one does not count, by whatever way it comes.
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset=7, **OF_GROUP)
        assert (await client.pull("T", 7, sysFlag=5, commitOffset=7)).code == 21
        await client.pull("T", 10, sysFlag=5, commitOffset=9)
        broker.requests.tick()
        asked = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, **OF_GROUP)
        assert asked.fields["offset"] == "10"
        assert ("g", "T") not in broker.machine.state[OFFSETS].tables
        for code, offset in (
            (RequestCode.GET_MIN_OFFSET, "10"),
            (RequestCode.GET_MAX_OFFSET, "11"),
        ):
            assert (await client.ask(code, topic="T", queueId=0)).fields["offset"] == offset
        # A queue without a message begins there, too.
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, topic="T", queueId=1)).fields == {
            "offset": "10"
        }


async def test_a_group_that_pops_what_is_to_come_misses_nothing_of_a_topic_made_again(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with running_broker(tmp_path, clock=clock) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        pop = PopClient(client, clock)
        raised = encode_log_command(RaiseFormat(INCARNATIONS_VERSION))
        broker.parts.log.submit([raised], lambda _outcome: None)
        await pop.send(b"old")
        assert await pop.bodies(initMode=1) == [b"old"]
        await pop.send(b"given")
        (given,) = await pop.pop(initMode=1)
        assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")).code == 0
        await pop.send(b"new", b"newer")
        assert await pop.bodies(initMode=1) == [b"new", b"newer"]
        # The handle of a message that was out with the old topic acknowledges nothing.
        await pop.ack(given)
        pop.at(61)
        assert await pop.bodies(initMode=1) == [b"new", b"newer"]
