"""Commands count in tables as the brokers' own fold takes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed: run make setup-spark")

from broker.delay.commands import DropDelayed
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.pop.commands import AckPopped, PoppedMessage
from broker.resets.commands import EndReset
from broker.topics.commands import DeleteTopic, PutTopic
from broker.transactions.commands import Checked, Rollback
from dledger.entry import Entry, Magic
from dledger_spark.facts.log_fold import LogFold
from remoting.bodies.topic_config import TopicConfig
from tests.dledger_spark.broker_script import ScriptedLog
from tests.dledger_spark.test_spark_tables import batch_of

Rows = dict[str, list[dict[str, Any]]]
# As programs wrote it that folded commands with code of their own.
FIRST_VERSION: dict[str, Any] = {
    "version": 1,
    "next": 70,
    "term": 3,
    "chain_crc": 9,
    "log_ms": 1000,
    "acceptance": [True, {"A": [[0, 3]]}, False, {}, {}, 0],
    "commands": {
        "topics": [["A", "TBW102"], {"B": 1}, {"A": 100}],
        "popped": [["g", "A", 0, 3, "", [1, 5000, 9000, False], [2, 5000, 9000, False]]],
        "progress": [["g", "A", 0, 1], ["h", "A", 0, 2]],
        "resets": [["h", "A", 0, 2]],
        "moved": [[9000, 800]],
    },
}


def commit(offset: int, as_of: int) -> CommitOffsets:
    return CommitOffsets([CommittedOffset("h", "A", 0, offset)], 2000, as_of)


def facts(fold: LogFold, commands: list[LogCommand], pos: int = 10_000) -> Rows:
    """What commands give, as entries from the fold's next one on."""
    log = ScriptedLog()
    log.entries.clear()
    for index, command in enumerate(commands, fold.next_index):
        log.entries.append(Entry(index, 1, pos, Magic.NORMAL, encode_log_command(command)))
        pos = log.entries[-1].body_pos + len(log.entries[-1].body)
    batch = batch_of(log, 0, len(log.entries))
    return {table: rows.to_pylist() for table, rows in fold.fold(batch).items()}


def of(rows: Rows, table: str, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows.get(table, [])]


def test_what_the_brokers_refuse_is_no_row() -> None:
    fold = LogFold("g", 0, is_judged_whole=True)
    rows = facts(fold, [PutTopic(TopicConfig("A"), 1), Rollback(12345), Checked(99, (1, 2))])
    assert of(rows, "commands", "name") == [("put topic",), ("checked",)]
    assert "transaction_events" not in rows


def test_what_began_before_the_log_at_hand_is_taken_for_what_its_end_says() -> None:
    fold = LogFold("g", 70, is_judged_whole=False)
    rows = facts(fold, [Rollback(500), DropDelayed(600), commit(7, 9000), DeleteTopic("A", 9)])
    assert of(rows, "transaction_events", "position", "event") == [(500, "rolled back")]
    assert of(rows, "delay_events", "position", "event") == [(600, "dropped")]
    assert of(rows, "consumer_progress", "offset")[0] == (7,)
    # It is known now.
    again = facts(fold, [commit(9, 20_000), DropDelayed(10_500)], 20_000)
    assert of(again, "commands", "name") == [("commit offsets",)]
    assert "consumer_progress" not in again


def test_a_fold_goes_on_from_the_state_of_an_earlier_version() -> None:
    fold = LogFold.resumed("g", json.dumps(FIRST_VERSION).encode())
    commands: list[LogCommand] = [
        AckPopped([PoppedMessage("g", "A", 0, 1, 5000)]),
        commit(7, 9000),  # from before the group was moved
        EndReset("h", "A", 0, 2),
        commit(8, 50),  # from before the topic was made
        commit(9, 9000),
        Rollback(500),
        DropDelayed(9000),
    ]
    rows = facts(fold, commands)
    assert of(rows, "pop_events", "event", "offset") == [("acknowledged", 1)]
    assert of(rows, "consumer_progress", "consumer_group", "offset", "source") == [
        ("g", 2, "popped"),
        ("h", 9, "committed"),
    ]
    assert of(rows, "transaction_events", "position", "event") == [(500, "rolled back")]
    assert of(rows, "delay_events", "position", "event") == [(800, "dropped")]
    state = json.loads(fold.state)
    assert state["version"] == 2
    assert LogFold.resumed("g", fold.state).state == fold.state


@pytest.mark.parametrize("change", [{"version": 3}, {"commands": {}}, {"commands": {"state": [9]}}])
def test_what_is_no_state_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"version|no state"):
        LogFold.resumed("g", json.dumps(FIRST_VERSION | {"version": 2} | change).encode())
