"""One core over the real store, on a disk that forgets at a power cut what was not synced."""

from __future__ import annotations

from collections.abc import Sequence

from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.messages import Message, Phase, PushRequest
from dledger.core.replica import Outgoing, Replica, ReplicaConfig
from dledger.entry import Magic
from dledger.node.batches import Batches
from dledger.node.log_writer import LogWriter
from dledger.store.log_store import SyncWork
from dledger.store.open_store import open_store
from dledger.store.push_check import PushCheck
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.simulation.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)
NOTHING_KEPT = CrashStyle(keep=0.0, torn=0.0, names_in_order=True)
MAX_BATCH_BYTES = 1000


class StoredMember:
    """A member that can lose its power. A turn is: `receive`, then `leaving`, then `sync`."""

    def __init__(self, name: str, voters: Sequence[str]) -> None:
        self.name = name
        self._voters = voters
        self.disk = VirtualDisk(Chance(1, name))
        self.start(0.0)

    def start(self, now: float) -> None:
        """Open what is on the disk."""
        self.store: SegmentStore = open_store(self.disk, "/base", CONFIG, "g", self.name)
        self.batches = Batches(self.store, MAX_BATCH_BYTES)
        # A new folder is taken for one whose group is new, so that no test has to begin with that.
        lost = self.store.standing is Standing.LOST
        self.replica = Replica(
            ReplicaConfig(self.name, configuration(self._voters), TIMEOUT_S, HEARTBEAT_S),
            self.store.view(),
            self.store.hard_state,
            self.batches,
            lambda: 0.5,
            now,
            standing=Standing.LOST if lost else Standing.PROVEN,
        )
        self.writer = LogWriter(self.store, self.batches)
        self._check = PushCheck(self.store)
        self._record_due: HardState | None = None

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take one message."""
        if isinstance(message, PushRequest):
            message = self._check.check(message)
        self.replica.receive(sender, message, now)

    def propose(self, bodies: Sequence[bytes]) -> int:
        """Append entries as the leader; the index of the last one."""
        self.carry_out_writes()
        first, term = self.replica.propose(len(bodies))
        return self.writer.append(term, Magic.NORMAL, bodies, first)

    def leaving(self, now: float) -> list[Outgoing]:
        """End a turn: what may leave now, pushes with their bytes."""
        self.carry_out_writes()
        outgoing = []
        for peer, message in self.replica.take_messages(now).outgoing:
            if isinstance(message, PushRequest) and message.phase is Phase.APPEND:
                payload = self.batches.payload(message.prev_index + 1, message.last_index)
                outgoing.append(Outgoing(peer, message._replace(payload=payload)))
            else:
                outgoing.append(Outgoing(peer, message))
        return outgoing

    def run_sync(self) -> SyncWork:
        """A sync that nobody was told of yet. Raises PowerCut if the disk is to lose its power."""
        self.carry_out_writes()
        record, self._record_due = self._record_due, None
        work = self.store.begin_sync(record)
        work.run()
        return work

    def synced(self, work: SyncWork, now: float) -> None:
        """The sync ended."""
        self.replica.persisted(work.index, work.epoch, work.hard_state, now)

    def sync(self, now: float) -> None:
        """A whole sync, run and told of."""
        self.synced(self.run_sync(), now)

    def cut_power(self, now: float) -> None:
        """The machine stops, and comes back with what was durable."""
        self.disk.cut_power(NOTHING_KEPT)
        self.start(now)

    def carry_out_writes(self) -> None:
        """Write what was accepted or decided; nothing of it is durable yet."""
        writes, record = self.replica.take_writes()
        for write in writes:
            self.writer.carry_out(write)
        if record is not None:
            self._record_due = record
