"""Runs of entries: sequences like any other, whose objects are made at the first look."""

from __future__ import annotations

import gc
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dledger.entry import Entry, Magic, decode_entries
from dledger.entry_run import EntryRun, decode_run, joined
from dledger.state_machine import LogOnly
from dledger.store.index_unit import UNIT, index_units
from dledger.store.store_config import StoreConfig
from tests.dledger.store.memory_store import MemoryStore

BODIES = st.lists(st.binary(max_size=40), min_size=1, max_size=12)


def written(bodies: Sequence[bytes], term: int = 3) -> tuple[EntryRun, bytes]:
    """The run of entries that a leader made, and their bytes."""
    made = MemoryStore(StoreConfig()).append(term, Magic.NORMAL, bodies)
    assert made.raw is not None
    return made.entries, made.raw


@given(bodies=BODIES)
def test_a_run_is_what_its_bytes_say(bodies: list[bytes]) -> None:
    run, raw = written(bodies)
    assert run == decode_run(raw) == decode_entries(raw)
    assert [entry.body for entry in run] == bodies
    assert (run.first, run.last, run.log_bytes) == (0, len(bodies) - 1, len(raw))
    assert (run[0], run[-1], run[1:]) == (next(iter(run)), list(run)[-1], list(run)[1:])


@given(bodies=BODIES, cuts=st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_parts_of_a_run_make_it_again(bodies: list[bytes], cuts: tuple[int, int]) -> None:
    run, _ = written(bodies)
    begin, end = sorted(min(cut, len(bodies)) for cut in cuts)
    parts = [run.part(0, begin), run.part(begin, end), run.part(end, len(bodies))]
    assert joined([part for part in parts if len(part)]) == run
    for part in parts:
        assert part == list(run)[part.first : part.first + len(part)]


@given(bodies=BODIES)
def test_the_units_of_a_run_say_where_its_entries_lie(bodies: list[bytes]) -> None:
    run, _ = written(bodies)
    assert list(UNIT.iter_unpack(index_units(run))) == [
        (entry.magic, entry.pos, 48 + len(entry.body), entry.index, entry.term) for entry in run
    ]


def test_a_run_ends_where_the_term_or_the_kind_of_entry_changes() -> None:
    store = MemoryStore(StoreConfig())
    store.append(1, Magic.NORMAL, [b"a", b"b"])
    store.append(2, Magic.NOOP, [b""])
    store.append(2, Magic.NORMAL, [b"c"])
    found = [decode_run(store.read(first, 3, 1 << 20)) for first in (0, 2, 3)]
    assert [(run.first, run.last, run.term, run.magic) for run in found] == [
        (0, 1, 1, Magic.NORMAL),
        (2, 2, 2, Magic.NOOP),
        (3, 3, 2, Magic.NORMAL),
    ]


def test_a_state_machine_that_only_counts_causes_no_object_for_each_entry() -> None:
    run, _ = written([b"body"] * 1000, term=77_001)
    assert LogOnly().apply(run) == [None] * 1000
    assert not [
        entry for entry in gc.get_objects() if type(entry) is Entry and entry.term == 77_001
    ]
    assert len(list(run)) == 1000
    assert [entry for entry in gc.get_objects() if type(entry) is Entry and entry.term == 77_001]
