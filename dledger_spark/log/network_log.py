"""A log that is read over the network, from the members of a running group.

It uses the library's client (docs/client-of-the-log.md). A task has one connection at a time, and
at most `CHUNK_BYTES` of the log in memory. It asks a follower, if one answers, so that readers do
not slow down appends. Entries have no sums over the network: the columns `chain_crc` and `body_crc`
are 0, "not set".
"""

from __future__ import annotations

import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import trio

from dledger import (
    ConfigInvalid,
    DLedgerError,
    Entry,
    GroupUnreachable,
    OutsideLog,
    RemoteLog,
    TlsConfig,
    connect,
    read_credentials,
)
from dledger_spark.entries.entry_columns import HEADER_BYTES
from dledger_spark.errors import DataLost, GroupUnavailable, OptionInvalid, RangeUnavailable
from dledger_spark.log.left_out import LeftOut
from dledger_spark.log.log_range import END, MAX_PIECES, START_THERE, index_option
from dledger_spark.log.mark import NO_CHAIN, UNKNOWN, Mark
from dledger_spark.log.queued_entries import QueuedEntries
from dledger_spark.schema import ENTRY_SCHEMA

# The part of the log that a task holds in memory; each part has a connection of its own, at little
# cost.
CHUNK_BYTES: Final = 8 * 1024 * 1024
# A task with a limit reads smaller parts, so that it does not read a minute's bytes in one second.
MIN_CHUNK_BYTES: Final = 64 * 1024
# How long a call waits for a member that answers.
TIMEOUT_S: Final = 20.0
# How long it waits for one member before it asks all of them.
READER_S: Final = 3.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class NetworkOrigin:
    """The members of a group ("host:port" or "name=host:port"), and how a task reads from them.

    `readers` are the followers when the query began. The limit of bytes is each task's.
    """

    group: str
    addresses: tuple[str, ...]
    readers: tuple[str, ...] = ()
    tls: TlsConfig | None = None
    credentials: Path | None = None
    max_bytes_per_second: int | None = None

    def open(self) -> NetworkLog:
        """Return the log for a task, which knows what to read, without asking the group."""
        return NetworkLog(self, 0, None)


class ReadPace:
    """Spreads reads over time, so that they stay below a number of bytes a second on average.

    Each read delays the next one; time without reads is not saved up.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._free_at_s = 0.0

    def read(self, count: int, began_s: float) -> None:
        """Record a read of `count` bytes that began at this time of the clock."""
        self._free_at_s = max(self._free_at_s, began_s) + count / self._bytes_per_second

    def wait_s(self, now_s: float) -> float:
        return max(0.0, self._free_at_s - now_s)


def open_group(
    addresses: Sequence[str],
    group: str,
    *,
    tls: TlsConfig | None = None,
    credentials: Path | None = None,
    max_bytes_per_second: int | None = None,
) -> NetworkLog:
    """Ask a group which entries it has, and who leads.

    `addresses` are "host:port" or "name=host:port" of some members; TLS needs the names. The limit
    of bytes is that of each task that reads the log.

    Raises:
        GroupUnavailable: no leader answered.
        OptionInvalid: an address is malformed, or a file of TLS cannot be used.
    """
    given = NetworkOrigin(
        group,
        tuple(addresses),
        tls=tls,
        credentials=credentials,
        max_bytes_per_second=max_bytes_per_second,
    )
    status = _run(partial(_status, given), given)
    leader = status["leader"]
    named = any("=" in address for address in addresses)
    members = {
        name: f"{name}={address}" if named else address
        for name, address in sorted(status["members"]["addresses"].items())
    }
    known = [one for one in addresses if one.partition("=")[0] not in members]
    origin = replace(
        given,
        addresses=tuple(dict.fromkeys((*members.values(), *known))),
        readers=tuple(address for name, address in members.items() if name != leader),
    )
    return NetworkLog(origin, status["first_index"], min(status["committed"], status["durable"]))


@dataclass(frozen=True, slots=True)
class NetworkLog:
    """See `readable_log.ReadableLog`. `committed` is the leader's commit index; None in a task."""

    origin: NetworkOrigin
    first_index: int
    committed: int | None

    @property
    def name(self) -> str:
        return _name(self.origin)

    @property
    def group(self) -> str:
        return self.origin.group

    @property
    def unrecorded(self) -> int:
        """0: the leader knows the commit index."""
        return 0

    @property
    def is_judged_whole(self) -> bool:
        """True: a log that Java began must be read from a folder, which records it."""
        return True

    def resolve(self, first: str | int | None, last: str | int | None) -> range:
        """See `ReadableLog.resolve`. The only end is the committed one."""
        begin = self.first_index if first is None else index_option("from", first)
        committed = -1 if self.committed is None else self.committed
        if isinstance(last, str) and last.lower() == END:
            raise OptionInvalid("to", last, "over the network there are committed entries only")
        end = committed if last is None else index_option("to", last)
        if end > committed:
            problem = f"committed is {committed}; ask for less"
            raise RangeUnavailable(self.name, begin, end, problem)
        if begin <= end and begin < self.first_index:
            problem = f"the first entry kept is {self.first_index}; {START_THERE}"
            raise RangeUnavailable(self.name, begin, end, problem)
        return range(begin, max(begin, end + 1))

    def parts(self, entries: range, *, fail_on_data_loss: bool) -> list[range]:
        """Return the whole range: a group that does not have an entry answers so when it is
        read.
        """
        if entries.start >= self.first_index or not entries:
            return [entries] if entries else []
        if fail_on_data_loss:
            problem = f"{self.name} now begins with {self.first_index}"
            last = min(entries.stop, self.first_index) - 1
            raise DataLost(problem, entries.start, last, "read a copy that has them")
        return [range(self.first_index, entries.stop)] if entries.stop > self.first_index else []

    def unreadable(self, entries: range) -> list[LeftOut]:
        """Return what the group no longer keeps; each member checks its own files."""
        gone = range(entries.start, min(entries.stop, self.first_index))
        problem = f"{self.name} now begins with {self.first_index}"
        return [LeftOut(gone.start, gone.stop - 1, problem)] if gone else []

    def share_out(self, entries: range, piece_bytes: int, min_pieces: int) -> list[range]:
        """Split into ranges with equally many entries, of about `piece_bytes` at most."""
        wanted = -(-self._bytes_in(entries) // piece_bytes)
        # A task over the network waits more than it computes, but costs a connection.
        least = min(min_pieces, self._bytes_in(entries) // CHUNK_BYTES)
        count = min(max(1, wanted, least), len(entries), MAX_PIECES)
        cuts = [entries.start + len(entries) * at // count for at in range(count + 1)]
        return [range(first, stop) for first, stop in pairwise(cuts)]

    def stop_within(self, entries: range, max_bytes: int) -> int:
        """See `ReadableLog.stop_within`; entries count as equally long."""
        fitting = len(entries) * max_bytes // max(1, self._bytes_in(entries))
        return min(entries.stop, entries.start + max(1, fitting))

    def mark(self, index: int) -> Mark | None:
        """Return the term of an entry; its sum is unknown over the network."""
        if index < 0:
            return UNKNOWN
        if index < self.first_index or (self.committed is not None and index > self.committed):
            return None
        return Mark(self._entry(index).term, NO_CHAIN)

    def batches(
        self,
        entries: range,
        *,
        batch_bytes: int,
        checksums: bool,  # there are none over the network
        bodies: bool = True,  # they come with the entries
    ) -> Iterator[pa.RecordBatch]:
        """Raises GroupUnavailable; RangeUnavailable: no member has the entries any more."""
        first = entries.start
        chunk_bytes = min(CHUNK_BYTES, batch_bytes * 4)
        limit = self.origin.max_bytes_per_second
        pace = None
        if limit is not None:
            pace = ReadPace(limit)
            chunk_bytes = min(chunk_bytes, max(MIN_CHUNK_BYTES, limit))
        while first < entries.stop:
            began_s = time.monotonic()
            if pace is not None:
                time.sleep(pace.wait_s(began_s))
                began_s = time.monotonic()
            found = self._chunk(range(first, entries.stop), chunk_bytes)
            if pace is not None:
                pace.read(sum(HEADER_BYTES + len(entry.body) for entry in found), began_s)
            yield _batch(found, self.group)
            first = found[-1].index + 1

    def queued(self, entries: range) -> Iterator[QueuedEntries]:
        """Return nothing: consume queues are not read over the network."""
        return iter(())

    def _chunk(self, entries: range, max_bytes: int) -> list[Entry]:
        origin = self.origin
        # Each chunk asks another member, so that several tasks spread over the followers.
        ask = partial(_entries, entries=entries, max_bytes=max_bytes)
        if origin.readers:
            reader = replace(origin, addresses=(random.choice(origin.readers),))
            try:
                return _run(partial(ask, reader, timeout_s=READER_S), origin)
            except (GroupUnavailable, RangeUnavailable):
                pass  # it is down, or behind the others, which are asked next
        return _run(partial(ask, origin, timeout_s=TIMEOUT_S), origin)

    def _entry(self, index: int) -> Entry:
        origin = self.origin
        return _run(partial(_entry, origin, index), origin)

    def _bytes_in(self, entries: range) -> int:
        last = self._entry(entries.stop - 1)
        first = last if len(entries) == 1 else self._entry(entries.start)
        return last.pos + HEADER_BYTES + len(last.body) - first.pos


def _batch(entries: Sequence[Entry], group: str) -> pa.RecordBatch:
    index, term, pos, magic, bodies = zip(*entries, strict=True)
    rows = len(entries)
    zeros = np.zeros(rows, np.int64)
    sizes = np.fromiter(map(len, bodies), np.int32, rows) + np.int32(HEADER_BYTES)
    columns = [
        pa.repeat(pa.scalar(group, pa.string()), rows),
        pa.array(index, pa.int64()),
        pa.array(term, pa.int64()),
        pa.array(pos, pa.int64()),
        pa.array(sizes),
        pa.array(magic, pa.int32()),
        pa.array(zeros.astype(np.int32)),
        pa.array(zeros),
        pa.array(zeros),
        pa.array(bodies, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ENTRY_SCHEMA)


def _connect(origin: NetworkOrigin, timeout_s: float) -> AbstractAsyncContextManager[RemoteLog]:
    addresses = ",".join(origin.addresses)
    file = origin.credentials
    return connect(
        addresses,
        group=origin.group,
        tls=origin.tls,
        credentials=None if file is None else read_credentials(file),
        timeout_s=timeout_s,
    )


async def _status(origin: NetworkOrigin) -> Mapping[str, Any]:
    async with _connect(origin, TIMEOUT_S) as log:
        return await log.status()


async def _entry(origin: NetworkOrigin, index: int) -> Entry:
    async with _connect(origin, TIMEOUT_S) as log:
        return await log.read(index)


async def _entries(
    origin: NetworkOrigin, *, entries: range, max_bytes: int, timeout_s: float
) -> list[Entry]:
    """Return the first of the entries, of about `max_bytes` in all; one at least."""
    found: list[Entry] = []
    async with _connect(origin, timeout_s) as log:
        # A member that is behind holds the request until it has the entry.
        with trio.move_on_after(timeout_s):
            async for entry in log.tail(entries.start):
                found.append(entry)
                max_bytes -= HEADER_BYTES + len(entry.body)
                if max_bytes <= 0 or entry.index + 1 >= entries.stop:
                    break
    if not found:
        raise GroupUnreachable(f"entry {entries.start} did not come in {timeout_s:g} s")
    return found


def _run(call: Callable[[], Awaitable[_Answer]], origin: NetworkOrigin) -> _Answer:
    """Run a call of the client; its errors become those of this package."""
    addresses = ",".join(origin.addresses)
    try:
        return trio.run(call)
    except OutsideLog as error:
        problem = f"it has the entries {error.first}..{error.last}"
        name = _name(origin)
        raise RangeUnavailable(name, error.asked, error.asked, problem) from None
    except ConfigInvalid as error:
        raise OptionInvalid("bootstrap", addresses, str(error)) from None
    except DLedgerError as error:
        raise GroupUnavailable(origin.group, addresses, str(error)) from None


def _name(origin: NetworkOrigin) -> str:
    return f"group {origin.group!r} at {','.join(origin.addresses)}"
