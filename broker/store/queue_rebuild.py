"""Rebuilds damaged consume queues from the log.

A state that was restored from a snapshot says where its queues end, and the replay begins after
that. If files of queues are missing, the log before the snapshot is read again.

If the log is whole, it is folded again, and the fold refuses the same records. If retention has
dropped its beginning, it is unknown which topics existed there, and where their queues ended. Then
the state says which entries were refused; all others hold messages. A state from a snapshot of an
earlier version does not know them all: see `_Runs`.
"""

from collections.abc import Collection, Sequence
from typing import Final

from broker.errors import CommandMalformed, EntryTooNew
from broker.log.entry import EntryKind, kind_of
from broker.log.fold import fold
from broker.log.folded import Arrivals, Folded
from broker.log.state import BrokerState, Registry
from broker.messages.record_facts import UNIT, read_record_facts
from broker.messages.record_run import RecordRun, holds_several, read_run
from broker.store.damaged_queues import DamagedQueues
from broker.topics.commands import DeleteTopic, PutTopic
from dledger import DiskFailed, Entry, Magic

# Units of one queue that are written at once.
_GATHERED: Final = 4096

_NORMAL: Final = int(Magic.NORMAL)


class QueueRebuild:
    """Takes the entries from the log's beginning to the snapshot's last one or later, in order.

    Args:
        is_whole: whether the log has its beginning, so that every queue must be found whole.
        registry: reads and folds the commands.
        folder: for the files of the state of a whole log.
        passed_over: entries of a cut log whose records were refused.
    """

    def __init__(
        self,
        to_mend: DamagedQueues,
        is_whole: bool,
        registry: Registry,
        folder: str | None = None,
        passed_over: Collection[int] = (),
    ) -> None:
        self._passed_over = frozenset(passed_over)
        self._registry = registry
        self._is_whole = is_whole
        self._to_mend = to_mend
        self._ends = to_mend.ends
        self._firsts = to_mend.firsts
        self._found: dict[tuple[str, int], _Found] = {}  # of a whole log
        self._runs: dict[tuple[str, int], _Runs] = {}  # of a cut log
        self._state = BrokerState(registry, folder=folder)  # of a whole log
        self._deleted: set[str] = set()  # topics that do not exist at this point of a cut log
        self._recreated: set[str] = set()  # topics whose queues begin in this log

    def take(self, entries: Sequence[Entry]) -> None:
        """Take the next entries of the log. Raises DiskFailed, EntryTooNew."""
        normal = [entry for entry in entries if entry.magic == _NORMAL]
        if self._is_whole:
            self._take_folded(fold(self._state, normal))
            return
        for entry in normal:
            kind = kind_of(entry.body)
            if kind is EntryKind.RECORD:
                if entry.index not in self._passed_over:
                    self._take_record(entry)
            elif kind is EntryKind.COMMAND:
                self._take_command(entry)

    def close(self) -> None:
        self._state.close()

    def finish(self) -> None:
        """Write the last units. Raises DiskFailed for a queue that the log does not have whole."""
        for key in list(self._to_mend.queues):
            end = self._ends[key]
            if self._is_whole:
                found = self._found.get(key) or _Found(self._firsts[key])
            else:
                # Without a message in the log, the queue begins where it ends.
                runs = self._runs.get(key)
                found = (None if runs is None else runs.ending_at(end)) or _Found(end)
            if found.next_offset != end:
                problem = f"the log has {found.first} to {found.next_offset}, the snapshot to {end}"
                raise DiskFailed("rebuild", f"{key[0]}/{key[1]}", OSError(problem))
            self._flush(key, found)
            self._to_mend.mended(key, found.first)

    def _take_folded(self, folded: Folded) -> None:
        for topic in folded.deleted_topics:
            self._forget(topic)
        for key, arrived in folded.arrivals.items():
            # Messages before its first one are of an earlier topic of this name.
            first = self._firsts[key] if key in self._to_mend.queues else None
            if first is not None and arrived.first_offset >= first:
                found = self._found.setdefault(key, _Found(first))
                room = self._ends[key] - found.next_offset  # the queue has later ones already
                found.add(_units(arrived)[:room])
                if len(found.units) >= _GATHERED:
                    self._flush(key, found)

    def _take_record(self, entry: Entry) -> None:
        body = entry.body
        facts = read_record_facts(body, folds=True)
        if facts is None:
            return
        if holds_several(body, facts.size):
            run = read_run(body, entry.body_pos)
            if isinstance(run, RecordRun):
                for (topic, queue_id), arrived in run.arrivals.items():
                    for offset, unit in enumerate(_units(arrived), arrived.first_offset):
                        self._take_unit(topic, queue_id, offset, unit)
        elif facts.physical_offset == entry.body_pos:
            unit = UNIT.pack(facts.physical_offset, facts.size, facts.tags_code)
            self._take_unit(facts.topic, facts.queue_id, facts.queue_offset, unit)

    def _take_unit(self, topic: str, queue_id: int, offset: int, unit: bytes) -> None:
        key = (topic, queue_id)
        if key not in self._to_mend.queues or topic in self._deleted:
            return
        if not self._firsts[key] <= offset < self._ends[key]:
            return  # after the snapshot, or of a topic that was deleted before it
        runs = self._runs.get(key)
        if runs is None:
            runs = self._runs[key] = _Runs(self._firsts[key], topic in self._recreated)
        found = runs.take(offset, unit)
        if found is not None and len(found.units) >= _GATHERED:
            self._flush(key, found)
            runs.keep_only(found)

    def _take_command(self, entry: Entry) -> None:
        try:
            command = self._registry.decode(entry.body)
        except CommandMalformed:
            return
        except EntryTooNew:
            return  # the state has applied later entries, so an operator has had it skipped
        if isinstance(command, DeleteTopic):
            self._deleted.add(command.topic)
            self._recreated.add(command.topic)
            self._forget(command.topic)
        elif isinstance(command, PutTopic):
            topic = command.config.topic
            self._deleted.discard(topic)
            for key, runs in self._runs.items():
                if key[0] == topic:
                    runs.may_begin_again = True

    def _forget(self, topic: str) -> None:
        for table in (self._found, self._runs):
            for key in [key for key in table if key[0] == topic]:
                del table[key]

    def _flush(self, key: tuple[str, int], found: "_Found") -> None:
        if found.units:
            first = found.next_offset - len(found.units)
            self._to_mend.put_back(key, first, b"".join(found.units))
            found.units.clear()


def _units(arrived: Arrivals) -> list[bytes]:
    return list(map(UNIT.pack, arrived.places, arrived.sizes, arrived.codes))


class _Found:
    """A run of messages of one queue.

    Attributes:
        first: the first offset.
        next_offset: the offset after the last.
        units: the last ones, which are not written yet.
    """

    __slots__ = ("first", "next_offset", "units")

    def __init__(self, first: int) -> None:
        self.first = self.next_offset = first
        self.units: list[bytes] = []

    def add(self, units: Sequence[bytes]) -> None:
        self.units += units
        self.next_offset += len(units)


class _Runs:
    """The records of one queue in a cut log.

    Where the queue ended when this log began is unknown. If the state does not know which records
    the fold refused, that is unknown, too. It accepted consecutive records. So each record that
    continues no run may be the first one of the log, or a refused one. Only one run ends where the
    snapshot says that the queue ends.

    Args:
        first: the offset of the first message ever of the queue.
        begins_here: whether the topic was created in this log.

    Attributes:
        may_begin_again: whether the topic may have been created since the last run at `first`.
    """

    __slots__ = ("_began", "_begins_here", "_first", "_runs", "may_begin_again")

    def __init__(self, first: int, begins_here: bool) -> None:
        self.may_begin_again = False
        self._first = first
        self._begins_here = begins_here
        self._began: set[int] = set()
        self._runs: dict[int, _Found] = {}  # by `next_offset`

    def take(self, offset: int, unit: bytes) -> _Found | None:
        """Take a record; return its run, or None if the fold refused it."""
        found = self._runs.pop(offset, None)
        if found is None:
            if not self._may_begin(offset):
                return None
            self._began.add(offset)
            found = _Found(offset)
        found.add([unit])
        other = self._runs.get(found.next_offset)
        # From here on both runs are the same. If both begin at the queue's first offset, the later
        # one is of a topic that was created again.
        if other is None or found.first <= other.first:
            self._runs[found.next_offset] = found
        return found

    def ending_at(self, end: int) -> _Found | None:
        return self._runs.get(end)

    def keep_only(self, found: _Found) -> None:
        """Forget the other runs: so many consecutive records were not refused."""
        self._runs = {found.next_offset: found}

    def _may_begin(self, offset: int) -> bool:
        if offset == self._first and self.may_begin_again:
            self.may_begin_again = False
            return True
        return offset not in self._began and (offset == self._first or not self._begins_here)
