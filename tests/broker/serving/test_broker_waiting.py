"""Held pulls, members and sends without a network or a clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.consumers.members import Consumers, Member
from broker.errors import RequestRefused
from broker.features import REGISTRY, empty_state
from broker.formats.commands import RaiseFormat
from broker.formats.state import FORMATS
from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.limits import BrokerLimits
from broker.log.entry import RUNS_VERSION, encode_log_command
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.offsets.commits import MAX_OFFSETS_PER_ENTRY, OFFSET_COMMITS, OffsetCommits
from broker.pop.limits import MAX_WAITING_A_CLIENT
from broker.pop.request import PopRequest
from broker.pop.waiting_pops import waiting_pops
from broker.pulls.held_pulls import HeldPull, HeldPulls, held_pulls
from broker.pulls.message_filter import (
    MAX_EXPRESSION_CHARACTERS,
    MAX_TAGS,
    MessageFilter,
    tag_filter,
)
from broker.pulls.request import PullRequest
from broker.sends.awaited_topics import AWAITED_TOPICS
from broker.sends.entry_packing import PACKED_BYTES
from broker.sends.pending_messages import MadeMessages, PendingSend
from broker.sends.sends import SENDS, Sends
from broker.serving.counts import Counts
from broker.serving.memberships import MEMBER_EXPIRY_S
from broker.serving.waiting_requests import Waiting
from broker.topics.state import TOPICS
from broker.traffic.put_times import PUT_TIMES
from dledger.entry import (
    HEADER_BYTES,
    MAX_BODY_BYTES,
    Body,
    PositionedBody,
    PositionedParts,
    body_bytes,
)
from dledger.errors import (
    Discarded,
    DLedgerError,
    LeadershipLost,
    LogFull,
    NotLeader,
)
from dledger.waits.pending_appends import Appended
from proxy.clients.sessions import MAX_CLIENTS
from remoting.bodies.heartbeat import ConsumerData
from remoting.bodies.topic_config import TopicConfig
from remoting.message.record import MessageRecord, encode_parts_of_all
from remoting.message.tags import tags_code
from remoting.net.address import Address
from remoting.net.request_table import MAX_WAITING_REQUESTS, Settle
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from tests.broker.parts_alone import parts_alone
from tests.broker.untimed import Untimed


class Origin(Untimed):
    """A client that keeps what it is sent."""

    is_closed = False
    is_behind = False

    def __init__(self) -> None:
        self.peer = Address("10.0.0.1", 5000)
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def send_all(self, commands: Sequence[Command]) -> None:
        self.sent += commands

    def send_oneway(self, command: Command) -> None:
        self.sent.append(command)

    def gather(self) -> None: ...

    def write_gathered(self) -> None: ...

    def set_aside(self, command: Command) -> None: ...

    def when_taken(self, then: Callable[[], None]) -> None:
        then()

    def request(self, command: Command, settle: Settle, timeout_s: float) -> None:
        raise AssertionError("asked")


class FakeLog:
    """A log that takes, refuses and answers when it is told to."""

    is_ready_leader = True
    term = 1
    begin_position = 0
    max_body_bytes = MAX_BODY_BYTES

    def __init__(self) -> None:
        self.refusal: DLedgerError | None = None
        self.taken: list[tuple[Sequence[Body], Callable[[Any], None]]] = []

    def submit(self, bodies: Sequence[Body], done: Callable[[Any], None]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.taken.append((bodies, done))

    def read_bytes(self, pos: int, size: int) -> bytes:
        raise AssertionError("nothing is read here")

    def check_at(self, pos: int) -> None:
        raise AssertionError("nothing is read here")

    def finish(self, outcome: Any = None, result: Any = None) -> None:
        bodies, done = self.taken.pop(0)
        done(outcome or [Appended(at, 1, 1000 * at, result) for at in range(len(bodies))])


# --- held pulls -----------------------------------------------------------------------------------


def hold(pulls: HeldPulls, origin: Origin, queue_id: int, deadline: float, tag: str = "*") -> None:
    request = PullRequest("g", "T", queue_id, 0, 32, None, 1.0, tag_filter(tag), True, False, 0)
    pulls.add(Waiting(origin, Command(11), request, deadline))


def arrived(pulls: HeldPulls, codes: set[int], queue_id: int = 0) -> list[HeldPull]:
    """Take the pulls that want a message with one of these tags."""
    waiting = pulls.of("T", queue_id)
    steps = pulls.take(waiting, lambda held: held.request.wanted.wants_any(codes))
    return [held for taken in steps for held in taken]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("add", "arrive", "expire", "drop")),
            st.integers(0, 2),
            st.integers(0, 2),
            st.integers(0, 20),
        ),
        max_size=60,
    )
)
def test_each_held_pull_is_taken_exactly_once(script: list[tuple[str, int, int, int]]) -> None:
    pulls = held_pulls(1000, Counts())
    origins = [Origin() for _ in range(3)]
    model: list[tuple[Origin, int, int]] = []
    for what, which, queue_id, time in script:
        before = len(model)
        if what == "add":
            hold(pulls, origins[which], queue_id, time)
            model.append((origins[which], queue_id, time))
            taken = 0
        elif what == "arrive":
            taken = len(arrived(pulls, {0}, queue_id))
            model = [one for one in model if one[1] != queue_id]
        elif what == "expire":
            taken = 0
            while some := pulls.take_expired(time):
                taken += len(some)
            model = [one for one in model if one[2] > time]
        else:
            list(pulls.drop(origins[which]))
            model = [one for one in model if one[0] is not origins[which]]
            taken = before - len(model)
        assert len(pulls) == len(model)
        if what != "add":
            assert taken == before - len(model)
    assert len(pulls.take_all()) == len(model)
    assert len(pulls) == 0


@pytest.mark.parametrize("taken_first", [False, True])
def test_pulls_of_a_client_that_is_gone_are_dropped_in_steps(taken_first: bool) -> None:
    users = Counts()
    pulls = held_pulls(1000, users)
    gone, other = Origin(), Origin()
    request = PullRequest("g", "T", 0, 0, 32, None, 1.0, tag_filter("*"), True, False, 0)
    for at in range(600):
        pulls.add(Waiting(other if at == 0 else gone, Command(11), request, 1.0, "ann"))
    steps = pulls.drop(gone)
    next(steps)
    assert len(pulls) == 1
    assert 1 < users.of("ann") < 600
    if taken_first:  # the term ends meanwhile
        assert [held.origin for held in pulls.take_all()] == [other]
        assert users.of("ann") == 0
    else:
        assert [held.origin for held in arrived(pulls, {0})] == [other]
    assert list(steps)
    assert users.of("ann") == 0
    assert pulls.of("T", 0) == []
    for _ in range(1000):
        held = Waiting(other, Command(11), request, 1.0)
        assert pulls.has_room(held)
        pulls.add(held)


def test_only_a_pull_that_wants_the_tag_is_taken() -> None:
    pulls = held_pulls(10, Counts())
    origin = Origin()
    hold(pulls, origin, 0, 1, "A||B")
    assert arrived(pulls, {tags_code("C")}) == []
    assert len(arrived(pulls, {tags_code("C"), tags_code("B")})) == 1


def test_a_pull_with_many_tags_counts_as_several() -> None:
    pulls = held_pulls(20, Counts())
    origin = Origin()
    hold(pulls, origin, 0, 1, "||".join(map(str, range(MAX_TAGS))))
    many = PullRequest("g", "T", 0, 0, 32, None, 1.0, tag_filter("A||B"), True, False, 0)
    room = [Waiting(origin, Command(11), many, 1) for _ in range(4)]
    for held in room[:3]:
        assert pulls.has_room(held)
        pulls.add(held)
    assert not pulls.has_room(room[3])
    assert len(arrived(pulls, {tags_code("7")})) == 1
    assert pulls.has_room(room[3])


# --- tag filter -----------------------------------------------------------------------------------


@pytest.mark.parametrize("expression", ["", "*"])
def test_an_empty_expression_or_a_star_wants_everything(expression: str) -> None:
    assert tag_filter(expression) == MessageFilter(None)
    assert tag_filter(expression).wants(0)


def test_tags_are_split_and_trimmed() -> None:
    wanted = tag_filter(" TagA||TagB || ||")
    assert wanted.codes == frozenset({2598919, 2598920})
    assert not wanted.wants(0)


@pytest.mark.parametrize(
    "expression",
    ["||", "||".join(map(str, range(MAX_TAGS + 1))), "T" * (MAX_EXPRESSION_CHARACTERS + 1)],
)
def test_no_tag_or_too_many_are_refused(expression: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        tag_filter(expression)
    assert caught.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED


# --- locks and members ----------------------------------------------------------------------------


def test_a_member_without_heartbeats_for_two_minutes_is_gone() -> None:
    consumers = Consumers()
    silent, alive = Origin(), Origin()
    for origin, at in ((silent, 0.0), (alive, 50.0)):
        consumers.register(origin, Member(f"c{at}", at, ConsumerData("g")))
    assert consumers.expire(MEMBER_EXPIRY_S - 1) == []
    assert consumers.expire(MEMBER_EXPIRY_S) == ["g"]
    assert consumers.client_ids("g") == ["c50.0"]
    assert len(consumers) == 1
    assert consumers.drop_some(alive) == ["g"]
    assert consumers.group("g") is None
    assert len(consumers) == 0


# --- sends ----------------------------------------------------------------------------------------


def sends_over(log: FakeLog, **limits: int) -> tuple[Sends, BrokerState]:
    state = empty_state()
    parts = parts_alone(state, log, limits=BrokerLimits(**limits), wall_clock_ms=lambda: 5000)
    return parts[SENDS], state


PREFIX = "7F00000100002A9F"


def a_send(origin: Origin, count: int = 1, topic: str = "T") -> PendingSend:
    records = [MessageRecord(topic) for _ in range(count)]
    return PendingSend(origin, Command(310), topic, 0, records, PREFIX)


def entries_of(bodies: Sequence[Body]) -> list[list[int]]:
    """The offsets of the records in each entry that has any."""
    entries: list[Sequence[PositionedBody]] = []
    for body in bodies:
        if isinstance(body, PositionedBody):
            entries.append([body])
        elif isinstance(body, PositionedParts):
            entries.append(body.parts)
    return [[int.from_bytes(part.head[20:28], "big") for part in parts] for parts in entries]


def offsets_of(bodies: Sequence[Body]) -> list[int]:
    return [offset for entry in entries_of(bodies) for offset in entry]


def test_sends_of_one_batch_are_one_append_with_offsets_in_a_row() -> None:
    log, origin = FakeLog(), Origin()
    sends, state = sends_over(log)
    state[MESSAGES].queue_ends["T"] = {0: 7}
    for count in (1, 2, 1):
        sends.add(a_send(origin, count))
    sends.flush()
    sends.add(a_send(origin))
    sends.flush()
    assert [offsets_of(bodies) for bodies, _done in log.taken] == [[7, 8, 9, 10], [11]]
    log.finish()
    assert [reply.fields["queueOffset"] for reply in origin.sent] == ["7", "8", "10"]
    assert [len(reply.fields["msgId"].split(",")) for reply in origin.sent] == [1, 2, 1]


def test_messages_that_come_together_share_an_entry_and_each_reply_says_where_its_own_lie() -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    for topic, count in (("T", 1), ("U", 2), ("T", 1)):
        sends.add(a_send(origin, count, topic))
    sends.flush()
    bodies, done = log.taken.pop()
    assert entries_of(bodies) == [[0, 0, 1, 1]]
    assert bodies[0] == encode_log_command(RaiseFormat(RUNS_VERSION))
    done([Appended(8, 1, 500, None), Appended(9, 1, 1000, None)])
    parts = bodies[1]
    assert isinstance(parts, PositionedParts)
    sizes = [body_bytes(part) for part in parts.parts]
    places = [1000 + HEADER_BYTES + sum(sizes[:at]) for at in range(4)]
    ids = [f"{PREFIX}{place:016X}" for place in places]
    told = [reply.fields["msgId"] for reply in origin.sent]
    assert told == [ids[0], f"{ids[1]},{ids[2]}", ids[3]]


def test_the_format_of_the_log_is_raised_once_and_again_when_that_was_lost() -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    for _ in range(2):
        sends.add(a_send(origin, 2))
        sends.flush()
    log.finish(Discarded(1, 1))
    sends.add(a_send(origin, 2))
    sends.flush()
    raised = encode_log_command(RaiseFormat(RUNS_VERSION))
    assert [bodies[0] == raised for bodies, _done in log.taken] == [False, True]


def test_a_refused_entry_is_told_to_the_sends_that_it_holds_alone() -> None:
    log, origin = FakeLog(), Origin()
    sends, state = sends_over(log)
    state[FORMATS].format_version = RUNS_VERSION
    for size in (PACKED_BYTES - 1000, 5000, 10):
        records = [MessageRecord("T", bytes(size))]
        sends.add(PendingSend(origin, Command(310), "T", 0, records, PREFIX))
    sends.flush()
    bodies, done = log.taken.pop()
    assert entries_of(bodies) == [[0], [1, 2]]
    done([Appended(8, 1, 500, None), Appended(9, 1, 1000, EntryRefused("wrong offset"))])
    codes = sorted(reply.code for reply in origin.sent)
    assert codes == [ResponseCode.SUCCESS, *2 * [ResponseCode.SYSTEM_ERROR]]


def test_messages_that_the_log_or_an_entry_refuses_count_as_failed_and_in_no_time() -> None:
    log, origin = FakeLog(), Origin()
    log.max_body_bytes = PACKED_BYTES
    state = empty_state()
    state[FORMATS].format_version = RUNS_VERSION
    parts = parts_alone(state, log, wall_clock_ms=lambda: 5000)
    sends, times = parts[SENDS], parts[PUT_TIMES]
    for size in (PACKED_BYTES - 1000, 5000, 10, PACKED_BYTES):
        records = [MessageRecord("T", bytes(size))]
        sends.add(PendingSend(origin, Command(310), "T", 0, records, PREFIX))
    sends.flush()
    assert times.failed == 1  # one that no entry can hold
    _bodies, done = log.taken.pop()
    done([Appended(8, 1, 500, None), Appended(9, 1, 1000, EntryRefused("wrong offset"))])
    assert times.failed == 3
    counted = [int(one.rpartition(":")[2]) for one in str(times).split(" ")]
    assert sum(counted) == 1
    sends.add(a_send(origin))
    sends.flush()
    log.finish(Discarded(1, 1))
    assert times.failed == 4


def test_a_batch_that_no_entry_can_hold_takes_several() -> None:
    log, origin = FakeLog(), Origin()
    log.max_body_bytes = 2_000
    sends, _state = sends_over(log)
    records = [MessageRecord("T", bytes(800)) for _ in range(5)]
    sends.add(PendingSend(origin, Command(320), "T", 0, records, PREFIX))
    sends.flush()
    assert entries_of(log.taken[0][0]) == [[0, 1], [2, 3], [4]]
    log.finish()
    assert len(origin.sent[0].fields["msgId"].split(",")) == 5


def test_a_message_over_what_the_log_takes_is_refused_and_its_neighbours_are_not() -> None:
    log, origin = FakeLog(), Origin()
    log.max_body_bytes = 2_000
    sends, _state = sends_over(log)
    for sizes in ((10,), (10, 2_000, 10), (10,)):
        records = [MessageRecord("T", bytes(size)) for size in sizes]
        sends.add(PendingSend(origin, Command(320), "T", 0, records, PREFIX))
    sends.flush()
    assert entries_of(log.taken[0][0]) == [[0, 1]]
    assert [reply.code for reply in origin.sent] == [ResponseCode.MESSAGE_ILLEGAL]


@pytest.mark.parametrize("is_made", [False, True])
def test_properties_count_for_the_bytes_that_wait_and_that_one_append_has(is_made: bool) -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log, append_bytes=100_000, max_waiting_send_bytes=250_000)

    def send() -> None:
        records = [MessageRecord("T", properties=bytes(30_000))]
        if is_made:
            sends.add(MadeMessages("T", 0, records, lambda _refusal: None))
        else:
            sends.add(PendingSend(origin, Command(310), "T", 0, records, PREFIX))

    for _ in range(8):
        send()
    with pytest.raises(RequestRefused) as caught:
        send()
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    sends.flush()
    assert [len(offsets_of(bodies)) for bodies, _done in log.taken] == [3, 3, 2]


def test_messages_that_the_broker_makes_go_the_same_way_as_those_of_clients() -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    told: list[RequestRefused | None] = []
    made = [MessageRecord("T", born_host="10.0.0.9"), MessageRecord("T")]
    sends.add(a_send(origin))
    sends.add(MadeMessages("T", 0, made, told.append))
    sends.flush()
    assert [offsets_of(bodies) for bodies, _done in log.taken] == [[0, 1, 2]]
    assert made[0].born_host == "10.0.0.9"  # a copy keeps its producer's
    log.finish()
    assert (len(origin.sent), told) == (1, [None])
    sends.add(MadeMessages("T", 0, made, told.append))
    sends.flush()
    log.finish(Discarded(1, 1))
    assert told[1] is not None
    assert told[1].code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_long_expression_is_read_like_a_short_one() -> None:
    tags = [f"{number:060d}" for number in range(MAX_TAGS)]
    assert tag_filter("||".join(tags)).codes == frozenset(map(tags_code, tags))


@pytest.mark.feature("F53")
def test_messages_that_wait_for_their_topics_are_bounded_in_bytes_over_all() -> None:
    log, origin = FakeLog(), Origin()
    sends, state = sends_over(log)
    limits = BrokerLimits(max_waiting_send_bytes=10_000)
    announced: list[Callable[[], None]] = []

    def announce(then: Callable[[], None] | None) -> None:
        assert then is not None
        announced.append(then)

    made = {SENDS: sends}
    awaited = parts_alone(state, log, made=made, limits=limits, announce=announce)[AWAITED_TOPICS]

    def send(topic: str) -> None:
        records = [MessageRecord(topic)]
        one = PendingSend(origin, Command(310, body=bytes(4_000)), topic, 0, records, PREFIX)
        awaited.send_when_created(TopicConfig(topic), one)

    send("A")
    send("B")
    for topic in "ABC":
        with pytest.raises(RequestRefused) as caught:
            send(topic)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
    log.finish()  # A is in the log, but the name servers do not know it yet
    with pytest.raises(RequestRefused):
        send("A")
    state[TOPICS].configs["A"] = TopicConfig("A")
    announced.pop()()
    assert len(log.taken) == 2
    send("C")  # A's message has left
    log.finish(Discarded(1, 1))
    assert [reply.code for reply in origin.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE]


def test_sends_wait_while_the_log_is_full_and_keep_their_order() -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log, max_waiting_sends=2)
    log.refusal = LogFull(1, 1)
    sends.add(a_send(origin))
    sends.flush()
    sends.add(a_send(origin))
    assert sends.waiting_messages == 2
    with pytest.raises(RequestRefused) as caught:
        sends.add(a_send(origin))
    assert caught.value.code == ResponseCode.SYSTEM_BUSY
    log.refusal = None
    sends.flush()
    assert [offsets_of(bodies) for bodies, _done in log.taken] == [[0], [1]]
    assert origin.sent == []


def test_messages_are_encoded_once_however_long_the_log_is_full(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded: list[MessageRecord] = []

    def encode(records: Sequence[MessageRecord]) -> list[tuple[bytes, bytes]]:
        encoded.extend(records)
        return encode_parts_of_all(records)

    monkeypatch.setattr("broker.sends.sends.encode_parts_of_all", encode)
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    log.refusal = LogFull(1, 1)
    for _ in range(20):
        sends.add(a_send(origin))
        sends.flush()
    assert len(encoded) == 1
    assert sends.waiting_messages == 20
    log.refusal = None
    sends.flush()
    assert [offsets_of(bodies) for bodies, _done in log.taken] == [[0], [*range(1, 20)]]
    assert (len(encoded), sends.waiting_messages) == (20, 0)


@pytest.mark.parametrize("happens", ["deletion", "term", "refusal"])
def test_messages_that_the_log_had_no_room_for_get_the_offsets_that_are_next_then(
    happens: str,
) -> None:
    log, origin = FakeLog(), Origin()
    sends, state = sends_over(log)
    state[MESSAGES].queue_ends["T"] = {0: 7}
    sends.add(a_send(origin))
    sends.flush()
    log.refusal = LogFull(1, 1)
    sends.add(a_send(origin))
    sends.flush()  # placed at 8, behind the one that is on its way
    log.refusal = None
    if happens == "deletion":
        state[MESSAGES].queue_ends.clear()
        sends.applied(Folded(deleted_topics=["T"]))
    elif happens == "term":
        sends.begin_term()
    else:
        log.finish(Discarded(1, 1))
    sends.flush()
    first = 0 if happens == "deletion" else 7
    assert offsets_of(log.taken[-1][0]) == [first]


@pytest.mark.feature("F31")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Discarded(1, 1), ResponseCode.SERVICE_NOT_AVAILABLE),
        (NotLeader("n1", 2), ResponseCode.SERVICE_NOT_AVAILABLE),
        (LeadershipLost(1, 1, None), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_is_certainly_not_stored_is_told_apart_from_what_may_be(
    error: DLedgerError, code: int
) -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    sends.add(a_send(origin))
    sends.flush()
    log.finish(error)
    assert [reply.code for reply in origin.sent] == [code]


def test_a_log_that_is_not_the_leaders_refuses_everything_at_once() -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    log.refusal = NotLeader("n1", 2)
    for _ in range(3):
        sends.add(a_send(origin))
    sends.flush()
    assert [reply.code for reply in origin.sent] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3


def test_a_new_term_goes_on_from_what_is_applied_not_from_what_was_proposed() -> None:
    log, origin = FakeLog(), Origin()
    sends, state = sends_over(log)
    sends.add(a_send(origin, 5))
    sends.flush()
    state[MESSAGES].queue_ends["T"] = {0: 2}
    sends.begin_term()
    sends.add(a_send(origin))
    sends.flush()
    assert offsets_of(log.taken[-1][0]) == [2]


def test_an_entry_the_fold_passed_over_is_not_confirmed_and_the_queue_heals() -> None:
    log, origin = FakeLog(), Origin()
    sends, state = sends_over(log)
    sends.add(a_send(origin))
    sends.flush()
    state[MESSAGES].queue_ends["T"] = {0: 4}  # somebody else wrote to the log
    log.finish(result=EntryRefused("wrong offset"))
    assert origin.sent[-1].code == ResponseCode.SYSTEM_ERROR
    sends.add(a_send(origin))
    sends.flush()
    assert offsets_of(log.taken[-1][0]) == [4]


def test_a_message_that_cannot_be_encoded_does_not_stop_its_neighbours() -> None:
    log, origin = FakeLog(), Origin()
    sends, _state = sends_over(log)
    bad = a_send(origin)
    bad.records[0].flag = 1 << 40
    for send in (a_send(origin), bad, a_send(origin)):
        sends.add(send)
    sends.flush()
    assert offsets_of(log.taken[0][0]) == [0, 1]
    assert [reply.code for reply in origin.sent] == [ResponseCode.MESSAGE_ILLEGAL]


# --- offset commits -------------------------------------------------------------------------------


def commits_over(log: FakeLog, state: BrokerState, most: int = 10, **others: Any) -> OffsetCommits:
    limits = BrokerLimits(max_waiting_commits=most)
    return parts_alone(state, log, limits=limits, **others)[OFFSET_COMMITS]


def with_topic_t() -> BrokerState:
    """A state in which T was created at position 50, and the log is applied up to 100."""
    state = empty_state()
    state.log_end = 100
    state[TOPICS].configs["T"] = TopicConfig("T")
    state[TOPICS].created_at["T"] = 50
    return state


def test_offsets_of_a_topic_that_was_deleted_since_the_request_are_not_written() -> None:
    log, state = FakeLog(), with_topic_t()
    commits = commits_over(log, state)
    told: list[RequestRefused | None] = []
    commits.add(CommittedOffset("g", "T", 0, 1), told.append)
    state[TOPICS].created_at["T"] = 150
    state.log_end = 200
    commits.flush()
    assert log.taken == []
    assert told == [None]
    commits.add(CommittedOffset("g", "T", 0, 0), told.append)
    commits.flush()
    assert len(log.taken) == 1


def test_offsets_gather_while_an_entry_is_on_its_way() -> None:
    log = FakeLog()
    times_ms = iter((1000, 2000))
    state = with_topic_t()
    commits = commits_over(log, state, wall_clock_ms=lambda: next(times_ms))
    told: list[RequestRefused | None] = []
    commits.add(CommittedOffset("g", "T", 0, 1), told.append)
    commits.flush()
    for offset in (2, 3):
        commits.add(CommittedOffset("g", "T", 0, offset), told.append)
        commits.flush()
    assert len(log.taken) == 1
    assert told == []
    log.finish()
    assert told == [None]
    (body,), _done = log.taken[0]
    assert isinstance(body, bytes)
    command = REGISTRY.decode(body)
    assert command == CommitOffsets([CommittedOffset("g", "T", 0, 3)], 2000, as_of=100)
    log.finish()
    assert told == [None, None, None]


def test_offsets_that_nobody_waits_for_go_with_others_or_when_it_is_time() -> None:
    log = FakeLog()
    commits = commits_over(log, with_topic_t(), most=10_000)
    for queue_id in range(3):
        commits.add(CommittedOffset("g", "T", queue_id, 1), None)
        commits.flush()
    assert log.taken == []
    commits.add(CommittedOffset("g", "T", 3, 1), lambda _refusal: None)
    commits.flush()
    commits.add(CommittedOffset("g", "T", 4, 1), None)
    log.finish()
    assert log.taken == []  # nor does it follow the entry that was on its way
    commits.flush_all()
    log.finish()
    for number in range(MAX_OFFSETS_PER_ENTRY):
        assert log.taken == []
        commits.add(CommittedOffset("g", "T", number, 2), None)
        commits.flush()
    assert len(log.taken) == 1


def commits_of(log: FakeLog) -> list[object]:
    return [REGISTRY.decode(body) for bodies, _done in log.taken for body in bodies]  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [ways for n in (1, 2, 3) for ways in product("ab", repeat=n)])
def test_for_a_group_that_is_gone_an_offset_is_committed_if_a_client_asked_for_it(
    steps: tuple[str, ...],
) -> None:
    log, state = FakeLog(), with_topic_t()
    state[GROUPS].configs["g"] = ConsumerGroup("g")
    commits = commits_over(log, state)
    for number, step in enumerate(steps):
        offset = CommittedOffset("g", "T", 0, number)
        if step == "a":
            commits.add(offset, None)  # a client may commit for any group
        else:
            commits.bring(offset)
    del state[GROUPS].configs["g"]
    commits.flush_all()
    last = CommittedOffset("g", "T", 0, len(steps) - 1)
    assert commits_of(log) == ([CommitOffsets([last], 1, as_of=100)] if "a" in steps else [])


def test_an_offset_from_before_the_group_was_moved_does_not_follow_the_end_of_the_reset() -> None:
    log, state = FakeLog(), with_topic_t()
    state[GROUPS].configs["g"] = ConsumerGroup("g")
    commits = commits_over(log, state)
    for queue_id in range(2):
        commits.bring(CommittedOffset("g", "T", queue_id, 9))
    commits.forget("g", "T", 0)
    commits.forget("g", "T", 7)
    told: list[RequestRefused | None] = []
    commits.flush_all()
    assert commits_of(log) == [CommitOffsets([CommittedOffset("g", "T", 1, 9)], 1, as_of=100)]
    log.finish()
    commits.add(CommittedOffset("g", "T", 0, 9), told.append)
    commits.forget("g", "T", 0)
    commits.flush()
    assert told == [None]


def test_offsets_that_cannot_be_stored_are_refused_and_later_ones_are_not() -> None:
    log = FakeLog()
    commits = commits_over(log, with_topic_t(), most=1)
    told: list[RequestRefused | None] = []
    log.refusal = NotLeader(None, 1)
    commits.add(CommittedOffset("g", "T", 0, 1), told.append)
    assert commits.is_full
    commits.flush()
    assert told[0] is not None
    assert told[0].code == ResponseCode.SERVICE_NOT_AVAILABLE
    log.refusal = None
    commits.add(CommittedOffset("g", "T", 0, 1), told.append)
    commits.flush()
    log.finish()
    assert told[1] is None


def test_every_client_of_a_proxy_may_wait_at_one_broker() -> None:
    """A proxy has one connection to a broker. Beside it another one's pops have room."""
    assert MAX_WAITING_A_CLIENT >= MAX_CLIENTS
    assert MAX_WAITING_A_CLIENT < MAX_WAITING_REQUESTS
    pops = waiting_pops(Counts())
    request = PopRequest("g", "T", 0, 1, 1000, 1.0, False, None, False, "")
    proxy, other, command = Origin(), Origin(), Command(RequestCode.POP_MESSAGE)
    count = 0
    while pops.has_room(pop := Waiting(proxy, command, request, 1.0)):
        pops.add(pop)
        count += 1
    assert count == MAX_WAITING_A_CLIENT
    others = Waiting(other, command, request, 1.0)
    assert pops.has_room(others)
    pops.add(others)
    steps = pops.drop(proxy)
    next(steps)
    assert len(pops) == 1  # none of the others is given anything from now on
    assert pops.has_room(pop)
    assert pops.count("T", "g") >= count - 1000  # a step takes few
    assert sum(1 for _step in steps) > 100
    assert pops.count("T", "g") == 1


@pytest.mark.parametrize("taken_first", [False, True])
def test_pops_of_a_client_that_is_gone_count_for_their_user_until_they_are_dropped(
    taken_first: bool,
) -> None:
    users = Counts()
    pops = waiting_pops(users)
    request = PopRequest("g", "T", 0, 1, 1000, 1.0, False, None, False, "")
    gone = Origin()
    for _ in range(600):
        pops.add(Waiting(gone, Command(RequestCode.POP_MESSAGE), request, 1.0, "ann"))
    steps = pops.drop(gone)
    next(steps)
    assert 0 < users.of("ann") < 600
    if taken_first:  # the term ends meanwhile
        assert pops.take_all() == []
        assert users.of("ann") == 0
    assert list(steps)
    assert users.of("ann") == 0
