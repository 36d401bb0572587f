"""A state machine made of named objects: dictionaries, counters, locks, queues. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

import msgpack

from dledger.changes import Changes, Path, Watchable
from dledger.entry import Entry
from dledger.machines.command import MAX_NAME_BYTES, OK, REFUSED, CommandRefused, decode_command
from dledger.queries import Answer, queries_of

# A chunk of a snapshot ends once it has this size. Its last row is at most as large as a body
# (4 MiB), so it stays far below the limit of 16 MiB.
CHUNK_BYTES = 1024 * 1024


class Replicated(Protocol):
    """One object of the state machine.

    It may mark queries (`dledger.query`). With an attribute `changes`, a `dledger.Changes`, it
    reports its changes to watches; with a method `watched` it shows them its state. Paths there
    begin after the object's name.
    """

    format: str
    name: str

    def carry_out(self, operation: str, arguments: Sequence[object], index: int) -> object:
        """Carry out the operation of the entry at `index`. It changes nothing if it raises
        CommandRefused.
        """
        ...

    def rows(self) -> Iterable[object]:
        """Return the present state as plain values; later changes do not affect them."""
        ...

    def load(self, rows: Iterator[object]) -> None:
        """Replace the state by the one in `rows`."""
        ...


@runtime_checkable
class _TellsChanges(Protocol):
    changes: Changes


class Objects:
    """A state machine of named objects, the same on every member.

        prices, visits = ReplicatedDict(), ReplicatedCounter()
        machine = Objects(prices=prices, visits=visits)

    An impossible command gets an answer, never an exception, so a foreign entry does no harm.
    """

    def __init__(self, **objects: Replicated) -> None:
        self.changes = Changes()
        for name, each in objects.items():
            if len(name.encode()) > MAX_NAME_BYTES:
                raise ValueError(f"{name!r}: a name has at most {MAX_NAME_BYTES} bytes")
            each.name = name
            if isinstance(each, _TellsChanges):
                each.changes = self.changes.under(name)
        self._objects = dict(sorted(objects.items()))

    @property
    def snapshot_format(self) -> str:
        """The formats of all objects, without their names. Adding an object changes it."""
        formats = sorted(each.format for each in self._objects.values())
        return "objects/1:" + ",".join(formats)

    def named_queries(self) -> Mapping[str, Answer]:
        """Return the queries of all objects: `prices.get` is the query `get` of the object
        `prices`.
        """
        return {
            f"{name}.{query}": method
            for name, each in self._objects.items()
            for query, method in queries_of(each).items()
        }

    def watched(self, path: Path) -> Iterator[tuple[Path, object]]:
        """Yield the present state under a path, which begins with the name of an object."""
        for name, each in self._objects.items():
            if isinstance(each, Watchable) and path[:1] in ((), (name,)):
                for below, value in each.watched(path[1:]):
                    yield (name, *below), value

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        """Carry out the commands; return one answer for each entry."""
        return [self._answer(entry) for entry in entries]

    def _answer(self, entry: Entry) -> tuple[int, object]:
        try:
            command = decode_command(entry.body)
            found = self._objects.get(command.name)
            if found is None:
                raise CommandRefused(f"there is no object {command.name!r}")
            return OK, found.carry_out(command.operation, command.arguments, entry.index)
        except CommandRefused as refusal:
            return REFUSED, refusal.reason

    def snapshot(self) -> Iterator[bytes]:
        """Yield all objects as they are now."""
        frozen = [(name, each.rows()) for name, each in self._objects.items()]
        return chain.from_iterable(_chunks(name, rows) for name, rows in frozen)

    def restore(self, chunks: Iterator[bytes]) -> None:
        """Restore the state of a snapshot. Raises ValueError if it is not of these objects."""
        rows: dict[str, list[object]] = {name: [] for name in self._objects}
        for chunk in chunks:
            unpacker = msgpack.Unpacker(strict_map_key=False, max_buffer_size=len(chunk))
            unpacker.feed(chunk)
            try:
                name, *some = unpacker
            except TypeError as error:  # a list as a key
                raise ValueError("the snapshot is not one of objects") from error
            if not isinstance(name, str) or name not in rows:
                raise ValueError(f"the snapshot holds {name!r}, which this state machine lacks")
            rows[name].extend(some)
        for name, each in self._objects.items():
            each.load(iter(rows[name]))


def _chunks(name: str, rows: Iterable[object]) -> Iterator[bytes]:
    begin: bytes = msgpack.packb(name)
    chunk = bytearray(begin)
    for row in rows:
        chunk += msgpack.packb(row)
        if len(chunk) >= CHUNK_BYTES:
            yield bytes(chunk)
            chunk = bytearray(begin)
    yield bytes(chunk)


def unknown(operation: str) -> CommandRefused:
    return CommandRefused(f"there is no operation {operation!r}: do all members run this version?")
