"""Makes damaged consume queues again from what is left of the log.

A state that was restored from a snapshot says where its queues end, and the replay begins behind
it. If their files are not there any more, the log before the snapshot is read once again.

A log that has its beginning is folded once more, so what the fold passed over is passed over again.
If retention has dropped the beginning, it is not known which topics existed where the log begins
now, and where their queues ended. Then the state tells which entries were passed over, and all
others hold messages. A state that goes on from a snapshot of an earlier version does not know them
all: see `_Runs`.
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

# Units of one queue that are gathered before they are written.
_GATHERED: Final = 4096

_NORMAL: Final = int(Magic.NORMAL)


class QueueRebuild:
    """Takes the entries from the log's beginning to the snapshot's last one or later, in order.

    Args:
        to_mend: the damaged queues.
        is_whole: whether the log has its beginning, so that every queue has to be found whole.
        registry: reads and folds the commands.
        folder: for what the state of a whole log keeps on disk.
        passed_over: entries of a cut log whose records are known to be no messages.
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
        self._made_anew: set[str] = set()  # topics whose queues begin in this log

    def take(self, entries: Sequence[Entry]) -> None:
        """The next entries of the log. Raises DiskFailed, EntryTooNew."""
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
        """Let go of what is on disk for it."""
        self._state.close()

    def finish(self) -> None:
        """All entries were taken. Raises DiskFailed for a queue that the log does not give back."""
        for key in list(self._to_mend.queues):
            end = self._ends[key]
            if self._is_whole:
                found = self._found.get(key) or _Found(self._firsts[key])
            else:
                # Without a message in the log that is left, the queue begins where it ends.
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
            # What lies before its first message is of an earlier topic of this name.
            first = self._firsts[key] if key in self._to_mend.queues else None
            if first is not None and arrived.first_offset >= first:
                found = self._found.setdefault(key, _Found(first))
                room = self._ends[key] - found.next_offset  # what comes behind is in the queue
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
            return  # behind the snapshot, or of a topic that was deleted before it
        runs = self._runs.get(key)
        if runs is None:
            runs = self._runs[key] = _Runs(self._firsts[key], topic in self._made_anew)
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
            return  # the state is behind it, so the operator has had it passed over
        if isinstance(command, DeleteTopic):
            self._deleted.add(command.topic)
            self._made_anew.add(command.topic)
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
        next_offset: the one behind the last.
        units: those that are not written yet, the last ones.
    """

    __slots__ = ("first", "next_offset", "units")

    def __init__(self, first: int) -> None:
        self.first = self.next_offset = first
        self.units: list[bytes] = []

    def add(self, units: Sequence[bytes]) -> None:
        self.units += units
        self.next_offset += len(units)


class _Runs:
    """What a cut log has of one queue.

    Where the queue ended when this log began is not known. If the state does not know which records
    the fold passed over, that is not known either. It took those that follow one another from there
    on. So each record that continues no run may be the first one of the log, or one that the fold
    passed over; only one run ends where the snapshot says that the queue ends.

    Args:
        first: the offset that the first message of the queue has, or had.
        begins_here: the topic was made in this log.

    Attributes:
        may_begin_again: whether the topic may have been made since the last run at `first` began.
    """

    __slots__ = ("_began", "_begins_here", "_first", "_runs", "may_begin_again")

    def __init__(self, first: int, begins_here: bool) -> None:
        self.may_begin_again = False
        self._first = first
        self._begins_here = begins_here
        self._began: set[int] = set()
        self._runs: dict[int, _Found] = {}  # by the offset that comes next

    def take(self, offset: int, unit: bytes) -> _Found | None:
        """Take a record; the run that it belongs to, or None if the fold passed it over."""
        found = self._runs.pop(offset, None)
        if found is None:
            if not self._may_begin(offset):
                return None
            self._began.add(offset)
            found = _Found(offset)
        found.add([unit])
        other = self._runs.get(found.next_offset)
        # From here on both take the same records. Of two that begin at the queue's first offset,
        # the later is of a topic that was made again.
        if other is None or found.first <= other.first:
            self._runs[found.next_offset] = found
        return found

    def ending_at(self, end: int) -> _Found | None:
        """The run that ends before an offset."""
        return self._runs.get(end)

    def keep_only(self, found: _Found) -> None:
        """Forget the other runs: so many messages in a row are no records that were passed over."""
        self._runs = {found.next_offset: found}

    def _may_begin(self, offset: int) -> bool:
        if offset == self._first and self.may_begin_again:
            self.may_begin_again = False
            return True
        return offset not in self._began and (offset == self._first or not self._begins_here)
