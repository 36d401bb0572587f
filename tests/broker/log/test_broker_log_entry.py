from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.errors import CommandMalformed, EntryTooNew
from broker.features import REGISTRY
from broker.formats.commands import RaiseFormat
from broker.groups.commands import DeleteGroup, PutGroup
from broker.groups.config import ConsumerGroup
from broker.locks.commands import LockQueues
from broker.log.command_layout import LogCommand
from broker.log.entry import (
    ATTACHED_VERSION,
    FORMAT_VERSION,
    INCARNATIONS_VERSION,
    RUNS_VERSION,
    EntryKind,
    encode_log_command,
    kind_of,
)
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.resets.commands import EndReset
from broker.retention.commands import KeepLogFrom
from broker.topics.commands import DeleteTopic, PutTopic
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_record

names = st.text("abcXYZ019_-%|", min_size=1, max_size=40)
numbers = st.integers(0, 2**62)
offsets = st.builds(CommittedOffset, names, names, st.integers(0, 1000), numbers)
commands: st.SearchStrategy[LogCommand] = st.one_of(
    st.builds(
        PutTopic,
        st.builds(
            TopicConfig,
            names,
            st.integers(1, 16),
            st.integers(1, 16),
            st.integers(0, 15),
            attributes=st.dictionaries(names, st.text(max_size=5), max_size=2),
        ),
        numbers,
        st.booleans(),
        st.none() | numbers,
    ),
    st.builds(DeleteTopic, names, numbers, st.booleans()),
    st.builds(DeleteTopic, names, numbers, st.just(True), st.just(True)),
    st.builds(
        PutGroup,
        st.builds(ConsumerGroup, names, st.booleans()),
        st.booleans(),
        st.none() | numbers,
    ),
    st.builds(DeleteGroup, names, st.booleans(), st.booleans()),
    st.builds(CommitOffsets, st.lists(offsets, max_size=5), st.none() | numbers),
    st.builds(CommitOffsets, st.lists(offsets, max_size=5), numbers, numbers),
    st.builds(KeepLogFrom, numbers, numbers, numbers),
    st.builds(EndReset, names, names, numbers, numbers, st.none() | numbers),
    st.builds(Delay, numbers),
    st.builds(Deliver, numbers),
    st.builds(MoveDelayed, numbers),
    st.builds(DropDelayed, numbers),
    st.sampled_from(
        [RaiseFormat(one) for one in (ATTACHED_VERSION, RUNS_VERSION, INCARNATIONS_VERSION)]
    ),
    st.builds(
        LockQueues,
        names,
        names,
        st.booleans(),
        numbers,
        st.lists(st.tuples(names, st.integers(0, 1000)), max_size=5),
    ),
)


def framed(content: bytes, version: int = FORMAT_VERSION) -> bytes:
    return (8 + len(content)).to_bytes(4, "big") + b"DLB" + bytes((version,)) + content


@given(commands)
def test_a_command_is_read_back_as_it_was_written(command: LogCommand) -> None:
    body = encode_log_command(command)
    assert kind_of(body) is EntryKind.COMMAND
    assert REGISTRY.decode(body) == command


@given(st.binary(max_size=100), names)
def test_a_message_record_is_never_taken_for_a_command(body: bytes, topic: str) -> None:
    record = encode_record(MessageRecord(topic, body))
    assert kind_of(record) is EntryKind.RECORD
    with pytest.raises(CommandMalformed):
        REGISTRY.decode(record)


@given(st.binary(max_size=60))
def test_any_content_is_a_command_or_refused_with_a_typed_error(content: bytes) -> None:
    with suppress(CommandMalformed, EntryTooNew):
        assert REGISTRY.decode(framed(content)) is not None


@pytest.mark.parametrize("body", [b"", b"1234", b"hello world", b"\0\0\0\x09DLB\x01"])
def test_what_is_no_command_is_refused(body: bytes) -> None:
    with pytest.raises(CommandMalformed):
        REGISTRY.decode(body)


def test_a_newer_version_stops_the_member_instead_of_being_passed_over() -> None:
    with pytest.raises(EntryTooNew, match="upgrade this member"):
        REGISTRY.decode(framed(b"\x90", FORMAT_VERSION + 1))


def test_an_unknown_kind_stops_the_member_instead_of_being_passed_over() -> None:
    with pytest.raises(EntryTooNew, match="kind 99"):
        REGISTRY.decode(framed(msgpack.packb([99, "x"])))


@pytest.mark.parametrize("topic", ["../../etc", "a/b", ".", "", "x" * 128])
def test_a_topic_name_that_is_no_folder_name_is_refused_by_the_fold_too(topic: str) -> None:
    with pytest.raises(CommandMalformed):
        REGISTRY.decode(encode_log_command(PutTopic(TopicConfig(topic), 1)))


# Bytes that a broker of the first format version has written, and must be readable for ever.
OFFSETS_WITHOUT_TIME = bytes.fromhex(
    "0000002d444c420192059294a167a154032994ac6f72646572732d67726f7570a66f726465727300ce00011170"
)
OFFSETS_WITH_TIME = bytes.fromhex(
    "00000036444c420293059294a167a154032994ac6f72646572732d67726f7570a66f726465727300ce00011170"
    "cf0000018bcfe5687b"
)
THEIR_OFFSETS = [
    CommittedOffset("g", "T", 3, 41),
    CommittedOffset("orders-group", "orders", 0, 70_000),
]


@pytest.mark.parametrize(
    ("body", "at_ms"), [(OFFSETS_WITHOUT_TIME, None), (OFFSETS_WITH_TIME, 1_700_000_000_123)]
)
def test_offsets_with_and_without_a_time_keep_their_bytes(body: bytes, at_ms: int | None) -> None:
    command = CommitOffsets(THEIR_OFFSETS, at_ms)
    assert REGISTRY.decode(body) == command
    assert encode_log_command(command) == body


def test_a_time_counts_as_no_member_of_the_first_format_version() -> None:
    # A member that knows no second version refuses the first entry, so every member must.
    with pytest.raises(CommandMalformed):
        REGISTRY.decode(framed(OFFSETS_WITH_TIME[8:], 1))
    with pytest.raises(CommandMalformed):
        REGISTRY.decode(framed(OFFSETS_WITHOUT_TIME[8:], 2))


@given(commands)
def test_a_command_is_written_in_the_first_version_that_holds_it(command: LogCommand) -> None:
    match command:
        case EndReset(at_ms=int()):
            version = 6
        case EndReset():
            version = 4
        case PutTopic(max_topics=int()) | PutGroup(max_groups=int()):
            version = 3
        case DeleteTopic(keeps_ends=True):
            version = 6
        case DeleteTopic(with_locks=True) | DeleteGroup(with_locks=True):
            version = 3
        case CommitOffsets(as_of=int()):
            version = 3
        case CommitOffsets(at_ms=int()):
            version = 2
        case RaiseFormat():
            version = command.version
        case Delay() | Deliver() | MoveDelayed() | DropDelayed():
            version = 4
        case _:
            version = 1
    assert encode_log_command(command)[7] == version
