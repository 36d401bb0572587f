"""Each field that members keep in snapshots and records comes back, also from another value."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import dledger.machines
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import (
    NumberedConfiguration,
    decode_configuration,
    encode_configuration,
)
from dledger.machines.command import Calls
from dledger.machines.replicated import Objects, Replicated
from dledger.machines.replicated_counter import ReplicatedCounter
from dledger.machines.replicated_dict import ReplicatedDict
from dledger.machines.replicated_lock import ReplicatedLocks
from dledger.machines.replicated_queue import ReplicatedQueue
from dledger.sessions.session_snapshot import decode_table, encode_table
from dledger.sessions.session_table import SessionLimits, SessionTable
from dledger.store.birth_record import BirthRecord, decode_birth, encode_birth
from dledger.store.hard_state_file import StoreRecord, decode_record, encode_record
from dledger.store.snapshot_format import SnapshotHeader, decode_header, encode_header
from tests.field_walk import FieldWalk

ADDRESSES = {f"n{number}": f"localhost:{number + 1}" for number in range(5)}
LARGE = Configuration(
    voters=frozenset({"n0", "n1"}),
    outgoing=frozenset({"n0", "n2"}),
    learners=frozenset({"n3"}),
    learners_next=frozenset({"n2"}),
    auto_leave=True,
    addresses={name: ADDRESSES[name] for name in ("n0", "n1", "n2", "n3")},
)
SMALL = Configuration(voters=frozenset({"n4"}), addresses={"n4": ADDRESSES["n4"]})


def session_tables() -> Iterator[SessionTable]:
    table = SessionTable()
    yield table
    table.open(1, 5_000, SessionLimits(3, 4, 400), 10)
    table.open(2, 6_000, SessionLimits(3, 2, 9_000), 20)
    for sequence in range(1, 5):
        yield table
        for session in (2, 1):
            table.admit(session, sequence, max(1, sequence - 1), 20 + sequence)
            table.keep(session, sequence, 10 * sequence + session, b"r" * sequence)
    table.admit(1, 5, 2, 40)
    table.keep(1, 5, 60, None)
    yield table


def machines() -> Iterator[Objects]:
    counter, values = ReplicatedCounter(), ReplicatedDict()
    locks, queue = ReplicatedLocks(), ReplicatedQueue()
    machine = Objects(counter=counter, values=values, locks=locks, queue=queue)
    for index in range(4):
        yield machine
        counter.carry_out("add", [7], index)
        values.carry_out("update", [f"key {index}", index], index)
        locks.carry_out("acquire", [f"lock {index}", f"holder {index}", 1 + index], index)
        locks.carry_out("renew", ["lock 0", "holder 0"], index)
        queue.carry_out("put", [index], index)
    yield machine


def restored_machine(machine: Objects) -> Objects:
    again = Objects(
        counter=ReplicatedCounter(),
        values=ReplicatedDict(),
        locks=ReplicatedLocks(),
        queue=ReplicatedQueue(),
    )
    again.restore(machine.snapshot())
    return again


def headers() -> Iterator[SnapshotHeader]:
    yield SnapshotHeader(1, 2, 3, 4, 5, "g")
    yield SnapshotHeader(6, 7, 8, 9, 10, "another", "machine/2", b"configuration")


def records() -> Iterator[StoreRecord]:
    yield StoreRecord("g", "n0", 4096, 320)
    yield StoreRecord("h", "n1", 8192, 640, 1, "n2", *range(2, 11))


def births() -> Iterator[BirthRecord]:
    yield BirthRecord("g")
    yield BirthRecord("h", SMALL, b"b" * 16)
    yield BirthRecord("h", Configuration(), b"b" * 16)


def configurations() -> Iterator[NumberedConfiguration]:
    yield NumberedConfiguration(-1, SMALL)
    yield NumberedConfiguration(7, LARGE)


# What is kept, and how it comes back.
KEPT: dict[str, tuple[Callable[[], Iterator[object]], Callable[..., object]]] = {
    "session tables": (session_tables, lambda table: decode_table(encode_table(table))[0]),
    "machines": (machines, restored_machine),
    "headers of snapshots": (headers, lambda header: decode_header(encode_header(header))),
    "records of stores": (
        records,
        lambda record: (decode_record(encode_record(record, 1)) or [])[0],
    ),
    "births": (births, lambda record: decode_birth(encode_birth(record))),
    "configurations": (
        configurations,
        lambda numbered: decode_configuration(
            encode_configuration(numbered.index, numbered.configuration)
        ),
    ),
}
ADAPTERS: dict[str, dict[type, Callable[[Any], object]]] = {
    "machines": {Objects: lambda machine: [*machine._objects.values()]},
    # The first voters are all that it has of a configuration.
    "births": {Configuration: lambda configuration: {"addresses": dict(configuration.addresses)}},
}
SPARED = {
    "SessionLimits.sessions": "of the whole table: each entry that opens a session says it",
    **{
        f"{kind.__name__}.{field}": reason
        for kind in (ReplicatedCounter, ReplicatedDict, ReplicatedLocks, ReplicatedQueue)
        for field, reason in {
            "name": "given by the program",
            "changes": "told to the watches of a process, which begin anew",
        }.items()
    },
}


@pytest.mark.parametrize("name", KEPT)
def test_each_field_comes_back_also_from_another_value(name: str) -> None:
    values, kept = KEPT[name]
    walk = FieldWalk(ADAPTERS.get(name), SPARED)
    for value in values():
        walk.check_equal(kept(value), value)
    assert walk.unchanged() == set()


def test_every_replicated_object_is_looked_at() -> None:
    machine = next(machines())
    made = {type(each) for each in machine._objects.values()}
    public = {
        kind
        for _, kind in inspect.getmembers(dledger.machines, inspect.isclass)
        if hasattr(kind, "carry_out") and kind is not Replicated and not issubclass(kind, Calls)
    }
    assert public == made
