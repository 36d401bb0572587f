"""Derived tables that were brought up to date in many runs are those that are made at once."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake", reason="deltalake is not installed: run make setup-spark")
pytest.importorskip("duckdb", reason="duckdb is not installed: run make setup-spark")

import pyarrow as pa
from deltalake import DeltaTable

from dledger_spark.facts.fact_schemas import FACTS
from dledger_spark.tables import increments
from dledger_spark.tables.derived import QUEUE_MINUTES, STORED, query
from dledger_spark.tables.duckdb_engine import duckdb_engine, engine_over
from dledger_spark.tables.increments import INCREMENTS, change_of
from dledger_spark.tables.refresh import refresh
from dledger_spark.tables.table_home import TableHome
from dledger_spark.tables.touched import MAX_RANGES, inside, touched
from tests.dledger_spark.broker_script import ScriptedLog, Step, scripts
from tests.dledger_spark.test_spark_table_updates import scripted, update, write
from tests.dledger_spark.test_spark_tables import facts_of
from tests.examples import examples

Facts = dict[str, pa.Table]


def of_group(facts: Facts, group: str) -> Facts:
    def renamed(table: pa.Table) -> pa.Table:
        column = pa.array([group] * len(table), pa.string())
        return table.set_column(0, table.schema.field(0), [column])

    return {name: renamed(table) for name, table in facts.items()}


def up_to(facts: Facts, ends: Mapping[str | None, int]) -> Facts:
    """The facts of entries before the ends of their groups."""
    return {
        name: table.filter(
            pa.array(
                [
                    index < ends[group]
                    for group, index in zip(
                        table.column("raft_group").to_pylist(),
                        table.column("index").to_pylist(),
                        strict=True,
                    )
                ],
                pa.bool_(),
            )
        )
        for name, table in facts.items()
    }


def rows(engine: Any, sql: str) -> list[str]:
    return sorted(map(repr, engine.query(sql).to_pylist()))


class Grown:
    """Derived tables in memory, brought up to date as `refresh` does it."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self._begins: dict[str | None, int] | None = None
        self._nows: dict[str, Any] = {}

    def take(self, facts: Facts, ends: dict[str | None, int]) -> None:
        named = {f"all_{name}": table for name, table in facts.items()}
        for name, table in self.tables.items():
            named[name if name == QUEUE_MINUTES else f"old_{name}"] = table
        with engine_over(named) as engine:
            for name in STORED:
                nows = self._nows.get(name, {})
                sql, where, self._nows[name] = change_of(engine, name, self._begins, ends, nows)
                if sql is None:
                    continue
                found = engine.query(sql)
                if where is not None:
                    increment = INCREMENTS[name]
                    place = inside(increment.column, where, increment.literal)
                    called = name if name == QUEUE_MINUTES else f"old_{name}"
                    engine.connection.register("found", found)
                    found = engine.query(
                        f"select * from {called} where not coalesce({place}, false) "
                        "union all select * from found"
                    )
                self.tables[name] = found
                if name == QUEUE_MINUTES:
                    engine.connection.register(name, found)
        self._begins = ends


def check_grown(facts: Facts, cuts: list[tuple[int, int]]) -> None:
    groups = facts["entries"].column("raft_group").to_pylist()
    stops = [groups.count("g"), groups.count("h")]
    grown = Grown()
    reached: dict[str | None, int] = {"g": 0, "h": 0}
    for cut in [*cuts, (stops[0], stops[1])]:
        reached = {
            group: max(reached[group], min(at, stop))
            for group, at, stop in zip("gh", cut, stops, strict=True)
        }
        grown.take(up_to(facts, reached), dict(reached))
    with engine_over(facts) as engine:
        for name in STORED:
            engine.connection.register("grown", grown.tables[name])
            assert rows(engine, "select * from grown") == rows(engine, query(name)), name


def facts_of_both(one: list[Step], other: list[Step]) -> Facts:
    found = []
    for script, group in ((one, "g"), (other, "h")):
        log = ScriptedLog()
        log.run(script)
        found.append(of_group(facts_of(log, []), group))
    return {name: pa.concat_tables([of[name] for of in found]) for name in FACTS}


@pytest.fixture(autouse=True)
def small_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a short log have several ranges of positions and indexes."""
    small = {
        name: one if one.unit % increments.MINUTE_MS == 0 else one._replace(unit=one.unit // 2**14)
        for name, one in INCREMENTS.items()
    }
    for name, one in small.items():
        monkeypatch.setitem(INCREMENTS, name, one)


LONG_MS = 700_000
WAITING = [
    *(Step("send"), Step("send"), Step("send"), Step("offsets")),
    *(Step("send", passes_ms=LONG_MS), Step("send", passes_ms=LONG_MS)),
    Step("audit", passes_ms=90_000),
]
POPPED = [Step("send"), Step("pop", pick=4), Step("hide", passes_ms=LONG_MS)]
cuts_of_both = st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=3)


@settings(deadline=None, max_examples=examples(15))
@given(scripts, scripts, cuts_of_both)
@example([Step("send"), Step("offsets", passes_ms=LONG_MS)], [], [(8, 0)]).via("a late commit")
@example(POPPED, [], [(9, 0)]).via("a pop that is hidden in another minute")
@example(WAITING, [], [(11, 0), (12, 0), (13, 0)]).via("messages that wait for long")
def test_runs_over_new_facts_make_what_one_run_over_all_makes(
    one: list[Step], other: list[Step], cuts: list[tuple[int, int]]
) -> None:
    check_grown(facts_of_both(one, other), cuts)


@given(
    st.lists(st.tuples(st.sampled_from(["g", None]), st.none() | st.integers(-500, 10**6))),
    st.integers(1, 1000),
)
def test_each_place_is_in_one_of_few_ranges_of_whole_units(
    places: list[tuple[str | None, int | None]], unit: int
) -> None:
    found = touched(places, unit)
    for group, place in places:
        if place is None:
            assert group in found.without
        else:
            assert sum(place in one for one in found.ranges[group]) == 1
    for ranges in found.ranges.values():
        assert len(ranges) <= MAX_RANGES
        assert all(one.start % unit == one.stop % unit == 0 for one in ranges)
        assert all(before.stop < after.start for before, after in pairwise(ranges))


def stored(home: TableHome) -> dict[str, list[str]]:
    return {
        name: sorted(map(repr, DeltaTable(home.derived_path(name)).to_pyarrow_table().to_pylist()))
        for name in STORED
    }


def test_a_run_over_new_facts_replaces_rows_in_delta_and_one_without_opens_no_engine(
    tmp_path: Path,
) -> None:
    log, home = scripted(11, 150), TableHome(str(tmp_path / "tables"))
    for first, stop in ((0, 60), (60, len(log.entries))):
        update(home, write(log, tmp_path / "log", first, stop))
        with home.held():
            made = refresh(home, duckdb_engine, {})
    versions = {name: DeltaTable(home.derived_path(name)).version() for name in STORED}

    def no_engine(_tables: object) -> Any:
        raise AssertionError("an engine was opened")

    with home.held():
        assert refresh(home, no_engine, {}) == made
    assert versions == {name: DeltaTable(home.derived_path(name)).version() for name in STORED}
    at_once = TableHome(str(tmp_path / "at-once"))
    update(at_once, write(log, tmp_path / "all", 0, len(log.entries)))
    with at_once.held():
        assert refresh(at_once, duckdb_engine, {}) == made
    assert stored(home) == stored(at_once)
