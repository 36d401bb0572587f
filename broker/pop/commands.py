"""The log's commands for pops.

The leader chooses the messages, by one pop of a queue at a time, because filters need the consume
queue's files. The fold gives those of them that may be given. So a message that is popped twice, or
after it was acknowledged, is given once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, NamedTuple

from broker.log.command_layout import Added, Implied, Natural
from broker.log.entry import ATTACHED_VERSION, RENEWALS_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.offsets.state import OFFSETS, OffsetMoved
from broker.pop.state import POPS, InFlight, PopQueue, PopStep, QueueKey
from broker.topics.state import TOPICS
from dledger import Entry


@dataclass(frozen=True, slots=True)
class Pop:
    """A group is given messages of a queue. Times are milliseconds since 1970.

    Attributes:
        popped_ms: the leader's wall clock.
        visible_ms: when they are given again, unless they are acknowledged.
        first: the queue's next offset before the pop; where the group begins with `begins`.
        next: the queue's next offset after it. Messages in between that are not given are unwanted.
        offsets: the given messages, ascending.
        attempt_id: of a pop in order, may be empty; None for others. A pop with one may be
            repeated.
        begins: whether the group has never popped from the queue, or was reset to `first`.
        as_of: the log position that the leader had applied.
    """

    kind: ClassVar[int] = 23
    since: ClassVar[int] = ATTACHED_VERSION

    group: str
    topic: str
    queue_id: Natural
    popped_ms: Natural
    visible_ms: Natural
    first: Natural
    next: Natural
    offsets: tuple[Natural, ...]
    attempt_id: str | None
    begins: bool
    as_of: Natural

    def __post_init__(self) -> None:
        if not self.first <= self.next or any(at >= self.next for at in self.offsets):
            raise ValueError(f"messages {self.offsets} between {self.first} and {self.next}")
        if list(self.offsets) != sorted(set(self.offsets)):
            raise ValueError(f"messages {self.offsets} out of order")

    @property
    def at_ms(self) -> int:
        return self.popped_ms

    @property
    def key(self) -> QueueKey:
        return self.group, self.topic, self.queue_id


class PoppedMessage(NamedTuple):
    """A message, by its queue, and when it was given."""

    group: str
    topic: str
    queue_id: Natural
    offset: Natural
    popped_ms: Natural

    @property
    def key(self) -> QueueKey:
        return self[:3]


@dataclass(frozen=True, slots=True)
class AckPopped:
    """Consumers acknowledge messages."""

    kind: ClassVar[int] = 24
    since: ClassVar[int] = ATTACHED_VERSION
    told: ClassVar[str] = "acknowledge popped"

    messages: Sequence[PoppedMessage]


@dataclass(frozen=True, slots=True)
class HidePopped:
    """A consumer changes the time at which a message is given again.

    Attributes:
        hidden_ms: the leader's wall clock.
        visible_ms: when it is given again.
        keeps_handle: whether all handles of this delivery stay good; False before version 8:
            `hidden_ms` becomes the pop time in the handle, and earlier handles are refused.
        is_suspended: whether this delivery counts as no attempt.
    """

    kind: ClassVar[int] = 25
    since: ClassVar[int] = ATTACHED_VERSION

    message: PoppedMessage
    hidden_ms: Natural
    visible_ms: Natural
    keeps_handle: Annotated[bool, Implied(RENEWALS_VERSION)] = False
    is_suspended: Annotated[bool, Added(RENEWALS_VERSION)] = False

    @property
    def at_ms(self) -> int:
        return self.hidden_ms


@dataclass(frozen=True, slots=True)
class BuryPopped:
    """Follows a record: it is the dead letter of a message that failed too often."""

    kind: ClassVar[int] = 26
    since: ClassVar[int] = ATTACHED_VERSION

    message: PoppedMessage


def _pop(state: BrokerState, folded: Folded, command: Pop, _entry: Entry) -> EntryRefused | None:
    pops, key = state[POPS], command.key
    if not state[TOPICS].existed(command.topic, command.as_of):
        return EntryRefused(f"a pop of topic {command.topic}, which was deleted")
    queue = pops.queues.changing(key)
    if command.begins:
        pops.drop(key)
        state[OFFSETS].end_reset(*key)
        queue = pops.queues[key] = PopQueue(command.first)
    if queue is None or queue.next_offset != command.first:
        return EntryRefused(f"a pop of {command.topic}/{command.queue_id} from {command.first}")
    is_repeated = bool(command.attempt_id) and command.attempt_id == queue.attempt_id
    in_flight = queue.in_flight
    given = InFlight(command.popped_ms, command.visible_ms, 1, command.attempt_id is not None)
    for offset in command.offsets:
        flight = in_flight.get(offset)
        if offset >= command.first:
            in_flight[offset] = given
            pops.in_flight_count += 1
        elif flight is None:
            continue  # acknowledged meanwhile
        elif flight.visible_ms <= command.popped_ms:
            is_behind = given.is_ordered and offset != command.offsets[0]
            in_flight[offset] = given._replace(
                times=flight.attempts + 1,
                behind=flight.behind + (is_behind and not flight.is_suspended),
            )
        elif is_repeated:
            in_flight[offset] = given._replace(times=flight.times, behind=flight.behind)
        else:
            continue  # another consumer has it
        folded.tell(PopStep, key, offset, "given", command.popped_ms, command.visible_ms)
    queue.next_offset = command.next
    queue.attempt_id = command.attempt_id or ""
    _commit(state, folded, key)
    return None


def _ack(
    state: BrokerState, folded: Folded, command: AckPopped, _entry: Entry
) -> EntryRefused | None:
    pops = state[POPS]
    landed: dict[QueueKey, None] = {}
    for one in command.messages:
        if pops.land(one.key, one.offset, one.popped_ms):
            landed[one.key] = None
            folded.tell(PopStep, one.key, one.offset, "acknowledged", one.popped_ms)
    for key in landed:
        _commit(state, folded, key)
    return None


def _hide(
    state: BrokerState, folded: Folded, command: HidePopped, _entry: Entry
) -> EntryRefused | None:
    message = command.message
    popped_ms = message.popped_ms if command.keeps_handle else command.hidden_ms
    hidden = (popped_ms, command.visible_ms, command.is_suspended)
    if state[POPS].hide(message.key, message.offset, message.popped_ms, hidden):
        step = (message.key, message.offset, "hidden", message.popped_ms, command.visible_ms)
        folded.tell(PopStep, *step)
    return None


def _bury(
    state: BrokerState, folded: Folded, command: BuryPopped, _entry: Entry
) -> EntryRefused | None:
    message = command.message
    if not state[POPS].bury(message.key, message.offset, message.popped_ms):
        return EntryRefused(f"the dead letter of {message.topic}, of a message that is not out")
    folded.tell(PopStep, message.key, message.offset, "buried", message.popped_ms)
    _commit(state, folded, message.key)
    return None


def _commit(state: BrokerState, folded: Folded, key: QueueKey) -> None:
    """Set the group's committed offset, for requests about it and for later pulls."""
    group, topic, queue_id = key
    queue = state[POPS].queues[key]
    table = state[OFFSETS].tables.setdefault((group, topic), {})
    folded.tell(OffsetMoved, *key, table.get(queue_id), queue.done_offset, "popped")
    table[queue_id] = queue.done_offset


POP: Final = CommandType(Pop, _pop)
ACK_POPPED: Final = CommandType(AckPopped, _ack)
HIDE_POPPED: Final = CommandType(HidePopped, _hide)
BURY_POPPED: Final = CommandType(BuryPopped, _bury, is_attached=True)
