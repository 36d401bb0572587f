"""Each table is what a plain Python fold of the same log says, however the log was cut."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow as pa

from broker.log.entry import encode_log_command
from broker.offsets.commands import CommitOffsets, CommittedOffset
from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.log_fold import LogFold
from dledger_spark.schema import ENTRY_SCHEMA
from dledger_spark.tables.derived import DERIVED, VIEWS, query
from dledger_spark.tables.duckdb_engine import engine_over
from tests.dledger_spark.broker_script import ScriptedLog, Step, random_step, scripts
from tests.dledger_spark.plain_tables import PlainTables
from tests.examples import examples, seeds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def batch_of(log: ScriptedLog, first: int, stop: int) -> pa.RecordBatch:
    zeros: dict[str, Any] = dict.fromkeys(ENTRY_SCHEMA.names, 0)
    zeros["raft_group"] = "g"
    return pa.RecordBatch.from_pylist(
        [
            {**zeros, "index": e.index, "term": e.term, "pos": e.pos, "body": e.body}
            for e in log.entries[first:stop]
        ],
        schema=ENTRY_SCHEMA,
    )


def facts_of(log: ScriptedLog, cuts: list[int]) -> dict[str, pa.Table]:
    """The facts, folded in several runs that go on from each other's states."""
    borders = sorted({0, *(min(cut, len(log.entries)) for cut in cuts), len(log.entries)})
    fold = LogFold("g", 0, is_judged_whole=True)
    found: dict[str, list[pa.RecordBatch]] = {table: [] for table in FACTS}
    for first, stop in pairwise(borders):
        for table, rows in fold.fold(batch_of(log, first, stop)).items():
            found[table].append(rows)
        fold = LogFold.resumed("g", fold.state)
    return {
        table: pa.Table.from_batches(batches, schema=FACTS[table])
        for table, batches in found.items()
    }


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    return round(value, 6) if isinstance(value, float) else value


def as_rows(table: pa.Table, names: list[str]) -> list[tuple[Any, ...]]:
    rows = [tuple(plain(row[name]) for name in names) for row in table.to_pylist()]
    return sorted(rows, key=repr)


def check_tables(log: ScriptedLog, facts: dict[str, pa.Table], engine: Any) -> None:
    expected = PlainTables("g", log.entries)
    assert facts["entries"].num_rows == len(log.entries)
    assert as_rows(
        facts["messages"], ["index", "topic", "topic_life", "queue", "offset"]
    ) == sorted(
        ((m["index"], m["topic"], m["life"], m["queue"], m["offset"]) for m in expected.messages),
        key=repr,
    )
    names = ["index", "time", "consumer_group", "topic", "queue", "topic_life", "offset"]
    assert as_rows(facts["consumer_progress"], names) == sorted(
        ((p["index"], p["ms"], *p["key"], p["life"], p["offset"]) for p in expected.progress),
        key=repr,
    )
    for table in (*DERIVED, *VIEWS):
        wanted = getattr(expected, table)()
        made = engine.query(query(table))
        assert made.num_rows == len(wanted), table
        if wanted:
            columns = list(wanted[0])
            rows = sorted((tuple(plain(row[name]) for name in columns) for row in wanted), key=repr)
            assert as_rows(made, columns) == rows, table


@settings(deadline=None, max_examples=examples(25))
@given(scripts, st.lists(st.integers(0, 70), max_size=3))
@example([Step("pop", 1), Step("acknowledge"), Step("send")], []).via("progress without a time")
def test_each_table_is_what_a_plain_fold_says(script: list[Step], cuts: list[int]) -> None:
    log = ScriptedLog()
    log.run(script)
    facts = facts_of(log, cuts)
    with engine_over(facts) as engine:
        check_tables(log, facts, engine)


@pytest.mark.parametrize("seed", seeds(6, 1))
def test_each_table_of_a_long_log_is_what_a_plain_fold_says(seed: int) -> None:
    chance = random.Random(seed)
    log = ScriptedLog()
    log.run([random_step(chance) for _ in range(200)])
    facts = facts_of(log, [chance.randrange(200) for _ in range(3)])
    with engine_over(facts) as engine:
        check_tables(log, facts, engine)


def pops_of(*steps: Step) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The facts about pops in a log of some steps, and the table of pops."""
    log = ScriptedLog()
    log.run(list(steps))
    facts = facts_of(log, [])
    with engine_over(facts) as engine:
        check_tables(log, facts, engine)
        table = engine.query(query("pops")).to_pylist()
    return facts["pop_events"].to_pylist(), table


@pytest.mark.parametrize("end", ["acknowledge", "bury"])
def test_a_message_ends_no_earlier_than_it_was_given(end: str) -> None:
    """No message is stored between, so the log's own time stands still."""
    events, (row,) = pops_of(
        Step("send"), Step("pop", 1, passes_ms=90_000), Step(end, passes_ms=40)
    )
    given, ended = events
    assert ended["time"] >= given["time"]
    times = row["last_given_time"], row["acknowledged_time"] or row["buried_time"]
    assert times == (given["time"], ended["time"])


def test_the_progress_that_an_acknowledgement_makes_is_no_earlier_than_the_pop() -> None:
    log = ScriptedLog()
    log.run([Step("send"), Step("pop", 1, passes_ms=90_000), Step("acknowledge", passes_ms=40)])
    facts = facts_of(log, [])
    times = facts["consumer_progress"].column("time").to_pylist()
    assert times == sorted(times)
    assert times[-1] == facts["pop_events"].column("time")[0].as_py()


def test_a_message_ends_no_earlier_than_it_was_given_if_a_leaders_clock_is_behind() -> None:
    events, (row,) = pops_of(
        Step("send"), Step("pop", 1), Step("hide", passes_ms=-700_000), Step("acknowledge")
    )
    assert [one["event"] for one in events] == ["given", "hidden", "acknowledged"]
    assert row["acknowledged_time"] == row["last_given_time"] == events[0]["time"]


def test_a_message_that_is_given_again_behind_a_reset_is_out() -> None:
    events, (row,) = pops_of(
        Step("send", 1, 1),
        Step("pop", 1, 1),
        Step("acknowledge"),
        Step("pop", 1, 5, passes_ms=90_000),  # 5: from the beginning
    )
    assert [one["event"] for one in events] == ["given", "acknowledged", "given"]
    assert (row["outcome"], row["acknowledged_time"], row["times"]) == ("out", None, 2)
    assert row["last_given_time"] == events[-1]["time"]


def test_the_trace_of_a_dead_letter_names_the_topic_where_it_lies() -> None:
    """A copy that was delayed before keeps the property that names where it was to go."""
    places = [("SCHEDULE_TOPIC_XXXX", 2, 7), ("%RETRY%billing", 0, 1), ("%DLQ%billing", 0, 3)]
    messages = [
        {
            **dict.fromkeys(FACTS["messages"].names),
            "raft_group": "g",
            "index": index,
            "topic": topic,
            "queue": queue,
            "offset": offset,
            "unique_key": "K",
            "properties": {"REAL_TOPIC": "%RETRY%billing"},
        }
        for index, (topic, queue, offset) in enumerate(places)
    ]
    facts = {name: schema.empty_table() for name, schema in FACTS.items()}
    facts["messages"] = pa.Table.from_pylist(messages, schema=FACTS["messages"])
    with engine_over(facts) as engine:
        made = engine.query(query("trace"))
    assert as_rows(made, ["event", "topic", "queue", "offset"]) == [
        ("dead", "%DLQ%billing", 0, 3),
        ("sent back", "%RETRY%billing", 0, 1),
        ("sent back", "%RETRY%billing", 2, 7),
    ]


def test_the_largest_offset_that_a_client_may_commit_is_an_offset_as_others() -> None:
    log = ScriptedLog()
    log.run([Step("send")] * 3)
    for offset in (1, 2**63 - 1):
        committed = [CommittedOffset("g", "A", 0, offset)]
        log._append(encode_log_command(CommitOffsets(committed, log._now_ms, log._pos)))
    facts = facts_of(log, [])
    with engine_over(facts) as engine:
        check_tables(log, facts, engine)
