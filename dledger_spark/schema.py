"""The columns of the tables that are read from a log, as Arrow types.

Spark has no unsigned integers, so sums of 32 bits are 64-bit columns. For Spark every column may be
null, so that it fits a schema that a user types; comments name the columns that really can be null.
Times are instants in UTC.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from dledger_spark.errors import OptionInvalid

ENTRIES: Final = "entries"
MESSAGES: Final = "messages"
# What is stored of a log.
TABLES: Final = (ENTRIES, MESSAGES)
# The same rows without what is expensive: Spark asks for all columns of a table.
ENTRY_HEADERS: Final = "entry_headers"
MESSAGE_HEADERS: Final = "message_headers"

TIME: Final = pa.timestamp("us", tz="UTC")
# The range of Spark's TimestampType: the years 1 to 9999, in milliseconds since 1970.
FIRST_MS: Final = -62_135_596_800_000
LAST_MS: Final = 253_402_300_799_999

ENTRY_SCHEMA: Final = pa.schema(
    [
        ("raft_group", pa.string()),  # null: a log of Java's, which has no name
        ("index", pa.int64()),  # dense, from 0
        ("term", pa.int64()),
        ("pos", pa.int64()),  # byte offset in the log's address space
        ("size", pa.int32()),  # 48 bytes of header and the body
        ("magic", pa.int32()),  # 1 normal, 2 no-op, 3 configuration
        ("channel", pa.int32()),
        ("chain_crc", pa.int64()),  # 0: not set (written by Java)
        ("body_crc", pa.int64()),  # 0: not set (written by Java)
        ("body", pa.binary()),
    ]
)

MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("raft_group", pa.string()),  # null: a log of Java's
        ("index", pa.int64()),
        ("term", pa.int64()),
        ("topic", pa.string()),
        ("queue", pa.int32()),
        ("offset", pa.int64()),  # in the message queue
        ("message_id", pa.string()),  # the offset id: store host, port, physical offset
        ("unique_key", pa.string()),  # null: the producer gave none
        ("keys", pa.string()),  # null: none; several are separated by spaces
        ("tags", pa.string()),  # null: none
        ("born_time", TIME),  # null: not within the years 1 to 9999
        ("store_time", TIME),  # null: not within the years 1 to 9999
        ("born_host", pa.string()),
        ("born_port", pa.int32()),
        ("store_host", pa.string()),
        ("store_port", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("flag", pa.int32()),  # the user's number
        ("system_flag", pa.int32()),  # compression, transaction state, host families
        ("physical_offset", pa.int64()),
        ("prepared_transaction_offset", pa.int64()),
        ("body_size", pa.int32()),  # as stored, so compressed if the system flag says so
        ("properties", pa.map_(pa.string(), pa.string())),
        ("body", pa.binary()),  # as stored
    ]
)

# Columns that are decoded from a message's body, properties or hosts.
_EXPENSIVE: Final = frozenset(
    {
        *("message_id", "unique_key", "keys", "tags", "properties", "body"),
        *("born_host", "born_port", "store_host", "store_port"),
    }
)
SCHEMAS: Final = {
    ENTRIES: ENTRY_SCHEMA,
    MESSAGES: MESSAGE_SCHEMA,
    ENTRY_HEADERS: pa.schema([field for field in ENTRY_SCHEMA if field.name != "body"]),
    MESSAGE_HEADERS: pa.schema([one for one in MESSAGE_SCHEMA if one.name not in _EXPENSIVE]),
}
# A row of these is a message, and not an entry.
OF_MESSAGES: Final = frozenset({MESSAGES, MESSAGE_HEADERS})


def needs_bodies(table: str, columns: Sequence[str], *, checksums: bool) -> bool:
    """Return whether columns of a table, and the sums to check, take the bodies of entries.

    An entry's header has a sum of its own. A message's header lies in the body of an entry.
    """
    if table == ENTRIES:
        return checksums or "body" in columns
    return table != ENTRY_HEADERS


def check_columns(table: str, columns: Sequence[str] | None) -> list[str]:
    """Return the names of the wanted columns.

    Raises:
        OptionInvalid: there is no such table, or it has no such column.
    """
    if table not in SCHEMAS:
        raise OptionInvalid("table", table, f"use one of {', '.join(SCHEMAS)}")
    known = SCHEMAS[table].names
    names = known if columns is None else list(columns)
    for name in names:
        if name not in known:
            raise OptionInvalid("column", name, f"the table of {table} has {', '.join(known)}")
    return names
