"""The commands of brokers in a batch of entries. Pure."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from broker.errors import CommandMalformed, EntryTooNew
from broker.features import REGISTRY
from broker.log.command_layout import LogCommand
from broker.log.entry import PREFIX_BYTES
from dledger import Entry, Magic
from dledger_spark.entries.entry_columns import bounds, number_at
from dledger_spark.records.body_pieces import SMALLEST_RECORD_BYTES, are_commands, are_records


class BrokerCommand(NamedTuple):
    """A command, which the brokers may still refuse, and the version of its format."""

    entry: Entry
    version: int
    command: LogCommand

    @property
    def is_attached(self) -> bool:
        """Whether it follows a record in its entry."""
        return REGISTRY.type_of(self.command).is_attached


def broker_commands(entries: pa.RecordBatch) -> Iterator[BrokerCommand]:
    """Yield the commands in a batch of the table of entries, in the log's order."""
    bodies = entries.column("body")
    begins, ends = bounds(bodies)
    rows = np.flatnonzero(ends - begins >= PREFIX_BYTES)
    if not len(rows):
        return
    data = bodies.buffers()[2]
    begins, ends = begins[rows], ends[rows]
    sizes = number_at(data, begins)
    behind = are_records(data, begins) & (sizes >= SMALLEST_RECORD_BYTES)
    at = begins + np.where(behind, sizes, 0)
    found = np.flatnonzero(are_commands(data, at, ends))
    rows = rows[found]
    columns = [
        *(entries.column(name).to_numpy()[rows] for name in ("index", "term", "pos")),
        *(begins[found], at[found], ends[found]),
    ]
    view = memoryview(data)
    for index, term, pos, begin, place, end in np.transpose(columns).tolist():
        content = bytes(view[place:end])
        try:
            command = REGISTRY.decode(content)
        except (CommandMalformed, EntryTooNew):
            continue  # brokers skip it, or end
        is_attached = place != begin
        if REGISTRY.type_of(command).is_attached is is_attached:
            body = bytes(view[begin:end]) if is_attached else content
            entry = Entry(index, term, pos, Magic.NORMAL, body)
            yield BrokerCommand(entry, content[7], command)
