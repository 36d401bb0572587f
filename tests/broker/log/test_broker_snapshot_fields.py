"""Each field of a broker's state is in its snapshots, with another value than it begins with."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import pytest

from broker.delay.waiting_table import WaitingTable
from broker.features import REGISTRY, empty_state
from broker.lite.state import Lite
from broker.lite.table import LiteTable
from broker.locks.state import QueueLocks
from broker.log.belongings import Belongings
from broker.log.entry import is_record, read_log_command
from broker.log.fold import fold
from broker.log.folded import EntryRefused
from broker.log.state import BrokerState
from broker.log.state_snapshot import captured, restored
from broker.messages import ended_topics
from broker.messages.record_facts import record_size
from broker.transactions.state import Transactions
from tests.broker.rich_log import rich_entries
from tests.field_walk import FieldWalk

# What is made from the rest of the state, or kept for the speed of it.
ADAPTERS: Final = {
    Belongings: lambda table: list(table.items()),
    WaitingTable: lambda table: {
        "rows": list(table.captured()),
        "count": len(table),
    },
    LiteTable: lambda table: list(table.items()),
    Lite: lambda lite: {
        field.name: getattr(lite, field.name) for field in fields(lite) if field.name != "ended"
    },
    # Expired locks are swept little by little.
    QueueLocks: lambda locks: {
        "time_ms": locks.time_ms,
        "swept_ms": locks.swept_ms,
        "_held": locks.owners,
        "_oldest_first": [key for key in locks._oldest_first if key in locks.owners],
    },
    # What does not hold any more may still be in the heap; all that holds must be.
    Transactions: lambda transactions: {
        **{field.name: getattr(transactions, field.name) for field in fields(transactions)},
        "by_due": {due for due in transactions.by_due if transactions.is_due_at(due[1], due[0])},
    },
}


def test_a_restored_state_equals_the_captured_one_in_each_field_and_goes_on_like_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ended_topics, "MAX_ENDED_TOPICS", 1)
    walk = FieldWalk(ADAPTERS)
    entries = rich_entries()
    state, whole = empty_state(), empty_state()
    fold(whole, entries)
    for at, entry in enumerate(entries, 1):
        fold(state, [entry])
        again = restored(captured(state), REGISTRY)
        check_equal(walk, again, state)
        fold(again, entries[at:])
        check_equal(walk, again, whole)
        again.close()
    assert walk.unchanged() == set()


def check_equal(walk: FieldWalk, found: BrokerState, wanted: BrokerState) -> None:
    for part in REGISTRY.parts:
        walk.check_equal(found[part], wanted[part])
    assert found.log_end == wanted.log_end
    assert found.refused_entries == wanted.refused_entries


def test_the_rich_log_has_every_kind_of_command_and_two_entries_are_refused() -> None:
    entries = rich_entries()
    commands = [
        entry.body[record_size(entry.body) :] if is_record(entry.body) else entry.body
        for entry in entries
    ]
    kinds = {read_log_command(command).kind for command in commands if command}
    assert kinds == {one.command.kind for one in REGISTRY.commands()}
    refused = [
        (entry.index, str(result))
        for entry, result in zip(entries, fold(empty_state(), entries).results, strict=True)
        if isinstance(result, EntryRefused)
    ]
    assert len(refused) == 2, refused
