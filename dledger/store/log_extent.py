"""Where a log begins and ends, and the facts about its entries that are kept in memory."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.core.ledger_view import LedgerView, TermRun
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.store.index_unit import magics
from dledger.store.recovered import CONFIGURATION, Recovered
from dledger.store.walk_begins import WalkBegin, WalkBegins


class LogExtent:
    """The bounds of one log. The parts that write, cut or drop entries update it.

    Attributes:
        view: indexes and terms.
        begin_pos: position of the first entry kept.
        before_begin_chain: chainCrc of the entry before it; 0 if unknown.
        end_pos: position of the byte after the last entry.
        last_chain: chainCrc of the last entry.
        begins: the places from which the next recovery may begin to walk.
        configurations: entries of magic 3, from the last one before these places on.
        epoch: grows by one with every truncation and restart.
        committed: the noted commit index; no entry up to it is ever truncated.
    """

    __slots__ = (
        "before_begin_chain",
        "begin_pos",
        "begins",
        "committed",
        "configurations",
        "end_pos",
        "epoch",
        "last_chain",
        "view",
    )

    def __init__(
        self, recovered: Recovered, segment_bytes: int, checkpoint_bytes: int, committed: int
    ) -> None:
        self.view = LedgerView(
            recovered.runs,
            last_index=recovered.last_index,
            before_begin=recovered.first_index - 1,
            before_begin_term=recovered.before_begin_term,
        )
        self.begin_pos = recovered.begin_pos
        self.before_begin_chain = recovered.before_begin_chain
        self.end_pos = recovered.end_pos
        self.last_chain = recovered.last_chain
        self.begins = WalkBegins(segment_bytes, checkpoint_bytes, recovered.begins)
        self.configurations = list(recovered.configuration_indexes)
        self.epoch = 0
        self.committed = committed

    @property
    def first_index(self) -> int:
        return self.view.before_begin + 1

    @property
    def last_index(self) -> int:
        return self.view.last_index

    def extend(self, units: bytes, runs: Sequence[TermRun], end_pos: int, last_chain: int) -> None:
        """Add entries at the end, given their index units and their runs of equal terms."""
        first, kinds = self.view.last_index + 1, magics(units)
        count = len(kinds)
        self.begins.note(units, first, count, end_pos)
        if CONFIGURATION in kinds:
            self.configurations += [
                first + at for at, kind in enumerate(kinds) if kind == CONFIGURATION
            ]
        for at, run in enumerate(runs):
            end = runs[at + 1].first_index if at + 1 < len(runs) else first + count
            self.view.extend(run.term, end - run.first_index)
        self.end_pos = end_pos
        self.last_chain = last_chain

    def begin_empty_at(self, pos: int) -> None:
        """Move the beginning of a log without entries to this segment."""
        self.begin_pos = self.end_pos = pos
        self.begins.restart(WalkBegin(pos, self.last_index + 1))

    def cut_after(self, index: int, end_pos: int, last_chain: int) -> None:
        """Drop the entries after `index`, which ends at `end_pos`."""
        self.view.truncate_after(index)
        self.end_pos = end_pos
        self.last_chain = last_chain
        self.begins.cut_after(index)
        while self.configurations and self.configurations[-1] > index:
            self.configurations.pop()
        self.epoch += 1

    def drop_before(self, first: int, pos: int, before_chain: int) -> None:
        """Drop the entries before `first`, the first entry of the segment at `pos`."""
        self.before_begin_chain = before_chain
        self.view.discard_before(first)
        self.begin_pos = pos
        self.begins.drop_before(pos)
        self.configurations = [found for found in self.configurations if found >= first]

    def restart(self, begin: LogBegin, segment_pos: int, epoch: int) -> None:
        """Begin an empty log at `begin`, in the segment that begins at `segment_pos`."""
        self.view.restart(begin.before_index, begin.before_term)
        self.before_begin_chain = self.last_chain = begin.before_chain
        self.begin_pos = self.end_pos = begin.pos
        self.begins.restart(WalkBegin(segment_pos, begin.before_index + 1))
        self.configurations = []
        self.epoch = epoch
        self.committed = begin.before_index
