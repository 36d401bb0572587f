"""Consumer lag is a state: quiet queues, groups that pop, logs without their beginning."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow as pa

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.facts.log_fold import LogFold
from dledger_spark.tables.derived import query
from dledger_spark.tables.duckdb_engine import engine_over
from tests.dledger_spark.broker_script import FIRST_MS, ScriptedLog, Step, random_step
from tests.dledger_spark.plain_tables import plain_lag
from tests.dledger_spark.test_spark_tables import EPOCH, as_rows, batch_of, facts_of, plain
from tests.examples import seeds

Row = dict[str, Any]
Facts = dict[str, pa.Table]
MINUTE_MS = 60_000
FIRST_MINUTE_MS = FIRST_MS - FIRST_MS % MINUTE_MS
LAG = ("minute", "lag_messages", "lag_ms")


def lag_of(facts: Facts) -> pa.Table:
    with engine_over(facts) as engine:
        return engine.query(query("consumer_lag"))


def lag_rows(facts: Facts) -> list[Row]:
    """The rows of the table with the number of the minute, in order."""
    rows = lag_of(facts).to_pylist()
    for row in rows:
        row["minute"] = (plain(row["minute"]) - FIRST_MINUTE_MS) // MINUTE_MS
    return sorted(rows, key=lambda row: (row["topic"], row["queue"], row["minute"]))


def facts_of_steps(*steps: Step) -> Facts:
    log = ScriptedLog()
    log.run(list(steps))
    return facts_of(log, [])


def written(**tables: list[Row]) -> Facts:
    """Facts of which only some columns matter; times are seconds since the first minute."""
    facts = {}
    for name, schema in FACTS.items():
        nothing: Row = dict.fromkeys(schema.names)
        rows = [nothing | row for row in tables.get(name, [])]
        for row in rows:
            row |= {"raft_group": "g"}
            for column in ("time", "store_time"):
                if row.get(column) is not None:
                    row[column] = EPOCH + timedelta(
                        milliseconds=FIRST_MINUTE_MS + row[column] * 1000
                    )
        facts[name] = pa.Table.from_pylist(rows, schema=schema)
    return facts


def message(offset: int, at_s: float, topic: str = "A") -> Row:
    place = {"topic": topic, "topic_life": 0, "queue": 0, "offset": offset}
    return place | {"index": offset, "store_time": at_s}


def progress(index: int, offset: int | None, at_s: float) -> Row:
    place = {"consumer_group": "g", "topic": "A", "topic_life": 0, "queue": 0, "offset": offset}
    return place | {"index": index, "time": at_s, "source": "committed"}


def test_a_quiet_queue_has_a_row_for_every_minute_while_a_message_waits() -> None:
    facts = written(
        messages=[message(0, 5), message(1, 7), *(message(n, 60 * n, "other") for n in range(5))],
        consumer_progress=[progress(9, 1, 10)],
    )
    rows = [tuple(row[name] for name in LAG) for row in lag_rows(facts)]
    assert rows == [
        *((0, 1, 53_000), (1, 1, 113_000), (2, 1, 173_000), (3, 1, 233_000)),
        (4, 1, 233_000),  # the log ends with the beginning of the minute
    ]


def test_now_is_the_newest_time_of_any_command_of_the_same_log() -> None:
    facts = written(
        messages=[message(0, 5)],
        consumer_progress=[progress(9, 0, 10)],
        commands=[{"index": 10, "time": 130, "name": "put topic"}],
    )
    assert [row["minute"] for row in lag_rows(facts)] == [0, 1, 2]
    assert lag_rows(facts)[-1]["lag_ms"] == 125_000
    other = facts["commands"].set_column(0, FACTS["commands"].field(0), pa.array(["h"]))
    assert [row["minute"] for row in lag_rows({**facts, "commands": other})] == [0]


def test_a_queue_in_which_nothing_waits_has_rows_only_where_it_moves() -> None:
    facts = written(
        messages=[message(0, 5), message(1, 500, "other")],
        consumer_progress=[progress(9, 0, 10), progress(10, 1, 130)],
    )
    assert [(row["minute"], row["lag_messages"]) for row in lag_rows(facts)] == [
        *((0, 1), (1, 1), (2, 0)),
    ]


def test_nothing_waits_for_a_group_that_was_forgotten() -> None:
    facts = written(
        messages=[message(0, 5), message(1, 500, "other")],
        consumer_progress=[progress(9, 0, 10), progress(10, None, 130)],
    )
    assert [row["minute"] for row in lag_rows(facts)] == [0, 1]


def test_the_age_of_a_message_that_retention_removed_is_unknown() -> None:
    facts = written(
        messages=[message(offset, 5) for offset in range(3, 900)],
        consumer_progress=[progress(2000, 0, 10)],
    )
    (row,) = lag_rows(facts)
    assert (row["lag_messages"], row["lag_ms"], row["waiting_since"]) == (900, None, None)


@pytest.mark.parametrize("days", [1, 3, 400])
def test_a_queue_that_nothing_moves_for_long_has_a_bounded_number_of_rows(days: int) -> None:
    end_s = days * 86_400 + 150
    facts = written(
        messages=[message(0, 5), message(0, end_s, "other")],
        consumer_progress=[progress(9, 0, 10)],
    )
    rows = lag_rows(facts)
    minutes = [row["minute"] for row in rows]
    last = end_s // 60
    assert minutes[: min(last, 1440) + 1] == list(range(min(last, 1440) + 1))
    assert minutes[-1] == last
    assert len(minutes) == len(set(minutes)) <= 1441 + min(days, 366) * 24 + 1
    within = [minute for minute in minutes if minute <= 366 * 1440]
    assert max(after - before for before, after in pairwise(within)) <= 60
    assert rows[-1]["lag_ms"] == (end_s - 5) * 1000


def test_a_group_that_pops_is_behind_by_what_is_not_acknowledged() -> None:
    """The first message is out for long; those after it are acknowledged."""
    facts = facts_of_steps(
        *(Step("send", 0, 1) for _ in range(4)),
        Step("pop", 2, 1),  # two messages
        Step("acknowledge", 1),  # the second one
        Step("send", 0, 1, passes_ms=3 * MINUTE_MS),
    )
    rows = [row for row in lag_rows(facts) if row["queue"] == 1]
    assert [row["consumer_offset"] for row in rows] == [0, 0, 0, 0]
    # One is out, and two of four, then three of five were never given.
    assert [row["lag_messages"] for row in rows] == [3, 3, 3, 4]
    assert rows[-1]["lag_ms"] > 3 * MINUTE_MS - 1000


def rows_of_facts(facts: Facts) -> tuple[list[Row], list[Row], list[Row], int]:
    """What the plain table of lags is made from, of facts alone."""

    def key(row: Row) -> tuple[Any, ...]:
        return row["consumer_group"], row["topic"], row["queue"]

    def moved(row: Row) -> Row:
        return {"key": key(row), "life": row["topic_life"], "index": row["index"]} | {
            "ms": None if row["time"] is None else plain(row["time"])
        }

    messages = [
        {name: row[name] for name in ("topic", "queue", "offset")}
        | {"life": row["topic_life"], "stored": plain(row["store_time"])}
        for row in facts["messages"].to_pylist()
    ]
    steps = [moved(row) | row for row in facts["consumer_progress"].to_pylist()]
    pops = [
        moved(row)
        | {
            "left": None
            if row["offset"] is None
            else (row["offset"], row["next_offset"], row["unacknowledged"])
        }
        for row in facts["pop_progress"].to_pylist()
    ]
    times = [one["stored"] for one in messages]
    for table in ("commands", "pop_events"):
        times += [plain(row["time"]) for row in facts[table].to_pylist() if row["time"] is not None]
    return steps, pops, messages, max(times, default=0)


@pytest.mark.parametrize("seed", seeds(12, 3))
def test_lag_of_a_log_with_entries_lost_between_two_runs_is_what_its_facts_say(seed: int) -> None:
    chance = random.Random(seed)
    log = ScriptedLog()
    kinds = ("send", "sends", "offsets", "pop", "pop", "acknowledge", "acknowledge", "bury")
    script = [random_step(chance) for _ in range(60)]
    script += [
        Step(chance.choice(kinds), chance.randrange(6), chance.randrange(4), chance.choice(passes))
        for passes in [(0, 0, 40, 90_000, 700_000)] * 60
    ]
    chance.shuffle(script)
    log.run(script)
    whole = len(log.entries)
    first, later = sorted(chance.sample(range(10, whole), 2))
    found: dict[str, list[pa.RecordBatch]] = {table: [] for table in FACTS}
    for begin, stop in ((0, first), (later, whole)):
        fold = LogFold("g", begin, is_judged_whole=begin == 0)
        for table, rows in fold.fold(batch_of(log, begin, stop)).items():
            found[table].append(rows)
    facts = {name: pa.Table.from_batches(found[name], schema=FACTS[name]) for name in FACTS}
    expected = plain_lag(*rows_of_facts(facts))
    names = list(expected[0])
    assert as_rows(lag_of(facts), names) == sorted(
        (tuple(row[name] for name in names) for row in expected), key=repr
    )
    assert expected
