"""Opens the files of a log after a stop or a crash: checks, cuts, rebuilds the index.

The walk begins at the record's `scan_pos`, or at the log's beginning if there is no record yet or
the index before `scan_pos` is not usable. It checks every entry from there to the end. See
docs/storage-format.md for the rules, `recovery_table` for the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.core.ledger_view import TermRun
from dledger.entry import (
    BEFORE_FIRST_INDEX,
    BLANK_BYTES,
    HEADER_BYTES,
    Header,
    decode_header,
)
from dledger.errors import InvariantBroken, LogCorrupt
from dledger.store.hard_state_file import StoreRecord
from dledger.store.index_file import read_unit, term_runs
from dledger.store.index_unit import UNIT, UNIT_BYTES
from dledger.store.placement import segment_end
from dledger.store.recovered import CONFIGURATION, Cut, Recovered
from dledger.store.recovery_table import Evidence, Verdict, decide
from dledger.store.segment import SegmentFiles
from dledger.store.walk import (
    WINDOW_BYTES,
    LogWalker,
    RawHeader,
    Stop,
    intact_entries,
    prefix_blank,
    unfinished_write,
)
from dledger.store.walk_begins import WalkBegin


class Recovery:
    """One recovery.

    Args:
        data, index: the files; their lengths and spacing are checked already.
        record: the durable record. For a log of Java that has no record yet, one with `committed`
            -1 and everything unchecked.
        first_index: the first entry kept; None to take it from the log.
        synced: the entry that the synced mark names; -1 for none.
        mark: marks the folder as one that lost entries; durable on return. Called before a cut of
            entries that this member may have acknowledged.
    """

    def __init__(
        self,
        data: SegmentFiles,
        index: SegmentFiles,
        record: StoreRecord,
        first_index: int | None,
        synced: int,
        mark: Callable[[], None],
    ) -> None:
        self._synced = synced
        self._mark = mark
        self._data = data
        self._index = index
        self._record = record
        self._first_index = first_index
        self._walker = LogWalker(data.segment_bytes)
        self._begins: list[WalkBegin] = []
        self._end_pos = 0
        self._zero_from: int | None = None  # all is zero from here on; None if not checked
        self._checked = 0
        self._configurations: list[int] = []

    def run(self) -> Recovered:
        """Check the log and put files and index into order.

        Raises:
            LogCorrupt: a record inside the log is broken; no entry was touched.
        """
        begin_pos = self._find_begin()
        self._end_pos = begin_pos
        walker = self._walker
        cut = self._walk_all(self._set_out(begin_pos))
        next_index = walker.next_index or 0
        first_index = self._first_index
        if first_index is None:
            first_index = walker.runs[0].first_index if walker.runs else 0
        if next_index <= self._record.committed:
            raise LogCorrupt(
                self._data.path(self._end_pos),
                self._end_pos % self._data.segment_bytes,
                f"the log ends with entry {next_index - 1}, "
                f"but entry {self._record.committed} is recorded as committed",
            )
        lost = self._synced >= next_index
        if lost:
            self._mark()
        self._clean(next_index)
        if not self._begins:
            segment_pos = begin_pos - begin_pos % self._data.segment_bytes
            self._begins.append(WalkBegin(segment_pos, next_index))
        return Recovered(
            first_index=first_index,
            last_index=next_index - 1,
            begin_pos=begin_pos,
            end_pos=self._end_pos,
            last_chain=walker.chain or 0,
            before_begin_term=self._record.before_begin_term,
            before_begin_chain=self._record.before_begin_chain,
            runs=walker.runs,
            begins=self._begins,
            entries_checked=self._checked,
            cut=cut,
            configuration_indexes=self._configurations,
            lost_through=self._synced if lost else BEFORE_FIRST_INDEX,
        )

    # --- where to begin -----------------------------------------------------------------------

    def _find_begin(self) -> int:
        """Find the position of the first entry kept: after the blank that a cut head left."""
        data = self._data
        data.drop_before(self._record.begin_pos)
        kept = self._record.committed > self._record.before_begin
        if kept and data.begin > self._record.begin_pos:
            problem = "the file is missing, and entries in it are recorded as committed"
            raise LogCorrupt(data.path(self._record.begin_pos), 0, problem)
        while data.starts:
            blank = prefix_blank(data.read(BLANK_BYTES, data.begin), data.segment_bytes)
            if blank < data.segment_bytes:
                return max(data.begin + blank, self._record.begin_pos)
            data.drop_before(data.end if len(data.starts) == 1 else data.starts[1])
        return self._record.begin_pos

    def _set_out(self, begin_pos: int) -> int:
        """Return where the walk begins: after the checked part, if its index is usable."""
        record, data = self._record, self._data
        walker = self._walker
        walker.unchecked_through = record.unchecked_through
        walker.next_index = self._first_index
        walker.term = record.before_begin_term
        walker.chain = 0 if self._first_index == 0 else record.before_begin_chain or None
        first = self._first_index
        if first is None or record.scan_pos <= begin_pos or record.scan_index <= first:
            return begin_pos
        if record.scan_pos >= data.end:
            problem = "the file is missing, and entries in it are recorded as committed"
            raise LogCorrupt(data.path(record.scan_pos), 0, problem)
        anchor = self._header_before(record.scan_index, record.scan_pos)
        if anchor is None or read_unit(self._index, first) is None:
            return begin_pos
        index_files = self._index
        last = record.scan_index - 1
        runs = term_runs(lambda i: read_unit(index_files, i), first, last)
        if runs is None or not self._have_these_terms(runs, last):
            return begin_pos
        walker.next_index = record.scan_index
        walker.term = anchor.term
        walker.chain = anchor.chain_crc
        walker.runs = runs
        if record.configuration_index >= first:
            self._configurations.append(record.configuration_index)
        self._end_pos = anchor.pos + anchor.size
        self._begins.append(WalkBegin(record.scan_pos, record.scan_index))
        return record.scan_pos

    def _header_before(self, index: int, pos: int) -> Header | None:
        """Return the header of the entry before the one at `pos`, if index and data agree on it."""
        header = self._header_of(index - 1)
        if header is None:
            return None
        end = header.pos + header.size
        if end > pos or not pos - self._data.segment_bytes <= header.pos < pos:
            return None
        if pos % self._data.segment_bytes and end != pos:
            return None  # a blank lies between two entries only at the end of a segment
        return header

    def _header_of(self, index: int) -> Header | None:
        """Return the header of an entry, if index and data agree on it."""
        unit, data = read_unit(self._index, index), self._data
        if unit is None or not data.begin <= unit.pos < data.end:
            return None
        if unit.end > segment_end(unit.pos, data.segment_bytes):
            return None
        header = decode_header(data.read(HEADER_BYTES, unit.pos))
        agrees = (header.pos, header.index, header.size) == (unit.pos, unit.index, unit.size)
        return header if agrees and header.well_formed and header.term == unit.term else None

    def _have_these_terms(self, runs: Sequence[TermRun], last: int) -> bool:
        """Return whether the entries up to `last` have the terms that the index says.

        Terms never decrease, so those of the first and the last entry of each run suffice.
        """
        ends = [*(run.first_index - 1 for run in runs[1:]), last]
        for run, end in zip(runs, ends, strict=True):
            for index in (run.first_index, end):
                header = self._header_of(index)
                if header is None or header.term != run.term:
                    return False
        return True

    # --- the walk -----------------------------------------------------------------------------

    def _walk_all(self, pos: int) -> Cut | None:
        """Walk to the log's end; return the cut that was made there, if any."""
        data, walker = self._data, self._walker
        while pos < data.end:
            self._walk_segment(pos)
            if walker.stop is not Stop.SEGMENT_END:
                return self._judge_stop()
            pos = pos - pos % data.segment_bytes + data.segment_bytes
        return None

    def _walk_segment(self, pos: int) -> None:
        """Walk one segment, window by window, and bring the index up to date with it."""
        data, walker = self._data, self._walker
        segment_pos = pos - pos % data.segment_bytes
        segment_end = segment_pos + data.segment_bytes
        while True:
            window = data.read(min(WINDOW_BYTES, segment_end - pos), pos)
            found = walker.walk(window, pos)
            if found:
                begun = bool(self._begins) and self._begins[-1].pos >= segment_pos
                if not begun or self._begins[-1].first_index < found[0][2]:
                    place = pos if begun else segment_pos
                    self._begins.append(WalkBegin(place, found[0][2]))
                self._take(found)
            if walker.stop is not Stop.MORE:
                return
            if walker.pos == pos:
                raise InvariantBroken(f"no record ends within a window at position {pos}")
            pos = walker.pos

    def _take(self, found: list[RawHeader]) -> None:
        """Count intact entries, and write their index units where the index differs."""
        self._checked += len(found)
        self._configurations += [h[2] for h in found if h[0] == CONFIGURATION]
        last = found[-1]
        self._end_pos = last[4] + last[1]
        pack = UNIT.pack
        units = b"".join([pack(h[0], h[4], h[1], h[2], h[3]) for h in found])
        pos = found[0][2] * UNIT_BYTES
        index_files = self._index
        if index_files.starts and not index_files.begin <= pos <= index_files.end:
            # The index files do not adjoin these entries: begin them anew.
            index_files.drop_from(index_files.begin)
        inside = index_files.begin <= pos < index_files.end
        if not inside or index_files.read(len(units), pos) != units:
            index_files.write(units, pos)

    # --- the end ------------------------------------------------------------------------------

    def _judge_stop(self) -> Cut | None:
        """Judge the record at which the walk stopped; None when the log simply ends there."""
        walker = self._walker
        behind = not self._data.is_zero(walker.pos)
        self._zero_from = None if behind else walker.pos
        next_index = walker.next_index or 0
        recorded = next_index <= self._record.committed
        if not behind and walker.stop is Stop.ZERO and not recorded:
            return None
        row = decide(
            Evidence(
                walker.findings,
                recorded,
                next_index <= self._synced,
                self._unfinished(walker.pos),
                behind and intact_behind(self._data, walker.pos, next_index, walker.term),
            )
        )
        problem = walker.findings.problem
        if row.verdict in {Verdict.CUT, Verdict.CUT_AND_MARK}:
            return Cut(walker.pos, next_index, problem, row.reason)
        path, offset = self._data.path(walker.pos), walker.pos % self._data.segment_bytes
        raise LogCorrupt(path, offset, f"entry {next_index}: {problem}, and {row.reason}")

    def _unfinished(self, pos: int) -> bool:
        data = self._data
        size = min(WINDOW_BYTES, data.segment_bytes - pos % data.segment_bytes)
        return unfinished_write(data.read(size, pos), pos, data.segment_bytes)

    def _clean(self, next_index: int) -> None:
        """Leave nothing after the log's end, in the data and in the index."""
        data, index_files = self._data, self._index
        if self._zero_from == self._end_pos:  # known already: only files of zeros are removed
            segment_pos = self._end_pos - self._end_pos % data.segment_bytes
            data.drop_from(segment_pos + data.segment_bytes)
        else:
            data.cut_at(self._end_pos, data.end)
        unit_end = next_index * UNIT_BYTES
        if unit_end < index_files.begin:
            index_files.drop_from(index_files.begin)
        keep_until = -(-unit_end // index_files.segment_bytes) * index_files.segment_bytes
        index_files.drop_from(max(keep_until, index_files.begin + index_files.segment_bytes))
        index_files.zero(max(unit_end, index_files.begin), index_files.end)


def intact_behind(data: SegmentFiles, pos: int, next_index: int, term: int) -> bool:
    """Return whether an intact entry that could follow the log lies after the record at `pos`.

    The record should be entry `next_index`; the entry before it is of `term`.
    """
    pos += 1
    while pos < data.end:
        segment_end = pos - pos % data.segment_bytes + data.segment_bytes
        window = data.read(min(WINDOW_BYTES, segment_end - pos), pos)
        found = intact_entries(window, pos, data.segment_bytes, next_index - 1, term)
        if next(found, None) is not None:
            return True
        # Windows overlap by half, which holds the largest entry.
        pos = segment_end if pos + len(window) >= segment_end else pos + WINDOW_BYTES // 2
    return False
