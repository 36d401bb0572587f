"""A store against a plain list, by random calls, kills and reopenings."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.entry import (
    BLANK_BYTES,
    HEADER_BYTES,
    Body,
    Magic,
    PositionedBody,
    PositionedParts,
    decode_entries,
)
from dledger.store.batch import verify_batch
from dledger.store.disk import OsDisk
from dledger.store.index_unit import UNIT_BYTES
from dledger.store.open_store import open_store
from dledger.store.scan import scan_folder
from dledger.store.segment_store import SegmentStore
from dledger.store.store_config import StoreConfig
from tests.dledger.store.memory_store import MemoryStore

PLACED = st.builds(PositionedBody, st.binary(max_size=20), st.binary(max_size=20))
BODIES = st.one_of(
    st.binary(max_size=190),
    PLACED,
    st.lists(PLACED, min_size=1, max_size=3).map(lambda parts: PositionedParts(tuple(parts))),
    st.integers(0, 190).map(bytes),
)


class StoreMachine(RuleBasedStateMachine):
    """Leader (files), follower (files) and a memory store, all against one list."""

    @initialize(
        segment_bytes=st.sampled_from([256, 300, 1024, 4096]),
        index_bytes=st.sampled_from([32, 96, 4096]),
        checkpoint_bytes=st.sampled_from([1, 150, 1 << 20]),
    )
    def begin(self, segment_bytes: int, index_bytes: int, checkpoint_bytes: int) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.config = StoreConfig(
            segment_bytes=segment_bytes,
            index_segment_bytes=index_bytes,
            max_body_bytes=200,
            checkpoint_bytes=checkpoint_bytes,
        )
        self.leader = self.open("n0")
        self.follower = self.open("n1")
        self.memory = MemoryStore(self.config)
        self.model: list[tuple[int, int, bytes]] = []  # term, magic, body
        self.term = 0
        self.hard_state = HardState()
        self.committed = -1
        self.discarded = -1  # before this entry, by whole segments

    def open(self, node_id: str) -> SegmentStore:
        return open_store(OsDisk(), str(self.folder), self.config, "g", node_id)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.leader.close()
            self.follower.close()
            shutil.rmtree(self.folder)

    @rule(
        bodies=st.lists(BODIES, min_size=1, max_size=8),
        step=st.integers(0, 2),
        magic=st.sampled_from(list(Magic)),
    )
    def append(self, bodies: list[Body], step: int, magic: Magic) -> None:
        self.term += step
        first, last, entries, raw = self.leader.append(self.term, magic, bodies)
        assert self.memory.append(self.term, magic, bodies) == (first, last, entries, raw)
        if raw is not None:
            assert decode_entries(raw) == entries
            assert self.leader.read(first, last, len(raw)) == raw
        assert (first, last) == (len(self.model), len(self.model) + len(bodies) - 1)
        for index, body in enumerate(bodies, first):
            pos = self.leader.header_at(index).pos + HEADER_BYTES
            if isinstance(body, bytes):
                placed = body
            else:
                parts = body.parts if isinstance(body, PositionedParts) else [body]
                placed = b""
                for part in parts:
                    place = pos + len(placed)
                    placed += part.head + place.to_bytes(8, "big") + part.tail
            self.model.append((self.term, magic, placed))

    @rule(max_bytes=st.integers(0, 600))
    def replicate(self, max_bytes: int) -> None:
        while self.follower.last_index < self.leader.last_index:
            first = self.follower.last_index + 1
            raw = self.leader.read(first, self.leader.last_index, max_bytes)
            facts = verify_batch(
                raw, first, self.follower.chain_at(first - 1), self.follower.last_term
            )
            self.follower.write_batch(raw, facts)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        index = max(len(self.model) - 1 - back, self.committed)
        for store in (self.leader, self.follower, self.memory):
            store.truncate_after(index)
        del self.model[index + 1 :]

    @rule(vote=st.sampled_from([None, "n0", "n1"]), with_state=st.booleans())
    def sync(self, vote: str | None, with_state: bool) -> None:
        self.term += with_state
        state = HardState(self.term, vote) if with_state else None
        work = self.leader.begin_sync(state)
        work.run()
        assert work.index == len(self.model) - 1
        if state is not None:
            self.hard_state = state

    @precondition(lambda self: self.model)
    @rule(save=st.booleans())
    def commit(self, save: bool) -> None:
        self.committed = min(self.follower.last_index, self.leader.last_index)
        for store in (self.leader, self.follower, self.memory):
            store.note_committed(self.committed)
            if save:
                store.save_committed()

    @rule()
    def prepare_spare(self) -> None:
        self.leader.prepare_spare()

    @precondition(lambda self: self.committed >= 0)
    @rule(back=st.integers(0, 12), follower_too=st.booleans(), record=st.booleans())
    def discard(self, back: int, follower_too: bool, record: bool) -> None:
        self.discarded = max(self.discarded, self.committed - back)
        self.leader.begin_sync(None).run()
        self.leader.discard_before(self.discarded)
        self.memory.discard_before(self.discarded)
        if follower_too:
            self.follower.begin_sync(None).run()
            self.follower.discard_before(self.discarded)
        for store in (self.leader, self.follower):
            if record:
                store.begin_sync(None).run()
                assert not store.record_due
            if (files := store.take_discarded()) is not None:
                files.remove()
        if record:
            starts = sorted(int(p.name) for p in (self.folder / "dledger-n0" / "data").iterdir())
            assert starts[0] == self.memory.header_at(self.memory.first_index).pos

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        for store in (self.leader, self.follower):
            if clean:
                store.close()
            else:
                store._files.close()
        self.leader, self.follower = self.open("n0"), self.open("n1")
        assert self.leader.recovered.cut is None
        assert self.follower.recovered.cut is None
        if self.hard_state.term >= self.leader.last_term:
            assert self.leader.hard_state[:2] == self.hard_state[:2]
        else:
            assert self.leader.hard_state[:2] == (self.leader.last_term, None)
            self.hard_state = self.leader.hard_state
        if clean:
            assert self.leader.hard_state.committed == self.committed
        for store in (self.leader, self.follower):
            store.note_committed(self.committed)
        if clean:
            assert self.leader.first_index == self.memory.first_index
        # A killed process may not have recorded the beginning yet.
        assert self.leader.first_index <= self.memory.first_index
        self.leader.discard_before(self.discarded)

    @rule(first=st.integers(0, 200), last=st.integers(0, 200), max_bytes=st.integers(0, 900))
    def read(self, first: int, last: int, max_bytes: int) -> None:
        if not self.model:
            return
        begin = self.leader.first_index
        first = begin + first % (len(self.model) - begin)
        last = max(first, last % len(self.model))
        raw = self.leader.read(first, last, max_bytes)
        assert raw == self.memory.read(first, last, max_bytes)
        found = decode_entries(raw)
        assert [(e.term, e.magic, e.body) for e in found] == self.model[first : first + len(found)]
        assert len(raw) <= max_bytes or len(found) == 1
        if first + len(found) <= last:
            following = self.leader.header_at(first + len(found))
            over = len(raw) + following.size > max_bytes
            assert over or following.pos % self.config.segment_bytes == 0
        pos = found[0].pos
        assert self.leader.read_bytes(pos, len(raw)) == self.memory.read_bytes(pos, len(raw)) == raw

    @invariant()
    def same_shape(self) -> None:
        if not hasattr(self, "model"):
            return
        for store in (self.leader, self.memory):
            assert store.first_index == self.memory.first_index
            assert store.last_index == len(self.model) - 1
            assert store.last_term == (self.model[-1][0] if self.model else -1)
        assert self.leader.end_pos == self.memory.end_pos
        runs: list[TermRun] = []
        first = self.leader.first_index
        for index, (term, _, _) in enumerate(self.model[first:], first):
            if not runs or runs[-1].term != term:
                runs.append(TermRun(term, index))
        assert self.leader.term_runs() == self.memory.term_runs() == runs

    @rule()
    def scan(self) -> None:
        found = scan_folder(str(self.folder / "dledger-n0"))
        entries = list(found.entries())
        assert found.verify() == []
        terms = [term for term, _, _ in self.model]
        first = entries[0].header.index if entries else 0
        assert first <= self.leader.first_index
        assert [entry.header.term for entry in entries] == terms[first:]
        end = self.leader.end_pos
        for path in (self.folder / "dledger-n0" / "data").iterdir():
            assert not any(path.read_bytes()[max(0, end - int(path.name)) :])
        assert end % self.config.segment_bytes <= self.config.segment_bytes - BLANK_BYTES

    @rule()
    def replicas_are_the_same_bytes(self) -> None:
        self.replicate(10_000)
        if self.follower.last_index != self.leader.last_index:
            return
        for kind in ("data", "index"):
            contents = [
                {p.name: p.read_bytes() for p in (self.folder / node / kind).iterdir()}
                for node in ("dledger-n0", "dledger-n1")
            ]
            shared = contents[0].keys() & contents[1].keys()
            if kind == "index":  # each store writes its units when it likes
                for name in shared:
                    for units in zip(*(_units(content[name]) for content in contents), strict=True):
                        assert units[0] == units[1] or not all(map(any, units))
                continue
            for name in shared:
                assert contents[0][name] == contents[1][name]
            begin = max(min(content, default="") for content in contents)
            for name in contents[0].keys() ^ contents[1].keys():
                assert name < begin or not any((contents[0] | contents[1])[name])


def _units(content: bytes) -> list[bytes]:
    return [content[at : at + UNIT_BYTES] for at in range(0, len(content), UNIT_BYTES)]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
