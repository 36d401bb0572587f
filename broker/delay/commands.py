"""The log's commands for delayed messages.

A delayed message is a record in one of RocketMQ's topics for them, followed by a `Delay`. Its
delivery is a copy in its own topic, followed by a `Deliver`. A copy of a message that does not wait
any more is refused together with its command, so each message is delivered once. No leader proposes
such a copy: it sees the deliveries of earlier leaders, and remembers its own in flight. That
matters to readers of the log alone: without its beginning, it does not show which copies were
refused.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting
from broker.log.command_layout import Natural
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.messages.record_facts import record_size
from dledger import Entry


@dataclass(frozen=True, slots=True)
class Delay:
    """Follows a record: it waits until a time, in milliseconds since 1970."""

    kind: ClassVar[int] = 10
    since: ClassVar[int] = ATTACHED_VERSION

    due_ms: Natural


@dataclass(frozen=True, slots=True)
class Deliver:
    """Follows a record: it is the copy of the message that waits at a log position."""

    kind: ClassVar[int] = 11
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural


@dataclass(frozen=True, slots=True)
class MoveDelayed:
    """Follows a record: it waits in place of the message at a log position, which
    retention drops.
    """

    kind: ClassVar[int] = 12
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural


@dataclass(frozen=True, slots=True)
class DropDelayed:
    """The message at a log position waits no longer: it was recalled, or its topic is gone."""

    kind: ClassVar[int] = 13
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural


def _delay(
    state: BrokerState, _folded: Folded, command: Delay, entry: Entry
) -> EntryRefused | None:
    row = Waiting(entry.body_pos, command.due_ms, record_size(entry.body))
    state[DELAYS].waiting.add([row])
    return None


def _deliver(
    state: BrokerState, _folded: Folded, command: Deliver, _entry: Entry
) -> EntryRefused | None:
    delays = state[DELAYS]
    if delays.waiting.remove(command.position) is None:
        return _not_waiting(command.position)
    delays.delivered += 1
    return None


def _move(
    state: BrokerState, _folded: Folded, command: MoveDelayed, entry: Entry
) -> EntryRefused | None:
    waiting = state[DELAYS].waiting
    moved = waiting.remove(command.position)
    if moved is None:
        return _not_waiting(command.position)
    waiting.add([Waiting(entry.body_pos, moved.due_ms, record_size(entry.body))])
    return None


def _drop(
    state: BrokerState, _folded: Folded, command: DropDelayed, _entry: Entry
) -> EntryRefused | None:
    delays = state[DELAYS]
    if delays.waiting.remove(command.position) is None:
        return _not_waiting(command.position)
    delays.dropped += 1
    return None


def _not_waiting(position: int) -> EntryRefused:
    return EntryRefused(f"no delayed message waits at {position}: it was delivered or recalled")


DELAY: Final = CommandType(Delay, _delay, is_attached=True)
DELIVER: Final = CommandType(Deliver, _deliver, is_attached=True)
MOVE_DELAYED: Final = CommandType(MoveDelayed, _move, is_attached=True)
DROP_DELAYED: Final = CommandType(DropDelayed, _drop)
