"""The progress of each consumer group."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from broker.log.belongings import Belongings
from broker.log.state import Deletion, Rows, StatePart
from broker.offsets.begun_resets import BegunResets


class OffsetMoved(NamedTuple):
    """The offset of a group in a queue has changed.

    Attributes:
        before: the old offset; None without one.
        offset: of the next message that the group wants.
        source: "committed", "popped", or "reset" by an operator.
    """

    group: str
    topic: str
    queue_id: int
    before: int | None
    offset: int
    source: str


@dataclass(slots=True)
class Offsets:
    """Committed offsets and resets.

    Attributes:
        tables: by (group, topic): queue id -> offset of the next message.
        resets: in the same form, offsets to which an operator has reset a group, and at which it
            has not read yet. Commits of other offsets are from before the reset and do not count.
        began: when groups began to read after recent resets, since version 6.
        resets_made: the number of resets.
    """

    tables: Belongings[tuple[str, str], dict[int, int]] = field(default_factory=Belongings)
    resets: Belongings[tuple[str, str], dict[int, int]] = field(default_factory=Belongings)
    began: BegunResets = field(default_factory=BegunResets)
    resets_made: int = 0

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset of the next message for the group; None if it never committed one."""
        table = self.tables.get((group, topic))
        return None if table is None else table.get(queue_id)

    def reset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Return the offset that an operator has reset the group to, until it reads there."""
        table = self.resets.get((group, topic))
        return None if table is None else table.get(queue_id)

    def end_reset(self, group: str, topic: str, queue_id: int) -> None:
        table = self.resets.changing((group, topic))
        if table is None:
            return
        table.pop(queue_id, None)
        if not table:
            del self.resets[group, topic]


def _topic_deleted(offsets: Offsets, deletion: Deletion) -> None:
    offsets.tables.drop_topic(deletion.name)
    offsets.resets.drop_topic(deletion.name)
    offsets.began.drop_topic(deletion.name)


def _group_deleted(offsets: Offsets, deletion: Deletion) -> None:
    if deletion.with_offsets:
        offsets.tables.drop_group(deletion.name)
        offsets.resets.drop_group(deletion.name)
        offsets.began.drop_group(deletion.name)


def _tables(
    what: str, of: Callable[[Offsets], Belongings[tuple[str, str], dict[int, int]]]
) -> Rows[Offsets]:
    def captured(offsets: Offsets) -> Iterator[object]:
        return ([*key, table] for key, table in of(offsets).captured())

    def take(offsets: Offsets, rows: list[Any]) -> None:
        of(offsets).update(((group, topic), table) for group, topic, table in rows)

    return Rows(what, captured, take)


def _captured_began(offsets: Offsets) -> Iterator[object]:
    return ([*key, began_ms] for key, began_ms in offsets.began.captured())


def _take_began(offsets: Offsets, rows: list[Any]) -> None:
    for group, topic, queue_id, began_ms in rows:
        offsets.began.put((str(group), str(topic), int(queue_id)), int(began_ms))


OFFSETS: Final = StatePart(
    "offsets",
    Offsets,
    numbers=("resets_made",),
    rows=(
        _tables("offsets", lambda offsets: offsets.tables),
        _tables("resets", lambda offsets: offsets.resets),
        Rows("begun resets", _captured_began, _take_began),
    ),
    topic_deleted=_topic_deleted,
    group_deleted=_group_deleted,
)
