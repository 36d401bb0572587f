"""What was accepted can be delivered, copied and buried, whatever stands at a limit."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import broker
from broker.delay.deliveries import DELIVERIES
from broker.features import REGISTRY
from broker.formats.commands import RaiseFormat
from broker.limits import MAX_MESSAGE_BYTES
from broker.log.entry import LARGE_ENTRIES_VERSION, encode_log_command
from broker.messages.fitted_properties import LEFT_OUT, fitted
from broker.messages.record_facts import read_record_facts, read_without_body
from broker.pop.commands import PoppedMessage
from broker.query.keys import keys_of
from broker.sends import copies
from broker.sends.copies import COPIES, UNDELIVERED_REASON, UNDELIVERED_TO, Copy
from broker.sends.entry_room import COPY_BYTES, MAX_ATTACHED_BYTES
from broker.serving.service import Service
from broker.settings.commands import ChangeSettings
from broker.topics.changes import TOPIC_CHANGES
from broker.topics.names import GIVEN_UP_TOPIC, MAX_GROUP_CHARACTERS
from broker.topics.state import TOPICS
from dledger import LARGEST_BODY_BYTES, MAX_BODY_BYTES
from remoting.bodies.heartbeat import Heartbeat, encode_heartbeat
from remoting.message.message_id import parse_message_id
from remoting.message.properties import (
    MAX_PROPERTIES_BYTES,
    decode_properties,
    encode_properties,
)
from remoting.message.record import (
    MAX_TOPIC_BYTES,
    MessageRecord,
    decode_record,
    encode_record,
)
from remoting.message.topic_names import UNDELIVERED_TOPIC
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.broker_in_memory import BrokerInMemory, broker_in_memory
from tests.broker.one_broker import START_MS, Clock, send_fields, until
from tests.broker.three_brokers import group_of_three
from tests.examples import examples
from tests.syntax_trees import tree_of

TOPIC: Final = "T" * MAX_TOPIC_BYTES
GROUP: Final = "g" * MAX_GROUP_CHARACTERS
RETRY, DEAD = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
KEY: Final = "K" * 32

# What Java's broker adds to the properties of each message: region, trace switch and the name of
# its default cluster. It takes as much as fits with them.
JAVA_ADDS: Final = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
MOST_OF_JAVA: Final = MAX_PROPERTIES_BYTES - len(encode_properties(JAVA_ADDS))

# What a message asks for with these is done by the time that it is delivered.
CARRIED_OUT: Final = ("TRAN_MSG", "DELAY", "TIMER_DELAY_SEC")


class Sent(NamedTuple):
    """A message, and what its copies must have."""

    body: bytes
    properties: dict[str, str]

    def is_of(self, record: MessageRecord) -> bool:
        """Whether a record is this message, or a copy of it with all or most of its properties."""
        pairs = record.property_map()
        lacks = int(pairs.get(LEFT_OUT, "0"))
        return (
            record.body == self.body
            and pairs["UNIQ_KEY"] == KEY
            and pairs["TAGS"] == "tag"
            and sum(
                pairs.get(name) != value
                for name, value in self.properties.items()
                if name not in CARRIED_OUT
            )
            <= lacks
        )


def message(body_bytes: int, properties_bytes: int, **more: str) -> Sent:
    """A message with so many bytes of properties, if they are not more already."""
    pairs = {"UNIQ_KEY": KEY, "TAGS": "tag", "short": "s", **more}
    room = properties_bytes - len(encode_properties({**pairs, "pad": ""}))
    if room >= 0:
        pairs["pad"] = "p" * room
    return Sent(b"b" * body_bytes, pairs)


def send(there: BrokerInMemory, sent: Sent, topic: str = TOPIC) -> Command:
    fields: dict[str, Any] = {
        **{"a": GROUP, "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": START_MS, "h": 0},
        **{"i": encode_properties(sent.properties).decode(), "j": 0, "k": "false"},
    }
    return there.ask(RequestCode.SEND_MESSAGE_V2, sent.body, **fields)


def only(there: BrokerInMemory, topic: str, sent: Sent) -> MessageRecord:
    """The only message of a topic, which is the one that was sent."""
    (found,) = there.messages(topic)
    assert sent.is_of(found), (topic, len(found.body), len(found.properties))
    return found


def send_back(there: BrokerInMemory, record: MessageRecord, level: int) -> None:
    back: dict[str, Any] = {"group": GROUP, "offset": record.physical_offset, "delayLevel": level}
    reply = there.ask(RequestCode.CONSUMER_SEND_MSG_BACK, **back)
    assert reply.code == 0, reply


# --- the ways in which a copy is made -------------------------------------------------------------


def as_it_is(there: BrokerInMemory, sent: Sent) -> None:
    only(there, TOPIC, sent)


def delayed(there: BrokerInMemory, sent: Sent) -> None:
    there.move_everything()
    there.at(20_000)
    only(there, TOPIC, sent)


def tried_again(there: BrokerInMemory, sent: Sent) -> None:
    send_back(there, only(there, TOPIC, sent), 0)
    there.move_everything()
    there.at(20_000)
    again = only(there, RETRY, sent)
    assert again.property_map()["RETRY_TOPIC"] == TOPIC
    send_back(there, again, 0)
    there.at(40_000)
    assert len(there.messages(RETRY)) == 2


def dead(there: BrokerInMemory, sent: Sent) -> None:
    send_back(there, only(there, TOPIC, sent), -1)
    letter = only(there, DEAD, sent)
    pairs = letter.property_map()
    assert pairs["DLQ_ORIGIN_TOPIC"] == TOPIC
    for offset, (target, topic) in enumerate((("GROUP", RETRY), ("TOPIC", TOPIC))):
        before = len(there.messages(topic))
        fields: dict[str, Any] = {
            "consumerGroup": GROUP,
            "target": target,
            "queueId": 0,
            "beginOffset": offset,
        }
        reply = there.ask(RequestCode.REDRIVE_DEAD_LETTERS, **fields)
        assert (reply.code, reply.fields["redriven"]) == (0, "1")
        assert sent.is_of(there.messages(topic)[before])
        send_back(there, there.messages(topic)[before], -1)


def pop_fields(is_ordered: bool = False) -> dict[str, Any]:
    return {
        **{"consumerGroup": GROUP, "topic": TOPIC, "queueId": 0, "maxMsgNums": 1},
        **{"invisibleTime": 1000, "pollTime": 0, "bornTime": 0, "initMode": 0},
        "order": str(is_ordered).lower(),
    }


def wear(there: BrokerInMemory, is_ordered: bool = False) -> None:
    """Pop until the message has failed too often."""
    for times in range(30):
        there.ask(RequestCode.POP_MESSAGE, **pop_fields(is_ordered))
        there.at(2 * times)


def worn_out(there: BrokerInMemory, sent: Sent, is_ordered: bool = False) -> None:
    only(there, TOPIC, sent)
    wear(there, is_ordered)
    only(there, DEAD, sent)
    good = message(1, 1)
    assert send(there, good).code == 0
    reply = there.ask(RequestCode.POP_MESSAGE, **pop_fields(is_ordered))
    assert reply.code == 0, "the queue goes on"


def worn_out_in_order(there: BrokerInMemory, sent: Sent) -> None:
    worn_out(there, sent, is_ordered=True)


def end(there: BrokerInMemory, half: Command) -> Command:
    fields: dict[str, Any] = {
        "producerGroup": GROUP,
        "tranStateTableOffset": half.fields["queueOffset"],
        "commitLogOffset": parse_message_id(half.fields["msgId"]).physical_offset,
        "commitOrRollback": 8,
    }
    return there.ask(RequestCode.END_TRANSACTION, **fields)


def committed(there: BrokerInMemory, sent: Sent, half: Command) -> None:
    there.ask(RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", [GROUP])))
    there.at(30)
    asked = [one for one in there.questions if one.code == RequestCode.CHECK_TRANSACTION_STATE]
    assert sent.is_of(decode_record(asked[0].body)[0])
    there.move_everything()
    assert end(there, half).code == 0
    there.at(20_000)
    only(there, TOPIC, sent)


def given_up(there: BrokerInMemory, sent: Sent, _half: Command) -> None:
    there.at(100 * 3600)
    lost = only(there, GIVEN_UP_TOPIC, sent)
    reply = there.ask(
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        msgId=f"7F00000100002A9F{lost.physical_offset:016X}",
    )
    assert reply.code == 0, reply
    there.at(200 * 3600)
    assert len(there.messages(GIVEN_UP_TOPIC)) == 2


PLAIN: Final = (as_it_is, tried_again, dead, worn_out, worn_out_in_order)
HALF: Final = {"TRAN_MSG": "true", "PGROUP": GROUP}
Way = Callable[[BrokerInMemory, Sent, Command], None]


def plain(way: Callable[[BrokerInMemory, Sent], None]) -> Way:
    return lambda there, sent, _reply: way(there, sent)


WAYS: Final[dict[str, tuple[dict[str, str], Way]]] = {
    **{way.__name__: ({}, plain(way)) for way in PLAIN},
    "delayed by a level": ({"DELAY": "3"}, plain(delayed)),
    "delayed by a time": ({"TIMER_DELAY_SEC": "1000"}, plain(delayed)),
    "committed": (HALF, committed),
    "committed and delayed by a level": ({**HALF, "DELAY": "3"}, committed),
    "committed and delayed by a time": ({**HALF, "TIMER_DELAY_SEC": "1000"}, committed),
    "given up": (HALF, given_up),
}

# Bytes short of a limit, or over it.
around = st.one_of(st.integers(-20, 60), st.integers(-900, 2_000))
bodies = st.one_of(st.integers(1, 100), around.map(lambda less: MAX_MESSAGE_BYTES - less))
runs = st.one_of(st.integers(0, 2_000), around.map(lambda less: MAX_PROPERTIES_BYTES - less))


@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=examples(24), deadline=None)
@given(body_bytes=bodies, properties_bytes=runs)
def test_whatever_is_accepted_is_delivered_copied_and_buried_with_its_body(
    name: str, body_bytes: int, properties_bytes: int
) -> None:
    more, way = WAYS[name]
    sent = message(body_bytes, properties_bytes, **more)
    size = len(encode_properties(sent.properties))
    with broker_in_memory() as there:
        there.ask(RequestCode.HEART_BEAT, encode_heartbeat(Heartbeat("c", [])))
        reply = send(there, sent)
        if reply.code:
            assert reply.code == ResponseCode.MESSAGE_ILLEGAL
            waits = len(encode_properties({"REAL_TOPIC": TOPIC, "REAL_QID": "0"})) if more else 0
            times = 30 if more else 0  # when a delayed message is due
            assert body_bytes > MAX_MESSAGE_BYTES or size > MOST_OF_JAVA - waits - times
            return
        way(there, sent, reply)
        assert not there.messages(UNDELIVERED_TOPIC)
        assert there.parts[COPIES].stood_in == 0


@pytest.mark.parametrize("name", WAYS)
@settings(max_examples=examples(24), deadline=None)
@given(less=st.integers(0, 2_500), properties_bytes=st.integers(0, 3_000))
def test_whatever_a_smaller_log_accepts_it_can_copy(
    name: str, less: int, properties_bytes: int
) -> None:
    more, way = WAYS[name]
    sent = message(12_000 - less, properties_bytes, **more)
    with broker_in_memory(max_body_bytes=14_000) as there:
        reply = send(there, sent)
        if reply.code == 0:
            way(there, sent, reply)
            assert not there.messages(UNDELIVERED_TOPIC)


def test_a_message_may_have_the_longest_body_and_all_properties_that_java_takes() -> None:
    with broker_in_memory() as there:
        for size in (MOST_OF_JAVA, MAX_PROPERTIES_BYTES):
            assert send(there, message(MAX_MESSAGE_BYTES, size)).code == 0
        refused = send(there, message(MAX_MESSAGE_BYTES + 1, 0))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        refused = send(there, message(1, MAX_PROPERTIES_BYTES + 1))
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL


def test_every_step_that_copies_is_tried_at_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps are those places of the code that make a `Copy`."""
    made: set[tuple[str, str]] = set()
    init = Copy.__init__

    def noted(self: Copy, *values: Any, **named: Any) -> None:
        code = sys._getframe(1).f_code
        made.add((Path(code.co_filename).name, code.co_name))
        init(self, *values, **named)

    monkeypatch.setattr(Copy, "__init__", noted)
    for more, way in WAYS.values():
        with broker_in_memory() as there:
            sent = message(MAX_MESSAGE_BYTES, most_properties(more), **more)
            reply = send(there, sent)
            assert reply.code == 0
            way(there, sent, reply)
            assert not there.messages(UNDELIVERED_TOPIC)
    assert made == {(path.name, function) for path, function in makers_of("Copy")}


def most_properties(more: dict[str, str]) -> int:
    """How many bytes of properties are taken with these among them."""
    with broker_in_memory() as there:
        for size in range(MAX_PROPERTIES_BYTES, 0, -1):
            if send(there, message(1, size, **more)).code == 0:
                return size
    raise AssertionError("nothing is taken")


def makers_of(name: str) -> Iterator[tuple[Path, str]]:
    """The functions of the broker that make an object of a class."""
    for path in Path(broker.__file__).parent.rglob("*.py"):
        if name not in path.read_text(encoding="utf-8"):
            continue
        makers: dict[ast.Call, str] = {}  # an inner function comes behind the one that it is in
        for function in ast.walk(tree_of(path)):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    if (
                        isinstance(call, ast.Call)
                        and isinstance(call.func, ast.Name)
                        and call.func.id == name
                    ):
                        makers[call] = function.name
        for maker in makers.values():
            yield path, maker


def test_messages_that_the_broker_makes_go_into_the_log_as_copies_alone() -> None:
    assert {path for path, _ in makers_of("MadeMessages")} == {Path(copies.__file__)}


# --- room -----------------------------------------------------------------------------------------


def test_the_longest_command_behind_a_record_is_no_longer_than_room_is_kept_for() -> None:
    name, number = "n" * MAX_TOPIC_BYTES, (1 << 63) - 1
    largest: dict[type, object] = {
        str: name,
        int: number,
        PoppedMessage: PoppedMessage(name, name, number, number, number),
    }
    attached: list[Any] = [one.command for one in REGISTRY.commands() if one.is_attached]
    assert len(attached) > 5
    for command in attached:
        kinds = get_type_hints(command)
        values = [largest[kinds[field.name]] for field in fields(command)]
        assert len(encode_log_command(command(*values))) <= MAX_ATTACHED_BYTES, command


def test_the_largest_copy_of_the_largest_message_fits_an_entry() -> None:
    assert MAX_MESSAGE_BYTES + MAX_PROPERTIES_BYTES + COPY_BYTES <= LARGEST_BODY_BYTES


def test_members_of_older_versions_are_sent_no_entry_that_they_cannot_read() -> None:
    with broker_in_memory(format_version=LARGE_ENTRIES_VERSION - 1) as there:
        for less in range(0, 4_000, 100):
            sent = message(MAX_MESSAGE_BYTES - less, 0, TIMER_DELAY_SEC="1")
            if send(there, sent).code == 0:
                break
        else:
            raise AssertionError("nothing is taken")
        there.at(10)
        only(there, TOPIC, sent)
        assert MAX_BODY_BYTES - 4_000 < there.log.longest_body_bytes <= MAX_BODY_BYTES


# --- properties -----------------------------------------------------------------------------------

names = st.sampled_from(["TAGS", "UNIQ_KEY", "RETRY_TOPIC", "MSG_REGION", "a", "b", "c", "d"])
values = st.one_of(st.integers(0, 9), st.integers(0, 400)).map(lambda size: "v" * size)
broken = st.sampled_from(["", "x", "\x01", "a\x01b\x01c"])


@given(
    pieces=st.lists(st.one_of(st.tuples(names, values).map("\x01".join), broken), max_size=30),
    most=st.integers(1_500, 3_000),
)
def test_properties_that_are_fitted_are_the_same_or_the_most_important_ones(
    pieces: list[str], most: int
) -> None:
    run = "\x02".join(pieces).encode()
    found = fitted(run, most)
    assert len(found.run) <= most
    if len(run) <= most:
        assert found == (run, 0)
        return
    before, after = decode_properties(run), decode_properties(found.run)
    lacks = {name for name in before if after.get(name) != before[name]} - {"MSG_REGION"}
    assert len(lacks) <= found.left_out
    for name in ("TAGS", "UNIQ_KEY", "RETRY_TOPIC"):
        if name in before and len(before[name]) < 200:
            assert after[name] == before[name]


def test_the_shortest_property_goes_that_makes_enough_room() -> None:
    run = encode_properties({"UNIQ_KEY": KEY, "a": "a" * 20_000, "b": "b" * 400, "c": "c" * 9_000})
    found = fitted(run + b"d\x01d\x02", 29_300)
    assert found.left_out == 1
    assert set(decode_properties(found.run)) == {"UNIQ_KEY", "a", "c", "d", LEFT_OUT}


def test_a_region_goes_before_anything_of_the_user() -> None:
    run = encode_properties({"MSG_REGION": "r" * 30, "a": "a" * 100})
    assert fitted(run, 110) == (encode_properties({"a": "a" * 100}), 0)


def test_a_copy_of_a_copy_counts_what_both_lack() -> None:
    run = encode_properties({LEFT_OUT: "2", "a": "a" * 3_000})
    pairs = decode_properties(fitted(run, 1_000).run)
    assert pairs == {LEFT_OUT: "3"}


def test_a_run_of_thousands_of_properties_is_fitted_at_once() -> None:
    run = b"".join(b"%d\x01\x02" % n for n in range(6_000)) + b"\x02" * 3_000
    assert len(fitted(run, 10_000).run) <= 10_000


# --- what no entry can hold -----------------------------------------------------------------------


def too_small(there: BrokerInMemory) -> None:
    """Let the log hold less from now on than it has taken, as if by older rules."""
    there.log.max_body_bytes = 4_000


def test_a_delayed_message_that_no_entry_can_hold_is_told_and_those_behind_it_go_on() -> None:
    with broker_in_memory() as there:
        big = message(5_000, 0, TIMER_DELAY_SEC="1")
        place = parse_message_id(send(there, big).fields["msgId"]).physical_offset
        small = message(10, 0, TIMER_DELAY_SEC="2")
        assert send(there, small).code == 0
        too_small(there)
        there.at(10)
        only(there, TOPIC, small)
        (told,) = there.messages(UNDELIVERED_TOPIC)
        pairs = told.property_map()
        assert (told.body, pairs["UNIQ_KEY"], pairs[UNDELIVERED_TO]) == (b"", KEY, TOPIC)
        assert "at most 4000" in pairs[UNDELIVERED_REASON]
        original = parse_message_id(pairs["DLQ_ORIGIN_MESSAGE_ID"])
        assert original.physical_offset == place
        assert there.parts[COPIES].stood_in == there.parts[COPIES].undelivered == 1
        there.at(20)
        assert len(there.messages(UNDELIVERED_TOPIC)) == 1


def test_a_delayed_message_that_cannot_be_moved_does_not_hold_retention_up() -> None:
    with broker_in_memory() as there:
        assert send(there, message(5_000, 0, TIMER_DELAY_SEC="1000")).code == 0
        too_small(there)
        there.move_everything()
        assert there.machine.state.needed_from() is None
        assert len(there.messages(UNDELIVERED_TOPIC)) == 1


def test_a_popped_message_that_cannot_be_buried_does_not_hold_its_queue_up() -> None:
    for is_ordered in (False, True):
        with broker_in_memory() as there:
            assert send(there, message(5_000, 0)).code == 0
            good = message(10, 0)
            too_small(there)
            wear(there, is_ordered)
            assert len(there.messages(UNDELIVERED_TOPIC)) == 1
            assert send(there, good).code == 0
            assert there.ask(RequestCode.POP_MESSAGE, **pop_fields(is_ordered)).code == 0


def test_a_message_that_is_sent_back_and_cannot_be_stored_is_told_and_not_sent_back_again() -> None:
    with broker_in_memory() as there:
        sent = message(5_000, 0)
        assert send(there, sent).code == 0
        too_small(there)
        send_back(there, only(there, TOPIC, sent), 0)
        assert len(there.messages(UNDELIVERED_TOPIC)) == 1


def test_a_transaction_whose_message_cannot_be_stored_is_given_up_and_its_producer_told() -> None:
    with broker_in_memory() as there:
        half = send(there, message(5_000, 0, **HALF))
        too_small(there)
        assert end(there, half).code == ResponseCode.MESSAGE_ILLEGAL
        assert end(there, half).code == ResponseCode.ILLEGAL_OPERATION
        assert len(there.messages(UNDELIVERED_TOPIC)) == 1
        assert send(there, message(5_000, 0, **HALF)).code == ResponseCode.MESSAGE_ILLEGAL


def test_half_messages_that_can_be_neither_moved_nor_given_up_hold_nothing_up() -> None:
    for do in (BrokerInMemory.move_everything, lambda there: there.at(100 * 3600)):
        with broker_in_memory() as there:
            assert send(there, message(5_000, 0, **HALF)).code == 0
            too_small(there)
            do(there)
            assert there.machine.state.needed_from() is None
            assert len(there.messages(UNDELIVERED_TOPIC)) == 1


def test_a_dead_letter_that_cannot_be_stored_again_stays_and_the_others_go() -> None:
    with broker_in_memory() as there:
        for size in (5_000, 10):
            assert send(there, message(size, 0)).code == 0
        for record in there.messages(TOPIC):
            send_back(there, record, -1)
        too_small(there)
        fields: dict[str, Any] = {"consumerGroup": GROUP, "target": "GROUP", "queueId": 0}
        reply = there.ask(RequestCode.REDRIVE_DEAD_LETTERS, **fields)
        told = [reply.fields[name] for name in ("redriven", "neverStored", "nextOffset")]
        assert (reply.code, told) == (0, ["1", "1", "2"])
        assert [len(one.body) for one in there.messages(RETRY)] == [10]


# --- what cannot be read, and what no topic is made for -------------------------------------------


def spoil(there: BrokerInMemory, sent: Sent) -> None:
    """Make the records of a message unreadable, as if by a defect."""
    at = there.log.content.index(sent.body) + len(sent.body)
    there.log.content[at] = 255  # the length of the topic's name


def begin_another_term(there: BrokerInMemory) -> None:
    there.log.term += 1
    there.requests.follow_role()


def wear_in_order(there: BrokerInMemory) -> None:
    wear(there, is_ordered=True)


def wait_until_due(there: BrokerInMemory) -> None:
    there.at(5000)


def wait_for_days(there: BrokerInMemory) -> None:
    there.at(100 * 3600)


@given(
    body_bytes=st.sampled_from([0, 50, 9000]),
    changes=st.lists(
        st.tuples(st.integers(-90, 130), st.sampled_from([0, 1, 2, 127, 128, 255])), max_size=4
    ),
)
@example(50, [(84, 1)])  # the body is said to be longer than the record
@example(50, [(84, 255)])
@example(50, [(138, 255)])  # so is the topic
def test_the_index_of_keys_takes_records_that_cannot_be_read(
    body_bytes: int, changes: list[tuple[int, int]]
) -> None:
    run = encode_properties({"KEYS": "a b", "UNIQ_KEY": KEY, "TAGS": "tag"})
    content = bytearray(encode_record(MessageRecord("T", b"b" * body_bytes, run)))
    for at, value in changes:
        content[at % len(content)] = value
    record = read_without_body(lambda at, size: bytes(content[at : at + size]), 0, len(content))
    if record is not None:
        assert len(keys_of(record)) <= 256
    read_record_facts(bytes(content))


# What a broker does on its own with a message that waits: a message, and what makes it due.
ON_ITS_OWN: Final[dict[str, tuple[dict[str, str], Callable[[BrokerInMemory], None]]]] = {
    "deliver": ({"TIMER_DELAY_SEC": "1000"}, wait_until_due),
    "deliver by level": ({"DELAY": "5"}, wait_until_due),
    "move what is delayed": ({"TIMER_DELAY_SEC": "1000"}, BrokerInMemory.move_everything),
    "move a half message": (HALF, BrokerInMemory.move_everything),
    "give a half message up": (HALF, wait_for_days),
    "bury": ({}, wear),
    "bury in order": ({}, wear_in_order),
}


@pytest.mark.parametrize("in_body", [True, False])
@pytest.mark.parametrize("name", ON_ITS_OWN)
def test_what_is_damaged_on_one_disk_alone_is_left_to_another_leader(
    name: str, in_body: bool
) -> None:
    more, wear = ON_ITS_OWN[name]
    with broker_in_memory() as there:
        sent = Sent(b"body" * 200, {"UNIQ_KEY": KEY, "TAGS": "tag", **more})
        assert send(there, sent).code == 0
        at = there.log.content.index(sent.body) + (7 if in_body else len(sent.body))
        whole = there.log.content[at]
        there.log.content[at] = 255
        there.log.is_damaged = True
        wear(there)
        damaged = bytes(there.log.content)
        assert there.messages(UNDELIVERED_TOPIC) == []
        assert damaged.count(b"bodybod\xff" if in_body else sent.body) == 1  # no copy of it
        # The next leader has a disk of its own.
        there.log.content[at] = whole
        there.log.is_damaged = False
        begin_another_term(there)
        wear(there)
        assert there.messages(UNDELIVERED_TOPIC) == []
        assert there.log.content.count(sent.body) == 2


def of_nothing(there: BrokerInMemory, _sent: Sent) -> None:
    """Let the log take nothing but short commands: not even a message in place of another."""
    there.log.max_body_bytes = 550


def test_what_can_never_be_copied_is_told_once_and_holds_nothing_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, (more, wear) in ON_ITS_OWN.items():
        for hinder in (spoil, of_nothing):
            caplog.clear()
            with broker_in_memory() as there:
                sent = Sent(b"body" * 200, {"UNIQ_KEY": KEY, "TAGS": "tag", **more})
                assert send(there, sent).code == 0
                hinder(there, sent)
                wear(there)
                told = len(there.messages(UNDELIVERED_TOPIC))
                assert told == (hinder is spoil), (name, hinder)
                assert there.parts[COPIES].untold == (hinder is of_nothing), (name, hinder)
                assert there.machine.state.needed_from() is None, (name, hinder)
                lines = [one for one in caplog.records if "not delivered" in one.message]
                assert len(lines) == 1, (name, hinder)

                begin_another_term(there)
                wear(there)
                there.move_everything()
                assert len(there.messages(UNDELIVERED_TOPIC)) == told, (name, hinder)
                assert caplog.text.count("not delivered") == 1, (name, hinder)


def test_a_delayed_message_whose_topic_is_being_deleted_holds_up_no_other_and_waits_no_longer() -> (
    None
):
    with broker_in_memory() as there:
        for topic in (TOPIC, "other"):
            sent = message(10, 0, TIMER_DELAY_SEC="1")
            assert send(there, sent, topic).code == 0
        there.parts[TOPIC_CHANGES].delete_topic(TOPIC, lambda _refusal: None)
        there.now_ms += 2_000
        there.parts[DELIVERIES].deliver()
        there.log.settle()
        only(there, "other", sent)
        there.at(4)
        assert there.machine.state.needed_from() is None


def test_a_dead_letter_that_cannot_be_read_stays_and_those_behind_it_are_delivered_again() -> None:
    with broker_in_memory() as there:
        for number in range(3):
            assert send(there, Sent(b"%d" % number * 200, {"UNIQ_KEY": KEY})).code == 0
        give_up(there)
        dead = there.messages(DEAD)
        at = dead[1].physical_offset
        at = there.log.content.index(dead[1].body, at) + len(dead[1].body)
        there.log.content[at] = 255
        fields: dict[str, Any] = {"consumerGroup": GROUP, "target": "GROUP", "queueId": 0}
        reply = there.ask(RequestCode.REDRIVE_DEAD_LETTERS, **fields)
        told = [reply.fields[name] for name in ("redriven", "neverStored", "nextOffset")]
        assert (reply.code, told) == (0, ["2", "1", "3"])
        assert [one.body[:1] for one in there.messages(RETRY)] == [b"0", b"2"]


def give_up(there: BrokerInMemory) -> None:
    for record in there.messages(TOPIC):
        send_back(there, record, -1)


def test_a_dead_letter_for_which_no_topic_may_be_made_is_told_and_holds_nothing_up() -> None:
    for name, bury in {"send back": give_up, "bury": wear, "bury in order": wear_in_order}.items():
        with broker_in_memory() as there:
            sent = message(10, 0)
            assert send(there, sent).code == 0
            # The group makes itself and its topic for retries before there is no more room.
            there.ask(RequestCode.POP_MESSAGE, **pop_fields())
            topics = len(there.machine.state[TOPICS].configs)
            there.fold(ChangeSettings({"dledgerMaxTopics": str(topics)}, START_MS))
            bury(there)
            (told,) = there.messages(UNDELIVERED_TOPIC)
            pairs = told.property_map()
            assert pairs["UNIQ_KEY"] == KEY, name
            assert pairs[UNDELIVERED_TO] == DEAD, name
            assert "delete one first" in pairs[UNDELIVERED_REASON], name
            begin_another_term(there)
            there.at(200)
            assert len(there.messages(UNDELIVERED_TOPIC)) == 1, name


def test_a_failure_of_one_service_does_not_stop_the_tick_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with broker_in_memory() as there:
        ticked: list[int] = []

        def fails() -> None:
            raise IndexError("a defect")

        there.requests._services = [
            Service(tick=fails, look_over=fails),
            Service(tick=lambda: ticked.append(1), look_over=lambda: ticked.append(2)),
        ]
        there.requests.tick()
        there.requests.look_over()
        assert ticked == [1, 2]
        assert "a defect" in caplog.text


async def test_the_largest_copy_is_replicated_to_the_next_leader(tmp_path: Path) -> None:
    clock = Clock()
    async with group_of_three(tmp_path, clock=clock) as group:
        first, client = await group.leader()
        node = group.brokers[first].node
        await node.append(encode_log_command(RaiseFormat(LARGE_ENTRIES_VERSION)))
        sent = message(MAX_MESSAGE_BYTES, 32_000, TIMER_DELAY_SEC="1")
        fields = send_fields(TOPIC, i=encode_properties(sent.properties).decode())
        assert (await client.ask(RequestCode.SEND_MESSAGE_V2, sent.body, **fields)).code == 0
        clock.now_ms += 2_000
        group.brokers[first].parts[DELIVERIES].on_sooner()

        async def is_there() -> bool:
            return (await client.pull(TOPIC, 0)).code == 0

        await until(is_there)
        group.stop(first)
        _next, client = await group.leader()
        await until(is_there)
        (found,) = await client.messages(TOPIC)
        assert sent.is_of(found)
