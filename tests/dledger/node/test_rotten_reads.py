"""What a disk gives back wrongly while the node runs: never applied, sent or handed out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import trio

import dledger
from dledger.core.hard_state import HardState
from dledger.core.messages import Phase, PushResponse, VoteResponse
from dledger.entry import HEADER_BYTES, Magic, decode_entries
from dledger.errors import LogCorrupt
from dledger.store.disk import OsDisk
from dledger.store.open_store import open_store
from dledger.store.scrubber import Scrubber
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.core.core_group import TIMEOUT_S
from tests.dledger.node.stored_member import StoredMember
from tests.dledger.running_members import lone, ready

CONFIG = StoreConfig(segment_bytes=4096, index_segment_bytes=320, max_body_bytes=500)
BODIES = [b"body %d " % number * 5 for number in range(8)]
ENTRY = 5  # which one rots
MOST_BYTES = 1 << 20


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SegmentStore]:
    """Eight entries in one segment."""
    made = open_store(OsDisk(), str(tmp_path), CONFIG, "g", "n0")
    made.append(1, Magic.NORMAL, BODIES)
    made.begin_sync(HardState(1, "n0")).run()
    yield made
    made.close()


def flip(folder: Path, pos: int) -> None:
    """Let one byte of the first segment rot."""
    segment = sorted((folder / "dledger-n0" / "data").iterdir())[0]
    with segment.open("r+b") as file:
        file.seek(pos)
        (byte,) = file.read(1)
        file.seek(pos)
        file.write(bytes((byte ^ 0x10,)))


@pytest.mark.parametrize("offset", range(HEADER_BYTES + 3))
@pytest.mark.parametrize("first", [0, ENTRY])
def test_every_byte_that_rots_is_noticed_when_it_is_read_back(
    first: int, offset: int, store: SegmentStore, tmp_path: Path
) -> None:
    flip(tmp_path, store.header_at(ENTRY).pos + offset)
    assert len(decode_entries(store.read(0, ENTRY - 1, MOST_BYTES))) == ENTRY
    with pytest.raises(LogCorrupt, match="dledger repair"):
        store.read(first, 7, MOST_BYTES)
    with pytest.raises(LogCorrupt):
        store.read(0, 0, MOST_BYTES)  # the store is of no use any more


def test_what_is_read_in_pieces_is_checked_against_what_came_before(store: SegmentStore) -> None:
    for index in (0, 1, 2, 6, 3, 7, 0):
        (entry,) = decode_entries(store.read(index, index, MOST_BYTES))
        assert entry.body == BODIES[index]


def test_what_was_written_in_place_of_others_is_read_back(store: SegmentStore) -> None:
    store.read(0, 5, MOST_BYTES)
    store.truncate_after(3)
    store.append(2, Magic.NORMAL, [b"another one", b"and one more", b"and a third"])
    entries = [e for first in (4, 5, 6) for e in decode_entries(store.read(first, first, 999))]
    assert [entry.term for entry in entries] == [2, 2, 2]


def test_the_scrubber_looks_at_rot_and_goes_on(store: SegmentStore, tmp_path: Path) -> None:
    flip(tmp_path, store.header_at(ENTRY).pos + HEADER_BYTES)
    scrubber = Scrubber(store)
    while scrubber.step(7, 100):
        pass
    assert scrubber.status.damage is not None
    assert store.header_at(7).index == 7


def test_a_leader_does_not_send_what_rotted_on_its_disk() -> None:
    leader = StoredMember("n0", ["n0", "n1"])
    now = 2 * TIMEOUT_S
    leader.replica.tick(now)
    for pre in (True, False):
        leader.receive("n1", VoteResponse(1, granted=True, pre=pre), now)
        leader.leaving(now)
        leader.sync(now)
    last = leader.propose(BODIES)
    leader.sync(now)
    leader.leaving(now)
    leader.batches.forget()  # as when the pushes of long ago are needed again
    (path,) = [path for path in leader.disk._names if "/data/" in path]
    at = leader.store.header_at(3).pos + HEADER_BYTES
    leader.disk._names[path].visible[at] ^= 0x10
    answer = PushResponse(1, Phase.COMPARE, ok=True, index=-1, last_index=-1)
    leader.replica.dispatchers["n1"].next_index = 0
    leader.receive("n1", answer, now)
    with pytest.raises(LogCorrupt):
        leader.leaving(now)
    assert last == 8


class Heard:
    """Keeps the bodies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def apply(self, entries: Sequence[dledger.Entry]) -> list[object]:
        self.bodies += [entry.body for entry in entries]
        return [None] * len(entries)


def config(folder: Path) -> dledger.NodeConfig:
    return lone(folder, store=CONFIG, scrub_period_hours=0)


async def run_for_ever(settings: dledger.NodeConfig, machine: Heard) -> None:
    """A node that was not checked as a whole when it started."""
    async with dledger.open_node(settings, machine) as node:
        assert node._store.recovered.entries_checked < 50
        await trio.sleep_forever()


async def read_on_rot(folder: Path, seen: list[bytes]) -> None:
    """Run a node, let an entry rot under it, and read."""
    async with dledger.open_node(config(folder), Heard()) as node:
        await ready(node)
        appended = await node.append_many(BODIES)
        flip(folder, appended[ENTRY].pos + HEADER_BYTES)
        try:
            async for entry in node.committed():
                seen.append(entry.body)
        except LogCorrupt:
            await trio.sleep_forever()  # whoever reads may live on; the node does not


async def test_a_node_that_reads_rot_stops_and_names_the_way_out(tmp_path: Path) -> None:
    seen: list[bytes] = []
    with pytest.raises(LogCorrupt, match="dledger repair"), trio.fail_after(10):
        await read_on_rot(tmp_path, seen)
    assert BODIES[ENTRY] not in seen
    assert len(seen) <= ENTRY + 1


async def test_rot_behind_what_recovery_walked_is_not_applied(tmp_path: Path) -> None:
    settings = config(tmp_path)
    many = [b"%4d " % number * 50 for number in range(100)]
    async with dledger.open_node(settings, Heard()) as node:
        await ready(node)
        appended = (await node.append_many(many))[3]
        await trio.sleep(1.5)  # until the commit index is recorded, and recovery begins behind it
    flip(tmp_path, appended.pos + HEADER_BYTES)
    machine = Heard()
    with pytest.raises(LogCorrupt, match="dledger repair"), trio.fail_after(10):
        await run_for_ever(settings, machine)
    assert many[3] not in machine.bodies
