"""The log's command that locks queues, and gives them up."""

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
    """An ordered consumer locks queues, as far as they are free, or gives them up.

    Attributes:
        group: the consumer group.
        client_id: the consumer.
        is_lock: whether it locks them; else it gives them up.
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
        """As in `command_layout`."""
        return self.time_ms


def _lock(
    state: BrokerState, _folded: Folded, command: LockQueues, _entry: Entry
) -> EntryRefused | None:
    locks = state[LOCKS]
    change = locks.lock if command.is_lock else locks.unlock
    change(command.group, command.client_id, command.queues, command.time_ms)
    return None


LOCK_QUEUES: Final = CommandType(LockQueues, _lock)
