"""Writes the entries of a log to segment files, and drops them at its end and at its beginning.

A method makes entries durable only if its docstring says so: see `log_durability`.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.core.ledger_view import TermRun
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import BLANK_BYTES, Body
from dledger.errors import DiskFull, InvariantBroken
from dledger.store.batch import BatchFacts
from dledger.store.disk import SyncFailed
from dledger.store.index_file import LogIndex
from dledger.store.log_extent import LogExtent
from dledger.store.log_reader import LogReader
from dledger.store.log_store import Written
from dledger.store.placement import LogEnd, filler, place, segment_end
from dledger.store.segment import SegmentFiles
from dledger.store.store_health import StoreHealth
from dledger.system_refusals import Kind, is_of, told


class SegmentLog:
    """The log between its first kept entry and its end.

    Args:
        data: the files of the entries.
        index: says where each entry lies.
        extent: where the log begins and ends; this class updates it.
        reader: reads entries of the same files.
        health: ended by an error of the disk: DiskFailed now and from every later call.
        body_limit: the largest body that `append` takes, in bytes.
    """

    __slots__ = ("_body_limit", "_data", "_extent", "_health", "_index", "_reader")

    def __init__(
        self,
        data: SegmentFiles,
        index: LogIndex,
        extent: LogExtent,
        reader: LogReader,
        health: StoreHealth,
        body_limit: int,
    ) -> None:
        self._data = data
        self._index = index
        self._extent = extent
        self._reader = reader
        self._health = health
        self._body_limit = body_limit

    # --- the end grows ------------------------------------------------------------------------

    def append(self, term: int, magic: int, bodies: Sequence[Body]) -> Written:
        """Encode and write entries.

        Raises:
            EntryTooLarge: one body is too large; none was written.
            DiskFull: there is no room for them; none was written, and the store goes on.
            InvariantBroken: no bodies, or a term below the last one.
            DiskFailed: terminal.
        """
        self._health.check()
        extent = self._extent
        if not bodies:
            raise InvariantBroken("append of no entries")
        if term < extent.view.last_term:
            raise InvariantBroken(
                f"append in term {term} after an entry of term {extent.view.last_term}"
            )
        first = extent.last_index + 1
        end = LogEnd(first, extent.end_pos, extent.last_chain)
        placed = place(term, magic, bodies, end, self._data.segment_bytes, self._body_limit)
        with self._health.disk_work("append to"):
            try:
                if self._index.is_due:
                    self._index.write()
                for pos, run in placed.runs:
                    self._data.write(run, pos)
            except OSError as error:
                if isinstance(error, SyncFailed) or not is_of(Kind.ROOM, error):
                    raise
                # All bytes behind the log's end are zero again, in blocks that the files have.
                self._data.zero(extent.end_pos, placed.end_pos)
                raise DiskFull(told(error)) from error
        self._index.add(placed.index_units)
        extent.extend(
            placed.index_units, (TermRun(term, first),), placed.end_pos, placed.last_chain
        )
        raw = placed.runs[0][1] if len(placed.runs) == 1 else None
        return Written(first, extent.last_index, placed.entries, raw)

    def write_batch(self, raw: bytes, facts: BatchFacts) -> None:
        """Write verified entries at the positions they carry.

        Raises:
            InvariantBroken: they do not follow the log, or the leader's segment length differs
                from ours.
            DiskFailed: terminal.
        """
        self._health.check()
        extent, segment_bytes = self._extent, self._data.segment_bytes
        pos = facts.first_pos
        if facts.first_index != extent.last_index + 1:
            raise InvariantBroken(
                f"batch from entry {facts.first_index} after entry {extent.last_index}"
            )
        if facts.term_runs[0].term < extent.view.last_term:
            raise InvariantBroken(
                f"batch of term {facts.term_runs[0].term} "
                f"after an entry of term {extent.view.last_term}"
            )
        if facts.end_pos + BLANK_BYTES > segment_end(pos, segment_bytes):
            raise InvariantBroken(
                f"batch at {pos}..{facts.end_pos} crosses a segment of {segment_bytes} bytes: "
                "set the same segment_bytes on all nodes"
            )
        with self._health.disk_work("write a batch to"):
            if pos != extent.end_pos:
                self._open_segment_for(pos)
            if self._index.is_due:
                self._index.write()
            self._data.write(raw, pos)
        self._index.add(facts.index_units)
        extent.extend(facts.index_units, facts.term_runs, facts.end_pos, facts.last_chain)

    def _open_segment_for(self, pos: int) -> None:
        """Close the last segment with a blank, for a batch that begins the next one."""
        extent, segment_bytes = self._extent, self._data.segment_bytes
        if extent.last_index < extent.first_index and pos % segment_bytes == 0:
            # The log is empty and may begin at any segment (in a migrated Java broker it begins
            # after old files).
            self._data.drop_from(self._data.begin)
            self._data.create(pos)
            extent.begin_empty_at(pos)
            return
        if pos != segment_end(extent.end_pos, segment_bytes):
            raise InvariantBroken(f"batch at position {pos} beyond the log's end {extent.end_pos}")
        self._data.write(filler(extent.end_pos, segment_bytes), extent.end_pos)

    # --- the end is cut -----------------------------------------------------------------------

    def check_cut(self, index: int) -> None:
        """Raise InvariantBroken if a cut after `index` drops a committed entry."""
        extent = self._extent
        if index < extent.committed:
            raise InvariantBroken(f"cut after {index}, but {extent.committed} is committed")
        if index < extent.first_index - 1:
            raise InvariantBroken(f"cut after {index}, before the begin {extent.first_index}")

    def truncate_after(self, index: int) -> None:
        """Drop every entry after `index`; durable on return.

        The cut bytes are zeroed and synced before anything is written in their place. So a crash
        can bring old entries back only before a peer has learned of the cut, and new bytes never
        mix with old ones.

        Raises InvariantBroken as `check_cut`, DiskFailed.
        """
        self._health.check()
        extent = self._extent
        if index >= extent.last_index:
            return
        self.check_cut(index)
        if index < extent.first_index:
            end_pos, chain = extent.begin_pos, extent.before_begin_chain
        else:
            end_pos, chain = self._reader.unit(index).end, self._reader.chain_at(index)
        with self._health.disk_work("truncate"):
            self._data.cut_at(end_pos, extent.end_pos)
            self._index.cut_after(index, extent.last_index)
        self._reader.forget()
        extent.cut_after(index, end_pos, chain)

    # --- the beginning moves ------------------------------------------------------------------

    def discard_before(self, index: int) -> None:
        """Drop whole segments at the log's beginning that hold only entries before `index`.

        Because only whole segments are dropped, the replicas' files stay equal byte by byte, and
        the log's end has the same position on all of them.

        Raises:
            InvariantBroken: `index` is not committed. Another leader could then still cut the log
                before its new beginning.
            DiskFailed: terminal.
        """
        self._health.check()
        extent = self._extent
        if index <= extent.first_index:
            return
        if index > extent.committed or index > extent.last_index:
            raise InvariantBroken(f"discard before {index}, but {extent.committed} is committed")
        pos, first = self._reader.segment_begin(index)
        if first != extent.first_index:
            extent.drop_before(first, pos, self._reader.chain_at(first - 1))

    def check_restart(self, begin: LogBegin) -> None:
        """Raise InvariantBroken unless a log that begins at `begin` may replace this one."""
        extent, before = self._extent, begin.before_index
        if before <= extent.committed or extent.view.term_at(before) == begin.before_term:
            raise InvariantBroken(
                f"restart after entry {before} of term {begin.before_term}: committed is "
                f"{extent.committed}, the log ends with {extent.last_index}"
            )

    def kept_by(self, begin: LogBegin) -> int:
        """Return the last entry that may stay on disk when the log restarts at `begin`."""
        extent = self._extent
        keep = min(begin.before_index - 1, extent.last_index)
        if keep >= extent.first_index and self._reader.unit(keep).end > begin.pos:
            keep = self._reader.last_before(begin.pos, keep)
        return max(keep, extent.first_index - 1)

    def restart(self, begin: LogBegin) -> list[str]:
        """Drop all entries in memory; return the files that are no longer part of the log.

        On disk only the bytes from the new beginning on are cut, before a record names that
        beginning.
        """
        epoch = self._extent.epoch + 1
        self.truncate_after(self.kept_by(begin))
        segment_pos = begin.pos - begin.pos % self._data.segment_bytes
        dropped = self._data.forget_before(segment_pos)
        dropped += self._index.forget_before(begin.before_index + 1)
        self._reader.forget()
        self._extent.restart(begin, segment_pos, epoch)
        return dropped
