"""What a turn of the protocol asks of its driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dledger.core.entry_handler import Write
from dledger.core.hard_state import HardState
from dledger.core.membership.membership import ChangeOutcome
from dledger.core.messages import Message
from dledger.core.reads.read_index import ReadReady


class Writes(NamedTuple):
    """What the store must do, in order; `hard_state` is set when the record must be rewritten."""

    writes: Sequence[Write]
    hard_state: HardState | None


class Outgoing(NamedTuple):
    """A message and the member it goes to."""

    peer: str
    message: Message


class Messages(NamedTuple):
    """What leaves this turn, and what became of the open reads and of changes of the group."""

    outgoing: Sequence[Outgoing]
    reads_ready: Sequence[ReadReady]
    reads_lost: Sequence[int]
    changes: Sequence[ChangeOutcome] = ()
