from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import permutations
from random import Random
from typing import NamedTuple

import pytest

from jepsen_like.checkers.checker import Bounds, Request
from jepsen_like.checkers.list_append.consistency import check_list_append
from jepsen_like.checkers.report import Report
from jepsen_like.history.errors import HistoryUnreadable
from jepsen_like.history.history import History
from jepsen_like.history.operation import Operation
from jepsen_like.history.value import Value, frozen
from tests.jepsen_like.checkers.recorded import alone, one, recorded

Steps = list[list[object]]


def append(key: str, value: int) -> list[object]:
    return ["append", key, value]


def read(key: str, *elements: int) -> list[object]:
    return ["r", key, list(elements)]


def txn(*steps: list[object], process: int = 0, type: str = "ok") -> list[tuple[object, ...]]:
    """A transaction that nothing else overlaps."""
    asked = [step if step[0] == "append" else [*step[:2], None] for step in steps]
    return one("txn", asked, list(steps) if type == "ok" else asked, process, type=type)


def at_once(*transactions: Steps) -> list[tuple[object, ...]]:
    """Transactions that all overlap, each of a process of its own."""
    pairs = [txn(*steps, process=number) for number, steps in enumerate(transactions)]
    return [pair[0] for pair in pairs] + [pair[1] for pair in pairs]


def checked(history: History, *allowed: str) -> Report:
    return check_list_append(history, Request(allowed=allowed))


def kinds(history: History) -> list[str]:
    report = checked(history)
    assert (report.verdict == "invalid") == bool(report.counts)
    return sorted(report.counts)


def test_transactions_that_happened_one_after_another_are_valid() -> None:
    history = alone(
        txn(append("x", 1), read("x", 1)),
        txn(read("x", 1), append("x", 2), append("y", 1)),
        txn(read("y", 1), read("x", 1, 2)),
        txn(append("y", 2), type="fail"),
        txn(append("y", 3), type="info"),
        txn(read("y", 1)),
        txn(read("y", 1, 3)),
    )
    report = checked(history)
    assert report.verdict == "valid"
    assert "5 transactions on 2 lists" in report.summary


def test_appends_in_two_orders_are_g0() -> None:
    history = recorded(
        *at_once(
            [append("x", 1), append("y", 1)],
            [append("x", 2), append("y", 2)],
            [read("x", 1, 2)],
            [read("y", 2, 1)],
        )
    )
    assert kinds(history) == ["G0"]


def test_two_that_read_each_other_are_g1c() -> None:
    history = recorded(*at_once([append("x", 1), read("y", 1)], [append("y", 1), read("x", 1)]))
    report = checked(history)
    assert list(report.counts) == ["G1c"]
    text = "\n".join(report.text)
    assert 'T1 (lines 1-3, process 0): append 1 to "x"; read "y" = [1]' in text
    assert 'T1 before T2: T2 read "x" = [1], and T1 appended 1' in text
    assert 'T2 before T1: T1 read "y" = [1], and T2 appended 1' in text


def test_a_read_of_half_a_transaction_is_g_single() -> None:
    history = recorded(
        *at_once([append("x", 1), append("y", 1)], [read("x", 1), read("y")], [read("y", 1)])
    )
    report = checked(history)
    assert list(report.counts) == ["G-single"]
    assert 'T2 read "y" = [], without the 1 of T1' in "\n".join(report.text) or (
        'T1 read "y" = [], without the 1 of T2' in "\n".join(report.text)
    )


def test_write_skew_is_g2() -> None:
    history = recorded(
        *at_once(
            [read("x"), append("y", 1)],
            [read("y"), append("x", 1)],
            [read("x", 1), read("y", 1)],
        )
    )
    assert kinds(history) == ["G2"]
    assert checked(history, "G2").verdict == "valid"


# Two appends that nothing orders; one reader sees only the first, another one only the second.
LONG_FORK = at_once(
    [append("x", 1)], [append("y", 1)], [read("x", 1), read("y")], [read("x"), read("y", 1)]
)


def test_a_long_fork_is_g_nonadjacent() -> None:
    report = checked(recorded(*LONG_FORK))
    assert list(report.counts) == ["G-nonadjacent"]
    text = "\n".join(report.text)
    assert 'T1 before T2: T2 read "x" = [1], and T1 appended 1' in text
    assert 'T4 before T1: T4 read "x" = [], without the 1 of T1' in text


def test_a_long_fork_beside_write_skew_is_found_as_what_it_is() -> None:
    skewed = at_once(
        [append("x", 1), read("z")],
        [append("y", 1)],
        [read("x", 1), read("y"), append("z", 1)],
        [read("x"), read("y", 1)],
        [read("z", 1)],
    )
    assert kinds(recorded(*skewed)) == ["G-nonadjacent"]


def test_a_stale_read_is_found_by_real_time_and_by_the_process() -> None:
    stale = [*txn(append("x", 1)), *txn(read("x"), process=1)]
    assert kinds(recorded(*stale)) == ["G-single-realtime"]
    report = checked(recorded(*stale))
    assert "T1 had ended in line 2 when T2 was called in line 3" in "\n".join(report.text) or (
        "T2 had ended in line 2 when T1 was called in line 3" in "\n".join(report.text)
    )
    same_process = [*txn(append("x", 1)), *txn(read("x"))]
    assert kinds(recorded(*same_process)) == ["G-single-process"]


def test_what_was_appended_and_is_in_no_later_read_is_found() -> None:
    history = alone(txn(append("x", 1)), txn(append("x", 2)), txn(read("x", 1), process=1))
    assert kinds(history) == ["G-single-realtime"]


@pytest.mark.parametrize(
    ("consistency", "verdicts"),
    [
        ("strict-serializable", ["invalid", "invalid", "invalid", "invalid", "invalid"]),
        ("session-serializable", ["valid", "invalid", "invalid", "invalid", "invalid"]),
        ("serializable", ["valid", "valid", "invalid", "invalid", "invalid"]),
        ("snapshot-isolation", ["valid", "valid", "valid", "invalid", "invalid"]),
        ("read-committed", ["valid", "valid", "valid", "valid", "valid"]),
    ],
)
def test_the_header_says_how_much_is_promised(consistency: str, verdicts: list[str]) -> None:
    stale = [*txn(append("x", 1)), *txn(read("x"), process=1)]
    session = [*txn(append("x", 1)), *txn(read("x"))]
    skew = at_once([read("x"), append("y", 1)], [read("y"), append("x", 1)])
    half = at_once([append("x", 1), append("y", 1)], [read("x", 1), read("y")])
    for events, verdict in zip([stale, session, skew, LONG_FORK, half], verdicts, strict=True):
        assert checked(recorded(*events, consistency=consistency)).verdict == verdict


def test_a_read_of_what_failed_is_g1a() -> None:
    history = alone(txn(append("x", 1), type="fail"), txn(read("x", 1)))
    assert kinds(history) == ["G1a"]


def test_a_read_in_the_middle_of_a_transaction_is_g1b() -> None:
    history = alone(txn(append("x", 1), append("x", 2)), txn(read("x", 1)))
    assert "G1b" in kinds(history)
    whole = alone(txn(append("x", 1), append("x", 2)), txn(read("x", 1, 2)))
    assert kinds(whole) == []


def test_reads_that_cannot_both_be_are_an_incompatible_order() -> None:
    history = recorded(
        *at_once([append("x", 1)], [append("x", 2)], [read("x", 1, 2)], [read("x", 2)])
    )
    assert "incompatible order" in kinds(history)


def test_half_of_what_a_transaction_appended_is_an_incompatible_order() -> None:
    history = alone(txn(append("x", 2), append("x", 3), type="info"), txn(read("x", 3)))
    assert "incompatible order" in kinds(history)


def test_elements_out_of_nowhere_and_twice_are_found() -> None:
    assert kinds(alone(txn(read("x", 7)))) == ["invented"]
    assert "duplicated" in kinds(alone(txn(append("x", 1)), txn(read("x", 1, 1))))


@pytest.mark.parametrize(
    "steps",
    [
        [append("x", 1), read("x")],
        [read("x"), append("x", 1), read("x")],
        [append("x", 1), append("x", 2), read("x", 2)],
    ],
)
def test_a_transaction_that_does_not_see_its_own_appends_is_internal(steps: Steps) -> None:
    assert "internal" in kinds(alone(txn(*steps)))


def test_a_history_that_read_nothing_is_unknown() -> None:
    assert checked(alone(txn(append("x", 1)))).verdict == "unknown"
    assert checked(recorded()).verdict == "unknown"


def test_a_search_that_is_out_of_time_is_unknown() -> None:
    history = recorded(*at_once([append("x", 1), read("y", 1)], [append("y", 1), read("x", 1)]))
    report = check_list_append(history, Request(Bounds(lambda: True)))
    assert report.verdict == "unknown"


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (one("read", 1), "no function"),
        (one("txn", 3), "txn takes a list"),
        (one("txn", [["append", "x"]]), "a step is"),
        (one("txn", [["append", "x", None]]), "a step is"),
        (one("txn", [["w", "x", 1]]), "a step is"),
        (one("txn", [["r", "x", 1]]), "a step is"),
        ([*txn(append("x", 1)), *txn(append("x", 1))], "again (first in line 1)"),
        (txn(append("x", 1), append("x", 1)), "again (first in line 1)"),
    ],
)
def test_what_is_no_transaction_on_lists_is_unreadable(
    events: list[tuple[object, ...]], words: str
) -> None:
    with pytest.raises(HistoryUnreadable) as caught:
        checked(recorded(*events))
    assert words in str(caught.value)


def test_an_unknown_consistency_is_refused() -> None:
    with pytest.raises(HistoryUnreadable, match="one of strict-serializable, "):
        checked(recorded(consistency="eventual"))


def is_strict_serializable(operations: list[Operation]) -> bool:
    """The definition, tried out: each order of each choice of the unknown transactions."""
    certain = [one for one in operations if one.ok]
    unknown = [one for one in operations if not one.ok and not one.failed]
    for chosen in range(1 << len(unknown)):
        there = certain + [one for bit, one in enumerate(unknown) if chosen >> bit & 1]
        if any(_is_legal(order) for order in permutations(there)):
            return True
    return False


def _is_legal(order: tuple[Operation, ...]) -> bool:
    lists: dict[Value, tuple[Value, ...]] = {}
    for number, transaction in enumerate(order):
        if any(one.certain_from < transaction.invoked_line for one in order[number + 1 :]):
            return False
        steps = transaction.result if transaction.ok else transaction.value
        assert isinstance(steps, tuple)
        for function, key, value in steps:
            if function == "append":
                lists[key] = (*lists.get(key, ()), value)
            elif transaction.ok and lists.get(key, ()) != value:
                return False
    return True


def random_history(random: Random) -> History:
    """What a right store answers, or one that is wrong now and then."""
    lists: dict[str, list[int]] = {"x": [], "y": []}
    old: dict[str, list[int]] = {"x": [], "y": []}
    events: list[tuple[object, ...]] = []
    running: dict[int, tuple[Steps, Steps] | None] = {}
    calls, value = random.randrange(2, 6), 0
    wrong = random.random() < 0.7
    while calls or running:
        process = random.randrange(3)
        if process in running:
            there = running.pop(process)
            assert there is not None
            asked, answered = there
            type_ = random.choice(["ok"] * 8 + ["info"])
            events.append((process, type_, "txn", answered if type_ == "ok" else asked))
            continue
        if not calls:
            continue
        calls -= 1
        asked, answered = [], []
        for _ in range(random.randrange(1, 4)):
            key = random.choice("xy")
            if random.random() < 0.5:
                value += 1
                asked.append(append(key, value))
                answered.append(append(key, value))
                if not wrong or random.random() < 0.9:
                    old[key] = list(lists[key])
                    lists[key].append(value)
            else:
                asked.append(["r", key, None])
                source = old if wrong and random.random() < 0.3 else lists
                answered.append(read(key, *source[key]))
        events.append((process, "invoke", "txn", asked))
        running[process] = asked, answered
    return recorded(*events)


def test_the_verdict_is_that_of_trying_every_order() -> None:
    random = Random(7)
    verdicts = {True: 0, False: 0}
    for _ in range(1500):
        history = random_history(random)
        expected = is_strict_serializable(list(history.operations))
        report = checked(history)
        if report.verdict != "unknown":
            verdicts[expected] += 1
            assert (report.verdict == "valid") == expected, report
    assert min(verdicts.values()) > 200


class Running(NamedTuple):
    """A transaction that has begun, and the lists as it leaves those that it appends to."""

    number: int
    leaves: dict[Value, tuple[Value, ...]]


def has_snapshots(
    transactions: Sequence[Steps],
    lists: Mapping[Value, tuple[Value, ...]],
    waiting: frozenset[int],
    running: tuple[Running, ...],
    in_vain: set[object],
) -> bool:
    """The definition of snapshot isolation, tried out: each order of all begins and ends.

    A transaction reads what there was at its begin; what it appends is there from its end on. Of
    two that append to one key, one has ended before the other begins.

    Args:
        in_vain: the states that no order leads on from; each is tried once.
    """
    if not waiting and not running:
        return True
    leaving = frozenset((one.number, frozenset(one.leaves.items())) for one in running)
    state = (waiting, leaving, frozenset(lists.items()))
    if state in in_vain:
        return False
    for number in waiting:
        leaves: dict[Value, tuple[Value, ...]] = {}
        for function, name, value in transactions[number]:
            key = str(name)
            if function == "append":
                leaves[key] = (*leaves.get(key, lists.get(key, ())), frozen(value))
            elif lists.get(key, ()) != frozen(value):
                break
        else:
            rest = waiting - {number}
            begun = (*running, Running(number, leaves))
            if has_snapshots(transactions, lists, rest, begun, in_vain):
                return True
    for ending in running:
        others = tuple(one for one in running if one is not ending)
        if not any(ending.leaves.keys() & one.leaves.keys() for one in others) and has_snapshots(
            transactions, {**lists, **ending.leaves}, waiting, others, in_vain
        ):
            return True
    in_vain.add(state)
    return False


def random_transactions(random: Random) -> list[Steps]:
    """Transactions that each read before they append; the last one has read all that there is."""
    count = random.randrange(3, 7)
    orders = {key: random.sample(range(count), random.choice((1, 1, 2))) for key in "xy"}
    transactions: list[Steps] = []
    for number in range(count):
        reads: Steps = []
        appends: Steps = []
        for key, order in orders.items():
            most = order.index(number) if number in order else len(order)
            if random.random() < 0.8:
                reads.append(read(key, *order[: random.randint(0, most)]))
            if number in order:
                appends.append(append(key, number))
        transactions.append(reads + appends)
    return [*transactions, [read(key, *order) for key, order in orders.items()]]


def test_the_verdict_on_snapshot_isolation_is_that_of_trying_every_order() -> None:
    random = Random(11)
    seen: Counter[str] = Counter()
    for _ in range(600):
        transactions = random_transactions(random)
        everyone = frozenset(range(len(transactions)))
        history = recorded(*at_once(*transactions), consistency="snapshot-isolation")
        report = checked(history)
        assert (report.verdict == "valid") == has_snapshots(
            transactions, {}, everyone, (), set()
        ), report
        seen.update(report.counts or ["valid"])
    assert min(seen[kind] for kind in ("valid", "G-single", "G-nonadjacent")) > 10, seen
