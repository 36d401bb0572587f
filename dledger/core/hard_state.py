"""The state that a node must never forget: its term, its vote, and a known commit index."""

from __future__ import annotations

from typing import NamedTuple

from dledger.entry import BEFORE_FIRST_INDEX


class HardState(NamedTuple):
    """Term and vote are promises (Raft, figure 2): durable before any message that rests on them.

    `committed` is only a lower bound, for readers of the folder. It is written four times a second
    while entries come in, and whenever the record is written for another reason.
    """

    term: int = 0
    voted_for: str | None = None
    committed: int = BEFORE_FIRST_INDEX
