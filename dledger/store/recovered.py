"""The result of a recovery. Pure."""

from __future__ import annotations

from typing import NamedTuple

from dledger.core.ledger_view import TermRun
from dledger.entry import Magic
from dledger.store.walk_begins import WalkBegin

CONFIGURATION = int(Magic.CONFIGURATION)


class SegmentBegin(NamedTuple):
    """A segment and the index of the first entry in it."""

    pos: int
    first_index: int


class Cut(NamedTuple):
    """The cut that recovery made, and its reason."""

    pos: int
    index: int  # type: ignore[assignment]  # hides tuple.index
    problem: str
    reason: str


class Recovered(NamedTuple):
    """The log as recovery left it."""

    first_index: int
    last_index: int
    begin_pos: int
    end_pos: int
    last_chain: int
    before_begin_term: int
    before_begin_chain: int
    runs: list[TermRun]
    begins: list[WalkBegin]
    entries_checked: int
    cut: Cut | None
    configuration_indexes: list[int]
    lost_through: int  # entries after the end up to here were synced, and are lost; -1 for none
