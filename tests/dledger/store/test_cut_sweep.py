"""A power cut inside each disk call of each protocol takes nothing that was promised or seen."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from broker.log.folded import Arrivals
from broker.store.consume_queues import ConsumeQueues
from broker.store.key_index import KeyIndex
from broker.store.synced_mark import SyncedMark
from dledger.core.admission.standing import Standing
from dledger.core.hard_state import HardState
from dledger.core.membership.configuration import Configuration
from dledger.core.snapshot.snapshot_offer import LogBegin, SnapshotOffer
from dledger.entry import Entry, Magic, decode_entries
from dledger.errors import DLedgerError, LogCorrupt
from dledger.rescue.backup import back_up
from dledger.rescue.group_recovery import recover_group
from dledger.snapshots.restoring import restore_newest
from dledger.store.birth_file import BirthFile
from dledger.store.birth_record import BirthRecord
from dledger.store.disk import Disk
from dledger.store.generation import Generation
from dledger.store.generation_file import GenerationFile
from dledger.store.incoming_snapshot import IncomingSnapshot
from dledger.store.open_store import open_store
from dledger.store.repair import repair_folder
from dledger.store.segment_store import SegmentStore
from dledger.store.set_aside import set_aside
from dledger.store.snapshot_folder import Snapshot, SnapshotFolder
from dledger.store.snapshot_format import SnapshotHeader
from dledger.store.standing_file import StandingFile
from dledger.store.store_config import StoreConfig
from jepsen_like.simulation.broker.queue_disk import VirtualQueueDisk
from tests.dledger.store.cut_sweep import (
    ALL_ENDINGS,
    ALL_IS_KEPT,
    ALL_IS_LOST,
    ENDINGS,
    PASSES_ON,
    PROJECT,
    CutLost,
    Ending,
    Protocol,
    Seen,
    Sweep,
    SyncSite,
    WatchedDisk,
)

Act = Callable[[WatchedDisk], Iterator[None]]
Between = Callable[[Seen, Seen, Seen], bool]

IN_ORDER = (Ending(None), Ending(ALL_IS_LOST), Ending(ALL_IS_KEPT))
CONFIG = StoreConfig(
    segment_bytes=256, index_segment_bytes=96, max_body_bytes=150, spare_segments=2
)
BASE, NODE = "/base", "/base/dledger-n0"


# --- a store ----------------------------------------------------------------------------------


def opened(disk: Any, base: str = BASE, node_id: str = "n0") -> SegmentStore:
    return open_store(disk, base, CONFIG, "g", node_id)


def appended(store: SegmentStore, first: int, last: int, term: int = 1) -> None:
    store.append(term, Magic.NORMAL, [b"%d of term %d" % (at, term) for at in range(first, last)])


def synced(store: SegmentStore, term: int = 1, vote: str | None = None) -> None:
    store.begin_sync(HardState(term, vote)).run()


def content(store: SegmentStore) -> Seen:
    bodies: list[tuple[int, bytes]] = []
    first = store.first_index
    while first <= store.last_index:
        entries = decode_entries(store.read(first, store.last_index, 1 << 20))
        bodies += [(entry.term, entry.body) for entry in entries]
        first = entries[-1].index + 1
    state = store.hard_state
    return store.first_index, tuple(bodies), (state.term, state.voted_for), store.standing


def seen_store(disk: WatchedDisk, base: str = BASE) -> Seen:
    seen = content(opened(disk, base))
    disk.end_process()
    return seen


def appended_to(disk: WatchedDisk) -> Seen:
    """The next process appends what begins the next file, and acknowledges it."""
    store = opened(disk)
    term = store.hard_state.term + 1
    store.append(term, Magic.NORMAL, [b"x" * 120])
    synced(store, term, "n0")
    promised = content(store)
    disk.end_process()
    return promised


def store_between(seen: Seen, last: Seen, coming: Seen) -> bool:
    """The log of one is the beginning of the other; what a cut leaves is in between."""
    first, bodies, state, standing, *more = seen
    logs = []
    for begin, known, *_ in (last, coming):
        # Compare by index: the beginning may have been dropped on the way.
        logs.append(dict(enumerate(known, begin)))
    longer = {**logs[0], **logs[1]}
    shorter = min((last[0] + len(last[1]), coming[0] + len(coming[1])))
    return (
        last[0] <= first <= coming[0]
        and all(longer.get(at) in (None, body) for at, body in enumerate(bodies, first))
        and first + len(bodies) >= shorter
        # An entry of a newer term may be there without the record: it raises the term.
        and state in (last[2], coming[2], (bodies[-1][0] if bodies else 0, None))
        and standing in (last[3], coming[3])
        and (*more,) in (last[4:], coming[4:])
    )


def a_group_begins(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    yield
    appended(store, 0, 2)
    synced(store, 1, "n0")
    yield


def a_log_rolls(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    for first in range(0, 8, 2):
        appended(store, first, first + 2)
        synced(store)
        yield


def a_log_rolls_into_spares(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    yield
    for first in (0, 9):
        store.prepare_spare()
        store.prepare_spare()
        appended(store, first, first + 9)
        synced(store)
        yield


def a_store_is_closed(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 3)
    yield from ()
    store.close()
    yield
    store = opened(disk)
    appended(store, 3, 6)
    store.close()
    yield


def an_index_does_not_fit(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 8)
    synced(store)
    store.close()
    for start in (96, 960):
        name = f"{NODE}/index/{start:020d}"
        if disk.exists(name):
            disk.virtual.remove(name)
        else:
            disk.virtual.create(name).grow(96)
    disk.virtual.sync_folder(f"{NODE}/index")
    yield
    opened(disk)
    yield


def java_was_here_before(disk: WatchedDisk) -> Iterator[None]:
    disk.make_folder(NODE)
    file = disk.virtual.create(f"{NODE}/currterm")
    file.write(b"#time\ncurrTerm=7\nvoteLeader=n1\n", 0)
    file.sync()
    disk.virtual.sync_folder(NODE)
    yield
    store = opened(disk)
    yield
    synced(store, 8, "n0")
    yield


def votes_are_cast(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    for term, vote in ((1, "n0"), (2, None), (2, "n1")):
        synced(store, term, vote)
        yield


def a_log_is_cut(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 14)
    synced(store)
    yield
    store.truncate_after(2)
    yield
    appended(store, 3, 5, term=2)
    synced(store, 2)
    yield


def a_long_file_is_cut(disk: WatchedDisk) -> Iterator[None]:
    """What is cut lies in several sectors."""
    config = StoreConfig(segment_bytes=4096, index_segment_bytes=96, max_body_bytes=150)
    store = open_store(disk, BASE, config, "g", "n0")
    store.append(1, Magic.NORMAL, [b"%d" % number * 120 for number in range(10)])
    synced(store)
    yield
    store.truncate_after(2)
    yield


def a_beginning_is_dropped(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 8)
    synced(store)
    store.note_committed(7)
    yield
    store.discard_before(6)
    synced(store, 2)
    yield
    discarded = store.take_discarded()
    assert discarded is not None
    discarded.remove()
    yield
    appended(store, 8, 10, term=2)
    synced(store, 2)
    yield


def a_log_begins_behind_a_snapshot(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 4)
    synced(store)
    yield
    store.restart(LogBegin(20, 1, 99, 4096))
    yield
    discarded = store.take_discarded()
    assert discarded is not None
    discarded.remove()
    appended(store, 21, 23)
    synced(store)
    yield


def between_restarts(seen: Seen, last: Seen, coming: Seen) -> bool:
    return store_between(seen, last, last) or store_between(seen, coming, coming) or seen == coming


def a_standing_is_set(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    for standing in (Standing.LOST, Standing.PROVEN, Standing.FRESH, Standing.PROVEN):
        store.set_standing(standing)
        yield


# --- snapshots --------------------------------------------------------------------------------

CHUNKS = [b"chunk %d " % number * 20 for number in range(3)]


def written(folder: SnapshotFolder, index: int, header: SnapshotHeader | None = None) -> Snapshot:
    header = header or SnapshotHeader(index, 2, 5000, 60, 1234, "g", "m/1")
    snapshot = folder.write(header, CHUNKS, lambda: False)
    assert snapshot is not None
    return snapshot


class Words:
    """A machine with snapshots."""

    def __init__(self) -> None:
        self.words: list[bytes] = []

    def apply(self, entries: Sequence[Entry]) -> list[object]:
        return [None] * len(entries)

    def snapshot(self) -> Iterator[bytes]:
        return iter(())

    def restore(self, chunks: Iterator[bytes]) -> None:
        self.words = list(chunks)


def a_snapshot_is_copied_here(disk: WatchedDisk) -> Iterator[None]:
    """An operator copies it and syncs nothing: a start makes durable what it relies on."""
    store = opened(disk)
    appended(store, 0, 4)
    synced(store)
    entry = store.header_at(3)
    header = SnapshotHeader(3, entry.term, entry.pos, entry.size, entry.chain_crc, "g")
    written(SnapshotFolder(disk, "/another"), 3, header)
    SnapshotFolder(disk, NODE).open()
    yield
    name = f"{3:020d}.snapshot"
    copied = disk.virtual.open(f"/another/snapshots/{name}")
    target = disk.virtual.create(f"{NODE}/snapshots/{name}")
    target.write(copied.read(copied.size(), 0), 0)
    restore_newest(SnapshotFolder(disk, NODE), store, Words(), "g")
    yield


def seen_restored(disk: WatchedDisk) -> Seen:
    folder, words = SnapshotFolder(disk, NODE), Words()
    folder.open()
    restored = restore_newest(folder, opened(disk), words, "g")
    disk.end_process()
    return -1 if restored is None else restored.header.index, *words.words


def snapshots_are_written(disk: WatchedDisk) -> Iterator[None]:
    folder = SnapshotFolder(disk, NODE)
    folder.open()
    yield
    for index in (3, 6, 9):
        written(folder, index)
        yield
        folder.keep_newest(1)


def seen_snapshot(disk: WatchedDisk) -> Seen:
    folder = SnapshotFolder(disk, NODE)
    folder.open()
    newest = folder.find_newest(lambda header: None).newest
    disk.end_process()
    return () if newest is None else (newest.header.index, *newest.chunks())


def a_snapshot_arrives(disk: WatchedDisk) -> Iterator[None]:
    snapshot, offer = an_offer(disk)
    folder = SnapshotFolder(disk, NODE)
    folder.open()
    incoming = IncomingSnapshot(folder, "g", "m/1", 256)
    stored = incoming.take(offer, 0, b"").stored
    while stored < offer.size:
        piece = SnapshotFolder(disk, "/leader").read_piece(snapshot, stored, 100)
        received = incoming.take(offer, stored, piece)
        if stored // 256 < received.stored // 256 or received.snapshot is not None:
            yield
        stored = received.stored


def an_offer(disk: Disk) -> tuple[Snapshot, SnapshotOffer]:
    """The snapshot of a leader, whose disk is not looked at."""
    folder = SnapshotFolder(disk, "/leader")
    folder.open()
    if 10 not in folder.indexes():
        written(folder, 10)
    reader = folder.find_newest(lambda header: None).newest
    assert reader is not None
    header = reader.header
    offer = SnapshotOffer(10, header.term, header.chain_crc, reader.size, LogBegin(7, 1, 99, 4096))
    return Snapshot(header, folder.file(10), reader.size), offer


def seen_incoming(disk: WatchedDisk) -> Seen:
    folder = SnapshotFolder(disk, NODE)
    folder.open()
    received = IncomingSnapshot(folder, "g", "m/1", 256).take(an_offer(disk)[1], 0, b"")
    disk.end_process()
    return received.stored, received.snapshot is not None


def rises(seen: Seen, last: Seen, coming: Seen) -> bool:
    return last <= seen <= coming


# --- small files ------------------------------------------------------------------------------


def a_birth_is_recorded(disk: WatchedDisk) -> Iterator[None]:
    disk.make_folder(NODE)
    voters = Configuration(voters=frozenset({"n0"}), addresses={"n0": "localhost:15400"})
    for record in (BirthRecord("g", voters), BirthRecord("g", voters, b"b" * 16)):
        BirthFile(disk, NODE).write(record)
        yield


def generations_begin(disk: WatchedDisk) -> Iterator[None]:
    disk.make_folder(NODE)
    for number in (1, 2):
        GenerationFile(disk, NODE).set(Generation(number, "a" * 16))
        yield


def seen_small_files(disk: WatchedDisk) -> Seen:
    disk.virtual.sync_folder(NODE)  # as the store does first
    return BirthFile(disk, NODE).record, GenerationFile(disk, NODE).generation


# --- rescue -----------------------------------------------------------------------------------


PARTS = ("hard-state", "data", "index")


def a_folder_is_set_aside(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 2)
    synced(store)
    store.set_standing(Standing.PROVEN)
    disk.end_process()
    yield
    set_aside(BASE, disk)
    yield


def seen_aside(disk: WatchedDisk) -> Seen:
    """Whether it is marked, how many parts are still in their place, and how many anywhere."""
    disk.end_process()
    folders = [NODE, *(f"{NODE}/{name}" for name in disk.list(NODE) if name.startswith("aside"))]
    parts = [part for folder in folders for part in disk.list(folder) if part in PARTS]
    here = [part for part in disk.list(NODE) if part in PARTS]
    return StandingFile(disk, NODE).standing, len(here), sorted(parts)


def moves_away(seen: Seen, last: Seen, coming: Seen) -> bool:
    return seen in (last, coming) or (
        seen[0] is Standing.LOST and coming[1] <= seen[1] <= last[1] and {*seen[2]} == {*last[2]}
    )


def a_log_is_repaired(disk: WatchedDisk) -> Iterator[None]:
    for node_id in ("n0", "n1"):
        store = opened(disk, node_id=node_id)
        appended(store, 0, 6)
        store.note_committed(5)
        synced(store)
        store.close()
    place = disk.virtual.open(f"{NODE}/data/{256:020d}")
    place.write(bytes(60), 20)
    place.sync()
    yield
    repair_folder(NODE, f"{BASE}/dledger-n1", disk)
    yield


def a_missing_file_is_repaired(disk: WatchedDisk) -> Iterator[None]:
    for node_id in ("n0", "n1"):
        store = opened(disk, node_id=node_id)
        appended(store, 0, 14)
        store.note_committed(13)
        synced(store)
        store.close()
    disk.virtual.remove(f"{NODE}/data/{256:020d}")
    disk.virtual.sync_folder(f"{NODE}/data")
    yield
    repair_folder(NODE, f"{BASE}/dledger-n1", disk)
    yield


def seen_repaired(disk: WatchedDisk) -> Seen:
    try:
        return seen_store(disk)
    except LogCorrupt:
        disk.end_process()
        return ("damaged",)


def a_group_is_recovered(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 6)
    store.note_committed(5)
    synced(store, 1, "n0")
    store.close()
    yield
    recover_group(NODE, 5, "localhost:15400", mark="a" * 16, disk=disk)
    yield


def seen_recovered(disk: WatchedDisk) -> Seen:
    """Whether the group has begun again, and whether the copies are whole if it has."""
    generation = GenerationFile(disk, NODE).generation
    copies = f"{NODE}/recovery-1"
    whole = {part: disk.list(f"{copies}/{part}") for part in ("data", "index")}
    whole["files"] = [name for name in disk.list(copies) if name in ("hard-state", "done.json")]
    if generation.number and not all(whole.values()):
        raise CutLost(f"a generation without copies of what was before: {whole}")
    for part in ("data", "index"):
        for name in whole[part]:
            file = disk.open(f"{copies}/{part}/{name}")
            if generation.number and not file.size():
                raise CutLost(f"{name} was not copied")
    seen = seen_store(disk)
    return (*seen, generation, sorted(whole["files"]) if generation.number else [])


def recovers(seen: Seen, last: Seen, coming: Seen) -> bool:
    """It is repeated unless it is done: of what comes last anything may be there."""
    return seen in (last, coming) or (last != coming and seen[1][:6] == last[1])


def a_backup_is_made(disk: WatchedDisk) -> Iterator[None]:
    store = opened(disk)
    appended(store, 0, 6)
    store.note_committed(5)
    synced(store, 1, "n0")
    store.close()
    folder = SnapshotFolder(disk, NODE)
    folder.open()
    written(folder, 3)
    BirthFile(disk, NODE).write(BirthRecord("g", None, b"b" * 16))
    GenerationFile(disk, NODE).set(Generation(1, "a" * 16))
    disk.end_process()
    yield
    back_up(NODE, "/copy", disk=disk)
    yield


def is_copied(seen: Seen, last: Seen, coming: Seen) -> bool:
    """Half a copy does not count."""
    return seen == coming or (last != coming and seen[3] is not Standing.PROVEN)


def seen_backup(disk: WatchedDisk) -> Seen:
    birth = BirthFile(disk, "/copy/dledger-n0").record
    generation = GenerationFile(disk, "/copy/dledger-n0").generation
    newest = SnapshotFolder(disk, "/copy/dledger-n0").find_newest(lambda header: None).newest
    snapshot = None if newest is None else newest.header.index
    return *seen_store(disk, "/copy"), birth, generation, snapshot


# --- a broker's files -------------------------------------------------------------------------

QUEUES = "/broker/consumequeue"


def queues_of(disk: WatchedDisk) -> ConsumeQueues:
    return ConsumeQueues(
        QUEUES,  # type: ignore[arg-type]  # a text names the same folder
        units_per_file=4,
        disk=VirtualQueueDisk(disk, "/broker"),  # type: ignore[arg-type]
        write_units=2,
    )


def arrived(first: int, last: int) -> Arrivals:
    places = [number * 100 for number in range(first, last)]
    return Arrivals(first, places, [91] * len(places), [7] * len(places))


def queues_are_synced(disk: WatchedDisk) -> Iterator[None]:
    queues = queues_of(disk)
    for first in range(0, 9, 3):
        queues.append({("T", 0): arrived(first, first + 3), ("U", 1): arrived(first, first + 3)})
        queues.sync_due((first + 3) * 100).run()
        yield


def seen_queues(disk: WatchedDisk) -> Seen:
    """Up to where the mark says the files are whole, and what they hold of that."""
    ends = max(0, SyncedMark(QUEUES, VirtualQueueDisk(disk, "/broker")).read()) // 100  # type: ignore[arg-type]
    queues = queues_of(disk)
    if not ends:
        return (0,)
    queues.resume({"T": {0: ends}, "U": {1: ends}}, ends * 100)
    damaged = sorted(queues.damaged)
    content = queues.read("T", 0, 0, ends) + queues.read("U", 1, 0, ends)
    disk.end_process()
    return ends, damaged, content


def keys_are_indexed(disk: WatchedDisk) -> Iterator[None]:
    index = key_index(disk)
    for first, end in ((0, 25), (25, 50), (50, 75)):  # what leads to them is in another sector
        for number in range(first, end):
            index.put("T", [f"key {number}"], number * 100, 1_000 + number)
        index.covered = end * 100
        index.begin_sync().run()
        index.end_sync()
        yield


def is_made_again(seen: Seen, last: Seen, coming: Seen) -> bool:
    """A mark that was being written may be torn: then all is made again, unless it is whole."""
    return seen in (last, coming) or (last != coming and not seen[0])


def key_index(disk: WatchedDisk) -> KeyIndex:
    index = KeyIndex(
        "/broker/index",
        lambda time_ms: f"{time_ms:017d}",
        VirtualQueueDisk(disk, "/broker"),  # type: ignore[arg-type]
        slots=5,
        entries=60,
    )
    index.open()
    return index


def seen_keys(disk: WatchedDisk) -> Seen:
    index = key_index(disk)
    covered = index.covered // 100
    found = [
        sorted({hint.position for hint in index.find("T", f"key {number}", 0, 1 << 62) if hint})
        for number in range(covered)
    ]
    disk.end_process()
    return covered, found


# --- all of them ------------------------------------------------------------------------------


def log(act: Act, is_between: Between = store_between) -> Protocol:
    """Whatever a process finds of a log it goes on with."""
    return Protocol(act, seen_store, is_between, appended_to)


PROTOCOLS = {
    protocol.act.__name__: protocol
    for protocol in (
        log(a_group_begins),
        log(a_log_rolls),
        log(a_log_rolls_into_spares),
        Protocol(votes_are_cast, seen_store, store_between),
        log(a_log_is_cut),
        Protocol(a_long_file_is_cut, seen_store, store_between, appended_to, swept_from=1),
        log(a_beginning_is_dropped),
        log(a_log_begins_behind_a_snapshot, between_restarts),
        log(a_standing_is_set),
        log(a_store_is_closed),
        Protocol(an_index_does_not_fit, seen_store, store_between, appended_to, swept_from=1),
        Protocol(java_was_here_before, seen_store, store_between, appended_to, swept_from=1),
        Protocol(snapshots_are_written, seen_snapshot),
        Protocol(a_snapshot_is_copied_here, seen_restored),
        # A new process counts what lies in the cache; a cut may take that, and the sums say so.
        Protocol(a_snapshot_arrives, seen_incoming, rises, None),
        Protocol(a_birth_is_recorded, seen_small_files),
        Protocol(generations_begin, seen_small_files),
        # Every journal renames from one folder to another as one change.
        Protocol(a_folder_is_set_aside, seen_aside, moves_away, None, IN_ORDER, swept_from=1),
        # A repair that was killed is repeated: the next start may refuse the folder once more.
        Protocol(a_log_is_repaired, seen_repaired, go_on=None, swept_from=1),
        Protocol(a_missing_file_is_repaired, seen_repaired, go_on=None, swept_from=1),
        Protocol(a_group_is_recovered, seen_recovered, recovers, None, swept_from=1),
        Protocol(
            *(a_backup_is_made, seen_backup, is_copied, None),
            swept_from=1,
            may_fail=(DLedgerError,),
        ),
        # Marks are written over the old ones. What comes behind an older mark is made again.
        Protocol(queues_are_synced, seen_queues, is_made_again, None),
        Protocol(keys_are_indexed, seen_keys, is_made_again, None),
    )
}


@pytest.mark.parametrize("name", PROTOCOLS)
def test_nothing_promised_or_seen_is_lost(name: str) -> None:
    assert Sweep(PROTOCOLS[name]).run() > 5


# Places that no protocol reaches, or whose sync no power cut needs, each with the reason.
SPARED = {
    "dledger/rescue/backup.py _copy_entries 1": "the start that makes the index syncs the names",
    "dledger/store/disk.py make_folder 1": "of the system's disk: see test_sync_calls",
    "dledger/store/folder.py open_index 1": "an index that comes back is removed once more",
    "dledger/store/repair.py _replace_missing_files 1": "its bytes are synced once they are copied",
    "dledger/store/segment.py cut_at 1": "recovery judges whatever of a cut reaches the disk",
    "dledger/store/segment.py drop_before 1": "a file that comes back is removed once more",
    "dledger/store/snapshot_file.py _write 1": "spreads the work: the whole file is synced last",
}


class Sites(ast.NodeVisitor):
    """The calls in a file that sync, but for those of functions that only pass it on.

    Attributes:
        found: file, function, and the how manieth in it, by place.
    """

    def __init__(self, file: str, text: str) -> None:
        self._file = file
        self._function = ""
        self.found: dict[SyncSite, str] = {}
        self.visit(ast.parse(text))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in PASSES_ON:
            outer, self._function = self._function, node.name
            self.generic_visit(node)
            self._function = outer

    def visit_Call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Attribute(attr=name) if name in PASSES_ON:
                where = f"{self._file} {self._function} "
                number = 1 + sum(known.startswith(where) for known in self.found.values())
                self.found[SyncSite(self._file, node.lineno)] = f"{where}{number}"
        self.generic_visit(node)


def sync_sites() -> dict[SyncSite, str]:
    """The places in the product that sync a file or a folder of these disks, and their names."""
    found = {}
    for folder in ("dledger/store", "dledger/rescue", "broker/store"):
        for path in sorted((PROJECT / folder).rglob("*.py")):
            found.update(Sites(str(path.relative_to(PROJECT)), path.read_text()).found)
    return found


def reached_by() -> dict[SyncSite, list[str]]:
    """The protocols that reach each place."""
    found: dict[SyncSite, list[str]] = {}
    for name, protocol in PROTOCOLS.items():
        sweep = Sweep(protocol)
        sweep.promised()
        for site in sweep.reached:
            found.setdefault(site, []).append(name)
    return found


def test_a_protocol_reaches_every_place_that_syncs() -> None:
    sites, reached = sync_sites(), reached_by()
    assert set(reached) <= set(sites)
    assert {name for site, name in sites.items() if site not in reached} <= set(SPARED)
    assert set(SPARED) <= set(sites.values())


@pytest.mark.long
def test_every_sync_is_needed() -> None:
    sites = sync_sites()
    needless = {
        sites[site]
        for site, names in reached_by().items()
        if not any(loses_something(name, site) for name in names)
    }
    assert needless == needless & set(SPARED)


def loses_something(name: str, site: SyncSite) -> bool:
    protocol = PROTOCOLS[name]
    if protocol.endings is ENDINGS:  # however many are tried elsewhere
        protocol = replace(protocol, endings=ALL_ENDINGS)
    try:
        Sweep(protocol, site).run()
    except CutLost:
        return True
    return False
