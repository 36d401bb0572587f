"""The folded state as chunks of bytes, for the snapshots of `dledger`.

Each chunk is a msgpack array `[what, rows]`: the numbers of all parts first, then each part's rows,
some hundred rows a chunk. Capturing copies dictionaries; packing comes later, in another thread.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgpack

from broker.errors import SnapshotUnreadable
from broker.log.state import BrokerState, Registry

# Snapshots of other formats are not read: see docs/broker.md.
STATE_FORMAT: Final = "broker/1"

# Packing a chunk holds the interpreter's lock for a millisecond. A row may have a thousand queues,
# or ten thousand messages in flight.
ROWS_PER_CHUNK: Final = 500
VALUES_PER_CHUNK: Final = 10_000

_NUMBERS: Final = "numbers"
_OWN_NUMBERS: Final = ("log_end", "refused_entries")


def captured(state: BrokerState) -> Iterator[bytes]:
    """Return the chunks of the state as of the call, whatever is folded while they are taken."""
    numbers: list[object] = [[name, getattr(state, name)] for name in _OWN_NUMBERS]
    tables: list[tuple[str, Iterator[object]]] = []
    for part in state.registry.parts:
        value = state[part]
        numbers += [[name, getattr(value, name)] for name in part.numbers]
        tables += [(rows.what, rows.captured(value)) for rows in part.rows]

    def chunks() -> Iterator[bytes]:
        yield from _in_chunks(_NUMBERS, iter(numbers))
        for what, rows in tables:
            yield from _in_chunks(what, rows)

    return chunks()


def restored(chunks: Iterable[bytes], registry: Registry, folder: str | None = None) -> BrokerState:
    """Make the state that was captured. Raises SnapshotUnreadable, DiskFailed."""
    state = BrokerState(registry, blank=True, folder=folder)
    try:
        _take(state, chunks)
    except BaseException:
        state.close()
        raise
    return state


def _take(state: BrokerState, chunks: Iterable[bytes]) -> None:
    takers = {rows.what: (part, rows) for part in state.registry.parts for rows in part.rows}
    for chunk in chunks:
        try:
            what, rows = msgpack.unpackb(chunk, strict_map_key=False)
            if what == _NUMBERS:
                for name, value in rows:
                    _take_number(state, name, int(value))
            elif what in takers:
                part, taker = takers[what]
                taker.take(state[part], rows)
            else:
                raise ValueError(f"rows of {what!r:.40}")
        except (ValueError, TypeError, KeyError, msgpack.exceptions.UnpackException) as error:
            raise SnapshotUnreadable(f"{error!r:.200}") from error


def _take_number(state: BrokerState, name: str, value: int) -> None:
    if name in _OWN_NUMBERS:
        setattr(state, name, value)
    elif name in state.registry.numbers:
        setattr(state[state.registry.numbers[name]], name, value)
    else:
        raise ValueError(f"a number {name!r:.40}")


def _in_chunks(what: str, rows: Iterator[object]) -> Iterator[bytes]:
    some: list[object] = []
    values = 0
    for row in rows:
        some.append(row)
        values += _values_in(row)
        if len(some) == ROWS_PER_CHUNK or values >= VALUES_PER_CHUNK:
            yield _packed(what, some)
            some, values = [], 0
    if some:
        yield _packed(what, some)


def _values_in(row: object) -> int:
    """Count the values in the collections of a row."""
    members = row if isinstance(row, list | tuple) else ()
    return sum(len(one) for one in members if isinstance(one, dict | list))


def _packed(what: str, rows: list[object]) -> bytes:
    packed: bytes = msgpack.packb([what, rows], use_bin_type=True)
    return packed
