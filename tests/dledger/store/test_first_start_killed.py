"""A process is killed during its first start, the next one votes, and then the power goes."""

from __future__ import annotations

from dledger.core.hard_state import HardState
from dledger.entry import Magic, encode
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from jepsen_like.chance import Chance
from jepsen_like.simulation.virtual_disk import CrashStyle, PowerCut, VirtualDisk

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)
FOLDER = "/base/dledger-n0"
NOTHING_UNSYNCED = CrashStyle(keep=0.0, torn=0.0, names_in_order=True)
STYLES = [NOTHING_UNSYNCED, CrashStyle(keep=0.5, torn=0.0, names_in_order=False)]
# More calls of the disk than a start makes here.
MAX_STEPS = 60


def opened(disk: VirtualDisk) -> SegmentStore:
    return open_store(disk, "/base", CONFIG, "g", "n0")


def write_durably(disk: VirtualDisk, folder: str, name: str, content: bytes, length: int) -> None:
    disk.make_folder(folder)
    file = disk.create(f"{folder}/{name}")
    file.grow(length)
    file.write(content, 0)
    file.sync()
    disk.sync_folder(folder)


def folder_of_java() -> VirtualDisk:
    """Two entries of term 3, and a vote for n1 in term 5."""
    disk = VirtualDisk(Chance(7, "java"))
    first, _ = encode(Magic.NORMAL, 0, 3, 0, 0, b"a")
    second, _ = encode(Magic.NORMAL, 1, 3, len(first), 0, b"b")
    write_durably(disk, f"{FOLDER}/data", f"{0:020d}", first + second, 4096)
    term = b"voteLeader=n1\ncurrTerm=5\n"
    write_durably(disk, FOLDER, "currterm", term, len(term))
    return disk


def test_a_vote_after_a_killed_adoption_outlives_a_power_cut() -> None:
    voted = 0
    for style in STYLES:
        for steps in range(MAX_STEPS):
            disk = folder_of_java()
            disk.steps_left = steps
            try:
                opened(disk)
                break
            except PowerCut:
                disk.end_process()
            store = opened(disk)
            assert store.hard_state == HardState(5, "n1", -1)
            store.begin_sync(HardState(9, "n2", -1)).run()
            voted += 1
            disk.cut_power(style)
            assert opened(disk).hard_state == HardState(9, "n2", -1)
    assert voted > 20
