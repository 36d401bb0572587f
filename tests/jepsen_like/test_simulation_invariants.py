"""Each invariant is shown to fail, on a history of a few steps."""

from collections.abc import Callable

import pytest

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.replica import Replica, ReplicaConfig
from dledger.entry import Entry, Magic
from dledger.messages import Phase, PushResponse, VoteRequest, VoteResponse
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.invariants import Invariants, InvariantViolated
from tests.dledger.core_group import EntriesAtOnce, view_of

NAMES = ["a", "b", "c"]


def lived() -> Invariants:
    """Three nodes; entry 0 of term 1 is on all disks, entry 1 only on those of a and b."""
    checks = Invariants(NAMES)
    for name in NAMES:
        checks.written(name, 0, [(1, 10)])
        checks.synced(name, 0, HardState(1, "a"))
    for name in "ab":
        checks.written(name, 1, [(1, 11)])
        checks.synced(name, 1, None)
    return checks


def replica(name: str, terms: list[int], **state: object) -> Replica:
    config = ReplicaConfig(name, NAMES)
    batches = EntriesAtOnce(1)
    made = Replica(config, view_of(terms), HardState(1, "a"), batches, lambda: 0.5, 0.0)
    for field, value in state.items():
        setattr(made.state, field, value)
    return made


def vote(checks: Invariants, voter: str, candidate: str) -> None:
    checks.released(voter, candidate, VoteResponse(1, granted=True, pre=False))


def elect(checks: Invariants, name: str, **state: object) -> None:
    checks.after_turn(name, replica(name, [1, 1], role=Role.LEADER, **state))


def two_leaders(checks: Invariants) -> None:
    vote(checks, "b", "a")
    elect(checks, "a")
    checks.synced("c", 0, HardState(1, "c"))
    elect(checks, "b")


def incomplete_leader(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    vote(checks, "a", "a")
    checks.written("c", 1, [(2, 21)])
    for voter in "bc":
        checks.synced(voter, 1, HardState(2, "c"))
        checks.released(voter, "c", VoteResponse(2, granted=True, pre=False))
    checks.after_turn("c", replica("c", [1, 2], role=Role.LEADER, term=2, durable=1))


def lost_after_crash(checks: Invariants) -> None:
    checks.recovered("a", [(1, 10)], HardState(1, "a"))


def term_lost_after_crash(checks: Invariants) -> None:
    checks.released("a", "b", PushResponse(9, Phase.COMPARE, ok=True, index=0))
    checks.recovered("a", [(1, 10), (1, 11)], HardState(8, None))


def other_entry_committed(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.written("c", 1, [(2, 21)])
    checks.check_committed("c", 1)


def second_vote(checks: Invariants) -> None:
    vote(checks, "b", "a")
    vote(checks, "b", "c")


def committed_entry_dropped(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.truncated("b", 0)


def applied_twice(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.applied("a", 1, [7])


def machines_differ(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.applied("b", 0, [5, 7])


CASES: list[tuple[str, Callable[[Invariants], None]]] = [
    ("acknowledged is durable", lambda c: c.released("c", "a", PushResponse(1, Phase.APPEND, ok=True, index=1, match=1))),
    ("votes are durable", lambda c: vote(c, "b", "c")),
    ("votes are durable", lambda c: c.released("a", "b", VoteRequest(2, 1, 1, pre=False))),
    ("votes are durable", lambda c: c.recovered("a", [(1, 10), (1, 11)], HardState(1, "b"))),
    ("one vote a term", second_vote),
    ("leaders have a quorum's votes", lambda c: elect(c, "a")),
    ("one leader a term", two_leaders),
    ("leader completeness", incomplete_leader),
    ("log matching", lambda c: c.written("c", 1, [(1, 99)])),
    ("log matching", lambda c: c.created("c", 1, 1)),
    ("logs are dense", lambda c: c.written("c", 2, [(1, 12)])),
    ("synced entries survive", lost_after_crash),
    ("recovered entries are real", lambda c: c.recovered("a", [(1, 10), (1, 0)], HardState(1, "a"))),
    ("recovered entries are real", lambda c: c.recovered("a", [(1, 10), (1, 98)], HardState(1, "a"))),
    ("terms never go back", term_lost_after_crash),
    ("committed entries are equal", other_entry_committed),
    ("committed is durable on a quorum", lambda c: (c.truncated("b", 0), c.check_committed("a", 1))[1]),
    ("commits never go back", lambda c: (c.check_committed("a", 1), c.check_committed("a", 0))[1]),
    ("committed entries stay", committed_entry_dropped),
    ("watermarks", lambda c: c.after_turn("a", replica("a", [1, 1], applied=1, durable=0))),
    ("durable is on disk", lambda c: c.after_turn("c", replica("c", [1], durable=0, committed=-1)) or c.truncated("c", -1) or c.written("c", 0, [(2, 20)]) or c.after_turn("c", replica("c", [2], durable=0))),
    ("the core mirrors the store", lambda c: c.after_turn("a", replica("a", [1]))),
    ("applied is committed", lambda c: c.applied("a", 0, [5])),
    ("applied in order", applied_twice),
    ("machines agree", machines_differ),
]  # fmt: skip


@pytest.mark.parametrize(("promise", "steps"), CASES)
def test_a_broken_promise_is_seen(promise: str, steps: Callable[[Invariants], None]) -> None:
    with pytest.raises(InvariantViolated) as caught:
        steps(lived())
    assert caught.value.promise == promise


def test_a_good_history_breaks_no_promise() -> None:
    checks = lived()
    vote(checks, "b", "a")
    elect(checks, "a", committed=1)
    checks.applied("a", 0, [5, 6])
    checks.check_committed("b", 0)
    checks.applied("b", 0, [5])
    checks.written("c", 1, [(1, 11)])
    checks.synced("c", 1, None)
    checks.released("c", "a", PushResponse(1, Phase.APPEND, ok=True, index=1, match=1))
    checks.recovered("a", [(1, 10), (1, 11)], HardState(1, "a"))
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    assert checks.committed == [10, 11]


# --- what clients were told -------------------------------------------------------------------------


def log_of(*numbers: int) -> list[Entry]:
    """A log of a no-op and the appends of these numbers."""
    bodies = [number.to_bytes(8, "big") for number in numbers]
    return [
        Entry(0, 1, 0, Magic.NOOP, b""),
        *(Entry(index, 1, 0, Magic.NORMAL, body) for index, body in enumerate(bodies, 1)),
    ]


@pytest.fixture
def history() -> History:
    """Append 0 was acknowledged as entry 1, append 1 was refused, of append 2 nothing is known."""
    history = History()
    for _ in range(3):
        history.begin_append(0)
    history.acknowledge(0, 1)
    history.refuse(1)
    return history


@pytest.mark.parametrize("log", [(0,), (0, 2)])
def test_an_append_of_unknown_outcome_may_be_there_or_not(
    history: History, log: tuple[int, ...]
) -> None:
    history.check(log_of(*log))


@pytest.mark.parametrize(
    ("log", "promise"),
    [
        ((2,), "acknowledged means for ever"),
        ((2, 0), "acknowledged means for ever"),
        ((0, 1), "refused means never"),
        ((0, 2, 2), "appended at most once"),
    ],
)
def test_a_log_that_contradicts_what_clients_were_told_is_seen(
    history: History, log: tuple[int, ...], promise: str
) -> None:
    with pytest.raises(InvariantViolated) as caught:
        history.check(log_of(*log))
    assert caught.value.promise == promise


def test_a_read_must_see_what_was_acknowledged_before_it_began(history: History) -> None:
    early = history.begin_read()
    history.begin_append(0)
    history.acknowledge(3, 7)
    late = history.begin_read()
    history.end_read(early, 1)
    with pytest.raises(InvariantViolated, match="reads are linearizable"):
        history.end_read(late, 6)


def test_a_read_that_was_refused_says_nothing(history: History) -> None:
    history.end_read(history.begin_read(), None)
    assert history.reads_done == 0
