"""The log's commands for lite topics.

A message of a lite topic is a record of its parent, followed by a `PutLite`. As with other pops the
leader chooses what a group is given, and the fold gives those messages that may be given.
"""

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

from broker.lite import rows
from broker.lite.names import is_lite_name
from broker.lite.state import LITE, Lite, LiteGroup, LiteParent
from broker.log.command_layout import Form, Natural, text
from broker.log.entry import LITE_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.messages.record_facts import read_record_facts
from broker.messages.state import MESSAGES
from broker.pop.state import InFlight, PopQueue
from broker.topics.state import TOPICS
from dledger import Entry


def _name(value: object) -> str:
    """Check the name of a lite topic. Raises TypeError, ValueError."""
    name = text(value)
    if not is_lite_name(name):
        raise ValueError(f"{name!r:.80} is no lite topic")
    return name


LiteName = Annotated[str, Form(_name)]


@dataclass(frozen=True, slots=True)
class PutLite:
    """Follows a record: it is the next message of a lite topic.

    `max_topics`, `max_messages`: no lite topic is made, and no message taken, if there are as many.
    """

    kind: ClassVar[int] = 40
    since: ClassVar[int] = LITE_VERSION

    lite_topic: LiteName
    max_topics: Natural
    max_messages: Natural


class LiteGiven(NamedTuple):
    """What a group is given of one lite topic.

    Attributes:
        first: the next offset before the pop; where the group begins with `begins`.
        next: the next offset after it.
        again: how many of the messages in flight are given again.
        begins: whether the group has no offset that counts.
    """

    lite_topic: LiteName
    first: Natural
    next: Natural
    again: Natural
    begins: bool


@dataclass(frozen=True, slots=True)
class PopLite:
    """A group is given messages of lite topics, in order. Times are milliseconds since 1970.

    Attributes:
        popped_ms: the leader's wall clock.
        visible_ms: when they are given again, unless they are acknowledged.
        attempt_id: a pop with the same one may be repeated; may be empty.
        as_of: the log position that the leader had applied.
    """

    kind: ClassVar[int] = 41
    since: ClassVar[int] = LITE_VERSION

    group: str
    parent: str
    popped_ms: Natural
    visible_ms: Natural
    attempt_id: str
    given: Sequence[LiteGiven]
    as_of: Natural

    @property
    def at_ms(self) -> int:
        return self.popped_ms


class LiteMessage(NamedTuple):
    """A message of a lite topic, and when a group was given it."""

    group: str
    parent: str
    lite_topic: LiteName
    offset: Natural
    popped_ms: Natural


@dataclass(frozen=True, slots=True)
class AckLite:
    """Consumers acknowledge messages of lite topics."""

    kind: ClassVar[int] = 42
    since: ClassVar[int] = LITE_VERSION

    messages: Sequence[LiteMessage]


@dataclass(frozen=True, slots=True)
class HideLite:
    """A consumer changes the time at which a message is given again.

    Attributes:
        hidden_ms: the leader's wall clock.
        is_suspended: all messages that were given with it come at that time, and the delivery of
            none counts as an attempt.
    """

    kind: ClassVar[int] = 43
    since: ClassVar[int] = LITE_VERSION

    message: LiteMessage
    hidden_ms: Natural
    visible_ms: Natural
    is_suspended: bool

    @property
    def at_ms(self) -> int:
        return self.hidden_ms


@dataclass(frozen=True, slots=True)
class ResetLite:
    """A group goes on from these offsets of lite topics; what it has in flight is taken back."""

    kind: ClassVar[int] = 44
    since: ClassVar[int] = LITE_VERSION

    group: str
    parent: str
    offsets: Sequence[tuple[LiteName, Natural]]
    at_ms: Natural


@dataclass(frozen=True, slots=True)
class EndLite:
    """Lite topics end whose last message is older than a time, or lies before a log position."""

    kind: ClassVar[int] = 45
    since: ClassVar[int] = LITE_VERSION

    parent: str
    lite_topics: Sequence[LiteName]
    before_ms: Natural
    before_position: Natural
    at_ms: Natural


def _put(state: BrokerState, folded: Folded, command: PutLite, entry: Entry) -> EntryRefused | None:
    lite = state[LITE]
    facts = read_record_facts(entry.body)
    if facts is None:
        return EntryRefused("a record that cannot be read")
    parent, at_ms, name = facts.topic, facts.store_timestamp_ms, command.lite_topic.encode()
    if lite.message_count >= command.max_messages:
        return EntryRefused(f"lite topics have {lite.message_count} messages: end some")
    row = lite.row(parent, name)
    if row is None:
        if lite.topic_count >= command.max_topics:
            return EntryRefused(f"there are {lite.topic_count} lite topics: end some")
        new, known = rows.first_row(entry.body_pos, at_ms), 0
        lite.topic_count += 1
    else:
        new = rows.appended(row, entry.body_pos, at_ms, state[MESSAGES].kept_position)
        known = rows.count(row)
    of = lite.parents.get(parent)
    if of is None:
        of = lite.parents[parent] = LiteParent()
    lite.count_messages(of, rows.count(new) - known)
    of.topics.put(name, new)
    folded.lite_arrivals.append((parent, name))
    lite.sweep()
    return None


def _pop(
    state: BrokerState, _folded: Folded, command: PopLite, _entry: Entry
) -> EntryRefused | None:
    lite = state[LITE]
    if not state[TOPICS].existed(command.parent, command.as_of):
        return EntryRefused(f"a pop of topic {command.parent}, which was deleted")
    of = lite.parents.get(command.parent)
    if of is None:
        return EntryRefused(f"a pop of {command.parent}, which has no lite topics")
    group = of.groups.get(command.group)
    if group is None:
        group = of.groups[command.group] = LiteGroup()
    for one in command.given:
        row = of.topics.get(one.lite_topic.encode())
        if row is not None and one.first <= one.next <= rows.end(row):
            _give(lite, group, command, one)
    lite.sweep()
    return None


def _give(lite: Lite, group: LiteGroup, command: PopLite, given: LiteGiven) -> None:
    """Give a group messages of one lite topic, if none of those in flight are another's."""
    name = given.lite_topic.encode()
    old = group.out.get(name)
    popped_ms = command.popped_ms
    if old is None:
        if given.again or not (given.begins or group.done.get(name) == given.first):
            return
        queue = PopQueue(given.first)
    else:
        repeated = bool(command.attempt_id) and command.attempt_id == old.attempt_id
        if given.begins or given.first != old.next_offset:
            return
        flights = old.in_flight.values()
        if not repeated and any(one.visible_ms > popped_ms for one in flights):
            return
        if any(one.popped_ms >= popped_ms for one in flights):
            return  # each delivery has a handle of its own
        queue = copy(old)
        for number, offset in enumerate([*queue.in_flight][: given.again]):
            flight = queue.in_flight[offset]
            is_due = flight.visible_ms <= popped_ms
            queue.in_flight[offset] = InFlight(
                popped_ms,
                command.visible_ms,
                flight.attempts + 1 if is_due else flight.times,
                True,
                flight.behind + (is_due and number > 0 and not flight.is_suspended),
            )
    new = InFlight(popped_ms, command.visible_ms, 1, True)
    queue.in_flight.update(dict.fromkeys(range(given.first, given.next), new))
    if not queue.in_flight:
        return
    before = 0 if old is None else len(old.in_flight)
    lite.count_in_flight(group, len(queue.in_flight) - before)
    queue.next_offset, queue.attempt_id = given.next, command.attempt_id
    group.out.set(name, queue)
    group.done.set(name, queue.done_offset)


def _ack(
    state: BrokerState, _folded: Folded, command: AckLite, _entry: Entry
) -> EntryRefused | None:
    lite = state[LITE]
    for one in command.messages:
        group = lite.group(one.group, one.parent)
        name = one.lite_topic.encode()
        queue = None if group is None else group.out.get(name)
        if group is None or queue is None or not queue.has(one.offset, one.popped_ms):
            continue
        queue = copy(queue)
        lite.count_in_flight(group, -queue.land(one.offset))
        group.done.set(name, queue.done_offset)
        if queue.in_flight:
            group.out.set(name, queue)
        else:
            group.out.pop(name)
    lite.sweep()
    return None


def _hide(
    state: BrokerState, _folded: Folded, command: HideLite, _entry: Entry
) -> EntryRefused | None:
    message = command.message
    group = state[LITE].group(message.group, message.parent)
    name = message.lite_topic.encode()
    queue = None if group is None else group.out.get(name)
    if group is None or queue is None or not queue.has(message.offset, message.popped_ms):
        return None
    if queue.in_flight[message.offset].is_settled:
        return None
    queue = copy(queue)
    group.out.set(name, queue)
    offsets: Iterable[int] = [message.offset]
    if command.is_suspended:
        offsets = [
            at
            for at, one in queue.in_flight.items()
            if one.popped_ms == message.popped_ms and not one.is_settled
        ]
    for at in offsets:
        queue.in_flight[at] = queue.in_flight[at]._replace(
            visible_ms=command.visible_ms, is_suspended=command.is_suspended
        )
    return None


def _reset(
    state: BrokerState, _folded: Folded, command: ResetLite, _entry: Entry
) -> EntryRefused | None:
    lite = state[LITE]
    of = lite.parents.get(command.parent)
    if of is None:
        return None
    group = of.groups.get(command.group)
    if group is None:
        group = of.groups[command.group] = LiteGroup()
    for lite_topic, offset in command.offsets:
        name = lite_topic.encode()
        row = of.topics.get(name)
        if row is None:
            continue
        queue = group.out.pop(name)
        if queue is not None:
            lite.count_in_flight(group, -len(queue.in_flight))
        group.done.set(name, min(max(offset, rows.known_from(row)), rows.end(row)))
    return None


def _end(
    state: BrokerState, _folded: Folded, command: EndLite, _entry: Entry
) -> EntryRefused | None:
    lite = state[LITE]
    for lite_topic in command.lite_topics:
        name = lite_topic.encode()
        row = lite.row(command.parent, name)
        if row is not None and (
            rows.last_ms(row) < command.before_ms
            or rows.last_position(row) < command.before_position
        ):
            lite.end_topic(command.parent, name)
    lite.sweep()
    return None


PUT_LITE: Final = CommandType(PutLite, _put, is_attached=True)
POP_LITE: Final = CommandType(PopLite, _pop)
ACK_LITE: Final = CommandType(AckLite, _ack)
HIDE_LITE: Final = CommandType(HideLite, _hide)
RESET_LITE: Final = CommandType(ResetLite, _reset)
END_LITE: Final = CommandType(EndLite, _end)
