"""The identity of an entry of a log, and of the history before it. Pure."""

from typing import Final, NamedTuple

import pyarrow as pa

NO_TERM: Final = -1
NO_CHAIN: Final = 0


class Mark(NamedTuple):
    """Identifies an entry of a log, and the history before it.

    Attributes:
        term: its term; -1 if it is unknown, or there is no such entry.
        chain: its chain sum; 0 if it is unknown, or there is no such entry.
    """

    term: int
    chain: int


UNKNOWN: Final = Mark(NO_TERM, NO_CHAIN)


def mark_of(entries: pa.RecordBatch) -> Mark:
    return Mark(*(entries.column(name)[-1].as_py() for name in ("term", "chain_crc")))


def differ(one: Mark, other: Mark) -> bool:
    """Return whether two marks of the same index show two different logs."""
    if NO_CHAIN not in (one.chain, other.chain) and one.chain != other.chain:
        return True
    return NO_TERM not in (one.term, other.term) and one.term != other.term
