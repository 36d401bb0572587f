"""The power goes at any call of the disk: what was acknowledged is there, and it opens again."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

import pytest

from dledger.core.hard_state import HardState
from dledger.entry import Entry, Magic, decode_entries, encode
from dledger.store.batch import verify_batch
from dledger.store.open_store import open_store
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.examples import seeds

SECTOR = 512


class PowerCut(BaseException):
    """The machine stops inside a call of the disk."""


@dataclass
class Content:
    """What a name stands for: as it is read, and as it is on the platter."""

    seen: bytearray = field(default_factory=bytearray)
    kept: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)


class LosingFile:
    def __init__(self, disk: LosingDisk, path: str, content: Content) -> None:
        self.path, self._disk, self._content = path, disk, content

    def size(self) -> int:
        return len(self._content.seen)

    def read(self, size: int, at: int) -> bytes:
        return bytes(self._content.seen[at : at + size])

    def write(self, data: bytes, at: int) -> None:
        self._disk.step()
        seen = self._content.seen
        seen.extend(bytes(max(0, at + len(data) - len(seen))))
        seen[at : at + len(data)] = data
        self._content.dirty.update(range(at // SECTOR, (at + len(data) - 1) // SECTOR + 1))

    def grow(self, size: int) -> None:
        self._disk.step()
        seen = self._content.seen
        seen.extend(bytes(max(0, size - len(seen))))

    def allocate(self, size: int) -> None:
        self.grow(size)

    def sync(self) -> None:
        self._disk.step()
        content = self._content
        content.kept[:] = content.seen
        content.dirty.clear()

    def close(self) -> None:
        """Nothing becomes durable by it."""


class LosingDisk:
    """Keeps what `dledger.store.disk` promises, and of the rest what chance leaves.

    Stricter than promised: a sector may be torn, its beginning new and its end old.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._seen: dict[str, Content] = {}
        self._kept: dict[str, Content] = {}
        self._changes: list[tuple[str, Content | None]] = []
        self.steps_left = -1

    def step(self) -> None:
        if self.steps_left == 0:
            raise PowerCut
        self.steps_left -= 1

    def cut_power(self) -> None:
        self.steps_left = -1
        random = self._random
        for path, content in self._changes:
            if random.random() < 0.5:
                self._keep(path, content)
        self._changes.clear()
        self._seen = dict(self._kept)
        for content in self._seen.values():
            kept, seen = content.kept, content.seen
            if len(kept) < len(seen) and random.random() < 0.7:
                kept.extend(bytes(random.randint(0, len(seen) - len(kept))))
            style = random.choice([0.1, 0.5, 0.9])
            for sector in sorted(content.dirty):
                start, end = sector * SECTOR, min(len(kept), sector * SECTOR + SECTOR)
                if random.random() < 0.2:
                    end = start + random.randint(0, SECTOR)
                elif random.random() > style:
                    continue
                end = min(end, len(kept))
                if start < end:
                    kept[start:end] = seen[start:end]
            content.seen = bytearray(kept)
            content.dirty.clear()

    def _keep(self, path: str, content: Content | None) -> None:
        if content is None:
            self._kept.pop(path, None)
        else:
            self._kept[path] = content

    def _change(self, path: str, content: Content | None) -> None:
        self._changes.append((path, content))

    def make_folder(self, path: str) -> None:
        """Folders are there when a name in them is."""

    def list(self, path: str) -> list[str]:
        names = {
            name[len(path) + 1 :].split("/")[0]
            for name in self._seen
            if name.startswith(path + "/")
        }
        return sorted(names)

    def open(self, path: str, *, writable: bool = True) -> LosingFile:
        if path not in self._seen:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return LosingFile(self, path, self._seen[path])

    def create(self, path: str) -> LosingFile:
        self.step()
        if path in self._seen:
            raise FileExistsError(errno.EEXIST, "there is such a file", path)
        content = self._seen[path] = Content()
        self._change(path, content)
        return LosingFile(self, path, content)

    def rename(self, old: str, new: str) -> None:
        self.step()
        content = self._seen[new] = self._seen.pop(old)
        if self._kept.get(old) is not content:
            self._change(old, None)
        self._changes.append((new, content))
        self._change(old, None)

    def remove(self, path: str) -> None:
        self.step()
        del self._seen[path]
        self._change(path, None)

    def sync_folder(self, path: str) -> None:
        self.step()
        for change in self._changes:
            if change[0].rpartition("/")[0] == path:
                self._keep(*change)
        self._changes = [c for c in self._changes if c[0].rpartition("/")[0] != path]

    def lock(self, path: str) -> LosingFile:
        return LosingFile(self, path, Content())


class Life:
    """One machine: a store, and what it has promised."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = LosingDisk(self.random)
        size = self.random.choice([256, 1024, 1536, 4096, 65536])
        self.config = StoreConfig(
            segment_bytes=size,
            index_segment_bytes=self.random.choice([96, 320, 4096]),
            max_body_bytes=min(size - 56, 1500),
            checkpoint_bytes=self.random.choice([1, 200, 1500, 1 << 20]),
        )
        self.log: list[Entry] = []  # as of the last call that returned
        self.before: list[Entry] = []  # as of the call before: a truncation may be cut short
        self.synced = -1
        self.committed = -1
        self.states = [HardState()]  # the durable one, then those that were on their way
        self.term = 0
        self.first = 0  # the log's beginning: as asked for, and as it must be after a crash
        self.recorded_first = 0

    def open(self) -> SegmentStore:
        return open_store(self.disk, "/base", self.config, "g", "n0")

    def live(self, store: SegmentStore) -> None:
        """Random calls until the power goes."""
        random = self.random
        while True:
            choice = random.random()
            self.before = list(self.log)
            if choice < 0.5:
                self.append(store)
            elif choice < 0.75:
                self.sync(store)
            elif choice < 0.85 and store.last_index > self.committed:
                self.truncate(store)
            elif choice < 0.88:
                self.discard(store)
            elif choice < 0.95:
                self.committed = max(self.committed, min(self.synced, store.last_index))
                store.note_committed(self.committed)
                store.save_committed()
            else:
                store.prepare_spare()

    def append(self, store: SegmentStore) -> None:
        random = self.random
        self.term += random.random() < 0.3
        term = max(self.term, store.last_term)
        limit = random.choice([10, 100, self.config.max_body_bytes])
        filling = random.choice([b"\0", b"x", b"text "])
        bodies = [
            (filling * limit)[: random.randint(0, limit)] for _ in range(random.randint(1, 12))
        ]
        # What an append may leave behind when it is cut short is worked out on a disk of its own.
        twin = open_store(LosingDisk(Random(0)), "/twin", self.config, "g", "n0")
        for entry in self.log:
            raw, _ = encode(
                entry.magic, entry.index, entry.term, entry.pos, twin.chain_at(entry.index - 1),
                entry.body,
            )  # fmt: skip
            twin.write_batch(raw, verify_batch(raw, entry.index, None, -1))
        first, last, _, _ = twin.append(term, Magic.NORMAL, bodies)
        added = [decode_entries(twin.read(i, i, 0))[0] for i in range(first, last + 1)]
        self.before = self.log + added
        assert store.append(term, Magic.NORMAL, bodies)[:2] == (first, last)
        self.log = list(self.before)

    def sync(self, store: SegmentStore) -> None:
        state = None
        if self.random.random() < 0.5:
            self.term += 1
            state = HardState(self.term, self.random.choice([None, "n0", "n1"]))
            self.states.append(state)
        work = store.begin_sync(state)
        work.run()
        if state is not None or store.first_index > self.recorded_first:
            self.recorded_first = store.first_index
        self.synced = max(self.synced, work.index)
        if state is not None:
            self.states = [state]

    def truncate(self, store: SegmentStore) -> None:
        index = self.random.randint(self.committed, store.last_index)
        self.synced = min(self.synced, index)
        store.truncate_after(index)
        self.log = self.log[: index + 1]
        self.before = list(self.log)

    def discard(self, store: SegmentStore) -> None:
        if self.committed < 0:
            return
        store.note_committed(self.committed)
        store.discard_before(self.random.randint(0, self.committed))
        self.first = store.first_index
        if self.random.random() < 0.5:
            self.sync(store)
        if (files := store.take_discarded()) is not None:
            assert self.recorded_first > 0
            files.remove()

    def check(self, store: SegmentStore) -> None:
        """After the power came back."""
        longest = max(self.log, self.before, key=len)
        found = longest[: store.first_index]
        assert self.recorded_first <= store.first_index <= max(self.first, self.recorded_first)
        self.first = self.recorded_first = store.first_index
        while len(found) <= store.last_index:
            found += decode_entries(store.read(len(found), store.last_index, 1 << 20))
        assert store.last_index >= self.synced
        assert found == longest[: len(found)]
        if self.first:
            before = store.chain_at(self.first - 1)
            raw = store.read(self.first, self.first, 0)
            verify_batch(raw, self.first, before, store.term_at(self.first - 1))
        state = store.hard_state
        assert state.committed <= store.last_index
        allowed = {(s.term, s.voted_for) for s in self.states}
        raised = {(found[-1].term, None)} if found else set()
        assert (state.term, state.voted_for) in allowed | raised
        assert state.term >= self.states[0].term
        self.log, self.synced = found, store.last_index
        self.states = [state]
        self.term = max(self.term, state.term)
        self.committed = max(self.committed, state.committed)


@pytest.mark.parametrize("block", seeds(20, 5))
def test_a_store_opens_after_every_power_cut_with_all_it_promised(block: int) -> None:
    for seed in range(block * 15, block * 15 + 15):
        life = Life(seed)
        for _ in range(4):
            life.disk.steps_left = life.random.choice([5, 20, 60, 150])
            opened = False
            try:
                store = life.open()
                opened = True
                life.check(store)
                life.live(store)
            except PowerCut:
                life.disk.cut_power()
            assert opened or life.disk.steps_left == -1
        life.disk.steps_left = -1
        life.check(life.open())
