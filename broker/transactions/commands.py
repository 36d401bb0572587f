"""The log's commands for transactions.

A half message is a record in RocketMQ's topic for them, followed by a `Prepare`. A commit is one
entry: the message in its own topic, followed by a `Commit`, so that it exists exactly once. A copy
with a `Commit` of a transaction that has ended is refused; no leader proposes one, as with delayed
messages.
"""

from dataclasses import dataclass
from typing import ClassVar, Final

from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting
from broker.log.command_layout import Natural
from broker.log.entry import ATTACHED_VERSION
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from broker.messages.record_facts import read_record_facts, record_size
from broker.transactions.state import MAX_ENDS, TRANSACTIONS, End, Half, TransactionChecked
from dledger import Entry


@dataclass(frozen=True, slots=True)
class Prepare:
    """Follows a record: it waits for the end of a transaction.

    `due_ms`: when its producers are checked, if it has not ended before.
    """

    kind: ClassVar[int] = 14
    since: ClassVar[int] = ATTACHED_VERSION

    group: str
    due_ms: Natural


@dataclass(frozen=True, slots=True)
class Commit:
    """Follows a record: it is the message of the transaction at a log position.

    `due_ms`: until when it is delayed; 0 for no delay.
    """

    kind: ClassVar[int] = 15
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural
    due_ms: Natural = 0


@dataclass(frozen=True, slots=True)
class Rollback:
    """The transaction at a log position is rolled back: its message is never delivered."""

    kind: ClassVar[int] = 16
    since: ClassVar[int] = ATTACHED_VERSION
    told: ClassVar[str] = "roll back"

    position: Natural


@dataclass(frozen=True, slots=True)
class Checked:
    """The producers of some transactions are asked how they end, and again at `due_ms`."""

    kind: ClassVar[int] = 17
    since: ClassVar[int] = ATTACHED_VERSION

    due_ms: Natural
    positions: tuple[Natural, ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Follows a record: the message of the transaction at a log position, which never ended."""

    kind: ClassVar[int] = 18
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural


@dataclass(frozen=True, slots=True)
class MoveHalf:
    """Follows a record: it is the half message of a transaction, from where retention drops it."""

    kind: ClassVar[int] = 19
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural


@dataclass(frozen=True, slots=True)
class Resume:
    """Follows a record: it waits once more for its transaction, which was given up.

    Attributes:
        position: of the message among those given up.
        due_ms: when its producers are checked.
    """

    kind: ClassVar[int] = 31
    since: ClassVar[int] = ATTACHED_VERSION

    position: Natural
    group: str
    due_ms: Natural


def _prepare(
    state: BrokerState, _folded: Folded, command: Prepare, entry: Entry
) -> EntryRefused | None:
    facts = read_record_facts(entry.body)
    if facts is None:
        return EntryRefused("a half message that cannot be read")
    half = Half(
        command.group,
        entry.body_pos,
        facts.size,
        facts.queue_offset,
        facts.store_timestamp_ms,
        command.due_ms,
    )
    state[TRANSACTIONS].put(entry.body_pos, half)
    return None


def _resume(
    state: BrokerState, folded: Folded, command: Resume, entry: Entry
) -> EntryRefused | None:
    resumed = state[TRANSACTIONS].resumed
    if command.position in resumed:
        return EntryRefused(f"the transaction given up at {command.position} is open again")
    refused = _prepare(state, folded, Prepare(command.group, command.due_ms), entry)
    if refused is None:
        resumed[command.position] = None
        if len(resumed) > MAX_ENDS:
            resumed.popitem(last=False)
    return refused


def _commit(
    state: BrokerState, _folded: Folded, command: Commit, entry: Entry
) -> EntryRefused | None:
    if state[TRANSACTIONS].end(command.position, End.COMMITTED) is None:
        return _not_open(command.position)
    if command.due_ms:
        row = Waiting(entry.body_pos, command.due_ms, record_size(entry.body))
        state[DELAYS].waiting.add([row])
    return None


def _rollback(
    state: BrokerState, _folded: Folded, command: Rollback, _entry: Entry
) -> EntryRefused | None:
    ended = state[TRANSACTIONS].end(command.position, End.ROLLED_BACK)
    return _not_open(command.position) if ended is None else None


def _give_up(
    state: BrokerState, _folded: Folded, command: GiveUp, _entry: Entry
) -> EntryRefused | None:
    ended = state[TRANSACTIONS].end(command.position, End.GIVEN_UP)
    return _not_open(command.position) if ended is None else None


def _check(
    state: BrokerState, folded: Folded, command: Checked, _entry: Entry
) -> EntryRefused | None:
    transactions = state[TRANSACTIONS]
    for position in command.positions:
        half = transactions.halves.get(position)
        if half is not None:  # it has not ended meanwhile
            again = half._replace(due_ms=command.due_ms, checks=half.checks + 1)
            transactions.put(position, again)
            folded.tell(TransactionChecked, position)
    return None


def _move(
    state: BrokerState, _folded: Folded, command: MoveHalf, entry: Entry
) -> EntryRefused | None:
    halves = state[TRANSACTIONS].halves
    half = halves.get(command.position)
    if half is None:
        return _not_open(command.position)
    halves[command.position] = half._replace(at=entry.body_pos, size=record_size(entry.body))
    return None


def _not_open(position: int) -> EntryRefused:
    return EntryRefused(f"no transaction is open whose message was stored at {position}")


PREPARE: Final = CommandType(Prepare, _prepare, is_attached=True)
COMMIT: Final = CommandType(Commit, _commit, is_attached=True)
ROLLBACK: Final = CommandType(Rollback, _rollback)
CHECKED: Final = CommandType(Checked, _check)
GIVE_UP: Final = CommandType(GiveUp, _give_up, is_attached=True)
MOVE_HALF: Final = CommandType(MoveHalf, _move, is_attached=True)
RESUME: Final = CommandType(Resume, _resume, is_attached=True)
