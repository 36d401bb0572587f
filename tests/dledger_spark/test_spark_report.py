"""The report of a log: its figures, what it says of empty and broken tables, and in a browser."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.report import lag, latency, throughput
from dledger_spark.report.header import checks, logs_of, span_of
from dledger_spark.report.page import page
from dledger_spark.report.quantity import cut, duration, moment, size
from dledger_spark.report.span import STEPS_MAX, Span
from dledger_spark.tables.derived import DERIVED, VIEWS, query
from dledger_spark.tables.duckdb_engine import DuckdbEngine, engine_over
from tests.dledger_spark.broker_script import ScriptedLog
from tests.dledger_spark.test_spark_table_updates import run, scripted, write
from tests.dledger_spark.test_spark_tables import facts_of
from tests.picture_texts import PAIRS_IN_A_BROWSER, unreadable, without_policy

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
HOSTILE = "</svg></style><script>alert(1)</script>&\"'\x00\x1b[31m\u202e" + "x" * 500
ANCHORS = ("throughput", "lag", "latency", "terms", "retries", "transactions", "delays", "keys")
Tables = dict[str, pa.Table]


def tables_of(log: ScriptedLog) -> Tables:
    """The facts and what follows from them, in memory."""
    return with_derived(facts_of(log, []))


def with_derived(facts: Mapping[str, pa.Table]) -> Tables:
    with engine_over(facts) as engine:
        return {**facts, **{name: engine.query(query(name)) for name in (*DERIVED, *VIEWS)}}


def ends_of(tables: Tables) -> dict[str, dict[str, int | None]]:
    entries = tables["entries"].select(["raft_group", "index"]).to_pylist()
    ends: dict[str, dict[str, int | None]] = {}
    for group in {entry["raft_group"] for entry in entries}:
        end = max(entry["index"] for entry in entries if entry["raft_group"] == group) + 1
        ends[group or ""] = dict.fromkeys(FACTS, end)
    return ends


def page_of(tables: Tables, ends: Mapping[str, Mapping[str, int | None]] | None = None) -> str:
    with engine_over(tables) as engine:
        return page("a log", engine, ends_of(tables) if ends is None else ends)


class Words(HTMLParser):
    """What a page says, by section."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.words: dict[str, list[str]] = {"": []}
        self.pictures: Counter[str] = Counter()
        self._section = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
            self.words[self._section] = []
        self.pictures[self._section] += tag == "svg"

    def handle_data(self, data: str) -> None:
        self.words[self._section].append(data)

    def section(self, anchor: str) -> str:
        return " ".join(self.words[anchor])


# --- figures --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tables() -> Tables:
    return tables_of(scripted(3, 1200))


@pytest.fixture
def engine(tables: Tables) -> Iterator[DuckdbEngine]:
    with engine_over(tables) as made:
        yield made


def rows(engine: DuckdbEngine, sql: str) -> list[dict[str, Any]]:
    return list(engine.query(sql).to_pylist())


def test_a_page_of_a_log_in_which_everything_happened_has_every_part(tables: Tables) -> None:
    words = Words(page_of(tables))
    assert [anchor for anchor in words.words if anchor] == list(ANCHORS)
    assert "Reconciles: yes" in words.section("")
    assert f"{len(tables['entries']):,}" in words.section("")
    assert f"{len(tables['messages']):,}" in words.section("")
    for anchor in ("throughput", "lag", "latency", "terms"):
        assert words.pictures[anchor] >= 2, anchor  # one for each width
    assert "retry 1" in words.section("retries")
    assert "rolled back" in words.section("transactions")
    assert "waiting" not in words.section("delays")
    assert re.search(r"\d+ delivered", words.section("delays"))
    assert "b0" in words.section("keys")


def test_the_age_of_a_lag_is_that_at_the_end_of_the_log(engine: DuckdbEngine) -> None:
    span = span_of(engine)
    assert span is not None
    told = {
        row["consumer_group"]: row["oldest_ms"]
        for row in rows(engine, lag.lag_query(span.steps(5000)))
        if row["last"]
    }
    ages = rows(
        engine,
        """
        with committed as (
            select
                p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue,
                arg_max({'at': p.offset}, p.index).at as next
            from consumer_progress p
            group by all
        ),
        popped as (
            select
                p.raft_group, p.consumer_group, p.topic, p.topic_life, p.queue,
                arg_max({'at': p.offset}, p.index).at as popped
            from pop_progress p
            group by all
        ),
        known as (
            select
                c.* exclude (next),
                case when c.next is not null then coalesce(p.popped, c.next) end as next
            from committed c
            left join popped p using (raft_group, consumer_group, topic, topic_life, queue)
        )
        select k.consumer_group, max(l.ms - epoch_ms(m.store_time)) as age
        from known k
        join messages m
            on m.topic = k.topic and m.topic_life = k.topic_life and m.queue = k.queue
            and m.offset = k.next
        cross join (
            select greatest(
                (select max(epoch_ms(e.store_time)) from messages e),
                (select max(epoch_ms(c.time)) from commands c),
                (select max(epoch_ms(p.time)) from pop_events p)
            ) as ms
        ) l
        group by k.consumer_group
        """,
    )
    assert told
    known = {row["consumer_group"]: row["age"] for row in ages}
    assert told == {group: known.get(group) for group in told}


def test_the_steps_of_throughput_have_all_messages(engine: DuckdbEngine) -> None:
    span = span_of(engine)
    assert span is not None
    steps = span.steps(1000)
    found = rows(engine, throughput.throughput_query(steps))
    (whole,) = rows(engine, "select sum(messages) as messages from traffic")
    assert sum(row["messages"] for row in found) == whole["messages"] > 100
    assert {0, steps.number - 1} <= {row["step"] for row in found} <= set(range(steps.number))


def test_lag_at_the_end_of_each_step_is_what_the_facts_say(engine: DuckdbEngine) -> None:
    span = span_of(engine)
    assert span is not None
    steps = span.steps(5000)
    ends: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for row in rows(engine, "select *, epoch_ms(store_time) as ms from messages order by index"):
        ends.setdefault((row["topic"], row["topic_life"], row["queue"]), []).append(
            (row["ms"], row["offset"] + 1)
        )
    moves: dict[tuple[Any, ...], list[tuple[int, int, int | None]]] = {}
    moved = "select *, epoch_ms(time) as ms from consumer_progress where time is not null"
    for row in rows(engine, moved):
        key = (row["consumer_group"], row["topic"], row["topic_life"], row["queue"])
        moves.setdefault(key, []).append((row["index"], row["ms"], row["offset"]))
    pops: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    popped = "select *, epoch_ms(time) as ms from pop_progress where time is not null"
    for row in rows(engine, popped):
        key = (row["consumer_group"], row["topic"], row["topic_life"], row["queue"])
        pops.setdefault(key, []).append(row)
    expected = {}
    for key, steps_of_group in moves.items():
        for step in range(steps.number):
            # The last step has what lies on its end, too.
            end_ms = steps.begin(step + 1) + (step == steps.number - 1)
            there = [move for move in sorted(steps_of_group) if move[1] < end_ms]
            if there and there[-1][2] is not None:
                stored = [end for ms, end in ends.get(key[1:], []) if ms < end_ms]
                queue_end = max(stored, default=0)
                expected[(*key, step)] = max(0, queue_end - there[-1][2])
                left = [row for row in pops.get(key, []) if row["ms"] < end_ms]
                last = max(left, key=lambda row: row["index"], default=None)
                if last is not None and last["next_offset"] is not None:
                    never = max(0, queue_end - last["next_offset"])
                    expected[(*key, step)] = last["unacknowledged"] + never
    found = {
        (row["consumer_group"], row["topic"], row["life"], row["queue"], row["step"]): row["lag"]
        for row in rows(engine, lag.lag_query(steps))
    }
    assert len(found) > 100
    assert max(found.values()) > 0
    assert found == {key: expected[key] for key in found}
    # What is left out are whole queues: those that were never behind, and others the least behind.
    queues = Counter(key[0] for key in {key[:4] for key in found})
    assert all(number <= lag.QUEUES_MAX for number in queues.values())
    left_out = {key[:4]: value for key, value in expected.items() if key not in found}
    for group in queues:
        most = max((value for key, value in left_out.items() if key[0] == group), default=0)
        least = min(
            max(value for key, value in found.items() if key[:4] == queue)
            for queue in {key[:4] for key in found if key[0] == group}
        )
        assert most <= least


def test_what_waits_at_the_end_is_what_the_table_of_lags_says(engine: DuckdbEngine) -> None:
    span = span_of(engine)
    assert span is not None
    ends = {row["consumer_group"]: row["last"] for row in lag.lag_rows(engine, span)}
    listed = lag.queues_behind(engine)
    assert {group for group, last in ends.items() if last} == set(listed)
    for group, queues in listed.items():
        if queues[0]["queues"] <= lag.LISTED_MAX:
            assert sum(row["behind"] for row in queues) == ends[group]


def test_latencies_are_those_of_the_table_of_latencies(engine: DuckdbEngine) -> None:
    span = span_of(engine)
    assert span is not None
    steps = span.steps(1000)
    found = rows(engine, latency.consumed_query(steps))
    whole = {(row["consumer_group"], row["kind"]): row for row in found if row["step"] is None}
    of_table = rows(
        engine,
        "select consumer_group, kind, sum(messages) as messages, max(max_ms) as most from latency "
        "where kind in ('committed', 'acknowledged') group by all",
    )
    places = {(row["consumer_group"], row["kind"]) for row in of_table}
    assert places == set(whole)
    assert {("g", "committed"), ("h", "committed")} < places
    for row in of_table:
        group = row["consumer_group"], row["kind"]
        assert whole[group]["messages"] == row["messages"]
        assert row["messages"] > (10 if row["kind"] == "committed" else 0)
        assert whole[group]["most"] == row["most"]
        of_steps = [
            one
            for one in found
            if (one["consumer_group"], one["kind"]) == group and one["step"] is not None
        ]
        assert sum(one["messages"] for one in of_steps) == row["messages"]


def test_copies_of_a_message_do_not_count_as_slow_to_store(engine: DuckdbEngine) -> None:
    span = span_of(engine)
    assert span is not None
    (whole,) = (
        row for row in rows(engine, latency.stored_query(span.steps(1000))) if row["step"] is None
    )
    (firsts,) = rows(
        engine,
        "select count(*) as number from messages m where m.reconsume_times = 0 "
        "and m.topic not in ('%RETRY%g', '%DLQ%g') "
        "and m.index not in (select index from delay_events where event <> 'waits') "
        "and m.index not in (select index from transaction_events where event <> 'prepared') "
        "and m.index not in (select index from redrives)",
    )
    (every,) = rows(engine, "select count(*) as number from messages")
    assert whole["messages"] == firsts["number"] < every["number"]
    assert whole["most"] <= 6  # what the script has between birth and store


def test_queues_of_one_name_are_told_apart_by_log_and_by_life(tables: Tables) -> None:
    assert re.search(r"[AB] [01], life 2", Words(page_of(tables)).section("lag"))
    other = {
        name: table.set_column(
            0, table.schema.field(0), pa.array(["other"] * len(table), pa.string())
        )
        for name, table in tables.items()
        if name in FACTS
    }
    both = with_derived({name: pa.concat_tables([tables[name], other[name]]) for name in other})
    words = Words(page_of(both))
    assert "Reconciles: yes" in words.section("")
    assert re.search(r"g [AB] [01]", words.section("lag"))
    assert re.search(r"other [AB] [01]", words.section("lag"))


def test_a_member_that_says_that_it_leads_is_named_beside_its_terms(tables: Tables) -> None:
    command = tables["commands"].slice(0, 1).to_pylist()[0]
    said = '{"node_id":"n7","address":"10.0.0.7:10911"}'
    command |= {"name": "lead from", "detail": said, "term": 2}
    more = pa.Table.from_pylist([command], schema=FACTS["commands"])
    others = without(tables, "commands", "name = 'lead from'")["commands"]
    words = Words(page_of({**tables, "commands": pa.concat_tables([others, more])}))
    assert "n7 10.0.0.7:10911" in words.section("terms")


def lagging(*groups: tuple[str, list[int]]) -> Tables:
    """Tables of a log in which groups are so far behind at the end of each minute."""
    begin = 1_700_000_040_000  # a whole minute
    minutes = len(groups[0][1])

    def instant(minute: int) -> datetime:
        return datetime.fromtimestamp(begin / 1000 + 60 * minute + 30, UTC)

    place = {"raft_group": "g", "topic": "T", "topic_life": 0, "queue": 0}
    sent = [
        place
        | {"index": at, "offset": at, "store_time": instant(at // 100)}
        | {"term": 1, "body_size": 10}
        for at in range(100 * minutes)
    ]
    moved = [
        place
        | {"index": 10_000 + at, "consumer_group": name, "source": "committed"}
        | {"offset": 100 * (minute + 1) - behind, "time": instant(minute)}
        for name, lags in groups
        for at, (minute, behind) in enumerate(enumerate(lags))
    ]
    made = {"messages": sent, "consumer_progress": moved}
    made["entries"] = [{"raft_group": "g", "index": at, "term": 1} for at in range(100 * minutes)]
    return with_derived(
        {
            name: pa.Table.from_pylist(
                [dict.fromkeys(schema.names) | row for row in made.get(name, [])], schema=schema
            )
            for name, schema in FACTS.items()
        }
    )


def test_a_page_begins_with_the_group_that_is_most_behind_now() -> None:
    tables = lagging(
        ("was", [90, 90, 90, 0, 0, 0, 0, 0, 0, 0]),
        ("slow", [0, 0, 0, 5, 15, 25, 35, 45, 55, 65]),
        ("stuck", [65] * 10),
        ("better", [90, 90, 80, 70, 60, 50, 40, 30, 20, 10]),
    )
    text = page_of(tables)
    top = Words(text).section("")
    worst = "Worst now: group slow, 65 behind, growing since 22:17"
    assert top.index(worst) < top.index("Group stuck, 65 behind, so since it is known")
    assert top.index("Group stuck") < top.index("Group better, 10 behind, shrinking")
    assert top.index("Group better") < top.index("Reconciles")
    assert "group was" not in top.lower()
    # A click leads to the queue.
    (link,) = re.findall(r'<a href="#([^"]*)">Worst now', text)
    assert re.search(rf'<td[^>]* id="{link}"[^>]*><span>T 0</span>', text)


def test_a_page_says_that_nothing_waits_and_how_old_its_end_is() -> None:
    tables = lagging(("good", [5, 0, 0]))
    with engine_over(tables) as engine:
        span = span_of(engine)
        assert span is not None
        text = page("a log", engine, ends_of(tables), now_ms=span.end_ms + 240_000)
    top = Words(text).section("")
    assert "Nothing waits for a consumer group." in top
    assert "made 4 min later" in top


def test_a_page_says_before_all_else_how_many_entries_could_not_be_read() -> None:
    tables = lagging(("slow", [0, 5, 15]))
    assert "could not be read" not in page_of(tables)
    lost = [
        {"raft_group": group, "index": first, "last": last, "problem": problem}
        for group, first, last, problem in (
            ("g", 30, 30, "the body does not match its CRC"),
            ("g", 5000, 6199, "/logs/0 is missing <b>"),
            (None, 7, 8, "why" * 500),
            *(("z", at, at, "late") for at in range(100, 104)),
        )
    ]

    def top(rows: list[dict[str, Any]]) -> str:
        found = pa.Table.from_pylist(rows, FACTS["lost_entries"])
        return Words(page_of({**tables, "lost_entries": found})).section("")

    one = top(lost[:1])
    assert "1 entry could not be read: g 30..30, the body does not match its CRC" in one
    several = top(lost)
    assert "1,207 entries could not be read: the log 7..8, whywhy" in several
    assert "why" * 100 not in several
    assert (
        "; g 30..30, the body does not match its CRC; g 5000..6199, /logs/0 is missing <b>; "
        in several
    )
    assert "; and 4 more ranges (table lost_entries)" in several
    assert several.index("could not be read") < several.index("Worst now: group slow")


def test_a_page_without_messages_says_what_could_not_be_read() -> None:
    tables = tables_of(ScriptedLog())
    row = {"raft_group": "g", "index": 3, "last": 4, "problem": "gone"}
    lost = pa.Table.from_pylist([row], FACTS["lost_entries"])
    words = Words(page_of({**tables, "lost_entries": lost}))
    assert "2 entries could not be read: g 3..4, gone" in words.section("")


# --- what is broken, empty, hostile or large ------------------------------------------------------


def without(tables: Tables, name: str, where: str) -> Tables:
    with engine_over(tables) as engine:
        kept = engine.query(f'select * from "{name}" where not ({where})')
    return {**tables, name: kept.cast(tables[name].schema)}


def problems_of(tables: Tables, ends: Mapping[str, Mapping[str, int | None]]) -> list[str]:
    with engine_over(tables) as engine:
        return [
            f"{check.text} ({check.problem})"
            for check in checks(engine, logs_of(engine), ends)
            if check.problem is not None
        ]


@pytest.mark.parametrize(
    ("table", "where", "said"),
    [
        ("entries", "index in (30, 31, 50)", "3 entries are missing, the first of them 30"),
        ("traffic", "topic = 'A'", "traffic of log g has its"),
        ("elections", "term = 3", "terms of log g have its"),
    ],
)
def test_tables_that_disagree_do_not_reconcile(
    tables: Tables, table: str, where: str, said: str
) -> None:
    problems = problems_of(without(tables, table, where), ends_of(tables))
    assert any(said in problem for problem in problems), problems


def test_rows_that_are_doubled_do_not_reconcile(tables: Tables) -> None:
    doubled = pa.concat_tables([tables["entries"], tables["entries"].slice(5, 2)])
    problems = problems_of({**tables, "entries": doubled}, ends_of(tables))
    assert any("2 rows of entries are doubled" in problem for problem in problems)


@pytest.mark.parametrize(
    ("end", "said"), [(9999, "ends with entry 9998"), (None, "ends with no entry")]
)
def test_facts_that_are_ahead_of_the_entries_do_not_reconcile(
    tables: Tables, end: int | None, said: str
) -> None:
    ends = {log: {**of_log, "redrives": end} for log, of_log in ends_of(tables).items()}
    (problem,) = problems_of(tables, ends)
    assert f"redrives {said}" in problem


def test_a_page_says_first_that_tables_do_not_reconcile(tables: Tables) -> None:
    ends = {log: {**of_log, "messages": 9999} for log, of_log in ends_of(tables).items()}
    text = Words(page_of(tables, ends)).section("")
    assert text.index("Reconciles: no") < text.index("messages ends with entry 9998")


def test_a_log_without_messages_has_a_page_that_says_so() -> None:
    words = Words(page_of(tables_of(ScriptedLog())))
    assert "Reconciles: yes" in words.section("")
    assert "No message is in the log" in words.section("")
    assert not words.tags["svg"]


def test_tables_without_entries_have_a_page_that_says_so() -> None:
    empty = with_derived({name: schema.empty_table() for name, schema in FACTS.items()})
    assert "The tables have no entry." in page_of(empty)


def test_a_part_without_rows_says_so_in_a_line(tables: Tables) -> None:
    few = {
        name: table if name in {"entries", "messages"} else FACTS[name].empty_table()
        for name, table in tables.items()
        if name in FACTS
    }
    with engine_over(few) as engine:
        few["messages"] = engine.query(
            "select * replace (null::varchar as keys) from messages where topic in ('A', 'B')"
        ).cast(FACTS["messages"])
    words = Words(page_of(with_derived(few)))
    for anchor, said in (
        ("lag", "No consumer group has committed progress"),
        ("latency", "No group has consumed a message."),
        ("retries", "No message came back to its group"),
        ("transactions", "No transaction was begun."),
        ("delays", "No message was delayed."),
        ("keys", "No message has a key."),
    ):
        assert said in words.section(anchor)
    assert words.pictures["throughput"] == 2


def renamed(tables: Tables, text: str) -> Tables:
    """Facts in which clients chose names that no page should trust."""
    facts = {}
    for name in FACTS:
        table = tables[name]
        for at, field in enumerate(table.schema):
            if field.name in {
                "topic",
                "consumer_group",
                "producer_group",
                "keys",
                "raft_group",
                "unique_key",
            }:
                kept = [
                    value
                    if value is None or value.startswith(("%", "RMQ", "SCHED"))
                    else text + value
                    for value in table.column(at).to_pylist()
                ]
                table = table.set_column(at, field, pa.array(kept, field.type))
        facts[name] = table
    return with_derived(facts)


def test_what_clients_wrote_into_a_log_is_text_on_the_page(tables: Tables) -> None:
    hostile = renamed(tables, HOSTILE)
    text = page_of(hostile)
    assert "Reconciles: yes" in text
    assert not re.search(r"[\x00-\x08\x0b\x0e-\x1f\u202e]", text)
    words, plain = Words(text), Words(page_of(tables))
    assert set(words.tags) == set(plain.tags)
    assert "script" not in words.tags
    assert words.attributes <= plain.attributes | {"title"}
    assert words.tags["svg"] == plain.tags["svg"]
    assert max(map(len, words.words["keys"])) < 200


def large() -> Tables:
    """Half a day of many topics, queues, groups, terms and keys."""
    with engine_over({name: schema.empty_table() for name, schema in FACTS.items()}) as engine:
        time = "(make_timestamp(1700000000000000 + i * 4320000) at time zone 'UTC')"
        made = {}
        made["messages"] = engine.query(
            f"select 'g' as raft_group, i as index, 'a-topic-' || i % 300 as topic, "
            f"i % 7 as queue, i // 7 as offset, {time} as store_time, {time} as born_time, "
            f"i // 10 as term, '10.0.0.1' as store_host, 10911 + i % 97 as store_port, "
            f"0 as topic_life, 0 as reconsume_times, 100 as body_size, 'k' || i % 999 as keys "
            f"from range(10000) s(i)"
        )
        made["entries"] = engine.query(
            "select 'g' as raft_group, i as index, i // 10 as term from range(10000) s(i)"
        )
        made["consumer_progress"] = engine.query(
            f"select 'g' as raft_group, i as index, {time} as time, 'a-group-' || i % 40 as "
            f"consumer_group, 'a-topic-' || i % 300 as topic, 0 as topic_life, i % 7 as queue, "
            f"i // 10 as offset, 'committed' as source from range(10000) s(i)"
        )
    return with_derived(facts_with(made))


def facts_with(made: Tables) -> dict[str, pa.Table]:
    """Return the tables of facts with some columns of some of them; the others are null."""
    facts = {}
    for name, schema in FACTS.items():
        there = made.get(name, schema.empty_table())
        columns = [
            there.column(field.name).cast(field.type)
            if field.name in there.column_names
            else pa.nulls(len(there), field.type)
            for field in schema
        ]
        facts[name] = pa.table(columns, schema=schema)
    return facts


def test_a_page_of_many_topics_queues_and_groups_stays_small() -> None:
    text = page_of(large())
    words = Words(text)
    assert len(text.encode()) < 1 << 20
    assert "293 others" in words.section("throughput")
    assert "more consumer groups" in words.section("lag")
    assert "more of its queues were less behind" in words.section("lag")
    assert words.pictures["lag"] == 2 * lag.GROUPS_MAX
    assert "The last 200 of 1,000 terms." in words.section("terms")
    assert "The first 12 of" in words.section("terms")


def test_a_group_that_is_behind_now_is_drawn_beside_those_that_were_further_behind_once() -> None:
    time = "timestamptz '2026-03-02 09:00:00+00' + to_minutes({})"
    with engine_over({}) as engine:
        sent = engine.query(
            f"select 'g' as raft_group, i as index, 'T' as topic, 0 as topic_life, 0 as queue, "
            f"i as offset, {time.format('i // 20')} as store_time from range(600) s(i)"
        )
        moved = engine.query(
            # Eight groups begin 600 behind and catch up; the ninth is never more than 40 behind.
            f"select 'g' as raft_group, 1000 + i as index, 'was-' || i % 8 as consumer_group, "
            f"'T' as topic, 0 as topic_life, 0 as queue, case when i < 8 then 0 else 600 end as "
            f"offset, {time.format('case when i < 8 then 1 else 29 end')} as time "
            f"from range(16) s(i) union all select 'g', 2000, 'now', 'T', 0, 0, 560, "
            f"{time.format('29')}"
        )
    facts = facts_with({"messages": sent, "consumer_progress": moved})
    with engine_over(with_derived(facts)) as engine:
        span = span_of(engine)
        assert span is not None
        found = rows(engine, lag.lag_query(span.steps(5000)))
    groups = {row["consumer_group"] for row in found}
    assert "now" in groups
    assert len(groups) == lag.GROUPS_MAX


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    log = scripted(1, 400)
    path = write(log, folder / "log", 0, len(log.entries)).name
    assert run("tables", "--path", path, "--out", folder / "tables")[0] == 0
    return folder


def test_a_report_is_written_in_a_terminal(made: Path) -> None:
    code, output = run("report", "--tables", made / "tables", "--out", made / "report.html")
    assert (code, output.splitlines()[-1].split(": ")[0]) == (0, str(made / "report.html"))
    text = (made / "report.html").read_text()
    assert "Reconciles: yes" in text
    assert text.startswith("<!doctype html>")
    assert not (made / "report.html.new").exists()


def test_a_report_goes_into_a_pipe(made: Path) -> None:
    code, output = run("report", "--tables", made / "tables", "--out", "-", "--title", "<orders>")
    assert code == 0
    assert output.startswith("<!doctype html>")
    assert output.endswith("</html>\n")
    assert "Report of the log in &lt;orders&gt;" in output


def test_a_report_goes_into_a_pipe_with_a_name_and_through_a_link(
    made: Path, tmp_path: Path
) -> None:
    pipe, link, page = tmp_path / "pipe", tmp_path / "link", tmp_path / "page"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    link.symlink_to(page)
    for out in (pipe, link):
        code, output = run("report", "--tables", made / "tables", "--out", out)
        assert code == 0, output
    with open(reader, "rb") as written:
        assert written.read().startswith(b"<!doctype html>")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert page.read_bytes().startswith(b"<!doctype html>")


def test_tables_of_an_earlier_version_have_a_report(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "tables"
    shutil.copytree(made / "tables", out)
    shutil.rmtree(out / "facts" / "lost_entries")
    code, output = run("report", "--tables", out, "--out", "-")
    assert code == 0, output
    assert "Reconciles: yes" in output


def test_what_is_missing_is_said_in_a_line(made: Path, tmp_path: Path) -> None:
    path = made / "log"
    assert run("tables", "--path", path, "--out", tmp_path / "facts", "--facts-only")[0] == 0
    for words, said in (
        (("--tables", tmp_path / "none", "--out", "-"), "holds no tables: make them with"),
        (("--tables", tmp_path / "facts", "--out", "-"), "has no table audit: run"),
        (("--tables", made / "tables"), "Missing option '--out'"),
        (("--tables", made / "tables", "--out", tmp_path / "no" / "page"), "No such file"),
    ):
        code, output = run("report", *words)
        assert code != 0
        assert said in output
        assert "Traceback" not in output


@pytest.fixture(scope="module")
def hostile_page(tables: Tables) -> str:
    return page_of(renamed(tables, HOSTILE))


@pytest.mark.parametrize("before", ["", "W" * 200])
def test_no_text_of_a_picture_stands_over_another(tables: Tables, before: str) -> None:
    assert unreadable(page_of(renamed(tables, before))) == []


def test_no_hostile_text_of_a_picture_stands_over_another(hostile_page: str) -> None:
    assert unreadable(hostile_page) == []


# --- a browser ------------------------------------------------------------------------------------


def measured(text: str, widths: Sequence[int]) -> str:
    """A page that shows another one so wide, and has what it measures of each as its title.

    A window of Chromium cannot be as narrow as a telephone's.
    """
    script = """<script>addEventListener("load", () => {
      const drawn = [...document.querySelectorAll("svg")].filter(one => one.clientWidth);
      const letters = [...document.querySelectorAll("svg text")].map(one =>
        one.getBoundingClientRect()).filter(one => one.width);
      parent.document.title += JSON.stringify([document.documentElement.scrollWidth, innerWidth,
        drawn.length, Math.min(...drawn.map(one => one.clientHeight)),
        Math.min(...letters.map(one => one.height)),
        Math.min(...letters.map(one => one.left)), Math.max(...letters.map(one => one.right)),
        PAIRS]);
    })</script></body>""".replace("PAIRS", PAIRS_IN_A_BROWSER)
    inside = escape(without_policy(text).replace("</body>", script))
    return "<!doctype html><title></title><body>" + "".join(
        f'<iframe style="border:0;width:{width}px;height:900px" srcdoc="{inside}"></iframe>'
        for width in widths
    )


def browsed(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM is not None
    (folder / "page.html").write_text(text)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    command += ["--enable-logging=stderr", "--window-size=1400,1000"]
    command += [f"--user-data-dir={folder / 'browser'}", (folder / "page.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_shows_the_whole_page_without_scrolling_sideways(
    hostile_page: str, tmp_path: Path
) -> None:
    shown_as = browsed(tmp_path, measured(hostile_page, (400, 1280))).stdout
    title = re.search(r"<title>(.*?)</title>", shown_as)
    assert title is not None
    found = [list(map(float, one.split(","))) for one in re.findall(r"\[(.*?)\]", title[1])]
    assert sorted(inside for _, inside, *_ in found) == [400, 1280]
    for content, inside, pictures, lowest, letters, left, right, pairs in found:
        assert content <= inside
        assert pictures == hostile_page.count("<svg") / 2  # one of two sheets
        assert lowest >= 20
        assert letters >= 12
        assert left >= 0
        assert right <= inside
        assert pairs == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")
def test_a_browser_has_nothing_to_complain_about(hostile_page: str, tmp_path: Path) -> None:
    told = browsed(tmp_path, hostile_page)
    assert "Reconciles: yes" in told.stdout
    assert ":CONSOLE" not in told.stderr


# --- pieces ---------------------------------------------------------------------------------------


@given(st.integers(0, 4_000_000_000_000))
def test_moments_are_those_of_the_calendar(ms: int) -> None:
    assert moment(ms) == datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@given(
    st.integers(0, 4 * 10**12), st.integers(1, 10**11), st.integers(3, 12), st.integers(1, 10**6)
)
def test_steps_and_ticks_are_few_and_cover_the_span(
    begin: int, lasts: int, most: int, least: int
) -> None:
    span = Span(begin, begin + lasts)
    steps = span.steps(least)
    assert 1 <= steps.number <= STEPS_MAX
    assert steps.begin(0) == begin
    assert steps.begin(steps.number) >= span.end_ms
    assert steps.step_ms >= min(least, lasts)
    ticks = span.ticks(most)
    assert len(ticks) <= most
    assert all(begin <= tick.ms <= span.end_ms for tick in ticks)
    if lasts > 24 * 3600_000 and most >= 8:  # a week is the next unit to a day
        assert ticks


@pytest.mark.parametrize(
    ("ms", "written"),
    [
        (None, "-"),
        (0, "0 ms"),
        (999, "999 ms"),
        (1510, "1.51 s"),
        (59_990, "60 s"),
        (78_000, "1 min 18 s"),
        (3_600_000, "1 h"),
        (90_061_000, "1 d 1 h"),
        (-20, "-20 ms"),
    ],
)
def test_durations_have_units(ms: int | None, written: str) -> None:
    assert duration(ms) == written


def test_sizes_have_units() -> None:
    assert [size(number) for number in (0, 1023, 1024, 5 << 20, 300 << 30)] == [
        *("0 B", "1023 B", "1.0 KiB", "5.0 MiB", "300 GiB")
    ]


@given(st.text(), st.integers(4, 50))
def test_a_name_is_cut_in_its_middle(text: str, letters: int) -> None:
    short = cut(text, letters)
    assert len(short) <= letters
    assert short[0:1] == text[0:1]
    assert short[-1:] == text[-1:]
