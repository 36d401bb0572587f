"""One process of a member that runs the broker's state machine, checked as it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from broker.features import REGISTRY
from broker.log.state_snapshot import captured, restored
from broker.machine import BrokerMachine
from broker.messages.state import MESSAGES
from broker.store.consume_queue_disk import ConsumeQueueDisk
from broker.store.consume_queues import ConsumeQueues
from broker.store.rebuild_steps import RebuildSteps
from dledger.core.replica import Replica
from dledger.entry import Entry, decode_entries
from dledger.errors import DiskFailed
from dledger.sessions.session_entry import is_envelope
from dledger.store.segment_store import SegmentStore
from jepsen_like.simulation.broker.log_model import UNIT, UNIT_BYTES, QueueKey
from jepsen_like.simulation.broker.queue_disk import VirtualQueueDisk
from jepsen_like.simulation.broker.reference import Reference, digest
from jepsen_like.simulation.coverage import Coverage
from jepsen_like.simulation.invariants import InvariantViolated
from jepsen_like.simulation.machine import MachineState
from jepsen_like.simulation.watched_machine import WatchedMachine

ROOT = "/broker"
QUEUES = f"{ROOT}/consumequeue"
# So few that a queue has many files, and that the log keeps closing and opening them.
UNITS_PER_FILE = 3
OPEN_FILES = 5
# Each run of entries is written by itself, so that a power cut tears as many as possible.
WRITE_UNITS = 1
# After so many checks of changed queues, all queues and their files are checked.
CHECKS_A_WHOLE_LOOK = 40
# Whether a chunk of a snapshot is of the broker, or of the sums and sessions of the tier.
_OF_BROKER, _OF_SUMS = b"B", b"S"


class Where(NamedTuple):
    """The first and the last applied entry of a member. Implements `rebuild_steps.LogStatus`."""

    first_index: int
    applied: int


class MemberLog:
    """The log of one process, as its broker reads it."""

    def __init__(self, store: SegmentStore, replica: Replica) -> None:
        self._store = store
        self._replica = replica

    def status(self) -> Where:
        return Where(self._store.first_index, self._replica.state.applied)

    def entries(self, first: int, max_bytes: int) -> list[Entry]:
        last, first = self._replica.appliable, max(first, self._store.first_index)
        if first > last:
            return []
        return decode_entries(self._store.read(first, last, max_bytes))

    def read_bytes(self, pos: int, size: int) -> bytes:
        return self._store.read_bytes(pos, size)

    def check_at(self, pos: int) -> None:
        self._store.check_at(pos)

    @property
    def begin_position(self) -> int:
        return self._store.begin_pos


class BrokerMember:
    """The broker's machine beside the sums and sessions of the tier. Implements MemberMachine.

    `furthest` has by member the last entry that was ever applied to the queues on its disk. `log`
    is there once the member runs.
    """

    def __init__(
        self,
        name: str,
        watched: WatchedMachine,
        files: VirtualQueueDisk,
        reference: Reference,
        furthest: dict[str, int],
        coverage: Coverage,
    ) -> None:
        self.snapshot_format = BrokerMachine.snapshot_format
        self.broker = BrokerMachine(_queues(files, QUEUES), REGISTRY)
        self.log: MemberLog | None = None
        self._name = name
        self._watched = watched
        self._files = files
        self._reference = reference
        self._furthest = furthest
        self._coverage = coverage
        self._applied = -1
        self._checked = -1  # queues that changed up to this entry were checked
        self._checks = 0

    @property
    def state(self) -> MachineState:
        return self._watched.state

    # --- the state machine ----------------------------------------------------------------------

    def apply(self, entries: Sequence[Entry]) -> Sequence[object]:
        answers = self._watched.apply(entries)
        last = entries[-1].index
        self._furthest[self._name] = max(self._furthest.get(self._name, -1), last)
        results = self.broker.apply(entries)
        return [
            answer if is_envelope(entry.body) else result
            for entry, answer, result in zip(entries, answers, results, strict=True)
        ]

    def log_kept_from(self) -> int:
        return self.broker.log_kept_from()

    def snapshot(self) -> Iterator[bytes]:
        """Return the state in chunks, each of the broker or of the sums."""
        return chain(
            _marked(_OF_BROKER, self.broker.snapshot()), _marked(_OF_SUMS, self._watched.snapshot())
        )

    def restore(self, chunks: Iterator[bytes]) -> None:
        found = list(chunks)
        self.broker.restore(_unmarked(_OF_BROKER, found))
        self._watched.restore(_unmarked(_OF_SUMS, found))

    # --- what watches it ------------------------------------------------------------------------

    def begin(self, store: SegmentStore, replica: Replica) -> None:
        self.log = MemberLog(store, replica)
        self._watched.begin(store, replica)
        self._has_moved()

    def moved(self) -> None:
        self._watched.moved()
        self._has_moved()

    def follow(self) -> None:
        self._watched.follow()

    # --- damaged queues -------------------------------------------------------------------------

    def mending(self) -> RebuildSteps:
        """Return the steps that rebuild damaged queues."""
        assert self.log is not None
        return RebuildSteps(self.log, self.broker)

    def mend_some(self, steps: RebuildSteps) -> bool:
        """Do one step; return whether there are more. Raises InvariantViolated."""
        damaged = bool(self.broker.queues.damaged)
        try:
            if steps.step():
                return True
        except DiskFailed as error:
            raise InvariantViolated(
                "damaged queues are made again", f"{self._name}: {error}"
            ) from error
        if damaged:
            self._coverage.count("queues made again from the log")
            self.look_at_all()
        return False

    # --- checks ---------------------------------------------------------------------------------

    def _has_moved(self) -> None:
        applied = self._where().applied
        if applied == self._applied:
            return
        self._applied = applied
        if digest(self.broker.state) != self._reference.digest_at(applied):
            raise InvariantViolated(
                "the state is a fold of the log",
                f"{self._name} has another one after entry {applied}: {self.broker.state!r:.2000}",
            )
        self._checks += 1
        if self._checks % CHECKS_A_WHOLE_LOOK == 0:
            self.look_at_all()
        elif self._is_caught_up:
            ends = self.broker.state[MESSAGES].queue_ends
            for topic, queue_id in sorted(self._reference.touched(self._checked + 1, applied)):
                if queue_id in ends.get(topic, ()):  # else its topic was deleted since
                    self._look_at((topic, queue_id), last_only=True)
            self._checked = applied

    @property
    def _is_caught_up(self) -> bool:
        """Whether the state has all entries that were ever applied to the files.

        Files of an earlier run are ahead of a snapshot. Their later units may be of a topic that
        was created again; the replay of these entries puts them right.
        """
        return self._applied >= self._furthest.get(self._name, -1)

    def look_at_all(self) -> None:
        """Check all queues and their files, if the replay is over."""
        if not self._is_caught_up:
            return
        self._checked = self._applied
        self._coverage.count("looks at all queues")
        ends = self.broker.state[MESSAGES].queue_ends
        keys = {(topic, queue_id) for topic, table in ends.items() for queue_id in table}
        for topic, queue_id in sorted(set(self.broker.queues.keys()) - keys):
            self._fail((topic, queue_id), "is there, and the log has no such queue")
        for key in sorted(keys):
            self._look_at(key, last_only=False)

    def check_saved(self) -> None:
        """Check that a snapshot taken now gives this state, and an empty folder these queues."""
        state, queues = self.broker.state, self.broker.queues
        again = restored(captured(state), REGISTRY)
        if digest(again) != digest(state):
            raise InvariantViolated("a snapshot gives the state back", f"{self._name}: {again!r}")
        root = f"{ROOT}/rebuilt"
        self._files.make_folder(root)
        rebuilt = BrokerMachine(_queues(self._files, root), REGISTRY)
        rebuilt.restore(captured(state))
        assert self.log is not None
        steps = RebuildSteps(self.log, rebuilt)
        while self.mend_some(steps):
            pass
        kept = self._kept_position()
        for key in sorted(queues.keys()):
            found = [
                (each.begin(*key, kept), each.read(*key, each.begin(*key, kept), each.end(*key)))
                for each in (queues, rebuilt.queues)
            ]
            if found[0] != found[1]:
                self._fail(key, f"made again from the log begins at {found[1][0]} and differs")
        rebuilt.queues.close()
        self._files.remove_folder(root)

    def _look_at(self, key: QueueKey, *, last_only: bool) -> None:
        try:
            self._compare(key, last_only=last_only)
        except DiskFailed as error:
            self._fail(key, f"cannot be read: {error}")

    def _compare(self, key: QueueKey, *, last_only: bool) -> None:
        queues, kept = self.broker.queues, self._kept_position()
        if key in queues.damaged:
            return
        messages = self.broker.state[MESSAGES]
        born, end = messages.begins.get(key[0], 0), messages.queue_end(*key)
        if queues.end(*key) != end:
            self._fail(key, f"ends at {queues.end(*key)}, should end at {end}")
        units = self._reference.units(*key, self._applied)[: (end - born) * UNIT_BYTES]
        places = [unit[0] for unit in UNIT.iter_unpack(units)]
        begin = next((at for at, place in enumerate(places, born) if place >= kept), end)
        if queues.begin(*key, kept) != begin:
            self._fail(key, f"begins at {queues.begin(*key, kept)}, should begin at {begin}")
        first = max(begin, end - 1) if last_only else begin
        wanted = units[(first - born) * UNIT_BYTES :]
        if queues.read(*key, first, end) != wanted:
            self._fail(key, f"has other messages at {first} to {end}")
        if not last_only:
            written = max(first, queues.written(*key))
            if self._in_files(key, first, written) != wanted[: (written - first) * UNIT_BYTES]:
                self._fail(key, f"has other messages in its files at {first} to {written}")

    def _in_files(self, key: QueueKey, first: int, end: int) -> bytes:
        """Return the units of a queue from its files alone."""
        folder, file_bytes = f"{QUEUES}/{key[0]}/{key[1]}", UNITS_PER_FILE * UNIT_BYTES
        parts: list[bytes] = []
        at, last = first * UNIT_BYTES, end * UNIT_BYTES
        while at < last:
            within = at % file_bytes
            size = min(last - at, file_bytes - within)
            content = self._files.content(f"{folder}/{at - within:020d}")
            parts.append(content[within : within + size])
            at += size
        return b"".join(parts)

    def _kept_position(self) -> int:
        """Return the position before which nothing can be read, as in
        `broker.store.message_reader`.
        """
        assert self.log is not None
        return max(self.broker.state[MESSAGES].kept_position, self.log.begin_position)

    def _where(self) -> Where:
        assert self.log is not None
        return self.log.status()

    def _fail(self, key: QueueKey, how: str) -> None:
        raise InvariantViolated(
            "consume queues are those of the log",
            f"{key[0]}/{key[1]} of {self._name}, after entry {self._applied}, {how}",
        )


def _queues(files: ConsumeQueueDisk, folder: str) -> ConsumeQueues:
    return ConsumeQueues(Path(folder), OPEN_FILES, UNITS_PER_FILE, files, WRITE_UNITS)


def _marked(mark: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    return (mark + chunk for chunk in chunks)


def _unmarked(mark: bytes, chunks: Iterable[bytes]) -> Iterator[bytes]:
    return (chunk[1:] for chunk in chunks if chunk.startswith(mark))
