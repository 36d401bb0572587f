"""A state machine with queries and changes, and a group of one that runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgpack

import dledger
from dledger.changes import Path as WatchedPath
from dledger.client.node_connection import NodeConnection, connect_node
from dledger.wire.query_protocol import Queried, Query, decode_queried, encode_query
from dledger.wire.watch_protocol import Watch, Watched, decode_watched, encode_watch
from tests.dledger.running_members import lone


class Books:
    """Keeps values by names: `name=value` puts one, `name` removes it, `a=1&b=2` does both."""

    snapshot_format = "books/1"

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.changes = dledger.Changes()
        self.asked = 0

    def apply(self, entries: Sequence[dledger.Entry]) -> Sequence[object]:
        for entry in entries:
            for part in entry.body.decode().split("&"):
                name, _, value = part.partition("=")
                self.put(entry.index, name, value)
        return [len(self.values)] * len(entries)

    def put(self, index: int, name: str, value: str) -> None:
        if value:
            self.values[name] = value
            self.changes.set(index, ("books", name), value)
        elif self.values.pop(name, None) is not None:
            self.changes.delete(index, ("books", name))

    def snapshot(self) -> Iterable[bytes]:
        return [msgpack.packb(self.values)]

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.values = msgpack.unpackb(b"".join(chunks))

    @dledger.query
    def get(self, name: str, default: object = None) -> object:
        self.asked += 1
        return self.values.get(name, default)

    @dledger.query
    def echo(self, *values: object) -> object:
        return values

    @dledger.query
    def breaks(self) -> None:
        raise LookupError("x" * 5_000)

    @dledger.query
    def large(self, size: int) -> bytes:
        return bytes(size)

    @dledger.query
    def odd(self) -> object:
        return object()


class Shelf(Books):
    """The same, which also shows its state."""

    def watched(self, path: WatchedPath) -> Iterable[tuple[WatchedPath, object]]:
        whole = [(("books", name), value) for name, value in self.values.items()]
        return [(each, value) for each, value in whole if each[: len(path)] == path]


@asynccontextmanager
async def running(
    folder: Path, machine: dledger.StateMachine, **settings: object
) -> AsyncIterator[dledger.Node]:
    """A group of one."""
    async with dledger.open_node(lone(folder, **settings), machine) as node:
        await node.read()
        yield node


@asynccontextmanager
async def connected(node: dledger.Node) -> AsyncIterator[NodeConnection]:
    """A client's connection to one member."""
    async with connect_node("g", node.config.node_id, node.config.address) as connection:
        yield connection


async def ask(connection: NodeConnection, query: Query) -> Queried:
    """One query of this very member."""
    return decode_queried(*await connection.ask(*encode_query(query)))


async def watch(
    connection: NodeConnection, *path: str, after: int | None = None, wait_ms: int = 0
) -> Watched:
    """One question for changes."""
    asked = Watch(path, after, wait_ms)
    return decode_watched(asked, *await connection.ask(*encode_watch(asked)))
