"""What a node checks of a push before the protocol sees it."""

from __future__ import annotations

import pytest

from dledger.core.ledger_view import TermRun
from dledger.core.messages import Phase, PushRequest
from dledger.entry import Magic
from dledger.errors import LogsDiverge, MessageMalformed
from dledger.store.batch import BatchFacts
from dledger.store.push_check import PushCheck
from tests.dledger.store.memory_store import MemoryStore


def store_of(*terms: int) -> MemoryStore:
    store = MemoryStore()
    for index, term in enumerate(terms):
        store.append(term, Magic.NORMAL, [b"entry %d of term %d" % (index, term)])
    return store


def push_from(store: MemoryStore, first: int, last: int) -> PushRequest:
    """The APPEND that a leader with this log sends."""
    runs: list[TermRun] = []
    for index in range(first, last + 1):
        term = store.term_at(index)
        if not runs or runs[-1].term != term:
            runs.append(TermRun(term, index))
    prev_term = store.term_at(first - 1)
    payload = store.read(first, last, 1 << 20)
    return PushRequest(
        9, Phase.APPEND, first - 1, prev_term, last, -1, runs=tuple(runs), payload=payload
    )


def test_a_push_of_good_entries_passes_with_what_was_found() -> None:
    checked = PushCheck(store_of()).check(push_from(store_of(1, 1, 2), 0, 2))
    assert isinstance(checked.facts, BatchFacts)
    assert checked.facts.last_index == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"last_index": 1},
        {"last_index": 3},
        {"runs": (TermRun(1, 0),)},
        {"runs": (TermRun(1, 0), TermRun(3, 2))},
        {"runs": (TermRun(1, 0), TermRun(2, 1))},
    ],
)
def test_a_push_that_announces_other_entries_than_it_carries_is_malformed(
    wrong: dict[str, object],
) -> None:
    push = push_from(store_of(1, 1, 2), 0, 2)
    with pytest.raises(MessageMalformed, match="differ from its header"):
        PushCheck(store_of()).check(push._replace(**wrong))  # type: ignore[arg-type]


def test_a_push_must_follow_the_one_it_rests_on() -> None:
    # Same indexes and terms, another first entry: only the chain of sums knows.
    ours, other = store_of(1, 1, 1), MemoryStore()
    for body in (b"another entry", b"entry 1 of term 1", b"entry 2 of term 1"):
        other.append(1, Magic.NORMAL, [body])
    check = PushCheck(store_of())
    check.check(push_from(ours, 0, 1))
    with pytest.raises(MessageMalformed):
        check.check(push_from(other, 2, 2))


def test_a_push_may_rest_on_an_entry_that_replaced_the_one_of_the_last_push() -> None:
    check = PushCheck(store_of())
    check.check(push_from(store_of(1, 1), 0, 1))
    rests_on_another = push_from(store_of(1, 2, 2), 2, 2)
    assert check.check(rests_on_another).facts is not None


def twice_led() -> tuple[MemoryStore, MemoryStore]:
    """Two logs of two leaders of term 2, who made different entries from index 1 on."""
    logs = store_of(1, 2, 2, 2, 2), store_of(1)
    for number in range(4):
        logs[1].append(2, Magic.NORMAL, [b"of the other leader, %d" % number])
    return logs


@pytest.mark.parametrize(
    ("first", "last", "differs"),
    [(2, 2, 1), (5, 5, 4), (1, 1, 1), (1, 4, 4), (0, 3, 3), (3, 5, 2)],
)
def test_entries_of_two_leaders_of_one_term_are_told_apart(
    first: int, last: int, differs: int
) -> None:
    ours, theirs = twice_led()
    theirs.append(2, Magic.NORMAL, [b"more"])
    with pytest.raises(LogsDiverge) as raised:
        PushCheck(ours).check(push_from(theirs, first, last))
    assert raised.value.index == differs


def test_the_same_entries_once_more_are_no_divergence() -> None:
    ours, theirs = store_of(1, 1, 2), store_of(1, 1, 2, 2)
    for first, last in ((0, 0), (0, 2), (0, 3), (1, 3), (3, 3)):
        PushCheck(ours).check(push_from(theirs, first, last))


def test_an_entry_of_another_term_is_left_to_the_protocol() -> None:
    ours, theirs = store_of(1, 1, 2), store_of(1, 1, 3, 3)
    assert PushCheck(ours).check(push_from(theirs, 2, 3)).contradicts == -1
