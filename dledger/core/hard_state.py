"""What a node must never forget: its term, its vote, and how far it knew the log committed."""

from __future__ import annotations

from typing import NamedTuple

from dledger.entry import BEFORE_FIRST_INDEX


class HardState(NamedTuple):
    """Term and vote are promises (Raft, figure 2): durable before any message that rests on them.

    `committed` is only a lower bound. It saves readers of a folder at rest from guessing, and it
    is written whenever the record is written anyway, and once a second.
    """

    term: int = 0
    voted_for: str | None = None
    committed: int = BEFORE_FIRST_INDEX
