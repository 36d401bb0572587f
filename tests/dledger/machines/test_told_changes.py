"""What ready-made objects tell of their changes adds up to what they show of their state."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack
from hypothesis import given
from hypothesis import strategies as st

from dledger.changes import Changes, PackedValue, Path
from dledger.entry import Entry, Magic
from dledger.machines import (
    Objects,
    ReplicatedCounter,
    ReplicatedDict,
    ReplicatedLocks,
    ReplicatedQueue,
)
from dledger.machines.command import Command, encode_command
from dledger.queries import queries_of
from dledger.waits.change_history import ChangeHistory

keys = st.sampled_from(["tea", b"tea", 1])
values = st.sampled_from([1, 2, "x"])
names = st.sampled_from(["red", "blue"])
ones = st.lists(values, max_size=1)
# Each with the name of its object; some cannot be carried out.
commands = st.one_of(
    st.tuples(st.just("dict"), st.just("update"), keys, values),
    st.tuples(st.just("dict"), st.just("update"), keys, values, keys, values),
    st.tuples(st.just("dict"), st.just("update"), keys),
    st.tuples(st.just("dict"), st.sampled_from(["pop", "get"]), keys),
    st.tuples(st.just("dict"), st.just("replace"), keys, ones, ones),
    st.tuples(st.just("dict"), st.just("clear")),
    st.tuples(st.just("count"), st.sampled_from(["add", "set"]), st.integers(-1, 2**63 - 1)),
    st.tuples(st.just("jobs"), st.just("put"), values),
    st.tuples(st.just("jobs"), st.just("put")),
    st.tuples(st.just("jobs"), st.just("take"), st.integers(0, 2)),
    st.tuples(st.just("locks"), st.just("acquire"), names, names, st.just(5)),
    st.tuples(st.just("locks"), st.sampled_from(["renew", "release"]), names, names),
    st.tuples(st.just("locks"), st.just("expire"), names, st.integers(0, 9), st.integers(0, 2)),
    st.tuples(st.just("none"), st.just("add"), values),
)


def made() -> Objects:
    return Objects(
        dict=ReplicatedDict(),
        count=ReplicatedCounter(),
        jobs=ReplicatedQueue(),
        locks=ReplicatedLocks(),
    )


def shown(machine: Objects, path: Path = ()) -> dict[Path, object]:
    return {each: plain(value) for each, value in machine.watched(path)}


def plain(value: object) -> object:
    packed = value if isinstance(value, PackedValue) else msgpack.packb(value)
    return msgpack.unpackb(packed)


@given(st.lists(commands, max_size=40))
def test_the_changes_of_all_entries_make_the_state_that_is_shown(
    given_commands: Sequence[tuple[str, ...]],
) -> None:
    machine = made()
    folded = shown(machine)
    history = ChangeHistory(machine.changes, 1 << 30, -1)
    for index, (name, operation, *arguments) in enumerate(given_commands):
        body = encode_command(Command(name, operation, arguments))
        before = shown(machine)
        machine.apply([Entry(index, 1, 0, Magic.NORMAL, body)])
        assert history.applied(index) is None
        rows = history.select(index - 1, (), 1 << 20).rows
        for _, parts, *value in map(msgpack.unpackb, rows):
            path = tuple(parts)
            if value:
                folded[path] = value[0]
            else:
                folded = {each: v for each, v in folded.items() if each[: len(path)] != path}
        assert folded == shown(machine)
        assert rows or before == folded
    for path, value in folded.items():
        assert shown(machine, path) == {path: value}
    answers = queries_of(machine)
    assert answers["count.get"]() == folded["count",]
    assert answers["jobs.size"]() == folded["jobs",]
    assert answers["dict.size"]() == sum(path[0] == "dict" for path in folded)
    for key in ("tea", b"tea", 1):
        assert answers["dict.get"](key) == folded.get(("dict", key))
    for lock in ("red", "blue"):
        found = answers["locks.holding"](lock)
        assert (found and plain(found)) == folded.get(("locks", lock))


def test_a_path_of_another_shape_shows_nothing() -> None:
    machine = made()
    for path in [("dict", "tea", "x"), ("count", 1), ("locks", 5), ("locks", "a", "b"), ("none",)]:
        assert shown(machine, path) == {}


def test_objects_tell_by_one_recorder() -> None:
    counter = ReplicatedCounter()
    machine = Objects(visits=counter)
    assert isinstance(counter.changes, Changes)
    machine.changes.begin(1_000)
    counter.carry_out("add", [2], 7)
    assert [change.path for change in machine.changes.take()[0]] == [("visits",)]
