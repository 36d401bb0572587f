"""The life of a failed message: sent back, waiting, delivered again, dead, redriven."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

from dledger_spark.tables.derived import query
from dledger_spark.tables.duckdb_engine import engine_over
from tests.dledger_spark.broker_script import FIRST_MS, ScriptedLog, Step
from tests.dledger_spark.test_spark_tables import check_tables, facts_of, plain

COUNTS = ("sent_back", "waiting", "delivered_again", "dead", "redriven", "given")
# Send a message back so that it waits 4 seconds; have the first one that waits delivered.
SENT_BACK, DELIVERED = Step("send back", 0, 4), Step("deliver")


def tables_of(*steps: Step) -> dict[str, list[dict[str, Any]]]:
    log = ScriptedLog()
    log.run(list(steps))
    facts = facts_of(log, [])
    with engine_over(facts) as engine:
        check_tables(log, facts, engine)
        return {
            name: engine.query(query(name)).to_pylist()
            for name in ("retries", "dead_letters", "trace")
        }


def counts_of(*steps: Step) -> tuple[Any, ...]:
    (row,) = tables_of(*steps)["retries"]
    return tuple(row[name] for name in COUNTS)


def test_a_message_that_was_sent_back_waits_until_it_is_delivered_again() -> None:
    assert counts_of(SENT_BACK) == (1, 1, 0, 0, 0, None)
    assert counts_of(SENT_BACK, DELIVERED) == (1, 0, 1, 0, 0, None)
    assert counts_of(SENT_BACK, DELIVERED, SENT_BACK) == (2, 1, 1, 0, 0, None)
    (row,) = tables_of(SENT_BACK)["retries"]
    assert plain(row["due_time"]) == FIRST_MS + 4000


def test_a_message_that_retention_moves_on_the_ladder_was_sent_back_once() -> None:
    assert counts_of(SENT_BACK, Step("move")) == (1, 1, 0, 0, 0, None)
    assert counts_of(SENT_BACK, Step("move"), DELIVERED) == (1, 0, 1, 0, 0, None)


def test_a_copy_of_a_dead_letter_is_no_retry() -> None:
    dead, redriven = Step("dead", 0, 4), Step("redrive", 0, 4)  # to the retry topic
    assert counts_of(SENT_BACK, DELIVERED, dead) == (1, 0, 1, 1, 0, None)
    assert counts_of(SENT_BACK, DELIVERED, dead, redriven) == (1, 0, 1, 1, 1, None)
    assert counts_of(dead, redriven, SENT_BACK, DELIVERED) == (1, 0, 1, 1, 1, None)


def test_a_dead_letter_of_a_group_that_pops_says_how_often_it_was_given() -> None:
    steps = (
        Step("send", 1, 4),
        Step("pop", 1, 4),
        Step("pop", 1, 4, passes_ms=90_000),  # the one that comes again, and the next
        Step("hide"),
        Step("bury"),
    )
    found = tables_of(*steps)
    (letter,) = found["dead_letters"]
    assert (letter["reason"], letter["given"]) == ("popped too often", 2)
    assert counts_of(*steps) == (0, 0, 1, 1, 0, 2)


def test_the_trace_tells_sending_back_from_the_next_delivery() -> None:
    found = tables_of(SENT_BACK, DELIVERED, Step("dead", 0, 4), Step("redrive", 0, 4))["trace"]
    events = [
        (row["event"], row["consumer_group"]) for row in sorted(found, key=lambda r: r["index"])
    ]
    assert events == [
        *(("sent back", "g"), ("delivered again", "g"), ("dead", "g"), ("redriven", "g")),
    ]
    (waits,) = (row for row in found if row["event"] == "sent back")
    assert plain(waits["due_time"]) == FIRST_MS + 4000
