"""Makes damaged consume queues again from what is left of the log.

A state that was restored from a snapshot says where its queues end, and the replay begins behind
it. If their files are not there any more, the log before the snapshot is read once again.

A log that has its beginning is folded once more, so what the fold passed over is passed over again.
If retention has dropped the beginning, it is not known which topics existed where the log begins
now. A topic exists then if the first entry about it is a message. If it was in truth deleted and
created again, its queues begin again with a message of offset 0 behind a PutTopic. In any case each
queue has to end where the snapshot says.
"""

from collections.abc import Sequence
from typing import Final

from broker.errors import CommandMalformed
from broker.log.entry import EntryKind, kind_of
from broker.log.fold import fold
from broker.log.folded import Folded
from broker.log.registry import Registry
from broker.log.state import BrokerState
from broker.messages.fold import UNIT
from broker.messages.record_facts import read_record_facts
from broker.store.consume_queues import ConsumeQueues
from broker.topics.commands import DeleteTopic, PutTopic
from dledger import DiskFailed, Entry, Magic

# Units of one queue that are gathered before they are written.
_GATHERED: Final = 4096

_NORMAL: Final = int(Magic.NORMAL)


class QueueRebuild:
    """Takes the entries from the log's beginning to the snapshot's last one or later, in order.

    Args:
        queues: what is to be mended.
        ends: by topic and queue id: the end of each queue in the snapshot.
        is_whole: whether the log has its beginning, so that every queue has to be found whole.
        registry: reads and folds the commands.
    """

    def __init__(
        self,
        queues: ConsumeQueues,
        ends: dict[tuple[str, int], int],
        is_whole: bool,
        registry: Registry,
    ) -> None:
        self._registry = registry
        self._is_whole = is_whole
        self._queues = queues
        self._ends = ends
        self._found: dict[tuple[str, int], _Found] = {}
        self._state = BrokerState(registry)  # of a whole log
        self._deleted: set[str] = set()  # topics that do not exist at this point of a cut log
        self._made_anew: set[str] = set()  # topics whose queues begin at 0

    def take(self, entries: Sequence[Entry]) -> None:
        """The next entries of the log. Raises DiskFailed, EntryTooNew."""
        normal = [entry for entry in entries if entry.magic == _NORMAL]
        if self._is_whole:
            self._take_folded(fold(self._state, normal))
            return
        for entry in normal:
            kind = kind_of(entry.body)
            if kind is EntryKind.RECORD:
                self._take_record(entry)
            elif kind is EntryKind.COMMAND:
                self._take_command(entry)

    def finish(self) -> None:
        """All entries were taken. Raises DiskFailed for a queue that the log does not give back."""
        for key in list(self._queues.damaged):
            end = self._ends[key]
            # Without a message in the log that is left, the queue begins where it ends.
            found = self._found.get(key) or _Found(0 if self._is_whole else end)
            self._flush(key, found)
            if found.next_offset != end or (self._is_whole and found.first):
                problem = f"the log has {found.first} to {found.next_offset}, the snapshot to {end}"
                raise DiskFailed("rebuild", f"{key[0]}/{key[1]}", OSError(problem))
            self._queues.mended(key, found.first)

    def _take_folded(self, folded: Folded) -> None:
        for topic in folded.deleted_topics:
            self._forget(topic)
        for key, arrived in folded.arrivals.items():
            if key in self._queues.damaged:
                found = self._found.setdefault(key, _Found(0))
                room = self._ends[key] - found.next_offset  # what comes behind is in the queue
                found.add(arrived.units[:room])
                if len(found.units) >= _GATHERED:
                    self._flush(key, found)

    def _take_record(self, entry: Entry) -> None:
        facts = read_record_facts(entry.body)
        if facts is None or facts.physical_offset != entry.body_pos:
            return
        key = (facts.topic, facts.queue_id)
        if key not in self._queues.damaged or facts.topic in self._deleted:
            return
        found = self._found.get(key)
        if found is None or (found.may_begin_again and facts.queue_offset == 0):
            if facts.topic in self._made_anew and facts.queue_offset != 0:
                return
            # In the midst of a queue whose beginning was dropped, the first one that is there.
            found = self._found[key] = _Found(facts.queue_offset)
        if facts.queue_offset != found.next_offset or found.next_offset == self._ends[key]:
            return  # one that the fold has passed over, or one behind the snapshot
        found.add([UNIT.pack(facts.physical_offset, facts.size, facts.tags_code)])
        if len(found.units) >= _GATHERED:
            self._flush(key, found)

    def _take_command(self, entry: Entry) -> None:
        try:
            command = self._registry.decode(entry.body)
        except CommandMalformed:
            return
        if isinstance(command, DeleteTopic):
            self._deleted.add(command.topic)
            self._made_anew.add(command.topic)
            self._forget(command.topic)
        elif isinstance(command, PutTopic):
            topic = command.config.topic
            self._deleted.discard(topic)
            for key, found in self._found.items():
                found.may_begin_again |= key[0] == topic

    def _forget(self, topic: str) -> None:
        for key in [key for key in self._found if key[0] == topic]:
            del self._found[key]

    def _flush(self, key: tuple[str, int], found: "_Found") -> None:
        if found.units:
            first = found.next_offset - len(found.units)
            self._queues.put_back(key, first, b"".join(found.units))
            found.units.clear()


class _Found:
    """What the log has of one queue so far.

    Attributes:
        first: the first offset.
        next_offset: the one behind the last.
        units: those that are not written yet, the last ones.
        may_begin_again: whether the topic may have been created since the first one.
    """

    __slots__ = ("first", "may_begin_again", "next_offset", "units")

    def __init__(self, first: int) -> None:
        self.first = self.next_offset = first
        self.units: list[bytes] = []
        self.may_begin_again = False

    def add(self, units: Sequence[bytes]) -> None:
        self.units += units
        self.next_offset += len(units)
