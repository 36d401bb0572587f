"""Lite topics, and how far groups have come in each.

A lite topic takes a few hundred bytes: a row of positions, and an offset for each group that reads
it. Only messages in flight take more.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from broker.lite.names import is_lite_name
from broker.lite.rows import Row, count, read_row
from broker.lite.table import AnyTable, LiteTable
from broker.log.command_layout import natural
from broker.log.state import Deletion, Rows, StatePart
from broker.pop.state import PopQueue, captured_flights, read_flights
from remoting.bodies.pieces import pieces

V = TypeVar("V")


@dataclass(slots=True)
class LiteGroup:
    """How far a consumer group has come in the lite topics of one parent.

    Attributes:
        done: the offset before which all messages are acknowledged, by lite topic.
        out: lite topics with messages in flight. The values are replaced, and never changed.
        in_flight_count: these messages.
    """

    done: LiteTable[int] = field(default_factory=LiteTable)
    out: LiteTable[PopQueue] = field(default_factory=LiteTable)
    in_flight_count: int = 0


@dataclass(slots=True)
class LiteParent:
    """A topic with lite topics.

    Attributes:
        topics: by name; those with the oldest last message come first in each shard.
        message_count: messages that their rows know.
        groups: by name.
    """

    topics: LiteTable[Row] = field(default_factory=LiteTable)
    message_count: int = 0
    groups: dict[str, LiteGroup] = field(default_factory=dict)


@dataclass(slots=True)
class Lite:
    """All lite topics. Only the fold changes them.

    Attributes:
        parents: by name of the parent topic.
        topic_count: lite topics of all parents.
        message_count: messages of all parents.
        in_flight_count: messages in flight of all groups.
        ended: tables of deleted topics and groups, which are freed shard by shard.
    """

    parents: dict[str, LiteParent] = field(default_factory=dict)
    topic_count: int = 0
    message_count: int = 0
    in_flight_count: int = 0
    ended: list[AnyTable] = field(default_factory=list, compare=False)

    def row(self, parent: str, name: bytes) -> Row | None:
        found = self.parents.get(parent)
        return None if found is None else found.topics.get(name)

    def group(self, group: str, parent: str) -> LiteGroup | None:
        found = self.parents.get(parent)
        return None if found is None else found.groups.get(group)

    def queue(self, group: str, parent: str, name: bytes) -> PopQueue | None:
        found = self.group(group, parent)
        return None if found is None else found.out.get(name)

    def done(self, group: str, parent: str, name: bytes) -> int | None:
        found = self.group(group, parent)
        return None if found is None else found.done.get(name)

    def count_in_flight(self, group: LiteGroup, more: int) -> None:
        group.in_flight_count += more
        self.in_flight_count += more

    def count_messages(self, of: LiteParent, more: int) -> None:
        of.message_count += more
        self.message_count += more

    def end_topic(self, parent: str, name: bytes) -> None:
        """Forget a lite topic, and what groups have of it."""
        of = self.parents[parent]
        row = of.topics.pop(name)
        if row is None:
            return
        self.topic_count -= 1
        self.count_messages(of, -count(row))
        for group in of.groups.values():
            group.done.pop(name)
            queue = group.out.pop(name)
            if queue is not None:
                self.count_in_flight(group, -len(queue.in_flight))
        if not of.topics:
            self._bury(parent)

    def drop_parent(self, parent: str) -> None:
        of = self.parents.get(parent)
        if of is None:
            return
        self.topic_count -= len(of.topics)
        self.message_count -= of.message_count
        for group in of.groups.values():
            self._drop_group(group)
        self._bury(parent)

    def drop_group(self, name: str, *, with_offsets: bool) -> None:
        for of in self.parents.values():
            group = of.groups.get(name)
            if group is None:
                continue
            self._drop_group(group)
            if with_offsets:
                self.ended.append(group.done)
                del of.groups[name]

    def sweep(self) -> None:
        """Free a little of what was deleted."""
        while self.ended and not self.ended[-1].take_shard():
            self.ended.pop()

    def _drop_group(self, group: LiteGroup) -> None:
        self.count_in_flight(group, -group.in_flight_count)
        self.ended.append(group.out)
        group.out = LiteTable()

    def _bury(self, parent: str) -> None:
        of = self.parents.pop(parent)
        self.ended += [of.topics, *[group.done for group in of.groups.values()]]


_ROWS_TOGETHER: Final = 1000


def _together(head: Sequence[object], shards: Iterable[dict[bytes, Any]]) -> Iterator[object]:
    """Yield rows of many names each: most of a row of one would be the names of others."""
    for shard in shards:
        for some in pieces(shard.items(), _ROWS_TOGETHER):
            names, values = zip(*some, strict=True)
            yield [*head, list(names), list(values)]


def _captured_topics(lite: Lite) -> Iterator[object]:
    taken = [([name], of.topics.captured()) for name, of in lite.parents.items()]
    return (row for head, shards in taken for row in _together(head, shards))


def _groups(lite: Lite) -> Iterator[tuple[str, str, LiteGroup]]:
    for parent, of in lite.parents.items():
        for name, group in of.groups.items():
            yield name, parent, group


def _captured_offsets(lite: Lite) -> Iterator[object]:
    taken = [([name, parent], group.done.captured()) for name, parent, group in _groups(lite)]
    return (row for head, shards in taken for row in _together(head, shards))


def _captured_pops(lite: Lite) -> Iterator[object]:
    taken = [(group, parent, of.out.captured()) for group, parent, of in _groups(lite)]
    return (
        [group, parent, name, queue.next_offset, queue.attempt_id, captured_flights(queue)]
        for group, parent, shards in taken
        for shard in shards
        for name, queue in shard.items()
    )


def _name(name: object) -> bytes:
    if not isinstance(name, bytes) or not is_lite_name(name.decode()):
        raise ValueError(f"{name!r:.80} is no lite topic")
    return name


def _take_topics(lite: Lite, rows: list[Any]) -> None:
    for parent, names, values in rows:
        of = lite.parents.setdefault(str(parent), LiteParent())
        for name, row in zip(names, map(read_row, values), strict=True):
            of.topics.put(_name(name), row)
            lite.topic_count += 1
            lite.count_messages(of, count(row))


def _group(lite: Lite, group: object, parent: object) -> LiteGroup:
    of = lite.parents.setdefault(str(parent), LiteParent())
    return of.groups.setdefault(str(group), LiteGroup())


def _take_offsets(lite: Lite, rows: list[Any]) -> None:
    for group, parent, names, offsets in rows:
        done = _group(lite, group, parent).done
        for name, offset in zip(names, offsets, strict=True):
            done.put(_name(name), natural(offset))


def _take_pops(lite: Lite, rows: list[Any]) -> None:
    for group, parent, name, next_offset, attempt_id, flights in rows:
        queue = PopQueue(natural(next_offset), read_flights(flights), str(attempt_id))
        of = _group(lite, group, parent)
        of.out.put(_name(name), queue)
        lite.count_in_flight(of, len(queue.in_flight))


def _group_deleted(lite: Lite, deletion: Deletion) -> None:
    lite.drop_group(deletion.name, with_offsets=deletion.with_offsets)


LITE: Final = StatePart(
    "lite",
    Lite,
    rows=(
        Rows("lite topics", _captured_topics, _take_topics),
        Rows("lite offsets", _captured_offsets, _take_offsets),
        Rows("lite pops", _captured_pops, _take_pops),
    ),
    topic_deleted=lambda lite, deletion: lite.drop_parent(deletion.name),
    group_deleted=_group_deleted,
)
