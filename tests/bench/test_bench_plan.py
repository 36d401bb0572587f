"""Which runs the benchmark makes, in which order, and what it makes of their figures."""

from __future__ import annotations

import pytest

from bench.plan import (
    Contender,
    PlanInvalid,
    Point,
    chosen,
    numbers,
    plan,
    planned_s,
)
from bench.summary import Rows, markdown, percentile, ratio, summary, table_of_size
from bench.systems import SYSTEMS
from bench.workload import APPEND_MANY, Measured, Workload, measured

OURS = Contender("append", "ours", ours=True)
MANY = Contender("many", "ours, 64", ours=True, call=APPEND_MANY, batch=64, least_in_flight=64)
QUICK = Contender("quick", "Quick", round_trips=2)
CARELESS = Contender("careless", "Careless", syncs=False, warm_up_s=10)
DISK = Contender("limit", "the disk", limit=True, round_trips=0, least_in_flight=2)
ONE_TRIP = Contender("limit-1", "one trip", limit=True, round_trips=1, most_in_flight=1)
TWO_TRIPS = Contender("limit-2", "two trips", limit=True, round_trips=2, most_in_flight=1)
ALL = [OURS, MANY, QUICK, CARELESS, DISK, ONE_TRIP, TWO_TRIPS]


def names(point: Point, rounds: int = 1) -> list[list[str]]:
    runs = plan(rounds, [point], ALL)
    return [[run.contender.key for run in runs if run.round == each] for each in range(rounds)]


def test_a_list_of_numbers_is_read() -> None:
    assert numbers("16,256, 4096") == [16, 256, 4096]


@pytest.mark.parametrize("text", ["", "a", "1,,2", "0", "16,-1"])
def test_what_is_no_list_of_numbers_is_refused(text: str) -> None:
    with pytest.raises(PlanInvalid):
        numbers(text)


def test_ours_are_always_among_those_that_are_chosen() -> None:
    assert chosen("all", ALL) == ALL
    assert chosen("none", ALL) == [OURS, MANY]
    assert chosen("careless,limit", ALL) == [OURS, MANY, CARELESS, DISK, ONE_TRIP, TWO_TRIPS]


def test_one_that_stands_apart_is_measured_where_it_is_named_and_nowhere_else() -> None:
    apart = QUICK._replace(key="apart", apart=True)
    assert chosen("all", [*ALL, apart]) == ALL
    assert chosen("apart", [*ALL, apart]) == [OURS, MANY, apart]


@pytest.mark.parametrize("text", ["etcdd", "append", "quick,nobody", ""])
def test_a_peer_that_is_not_known_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(PlanInvalid, match=r"is not one of all, none, quick, careless"):
        chosen(text, ALL)


def test_every_contender_runs_once_a_round_where_it_fits() -> None:
    one_in_flight = set(names(Point(256, 1))[0])
    assert one_in_flight == {"append", "quick", "careless", "limit-1", "limit-2"}
    assert sorted(names(Point(256, 64))[0]) == sorted(
        ["append", "many", "quick", "careless", "limit"]
    )


def test_ours_run_between_the_others_and_every_round_in_another_order() -> None:
    rounds = names(Point(256, 64), rounds=3)
    for keys in rounds:
        ours = [at for at, key in enumerate(keys) if key in {"append", "many"}]
        assert ours[1] - ours[0] > 1
    assert len({tuple(keys) for keys in rounds}) == 3


def test_a_round_ends_before_the_next_begins() -> None:
    runs = plan(2, [Point(16, 1), Point(256, 1)], ALL)
    assert [run.round for run in runs] == [0] * 10 + [1] * 10


def test_the_time_of_all_runs_is_told() -> None:
    runs = plan(1, [Point(256, 1)], [OURS, CARELESS])
    assert planned_s(runs, measured_s=5.0) == 4 + 2 + 5 + 4 + 10 + 5


def test_a_workload_survives_the_command_line() -> None:
    workload = Workload(in_flight=64, body_bytes=16, call=APPEND_MANY, batch=64, measured_s=0.5)
    assert Workload.from_json(workload.to_json()) == workload


def test_lines_that_are_no_result_are_passed_over() -> None:
    assert Measured.from_line("starting\n") is None
    assert Measured.from_line('{"role": "follower"}\n') is None
    line = '{"entries_per_s": 5.0, "median_ms": 1.0, "p99_ms": 2.0, "failed": 3}'
    assert Measured.from_line(line) == Measured(5.0, 1.0, 2.0, failed=3)


def test_a_result_without_a_single_acknowledgement_is_none() -> None:
    with pytest.raises(ValueError, match="7 appends failed"):
        Measured.from_line('{"entries_per_s": 0, "failed": 7}')


def test_a_call_of_many_counts_each_of_its_entries() -> None:
    result = measured([0.001, 0.003, 0.002, 0.004], batch=64, measured_s=2.0)
    assert result == Measured(entries_per_s=128.0, median_ms=3.0, p99_ms=4.0)


def test_rounds_are_summed_up_by_their_median() -> None:
    found = summary([Measured(rate, rate / 10, rate, failed=1) for rate in (30.0, 10.0, 20.0)])
    assert (found.rate, found.lowest, found.highest) == (20.0, 10.0, 30.0)
    assert (found.median_ms, found.p99_ms, found.failed, found.runs) == (2.0, 20.0, 3, 3)


@pytest.mark.parametrize(
    ("share", "expected"), [(50, 5.0), (95, 10.0), (100, 10.0), (10, 1.0), (0, 1.0)]
)
def test_a_percentile_is_one_of_the_values(share: float, expected: float) -> None:
    assert percentile([float(n) for n in range(10, 0, -1)], share) == expected


def test_ratios_have_three_digits() -> None:
    assert [ratio(a, 100.0) for a in (5.0, 987.0, 1234.0, 98_765.0)] == [
        *("0.05 x", "9.87 x", "12.3 x", "988 x")
    ]


def table() -> Rows:
    results = {
        (Point(256, 1), "append"): [Measured(1000.0, 1.0, 2.0)],
        (Point(256, 1), "quick"): [Measured(500.0, 2.0, 3.0)],
        (Point(256, 1), "careless"): [Measured(4000.0, 0.2, 0.3, failed=2)],
        (Point(256, 1), "limit-1"): [Measured(5000.0, 0.2, 0.3)],
        (Point(256, 1), "limit-2"): [Measured(2000.0, 0.5, 0.6)],
        (Point(256, 64), "append"): [Measured(20_000.0, 3.0, 4.0)] * 2,
        (Point(256, 64), "many"): [Measured(60_000.0, 1.0, 2.0)],
        (Point(256, 64), "quick"): [Measured(30_000.0, 2.0, 3.0)],
        (Point(256, 64), "limit"): [Measured(600_000.0, 0.1, 0.2)],
        (Point(16, 1), "append"): [Measured(1.0, 1.0, 1.0)],
    }
    return table_of_size(256, [1, 64], ALL, results)


def cells(rows: Rows, in_flight: int, system: str) -> dict[str, str]:
    found = [dict(zip(rows.columns, row, strict=True)) for row in rows.cells]
    (wanted,) = [
        row
        for row in found
        if row["in flight"] == str(in_flight) and row["system"].startswith(system)
    ]
    return wanted


def test_a_peer_stands_with_our_ratio_to_it() -> None:
    assert cells(table(), 1, "Quick")["append / it"] == "2.00 x"
    assert cells(table(), 64, "Quick")["append / it"] == "0.67 x"
    assert cells(table(), 64, "Quick")["append_many / it"] == "2.00 x"
    assert cells(table(), 1, "Quick")["append_many / it"] == ""
    assert cells(table(), 64, "ours, 64")["append / it"] == ""


def test_each_is_held_against_the_limit_of_its_own_way() -> None:
    assert cells(table(), 1, "ours")["of the limit"] == "20 %"  # load in the leader: one trip
    assert cells(table(), 1, "Quick")["of the limit"] == "25 %"  # clients beside it: two
    assert cells(table(), 64, "ours, 64")["of the limit"] == "10 %"
    assert cells(table(), 64, "the disk")["of the limit"] == ""


def test_a_system_that_does_not_sync_or_fails_appends_is_marked() -> None:
    assert cells(table(), 1, "Careless")["system"] == "Careless (does not sync), 2 failed"


def test_what_was_not_measured_has_no_row() -> None:
    assert [row[0] for row in table().cells] == ["1"] * 5 + ["64"] * 4


def test_markdown_is_aligned() -> None:
    lines = markdown(table()).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split("|")[1].strip().endswith(":")  # numbers to the right
    assert not lines[1].split("|")[2].strip().endswith(":")
    assert "20,000" in lines[7]


def test_a_table_without_rows_is_markdown_too() -> None:
    assert markdown(Rows("nothing", ["what", "figure"], [])).count("\n") == 1


def test_keys_are_unique_and_every_peer_says_whether_it_syncs() -> None:
    keys = [system.contender.key for system in SYSTEMS]
    assert len(set(keys)) == len(keys)
    careless = {s.contender.key for s in SYSTEMS if not s.contender.syncs}
    assert careless == {"java", "nats-default", "pysyncobj"}
