"""The table of gaps by fault."""

from __future__ import annotations

from jepsen_like.chaos.gaps import Window, gap_rows, windows_of
from jepsen_like.history.operation import EventType, Operation
from jepsen_like.report.told_run import GapRow

S = 1_000_000_000


def done(process: int, at_s: float, member: str | None = None, ok: bool = True) -> Operation:
    outcome = EventType.OK if ok else EventType.FAIL
    end_ns = int(at_s * S)
    return Operation(process, "read", None, None, 2, end_ns - 1, member, outcome, None, 3, end_ns)


def rows(operations: list[Operation], windows: list[Window]) -> dict[tuple[str, str], GapRow]:
    """Two readers (0 at n0, 1 at n1) and one writer (2)."""
    found = gap_rows(operations, windows, readers=2, clients=3, step=4)
    return {(row.kind, row.who): row for row in found}


KILL = Window("kill", frozenset({"n0"}), 10 * S, 20 * S)


def test_a_gap_is_the_longest_time_without_an_ok_in_the_window() -> None:
    reads = [done(0, at, "n0") for at in (9.0, 10.5, 14.5, 15.0, 19.9, 30.0)]
    row = rows(reads, [KILL])["kill", "reads of the hit"]
    assert (row.median_s, row.max_s, row.unended) == (4.9, 4.9, 0)


def test_a_gap_begins_with_the_fault_not_with_the_last_answer_before() -> None:
    reads = [done(0, at, "n0") for at in (1.0, 10.1, 19.9)]
    other = [done(1, at, "n1") for at in (1.0, 13.0, 15.0, 17.0, 19.0)]
    found = rows([*reads, *other], [KILL])
    assert found["kill", "reads of others"].max_s == 3.0


def test_a_gap_that_the_window_cuts_off_is_counted_as_such() -> None:
    row = rows([done(2, 10.5)], [KILL])["kill", "writes"]
    assert (row.max_s, row.unended) == (9.5, 1)


def test_what_was_not_ok_ends_no_gap() -> None:
    operations = [done(2, 10.5), done(2, 15.0, ok=False), done(2, 19.0)]
    assert rows(operations, [KILL])["kill", "writes"].max_s == 8.5


def test_a_process_that_follows_another_is_the_same_client() -> None:
    operations = [done(2, 10.0), done(6, 14.0), done(10, 18.0)]
    row = rows(operations, [KILL])["kill", "writes"]
    assert (row.gaps, row.max_s) == (1, 4.0)


def test_processes_that_are_no_clients_do_not_count() -> None:
    assert rows([done(3, 12.0)], [KILL]) == {}


def test_quantiles_are_over_all_windows_and_clients_of_one_kind() -> None:
    windows = [Window("kill", frozenset(), number * S, (number + 1) * S) for number in range(20)]
    writes = [done(2, number + (number + 1) / 40) for number in range(20)]
    row = rows(writes, windows)["kill", "writes"]
    assert (row.windows, row.gaps) == (20, 20)
    assert 0.5 <= row.median_s <= 0.75
    assert row.p95_s > 0.9


def begin(fault: int, kind: str, at_s: int, *targets: str) -> dict[str, object]:
    event = {"event": "begin", "fault": fault, "kind": kind, "targets": list(targets)}
    return {**event, "time_ns": at_s * S}


def end(fault: int, at_s: int) -> dict[str, object]:
    return {"event": "end", "fault": fault, "time_ns": at_s * S}


def test_a_window_ends_with_the_next_fault() -> None:
    start = {"event": "start", "member": "n0", "time_ns": 0}
    events = [start, begin(0, "kill", 2, "n0"), end(0, 3), begin(1, "freeze", 5)]
    assert windows_of(events, 9 * S) == [
        Window("kill", frozenset({"n0"}), 2 * S, 5 * S),
        Window("freeze", frozenset(), 5 * S, 9 * S),
    ]


def test_lines_of_faults_need_not_be_in_the_order_of_their_beginnings() -> None:
    events = [begin(1, "freeze", 5), begin(0, "grow", 2), end(0, 4)]
    assert [window.kind for window in windows_of(events, 9 * S)] == ["grow", "freeze"]


def test_a_fault_during_another_is_told_from_one_alone() -> None:
    events = [begin(0, "halves", 2), begin(1, "kill", 3), end(0, 4), end(1, 5), begin(2, "kill", 6)]
    kinds = [window.kind for window in windows_of(events, 9 * S)]
    assert kinds == ["halves", "kill + halves", "kill"]
