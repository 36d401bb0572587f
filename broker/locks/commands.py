"""The log's command that locks and unlocks queues."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from broker.locks.state import LOCKS
from broker.log.command_layout import Told
from broker.log.folded import EntryRefused, Folded
from broker.log.state import BrokerState, CommandType
from dledger import Entry


@dataclass(frozen=True, slots=True)
class LockQueues:
    """An ordered consumer locks those queues that are free, or unlocks queues.

    Attributes:
        is_lock: whether it locks them.
        time_ms: the log's time for locks, see `broker.locks.state`.
        queues: topic and queue id of each.
    """

    kind: ClassVar[int] = 7

    group: str
    client_id: str
    is_lock: bool
    time_ms: int
    queues: Annotated[Sequence[tuple[str, int]], Told(("topic", "queue"))]

    @property
    def at_ms(self) -> int:
        return self.time_ms


def _lock(
    state: BrokerState, _folded: Folded, command: LockQueues, _entry: Entry
) -> EntryRefused | None:
    locks = state[LOCKS]
    change = locks.lock if command.is_lock else locks.unlock
    change(command.group, command.client_id, command.queues, command.time_ms)
    return None


LOCK_QUEUES: Final = CommandType(LockQueues, _lock)
