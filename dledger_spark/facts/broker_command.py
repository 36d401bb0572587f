"""The commands of brokers in a batch of entries. Pure.

A command is an entry of its own, or stands behind a record (`broker.log.entry`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from broker.errors import CommandMalformed, EntryTooNew
from broker.features import REGISTRY
from broker.log.command_layout import LogCommand
from broker.log.entry import COMMAND_MARK, PREFIX_BYTES
from dledger import Entry, Magic
from dledger_spark.entry_columns import Positions, bounds
from dledger_spark.record_pieces import SMALLEST_RECORD_BYTES
from remoting.message.record import MESSAGE_MAGIC

_MARK: Final = int.from_bytes(COMMAND_MARK)


class BrokerCommand(NamedTuple):
    """A command; whether the brokers refuse it is not known yet.

    Attributes:
        entry: that holds it.
        version: of its format.
        command: what it says.
    """

    entry: Entry
    version: int
    command: LogCommand

    @property
    def is_attached(self) -> bool:
        """Whether it stands behind a record."""
        return REGISTRY.type_of(self.command).is_attached


def broker_commands(entries: pa.RecordBatch) -> list[BrokerCommand]:
    """The commands in a batch of the table of entries, in the log's order."""
    bodies = entries.column("body")
    begins, ends = bounds(bodies)
    rows = np.flatnonzero(ends - begins >= PREFIX_BYTES)
    if not len(rows):
        return []
    octets = np.frombuffer(bodies.buffers()[2], np.uint8)
    at = begins.copy()
    is_record = _number(octets, begins[rows] + 4, 4) == MESSAGE_MAGIC
    records = rows[is_record & ((ends - begins)[rows] >= SMALLEST_RECORD_BYTES)]
    sizes = _number(octets, begins[records], 4)
    # A record of more than 2 GiB would be a negative number, and no entry is as long.
    longer = sizes + PREFIX_BYTES <= (ends - begins)[records]
    records, sizes = (
        records[longer & (sizes >= SMALLEST_RECORD_BYTES)],
        sizes[longer & (sizes >= SMALLEST_RECORD_BYTES)],
    )
    at[records] += sizes
    marked = _number(octets, at[rows] + 4, 3) == _MARK
    whole = _number(octets, at[rows], 4) == (ends - at)[rows]
    found = rows[marked & whole]
    indexes, terms, places = (
        entries.column(name).to_numpy()[found].tolist() for name in ("index", "term", "pos")
    )
    data = memoryview(bodies.buffers()[2])
    commands = []
    for row, index, term, place in zip(found.tolist(), indexes, terms, places, strict=True):
        content = bytes(data[at[row] : ends[row]])
        try:
            command = REGISTRY.decode(content)
        except (CommandMalformed, EntryTooNew):
            continue  # brokers pass it over, or end
        is_attached = bool(at[row] != begins[row])
        if REGISTRY.type_of(command).is_attached is is_attached:
            body = bytes(data[begins[row] : ends[row]]) if is_attached else content
            entry = Entry(index, term, place, Magic.NORMAL, body)
            commands.append(BrokerCommand(entry, content[7], command))
    return commands


def _number(octets: Any, at: Positions, size: int) -> Positions:
    """The unsigned numbers of `size` bytes at these places."""
    found: Positions = octets[at].astype(np.int64)
    for place in range(1, size):
        found = found << 8 | octets[at + place]
    return found
