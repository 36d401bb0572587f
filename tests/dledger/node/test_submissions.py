"""What one turn takes of the appends that wait, and how an append in parts is answered."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dledger
from dledger.core.messages import Heartbeat
from dledger.errors import (
    AppendCutShort,
    Discarded,
    DiskFull,
    DLedgerError,
    LeadershipLost,
    LeadershipMoving,
    LogFull,
    MachineStopped,
    NodeClosed,
    NodeClosing,
    NotLeader,
)
from dledger.node.submissions import SLICE_BYTES, SLICE_ENTRIES, Submission, Submissions
from dledger.waits.pending_appends import Appended, Outcome
from tests.dledger.node.stored_member import led_alone

LARGE = bytes(SLICE_BYTES // 2 + 1)


class Log:
    """A leader's log of term 3 that takes slices."""

    def __init__(self) -> None:
        self.waiting = Submissions()
        self.bodies: list[bytes] = []
        self.slices: list[Sequence[Submission]] = []
        self.outcomes: list[tuple[str, Outcome]] = []

    def submit(self, name: str, bodies: Sequence[bytes]) -> None:
        size = sum(map(len, bodies))
        self.waiting.add(bodies, size, lambda outcome: self.outcomes.append((name, outcome)))

    def take(self) -> None:
        taken = self.waiting.slice()
        self.waiting.took(taken, len(self.bodies), 3)
        self.bodies += [bytes(body) for each in taken for body in each[0]]  # type: ignore[arg-type]
        self.slices.append(taken)

    def take_all(self) -> None:
        while self.waiting.waiting:
            self.take()

    def answer(self) -> None:
        """Every entry is committed and applied."""
        index = 0
        for submission in (each for taken in self.slices for each in taken):
            end = index + len(submission[0])
            submission[2]([Appended(at, 3, 0, None) for at in range(index, end)])
            index = end


def sizes(slices: Sequence[Sequence[Submission]]) -> list[list[int]]:
    return [[len(each[0]) for each in taken] for taken in slices]


def test_what_fits_into_one_slice_is_taken_together() -> None:
    log = Log()
    for name in "abc":
        log.submit(name, [b"x"] * 10)
    log.take_all()
    assert sizes(log.slices) == [[10, 10, 10]]


def test_a_slice_ends_between_submissions_where_it_can() -> None:
    log = Log()
    log.submit("a", [b"x"] * (SLICE_ENTRIES - 1))
    log.submit("b", [b"x"] * 2)
    log.submit("c", [LARGE])
    log.submit("d", [LARGE])
    log.take_all()
    assert sizes(log.slices) == [[SLICE_ENTRIES - 1], [2, 1], [1]]


def test_a_larger_submission_is_taken_in_parts_and_answered_once() -> None:
    log = Log()
    log.submit("entries", [b"x"] * (2 * SLICE_ENTRIES + 5))
    log.submit("bytes", [LARGE] * 3)
    log.submit("small", [b"x"])
    log.take_all()
    assert sizes(log.slices) == [[SLICE_ENTRIES], [SLICE_ENTRIES], [5], [1], [1], [1], [1]]
    log.answer()
    counts = [(name, len(outcome)) for name, outcome in log.outcomes]  # type: ignore[arg-type]
    assert counts == [("entries", 2 * SLICE_ENTRIES + 5), ("bytes", 3), ("small", 1)]


def test_a_body_larger_than_a_slice_is_taken_alone() -> None:
    log = Log()
    log.submit("a", [bytes(2 * SLICE_BYTES)])
    log.submit("b", [b"x"])
    log.take_all()
    assert sizes(log.slices) == [[1], [1]]


@given(st.lists(st.lists(st.sampled_from([1, 700, SLICE_BYTES // 3, SLICE_BYTES]), max_size=9)))
def test_every_body_is_taken_once_in_order_in_small_slices(lengths: list[list[int]]) -> None:
    log, wanted = Log(), []
    for number, each in enumerate(lengths):
        bodies = [bytes([number % 256]) * length for length in each or [1]]
        wanted += bodies
        log.submit(str(number), bodies)
    log.take_all()
    assert log.bodies == wanted
    assert (log.waiting.entries, log.waiting.body_bytes) == (0, 0)
    for taken in log.slices:
        entries = sum(len(each[0]) for each in taken)
        assert entries == 1 or sum(each[1] for each in taken) <= SLICE_BYTES
    log.answer()
    assert [name for name, _ in log.outcomes] == [str(number) for number in range(len(lengths))]


# Why a leader that still leads may refuse a part of an append.
REFUSALS = (
    LeadershipMoving("n1", 3),
    DiskFull("append to data: No space left on device"),
    LogFull(10_000, 1),
    MachineStopped(7, "an entry of version 9"),
)


def in_parts() -> Log:
    """A log with the first of three parts of an append in it, at entry 0."""
    log = Log()
    log.submit("large", [LARGE] * 3)
    log.take()
    return log


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (NotLeader("n1", 4), LeadershipLost(0, 3, "n1")),
        (NodeClosing(), NodeClosed(0)),
        *((error, AppendCutShort(0, 3, str(error))) for error in REFUSALS),
    ],
)
def test_the_rest_of_an_append_that_is_refused_makes_its_outcome_unknown(
    error: DLedgerError, wanted: DLedgerError
) -> None:
    log = in_parts()
    for done in log.waiting.take_all():
        done(error)
    ((_, outcome),) = log.outcomes
    assert isinstance(outcome, dledger.OutcomeUnknown)
    assert (type(outcome), str(outcome)) == (type(wanted), str(wanted))
    assert not log.waiting.waiting


def test_an_append_of_which_nothing_is_in_the_log_is_refused_as_a_whole() -> None:
    log = Log()
    log.submit("large", [LARGE] * 3)
    log.waiting.slice()
    for done in log.waiting.take_all():
        done(NotLeader("n1", 4))
    ((_, outcome),) = log.outcomes
    assert isinstance(outcome, NotLeader)


def test_an_append_in_parts_is_lost_for_certain_only_if_its_first_entry_is() -> None:
    first, later = in_parts(), in_parts()
    for log in (first, later):
        log.take_all()
    first.slices[0][0][2](Discarded(0, 3))
    first.slices[1][0][2](Discarded(1, 3))
    later.slices[1][0][2](Discarded(1, 3))
    later.slices[0][0][2]([Appended(0, 3, 0, None)])
    assert [type(outcome) for _, outcome in first.outcomes] == [Discarded]
    assert [type(outcome) for _, outcome in later.outcomes] == [LeadershipLost]


@pytest.mark.parametrize("how", ["a part failed", "another term"])
def test_the_rest_of_an_append_that_cannot_succeed_is_not_appended(how: str) -> None:
    log = in_parts()
    log.submit("next", [b"x"])
    if how == "a part failed":
        log.slices[0][0][2](LeadershipLost(0, 3, None))
    log.waiting.drop_failed(3 if how == "a part failed" else 5)
    log.take_all()
    assert sizes(log.slices) == [[1], [1]]
    assert [name for name, _ in log.outcomes] == ["large"]
    assert isinstance(log.outcomes[0][1], LeadershipLost)
    assert (log.waiting.entries, log.waiting.body_bytes) == (0, 0)


# --- in turns -----------------------------------------------------------------------------------


def test_a_turn_appends_one_slice_and_asks_for_the_next_turn_at_once() -> None:
    member = led_alone()
    turn, before = member.member.turn, member.store.last_index
    turn.submit([b"x"] * (3 * SLICE_ENTRIES), 3 * SLICE_ENTRIES, member.outcomes.append)
    lengths = []
    for _ in range(3):
        deadline = turn.turn(50.0)
        lengths.append(member.store.last_index - before)
        assert (deadline < 50.0) == (len(lengths) < 3)
    assert lengths == [SLICE_ENTRIES, 2 * SLICE_ENTRIES, 3 * SLICE_ENTRIES]


def test_messages_that_take_turns_in_one_pass_of_the_loop_append_no_further_slice() -> None:
    member = led_alone()
    turn, before = member.member.turn, member.store.last_index
    turn.submit([b"x"] * (3 * SLICE_ENTRIES), 3 * SLICE_ENTRIES, member.outcomes.append)
    for _ in range(5):
        assert turn.turn(50.0, slices=False) < 50.0
    assert member.store.last_index - before == SLICE_ENTRIES
    turn.turn(50.0)
    assert member.store.last_index - before == 2 * SLICE_ENTRIES


def test_nothing_is_held_back_once_the_rest_of_an_append_is_dropped() -> None:
    member = led_alone()
    turn = member.member.turn
    turn.submit([b"x"] * (3 * SLICE_ENTRIES), 3 * SLICE_ENTRIES, member.outcomes.append)
    assert turn.turn(50.0) < 50.0
    member.receive("n1", Heartbeat(99, -1, 1), 50.0)  # another leads: a part of it is lost
    assert turn.turn(50.0) > 50.0
    (lost,) = member.outcomes
    assert isinstance(lost, LeadershipLost)


def test_a_disk_that_is_full_in_the_middle_of_an_append_is_told_as_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    member = led_alone()
    turn, begin = member.member.turn, member.store.last_index + 1
    turn.submit([b"x"] * (2 * SLICE_ENTRIES), 2 * SLICE_ENTRIES, member.outcomes.append)
    turn.turn(50.0)

    def full(*_: object) -> None:
        raise DiskFull("no space")

    monkeypatch.setattr(member.store, "append", full)
    turn.turn(50.0)
    (outcome,) = member.outcomes
    assert isinstance(outcome, AppendCutShort)
    assert (outcome.index, outcome.retry_safe) == (begin, False)
    assert "no space" in outcome.reason
    assert not turn.submissions.waiting
