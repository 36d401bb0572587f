"""Snapshots that are written, offered and restored while the log goes on, a step at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dledger.core.messages import InstallSnapshot, Phase, PushRequest, PushResponse, VoteResponse
from dledger.entry import Entry
from dledger.snapshots.awaited_snapshot import AwaitedSnapshot
from dledger.snapshots.beside import Continuation
from dledger.snapshots.snapshot_policy import SnapshotPolicy
from dledger.snapshots.snapshot_source import NodeSnapshots
from dledger.snapshots.snapshotter import SnapshotAnswer, snapshot_header
from dledger.store.folder import node_folder
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from tests.dledger.core.core_group import TIMEOUT_S
from tests.dledger.node.stored_member import BASE, StoredMember

NOW = 2 * TIMEOUT_S
BODY = bytes(300)


class Count:
    """Counts entries."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        self.count += len(entries)
        return [None] * len(entries)

    def snapshot(self) -> list[bytes]:
        return [b"%d" % self.count]

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.count = int(b"".join(chunks))


class Leader:
    """n0 leads n1 and n2, and n2 acknowledges everything."""

    def __init__(self, policy: SnapshotPolicy) -> None:
        self.stored = StoredMember("n0", ["n0", "n1", "n2"], Count, policy)
        self.now = NOW
        self.stored.replica.tick(NOW)
        for pre in (True, False):
            self.stored.receive("n2", VoteResponse(1, granted=True, pre=pre), NOW)
            self.step()
        self.stored.receive("n2", PushResponse(1, Phase.COMPARE, True, -1), NOW)
        self.step()
        self.acknowledge()

    def step(self) -> None:
        """What may leave, leaves, and all that is written becomes durable."""
        self.stored.leaving(self.now)
        self.stored.sync(self.now)

    def acknowledge(self) -> None:
        last = self.stored.store.last_index
        answer = PushResponse(1, Phase.APPEND, True, last, last, last, last)
        self.stored.receive("n2", answer, self.now)
        self.step()
        while self.stored.member.applier.apply_some():
            pass

    def append(self, count: int) -> None:
        """So many entries, committed and applied."""
        for _ in range(count):
            self.stored.propose([BODY])
            self.step()
        self.acknowledge()
        assert self.stored.replica.state.applied == self.stored.store.last_index

    def snapshot(self) -> Snapshot:
        answers: list[SnapshotAnswer] = []
        self.stored.member.snapshots.ask(answers.append)
        self.stored.member.look(self.now)
        self.step()
        (answer,) = answers
        assert isinstance(answer, Snapshot)
        return answer


def test_the_log_behind_a_snapshot_stays_while_a_member_is_sent_it() -> None:
    leader = Leader(SnapshotPolicy(kept=1, trailing_entries=0))
    leader.append(60)
    snapshot = leader.snapshot()
    store, dispatcher = leader.stored.store, leader.stored.replica.dispatchers["n1"]
    assert store.first_index > 0
    leader.now += TIMEOUT_S
    left = leader.stored.leaving(leader.now)
    (asked,) = [m.prev_index for to, m in left if to == "n1" and isinstance(m, PushRequest)]
    leader.stored.receive("n1", PushResponse(1, Phase.COMPARE, False, asked), leader.now)
    left = leader.stored.leaving(leader.now)
    assert any(isinstance(message, InstallSnapshot) for _, message in left)
    offer = dispatcher.needed
    assert offer is not None
    assert offer.index == snapshot.header.index
    leader.append(60)
    newer = leader.snapshot()
    assert newer.header.index > offer.index
    assert store.first_index == offer.begin.before_index + 1


def test_a_snapshot_is_offered_anew_when_the_beginning_of_its_offer_is_dropped() -> None:
    leader = Leader(SnapshotPolicy(kept=2, trailing_entries=0))
    leader.append(30)
    store = leader.stored.store
    last = store.last_index
    ends = [at for at in range(last) if store.segment_begin(at + 1).first_index == at + 1]
    index = ends[1]
    source = NodeSnapshots(store)
    header = snapshot_header(store, leader.stored.replica.state.membership, index, "g", "")
    source.add(Snapshot(header, "somewhere", 100))
    offer = source.newest()
    assert offer is not None
    assert source.holds(offer)
    assert offer.begin.before_index == ends[0]
    store.note_committed(last)
    store.discard_before(index + 1)
    assert not source.holds(offer)
    again = source.newest()
    assert again is not None
    assert again.begin.before_index == index == store.first_index - 1


def test_a_snapshot_that_is_awaited_anew_during_a_restore_stays_awaited() -> None:
    stored = StoredMember("n0", ["n0"], Count)
    stored.replica.tick(NOW)
    stored.sync(NOW)
    stored.propose([b"%d" % number for number in range(10)])
    stored.sync(NOW)
    replica, store = stored.replica, stored.store
    assert replica.appliable == store.last_index
    folder = SnapshotFolder(stored.disk, node_folder(BASE, "n0"))

    def saved(index: int) -> Snapshot:
        header = snapshot_header(store, replica.state.membership, index, "g", "")
        snapshot = folder.write(header, [b"%d" % index], lambda: False)
        assert snapshot is not None
        return snapshot

    older, newer = saved(5), saved(8)
    works: list[Callable[[], Continuation]] = []
    machine, restored = Count(), list[Snapshot]()
    awaited = AwaitedSnapshot(folder, store, replica, machine, restored.append, works.append)
    awaited.snapshot = older
    awaited.restore_if_due()
    awaited.restore_if_due()
    (restore,) = works
    go_on = restore()
    awaited.snapshot = newer  # the log was begun anew meanwhile
    go_on()
    assert restored == [older]
    assert awaited.snapshot is newer
    awaited.restore_if_due()
    works[1]()()
    assert awaited.snapshot is None
    assert (machine.count, replica.state.applied) == (8, 8)


def test_nothing_is_applied_while_the_machine_waits_for_a_snapshot() -> None:
    stored = StoredMember("n0", ["n0"], Count)
    stored.replica.tick(NOW)
    stored.sync(NOW)
    stored.propose([b"%d" % number for number in range(10)])
    stored.sync(NOW)
    member, machine, replica = stored.member, stored.machine, stored.replica
    assert isinstance(machine, Count)
    folder = SnapshotFolder(stored.disk, node_folder(BASE, "n0"))
    last = stored.store.last_index
    header = snapshot_header(stored.store, replica.state.membership, last, "g", "")
    member.snapshots.awaited.snapshot = folder.write(header, [b"10"], lambda: False)
    before = replica.state.applied, machine.count
    assert replica.appliable > replica.state.applied
    assert not member.applier.apply_some()  # the log was begun anew between two runs
    assert (replica.state.applied, machine.count) == before
    member.snapshots.awaited.snapshot = None
    while member.applier.apply_some():
        pass
    assert (replica.state.applied, machine.count) == (last, 10)
