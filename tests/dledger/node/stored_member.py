"""One member over the real store, on a disk that forgets at a power cut what was not synced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dledger.core.admission.standing import Standing
from dledger.core.agenda import RECEIVE, SEND, WRITE
from dledger.core.entry_dispatcher import BatchSizer
from dledger.core.messages import Message, PushRequest
from dledger.core.replica import Outgoing, Replica, ReplicaConfig
from dledger.core.snapshot.snapshot_offer import SnapshotSource
from dledger.entry import Entry
from dledger.errors import PeerFault
from dledger.node.log_writer import Batches
from dledger.node.member import Member, MemberSettings, Runtime
from dledger.node.sync_schedule import Ended
from dledger.node.tally import Tally
from dledger.snapshots.restoring import Opened
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.state_machine import StateMachine
from dledger.store.folder import node_folder
from dledger.store.log_store import SyncWork
from dledger.store.open_store import open_store
from dledger.store.push_check import PushCheck
from dledger.store.segment_store import SegmentStore
from dledger.store.snapshot_folder import SnapshotFolder
from dledger.store.store_config import StoreConfig
from dledger.waits.pending_appends import Outcome
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, VirtualDisk
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import FILL, HEARTBEAT_S, TIMEOUT_S, take

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)
NOTHING_KEPT = CrashStyle(keep=0.0, torn=0.0, names_in_order=True)
MAX_BATCH_BYTES = 1000
BASE = "/base"


class Heard:
    """A state machine that counts the entries it was given."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.count += len(entries)
        return [None] * len(entries)


class Letterbox:
    """A way to a peer, and what went on it."""

    def __init__(self, peer: str, sent: list[Outgoing]) -> None:
        self._peer = peer
        self._sent = sent

    def send(self, message: Message, payload: bytes = b"") -> None:
        if isinstance(message, PushRequest) and payload:
            message = message._replace(payload=payload)
        self._sent.append(Outgoing(self._peer, message))


class Letterboxes:
    """The ways of a member; what left stays here until somebody takes it."""

    def __init__(self) -> None:
        self.sent: list[Outgoing] = []

    def link_to(self, peer: str) -> Letterbox:
        return Letterbox(peer, self.sent)

    def take(self) -> list[Outgoing]:
        taken = self.sent[:]
        self.sent.clear()
        return taken


class HeldSyncs:
    """Runs a sync when the test says so."""

    is_quick = False

    def __init__(self) -> None:
        self.work: SyncWork | None = None

    @property
    def busy(self) -> bool:
        return self.work is not None

    def run(self, work: SyncWork, *, leads: bool) -> Ended | None:
        raise AssertionError("this disk is slow: its syncs are started")

    def start(self, work: SyncWork) -> None:
        self.work = work


class StoredMember:
    """A member that can lose its power. The test takes the steps of its turns one by one."""

    def __init__(
        self,
        name: str,
        voters: Sequence[str],
        new_machine: Callable[[], StateMachine] = Heard,
        policy: SnapshotPolicy | None = None,
    ) -> None:
        self.name = name
        self._new_machine = new_machine
        self._policy = policy or SnapshotPolicy()
        self._voters = voters
        self.disk = VirtualDisk(Chance(1, name))
        self.start(0.0)

    def start(self, now: float) -> None:
        """Open what is on the disk."""
        self.store: SegmentStore = open_store(self.disk, BASE, CONFIG, "g", self.name)
        self.ways = Letterboxes()
        self.syncs = HeldSyncs()
        self.outcomes: list[Outcome] = []
        self.refused: list[PeerFault] = []
        self._now = now
        self._replica: Replica | None = None
        self._check = PushCheck(self.store)
        self.member = self.made(
            Runtime(
                self.ways,
                self.syncs,
                lambda work: work()(),
                lambda: None,
                lambda: None,
                lambda: None,
                lambda: self._now,
                lambda messages: None,
                lambda: None,
                self.refused.append,
                Tally(),
            )
        )

    def made(self, around: Runtime, flush_interval_s: float | None = None) -> Member:
        """A member over this store, for those who drive it otherwise. Its replica is the same."""
        store, folder = self.store, SnapshotFolder(self.disk, node_folder(BASE, self.name))
        settings = MemberSettings("g", MAX_BATCH_BYTES, flush_interval_s, self._policy, 0.0)
        folder.open()
        self.machine = self._new_machine()

        lost = store.standing is Standing.LOST

        def make(batches: BatchSizer, source: SnapshotSource) -> Replica:
            if self._replica is None:
                self._replica = Replica(
                    ReplicaConfig(self.name, configuration(self._voters), TIMEOUT_S, HEARTBEAT_S),
                    store.view(),
                    store.hard_state,
                    batches,
                    lambda: 0.5,
                    self._now,
                    snapshots=source,
                    # A new folder is taken for one whose group is new: no test begins with that.
                    standing=Standing.LOST if lost else Standing.PROVEN,
                )
            return self._replica

        self.member = Member(settings, Opened(store, folder, None), self.machine, make, around)
        return self.member

    @property
    def replica(self) -> Replica:
        return self.member.replica

    @property
    def batches(self) -> Batches:
        return self.member.batches

    def carry_out_writes(self) -> None:
        """Write what the core decided, and sync nothing of it."""
        take(self.member.turn, WRITE, self._now)

    def receive(self, sender: str, message: Message, now: float) -> None:
        """Take one message."""
        self._now = now
        if isinstance(message, PushRequest):
            message = self._check.check(message)
        self.member.turn.received(sender, [message])
        take(self.member.turn, RECEIVE, now)

    def propose(self, bodies: Sequence[bytes]) -> int:
        """Append entries as the leader; the index of the last one."""
        turn = self.member.turn
        take(turn, WRITE, self._now)
        turn.submit(bodies, sum(map(len, bodies)), self.outcomes.append)
        turn.propose(self._now)
        return self.store.last_index

    def leaving(self, now: float) -> list[Outgoing]:
        """Let leave what may leave now, pushes with their bytes."""
        self._now = now
        take(self.member.turn, WRITE, now)
        take(self.member.turn, FILL | SEND, now)
        return self.ways.take()

    def run_sync(self) -> SyncWork:
        """A sync that nobody was told of yet. Raises PowerCut if the disk is to lose its power."""
        take(self.member.turn, WRITE, self._now)
        self.member.turn.syncs.start(self._now)
        assert self.syncs.work is not None
        self.syncs.work.run()
        return self.syncs.work

    def synced(self, work: SyncWork, now: float) -> None:
        """The sync ended."""
        self._now, self.syncs.work = now, None
        self.member.turn.sync_ended(work, None)
        take(self.member.turn, RECEIVE, now)

    def sync(self, now: float) -> None:
        """A whole sync, run and told of."""
        self.synced(self.run_sync(), now)

    def cut_power(self, now: float) -> None:
        """The machine stops, and comes back with what was durable."""
        self.disk.cut_power(NOTHING_KEPT)
        self.start(now)


def led_alone() -> StoredMember:
    """A member that leads alone, and has nothing to do."""
    member = StoredMember("n0", ["n0"])
    now = 10.0
    for _ in range(20):
        now += 1.0
        member.member.turn.turn(now)
        if member.syncs.work is not None:
            member.syncs.work.run()
            member.synced(member.syncs.work, now)
    assert member.replica.acks is not None
    member.member.turn.turn(now)
    return member
