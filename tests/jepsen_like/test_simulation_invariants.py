"""Each invariant is shown to fail, on a history of a few steps."""

from collections.abc import Callable

import pytest

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.messages import (
    Phase,
    PushResponse,
    Recall,
    Recollection,
    VoteRequest,
    VoteResponse,
)
from dledger.core.replica import Replica, ReplicaConfig
from dledger.core.snapshot.snapshot_offer import LogBegin
from dledger.entry import Entry, Magic
from jepsen_like.simulation.clients import History
from jepsen_like.simulation.group_history import founding
from jepsen_like.simulation.invariants import Invariants, InvariantViolated
from jepsen_like.simulation.witness import check_reads_end
from tests.dledger.core.core_group import EntriesAtOnce, view_of

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
    config = ReplicaConfig(name, founding(NAMES))
    batches = EntriesAtOnce(1)
    made = Replica(config, view_of(terms), HardState(1, "a"), batches, lambda: 0.5, 0.0)
    for field, value in state.items():
        setattr(made.state, field, value)
    return made


def joint(voters: str, outgoing: str) -> Configuration:
    return Configuration(
        voters=frozenset(voters),
        outgoing=frozenset(outgoing),
        addresses={name: f"{name}:1" for name in {*voters, *outgoing}},
    )


def vote(checks: Invariants, voter: str, candidate: str) -> None:
    checks.released(voter, candidate, VoteResponse(1, granted=True, pre=False))


def elect(checks: Invariants, name: str, **state: object) -> None:
    checks.after_turn(name, replica(name, [1, 1], role=Role.LEADER, **state))


Steps = Callable[[Invariants], None]
CASES: dict[str, tuple[str, Steps]] = {}


def breaks(promise: str) -> Callable[[Steps], Steps]:
    """Note a case: these steps break that promise."""

    def note(steps: Steps) -> Steps:
        CASES[steps.__name__] = (promise, steps)
        return steps

    return note


@breaks("acknowledged is durable")
def acknowledges_too_much(checks: Invariants) -> None:
    checks.released("c", "a", PushResponse(1, Phase.APPEND, ok=True, index=1, match=1))


@breaks("votes are durable")
def votes_before_the_sync(checks: Invariants) -> None:
    vote(checks, "b", "c")


@breaks("votes are durable")
def stands_before_the_sync(checks: Invariants) -> None:
    checks.released("a", "b", VoteRequest(2, 1, 1, pre=False))


@breaks("votes are durable")
def recovers_another_vote(checks: Invariants) -> None:
    checks.recovered("a", [(1, 10), (1, 11)], HardState(1, "b"))


@breaks("one vote a term")
def votes_twice(checks: Invariants) -> None:
    vote(checks, "b", "a")
    vote(checks, "b", "c")


@breaks("one leader a term")
def two_lead(checks: Invariants) -> None:
    vote(checks, "b", "a")
    elect(checks, "a")
    elect(checks, "c")


@breaks("leaders have a quorum's votes")
def leads_by_one_vote(checks: Invariants) -> None:
    elect(checks, "a")


def change(checks: Invariants, group: Configuration) -> None:
    """Entry 2 changes the group; it is on the disks of a and b."""
    for name in "ab":
        checks.written(name, 2, [(1, 12)], [(2, NumberedConfiguration(-1, group))])
        checks.synced(name, 2, None)


@breaks("leaders have a quorum's votes")
def leads_by_the_votes_of_the_old_half(checks: Invariants) -> None:
    change(checks, joint("bc", "ab"))
    checks.check_committed("a", 2)
    vote(checks, "b", "a")
    checks.after_turn("a", replica("a", [1, 1, 1], role=Role.LEADER, committed=2, durable=2))


@breaks("committed is durable on a quorum")
def commits_by_the_old_half(checks: Invariants) -> None:
    change(checks, joint("bc", "ab"))
    checks.check_committed("a", 2)
    for name in "ab":
        checks.written(name, 3, [(1, 13)])
        checks.synced(name, 3, None)
    checks.check_committed("a", 3)


@breaks("committed configurations are in force")
def goes_by_a_change_that_is_not_committed(checks: Invariants) -> None:
    change(checks, founding("ab"))
    member = replica("a", [1, 1, 1], committed=1, durable=2)
    member.state.membership.appended(2, NumberedConfiguration(-1, founding("ab")))
    member.state.membership.committed_to(2)
    checks.after_turn("a", member)


@breaks("committed configurations are in force")
def goes_by_the_configuration_before(checks: Invariants) -> None:
    change(checks, founding("ab"))
    checks.after_turn("a", replica("a", [1, 1, 1], committed=2, durable=2))


@breaks("leader completeness")
def leads_without_a_committed_entry(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.written("c", 1, [(2, 21)])
    for voter in "bc":
        checks.synced(voter, 1, HardState(2, "c"))
    checks.released("b", "c", VoteResponse(2, granted=True, pre=False))
    checks.after_turn("c", replica("c", [1, 2], role=Role.LEADER, term=2, durable=1))


@breaks("leases exclude leaders")
def leads_while_another_has_a_lease(checks: Invariants) -> None:
    checks.lease("a", term=1, until_s=7.5, now_s=7.0)
    for voter in "bc":
        checks.synced(voter, 1, HardState(2, "c"))
    checks.released("b", "c", VoteResponse(2, granted=True, pre=False))
    checks.after_turn("c", replica("c", [1, 1], role=Role.LEADER, term=2, durable=1))


@breaks("reads are answered")
def leaves_a_read_waiting(checks: Invariants) -> None:
    check_reads_end("a", [7.0, 5.0], now=9.1, wait_s=4.0)


@breaks("log matching")
def writes_another_entry_of_a_term(checks: Invariants) -> None:
    checks.written("c", 1, [(1, 99)])


@breaks("log matching")
def makes_an_entry_again(checks: Invariants) -> None:
    checks.created("c", 1, 1)


@breaks("logs are dense")
def leaves_a_hole(checks: Invariants) -> None:
    checks.written("c", 2, [(1, 12)])


@breaks("synced entries survive")
def forgets_a_synced_entry(checks: Invariants) -> None:
    checks.recovered("a", [(1, 10)], HardState(1, "a"))


@breaks("recovered entries are real")
def recovers_an_entry_without_a_sum(checks: Invariants) -> None:
    checks.recovered("a", [(1, 10), (1, 0)], HardState(1, "a"))


@breaks("recovered entries are real")
def recovers_another_entry(checks: Invariants) -> None:
    checks.recovered("a", [(1, 10), (1, 98)], HardState(1, "a"))


@breaks("terms never go back")
def forgets_a_promised_term(checks: Invariants) -> None:
    checks.released("a", "b", PushResponse(9, Phase.COMPARE, ok=True, index=0))
    checks.recovered("a", [(1, 10), (1, 11)], HardState(8, None))


@breaks("terms never go back")
def goes_back_a_term(checks: Invariants) -> None:
    checks.after_turn("a", replica("a", [1, 1], term=3))
    checks.after_turn("a", replica("a", [1, 1], term=2))


@breaks("committed entries are equal")
def commits_another_entry(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.written("c", 1, [(2, 21)])
    checks.check_committed("c", 1)


@breaks("committed is durable on a quorum")
def commits_what_one_disk_has(checks: Invariants) -> None:
    checks.truncated("b", 0)
    checks.check_committed("a", 1)


@breaks("commits never go back")
def takes_a_commit_back(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.check_committed("a", 0)


@breaks("committed entries stay")
def drops_an_entry_that_another_node_committed(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.truncated("b", 0)


@breaks("watermarks")
def applies_what_is_not_durable(checks: Invariants) -> None:
    checks.after_turn("a", replica("a", [1, 1], applied=1, committed=1, durable=0))


@breaks("durable is on disk")
def counts_what_its_disk_does_not_have(checks: Invariants) -> None:
    checks.written("c", 1, [(1, 11)])
    checks.after_turn("c", replica("c", [1, 1], durable=1))


@breaks("the core mirrors the store")
def counts_fewer_entries_than_it_stores(checks: Invariants) -> None:
    checks.after_turn("a", replica("a", [1]))


@breaks("applied is committed")
def applies_what_is_not_committed(checks: Invariants) -> None:
    checks.applied("a", 0, [5])


@breaks("applied in order")
def applies_twice(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.applied("a", 1, [7])


@breaks("machines agree")
def applies_to_another_state(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.applied("b", 0, [5, 7])


@breaks("committed entries stay")
def drops_a_log_that_holds_what_the_new_one_begins_behind(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.restarting("b", LogBegin(0, 1, 10, 100), 1)


@breaks("logs begin behind committed entries")
def begins_a_log_behind_what_nobody_committed(checks: Invariants) -> None:
    checks.check_committed("a", 0)
    checks.restarting("c", LogBegin(1, 1, 11, 100), 1)


@breaks("logs begin behind committed entries")
def begins_a_log_behind_another_entry(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.restarting("c", LogBegin(1, 1, 99, 100), 1)


@breaks("logs begin behind committed entries")
def recovers_a_log_that_begins_behind_what_nobody_committed(checks: Invariants) -> None:
    checks.check_committed("a", 0)
    checks.recovered("c", [], HardState(1, "a"), first=5)


@breaks("machines agree")
def restores_another_state(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.restored("c", 1, 7)


@breaks("applied in order")
def restores_an_older_state(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.restored("a", 0, 5)


@breaks("applied in order")
def applies_what_is_in_the_snapshot(checks: Invariants) -> None:
    checks.check_committed("a", 1)
    checks.applied("a", 0, [5, 6])
    checks.restored("b", 0, 5)
    checks.applied("b", 0, [5, 6])


def test_a_log_may_begin_behind_a_committed_entry() -> None:
    checks = lived()
    checks.check_committed("a", 1)
    checks.restarting("c", LogBegin(1, 1, 11, 100), 1)
    checks.restarted("c")
    assert checks.witnesses["c"].chains == [10, 11]
    checks.written("c", 2, [(1, 12)])


@pytest.mark.parametrize("begun", [True, False])
def test_a_crash_within_a_new_beginning_leaves_either_log(begun: bool) -> None:
    checks = lived()
    checks.check_committed("a", 1)
    checks.written("c", 1, [(2, 99)])
    checks.synced("c", 1, None)
    checks.restarting("c", LogBegin(1, 1, 11, 100), 1)
    if begun:
        checks.recovered("c", [], HardState(1, "a"), first=2)
        assert checks.witnesses["c"].chains == [10, 11]
    else:
        checks.recovered("c", [(1, 10)], HardState(1, "a"))
        assert checks.witnesses["c"].chains == [10]


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_broken_promise_is_seen(name: str) -> None:
    promise, steps = CASES[name]
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


def test_a_question_of_a_member_that_starts_and_its_answer_promise_no_term() -> None:
    checks = lived()
    checks.released("a", "b", Recall(9, 1))
    checks.released("a", "b", Recollection(9, 1, 9, voted=False, held=1))
    checks.recovered("a", [(1, 10), (1, 11)], HardState(8, None))


# --- what clients were told ---------------------------------------------------------------------


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


def test_a_change_that_was_decided_by_those_before_it_may_decide_what_follows() -> None:
    checks = lived()
    change(checks, founding("a"))
    checks.written("a", 3, [(1, 13)])
    checks.synced("a", 3, None)
    checks.check_committed("a", 3)
    assert len(checks.committed) == 4
