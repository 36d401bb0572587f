"""What the Raft paper says, sentence by sentence; the number in a name is the paper's section.

Where dledger does more than the paper (pre-votes, promises that wait for the disk, TRUNCATE as a
message of its own), the test takes the longer way to the same end. docs/divergence.md says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest

from dledger.core.entry_handler import Accepted, Truncation, Write
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.core.member_state import Role
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    Phase,
    PushRequest,
    PushResponse,
    VoteRequest,
    VoteResponse,
)
from dledger.core.replica import Outgoing, Replica, ReplicaConfig
from tests.dledger.core.configurations import configuration
from tests.dledger.core.core_group import (
    HEARTBEAT_S,
    TIMEOUT_S,
    EntriesAtOnce,
    Group,
    Member,
    view_of,
)

LATER = 2 * TIMEOUT_S
# What an election takes on one network: a message, a sync and the answer.
ROUND_S = 0.02

Make = Callable[[], Member]
Waits = Callable[[Replica, int], list[float]]


def names(size: int) -> list[str]:
    return [f"n{number}" for number in range(size)]


def follower(terms: Sequence[int] = (), state: HardState | None = None, size: int = 3) -> Member:
    return Member("n0", names(size), terms, state)


def candidate(terms: Sequence[int] = (), state: HardState | None = None, size: int = 3) -> Member:
    """A member that won its pre-vote, and whose own vote is on disk."""
    member = follower(terms, state, size)
    member.replica.tick(LATER)
    member.leaving(LATER)
    asked = member.term + 1
    for peer in names(size)[1 : size // 2 + 1]:
        member.replica.receive(peer, VoteResponse(asked, granted=True, pre=True), LATER)
    member.sync(LATER)
    return member


def leader(terms: Sequence[int] = (), state: HardState | None = None, size: int = 3) -> Member:
    """A candidate that won; the entry that opens its term is not synced."""
    member = candidate(terms, state, size)
    for peer in names(size)[1 : size // 2 + 1]:
        member.replica.receive(peer, VoteResponse(member.term, granted=True, pre=False), LATER)
    assert member.role is Role.LEADER
    member.leaving(LATER)
    return member


def runs(prev: int, terms: Sequence[int]) -> tuple[TermRun, ...]:
    return view_of([0] * (prev + 1) + list(terms)).runs(prev + 1, prev + len(terms))


def append(
    term: int, prev: int, prev_term: int, terms: Sequence[int], committed: int = -1
) -> PushRequest:
    last = prev + len(terms)
    return PushRequest(term, Phase.APPEND, prev, prev_term, last, committed, runs=runs(prev, terms))


def pushes(messages: Sequence[Outgoing]) -> list[tuple[str, PushRequest]]:
    return [(peer, message) for peer, message in messages if isinstance(message, PushRequest)]


# --- 5.1: terms -----------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [follower, candidate, leader])
@pytest.mark.parametrize(
    "message",
    [Heartbeat(9, -1, 1), PushRequest(9, Phase.COMPARE, -1, -1, -1, -1)],
    ids=["heartbeat", "push"],
)
def test_5_1_a_newer_term_makes_any_member_a_follower_in_it(make: Make, message: Message) -> None:
    member = make()
    member.replica.receive("n1", message, LATER)
    assert (member.role, member.term) == (Role.FOLLOWER, 9)
    assert member.replica.state.leader == "n1"


@pytest.mark.parametrize("make", [candidate, leader])
@pytest.mark.parametrize(
    "message",
    [
        VoteResponse(9, granted=False, pre=False),
        HeartbeatResponse(9, 1),
        PushResponse(9, Phase.APPEND, ok=False, index=0),
    ],
    ids=["vote", "heartbeat answer", "push answer"],
)
def test_5_1_a_newer_term_in_an_answer_ends_a_candidacy_and_a_leadership(
    make: Make, message: Message
) -> None:
    member = make()
    member.replica.receive("n1", message, LATER)
    assert (member.role, member.term) == (Role.FOLLOWER, 9)
    assert member.replica.state.voted_for is None


@pytest.mark.parametrize("message", [Heartbeat(1, 0, 1), append(1, 0, 1, [1], committed=0)])
def test_5_1_a_message_of_an_older_term_is_refused(message: Message) -> None:
    member = follower([1], HardState(2))
    deadline = member.replica.elector.deadline
    member.replica.receive("n1", message, 0.1)
    assert (member.log, member.committed, member.term) == ([1], -1, 2)
    assert member.replica.state.leader is None
    assert member.replica.elector.deadline == deadline
    assert member.leaving(0.1) == [("n1", HeartbeatResponse(2, 0))]


# --- 5.2: elections -------------------------------------------------------------------------------


def test_5_2_a_member_starts_as_a_follower() -> None:
    assert follower().role is Role.FOLLOWER
    assert follower([1, 2], HardState(4, "n0")).role is Role.FOLLOWER


def test_5_2_a_leader_sends_heartbeats_without_entries_to_all() -> None:
    group = Group([[], [], []])
    member = group.elect("n0")
    group.pass_time(HEARTBEAT_S)
    member.leaving(group.now)
    group.now += HEARTBEAT_S
    member.replica.tick(group.now)
    sent = member.leaving(group.now)
    assert [(peer, type(message)) for peer, message in sent] == [
        ("n1", Heartbeat),
        ("n2", Heartbeat),
    ]
    assert {message.term for _, message in sent} == {1}


@pytest.mark.parametrize("make", [follower, candidate])
def test_5_2_a_member_that_hears_no_leader_stands_in_the_next_term(make: Make) -> None:
    member = make()
    member.leaving(LATER)
    term = member.term
    now = 2 * LATER
    member.replica.tick(now)
    asked = VoteRequest(term + 1, -1, -1, pre=True)
    assert member.leaving(now) == [("n1", asked), ("n2", asked)]
    assert (member.role, member.term) == (Role.PRE_CANDIDATE, term)
    member.replica.receive("n2", VoteResponse(term + 1, granted=True, pre=True), now)
    member.sync(now)
    assert member.role is Role.CANDIDATE
    assert member.replica.state.hard_state == HardState(term + 1, "n0", -1)
    asked = VoteRequest(term + 1, -1, -1, pre=False)
    assert member.leaving(now) == [("n1", asked), ("n2", asked)]


@pytest.mark.parametrize(
    ("size", "votes", "won"),
    [
        (1, [], True),
        (3, [True, True], True),
        (3, [True], True),
        (5, [True, True, True, True], True),
        (5, [True, True, True], True),
        (5, [True, True], True),
        (5, [False, True, False, True], True),
        # lost: a quorum said no
        (3, [False, False], False),
        (5, [False, False, False, False], False),
        (5, [True, False, False, False], False),
        # open: too few have answered
        (3, [], False),
        (5, [True], False),
        (5, [False, False], False),
        (5, [], False),
    ],
)
def test_5_2_one_round_of_votes_is_won_lost_or_open(
    size: int, votes: list[bool], won: bool
) -> None:
    member = candidate(size=size)
    for peer, granted in zip(names(size)[1:], votes, strict=False):
        member.replica.receive(peer, VoteResponse(1, granted, pre=False), LATER)
    assert member.term == 1
    # A candidate that lost waits like one whose round is open: for a leader, or its own timeout.
    assert member.role is (Role.LEADER if won else Role.CANDIDATE)
    if not won:
        member.replica.tick(2 * LATER)
        assert (member.role.value, member.term) == ("pre-candidate", 1)


@pytest.mark.parametrize(
    ("voted_for", "asks", "granted"),
    [
        (None, "n1", True),
        (None, "n2", True),
        ("n1", "n1", True),
        ("n2", "n2", True),
        ("n1", "n2", False),
        ("n2", "n1", False),
    ],
)
def test_5_2_a_voter_gives_one_vote_a_term_to_whom_asks_first(
    voted_for: str | None, asks: str, granted: bool
) -> None:
    member = follower(state=HardState(1, voted_for))
    member.replica.receive(asks, VoteRequest(1, -1, -1, pre=False), LATER)
    member.sync(LATER)
    assert member.leaving(LATER) == [(asks, VoteResponse(1, granted, pre=False))]
    assert member.replica.state.voted_for == (asks if granted else voted_for)


@pytest.mark.parametrize("term", [1, 2])
@pytest.mark.parametrize("push", [True, False])
def test_5_2_a_candidate_yields_to_a_leader_of_its_own_or_a_newer_term(
    term: int, push: bool
) -> None:
    member = candidate()
    assert (member.role, member.term) == (Role.CANDIDATE, 1)
    message = PushRequest(term, Phase.COMPARE, -1, -1, -1, -1) if push else Heartbeat(term, -1, 1)
    member.replica.receive("n2", message, LATER)
    assert (member.role.value, member.term) == ("follower", term)
    assert member.replica.state.leader == "n2"


def by_chance(seed: int) -> Replica:
    config = ReplicaConfig("n0", configuration(names(3)), TIMEOUT_S, HEARTBEAT_S)
    chance = Random(seed)
    return Replica(config, view_of([]), HardState(), EntriesAtOnce(1), chance.random, 0.0)


def waits_of_a_follower(replica: Replica, rounds: int) -> list[float]:
    """How long it waits after each heartbeat."""
    waits = []
    for number in range(rounds):
        replica.receive("n1", Heartbeat(1, -1, number), float(number))
        waits.append(replica.elector.deadline - number)
    return waits


def waits_of_a_candidate(replica: Replica, rounds: int) -> list[float]:
    """How long it waits between two elections that nobody wins."""
    waits = []
    for _ in range(rounds):
        now = replica.next_deadline()
        replica.tick(now)
        assert replica.state.role is Role.PRE_CANDIDATE
        replica.receive("n1", VoteResponse(replica.state.term + 1, granted=True, pre=True), now)
        assert replica.state.role.value == "candidate"
        waits.append(replica.next_deadline() - now)
    return waits


@pytest.mark.parametrize("waits_of", [waits_of_a_follower, waits_of_a_candidate])
def test_5_2_election_timeouts_are_spread_over_one_to_two_of_them(
    waits_of: Waits,
) -> None:
    waits = waits_of(by_chance(1), 500)
    assert all(TIMEOUT_S <= wait < 2 * TIMEOUT_S + 1e-9 for wait in waits)
    tenths = [int((wait - TIMEOUT_S) / TIMEOUT_S * 10) for wait in waits]
    assert set(range(10)) <= set(tenths)


@pytest.mark.parametrize("waits_of", [waits_of_a_follower, waits_of_a_candidate])
def test_5_2_two_members_seldom_stand_at_the_same_moment(waits_of: Waits) -> None:
    rounds = 1000
    members = [by_chance(seed) for seed in range(5)]
    waits = zip(*(waits_of(member, rounds) for member in members), strict=True)
    collisions = 0
    for wait in waits:
        first, second, *_ = sorted(wait)
        collisions += second - first < ROUND_S
    assert collisions <= 0.3 * rounds


# --- 5.3: replication -----------------------------------------------------------------------------


def test_5_3_a_leader_sends_a_new_entry_to_all_with_what_precedes_it() -> None:
    group = Group([[], [], []])
    member = group.elect("n0")
    group.pass_time(HEARTBEAT_S)
    index = group.propose("n0", 1)
    assert member.log == [1, 1]
    wanted = append(1, index - 1, 1, [1], committed=index - 1)
    assert pushes(member.leaving(group.now)) == [("n1", wanted), ("n2", wanted)]


def test_5_3_a_leader_commits_what_is_replicated_and_tells_the_others() -> None:
    group = Group([[], [], []])
    member = group.elect("n0")
    group.pass_time(HEARTBEAT_S)
    index = group.propose("n0", 1)
    group.run(until=lambda: member.committed == index)
    assert member.replica.appliable == index
    group.now += ROUND_S
    told = pushes(member.leaving(group.now))
    assert {peer: push.committed for peer, push in told} == {"n1": index, "n2": index}


@pytest.mark.parametrize(
    ("size", "others", "committed"),
    [
        (1, 0, True),
        (3, 0, False),
        (3, 1, True),
        (3, 2, True),
        (5, 0, False),
        (5, 1, False),
        (5, 2, True),
        (5, 3, True),
        (5, 4, True),
    ],
)
def test_5_3_an_entry_is_committed_once_a_quorum_has_it(
    size: int, others: int, committed: bool
) -> None:
    group = Group([[]] * size)
    if size == 1:
        group["n0"].replica.tick(group.now)
        group.run()
    else:
        group.elect("n0")
    member = group["n0"]
    index = group.propose("n0", 1)
    member.leaving(group.now)
    member.sync(group.now)
    for peer in group.names[1 : others + 1]:
        answer = PushResponse(1, Phase.APPEND, ok=True, index=index, match=index, verified=index)
        member.replica.receive(peer, answer, group.now)
    assert (member.committed == index) is committed


@pytest.mark.parametrize("found", [[], [2], [1, 2], [1]])
def test_5_3_a_commit_takes_all_preceding_entries_with_it(found: list[int]) -> None:
    group = Group([found, [], []])
    for name, terms in zip(group.names, [found, [], []], strict=True):
        group.members[name] = Member(name, group.names, terms, HardState(2))
    member = group.elect("n0")
    index = group.propose("n0", 1)
    group.run()
    assert member.log == [*found, 3, 3]
    assert (member.committed, member.replica.appliable) == (index, index)
    for applied in range(index + 1):
        member.replica.applied_to(applied)


@pytest.mark.parametrize(
    ("terms", "committed"), [([1], 0), ([1, 1], 1), ([1, 1], 0), ([1, 1, 1], 1)]
)
def test_5_3_a_follower_applies_what_it_learns_to_be_committed(
    terms: list[int], committed: int
) -> None:
    member = follower(state=HardState(1))
    member.replica.receive("n1", append(1, -1, -1, terms, committed), 0.0)
    assert (member.committed, member.replica.appliable) == (committed, -1)
    member.sync(0.0)
    assert member.replica.appliable == committed


@pytest.mark.parametrize("phase", [Phase.COMPARE, Phase.APPEND])
@pytest.mark.parametrize(
    ("prev", "prev_term", "hint"),
    [
        (-1, -1, None),
        (0, 1, None),  # committed
        (1, 2, None),  # not committed
        (1, 1, (0, 1)),  # another entry is there
        (2, 3, (1, 2)),  # none is there
    ],
)
def test_5_3_a_follower_takes_only_what_rests_on_an_entry_it_has(
    phase: Phase, prev: int, prev_term: int, hint: tuple[int, int] | None
) -> None:
    member = follower([1, 2], HardState(3, None, 0))
    request = append(3, prev, prev_term, [1] if prev < 0 else [3])
    if phase is Phase.COMPARE:
        request = request._replace(phase=phase, last_index=prev, runs=())
    member.replica.receive("n1", request, 0.0)
    answers = [message for _, message in member.leaving(0.0) if isinstance(message, PushResponse)]
    if hint is None:
        assert all(answer.ok or answer.verified >= answer.index for answer in answers)
        assert member.replica.handler.verified >= prev
    else:
        [answer] = answers
        assert (answer.ok, answer.index) == (False, prev)
        assert (answer.hint_index, answer.hint_term) == hint
        assert member.log == [1, 2]


@pytest.mark.parametrize(
    ("prev", "prev_term", "sent", "log", "cut", "first_new"),
    [
        (1, 2, [3], [1, 2, 3], None, 2),
        (0, 1, [3, 4], [1, 3, 4], 0, 1),
        (-1, -1, [1], [1, 2], None, None),
        (-1, -1, [3], [3], -1, 0),
    ],
)
def test_5_3_a_follower_appends_what_is_new_and_drops_what_contradicts(
    prev: int,
    prev_term: int,
    sent: list[int],
    log: list[int],
    cut: int | None,
    first_new: int | None,
) -> None:
    member = follower([1, 2], HardState(4))
    push = append(4, prev, prev_term, sent)
    member.replica.receive("n1", push, 0.0)
    for _, answer in member.leaving(0.0):
        assert isinstance(answer, PushResponse)
        if not answer.ok:  # it names what contradicts; its leader has it cut, and sends anew
            keep = answer.verified
            cut_term = ([1, 2][: prev + 1] + sent)[keep + 1]
            keep_term = [1, 2][keep] if keep >= 0 else -1
            truncate = PushRequest(4, Phase.TRUNCATE, keep, keep_term, keep, -1, cut_term)
            member.replica.receive("n1", truncate, 0.0)
            member.replica.receive("n1", push, 0.0)
            member.leaving(0.0)
    wanted: list[Write] = [] if cut is None else [Truncation(cut)]
    if first_new is not None:
        wanted.append(Accepted(push, first_new))
    assert (member.log, member.written) == (log, wanted)


FIGURE_7 = {
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


@pytest.mark.parametrize("name", FIGURE_7)
def test_5_3_a_leader_makes_a_followers_log_equal_to_its_own(name: str) -> None:
    # The other may have the better log: n2 gives the vote that n1 would refuse.
    ours = [1, 1, 1, 4, 4, 5, 5, 6, 6, 6]
    group = Group([ours, FIGURE_7[name], ours])
    for member, terms in zip(group.names, [ours, FIGURE_7[name], ours], strict=True):
        group.members[member] = Member(member, group.names, terms, HardState(8))
    group.silent = {"n1"}
    group.elect("n0")
    group.silent = set()
    group["n0"].replica.reachable("n1", group.now)
    group.propose("n0", 1)
    group.pass_time(1.0)
    assert group["n1"].log == group["n0"].log == [*ours, 9, 9]


# --- 5.4: safety ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("terms", "asked"), [([1], (2, 0, 1)), ([1, 2], (3, 1, 2))])
def test_5_4_1_a_candidate_tells_all_how_complete_its_log_is(
    terms: list[int], asked: tuple[int, int, int]
) -> None:
    member = candidate(terms, HardState(terms[-1]))
    request = VoteRequest(*asked, pre=False)
    assert member.leaving(LATER) == [("n1", request), ("n2", request)]


@pytest.mark.parametrize(
    ("ours", "last_term", "last_index", "granted"),
    [
        # the same last term: the longer log
        ([1], 1, 0, True),
        ([1], 1, 1, True),
        ([1, 1], 1, 0, False),
        # the candidate's last term is newer
        ([1], 2, 0, True),
        ([1], 2, 1, True),
        ([1, 1], 2, 0, True),
        # ours is newer
        ([2], 1, 0, False),
        ([2], 1, 1, False),
        ([2, 2], 1, 0, False),
        ([1, 2], 1, 7, False),
    ],
)
@pytest.mark.parametrize("pre", [True, False])
def test_5_4_1_a_voter_refuses_a_log_less_complete_than_its_own(
    ours: list[int], last_term: int, last_index: int, granted: bool, pre: bool
) -> None:
    member = follower(ours)
    member.replica.receive("n1", VoteRequest(3, last_index, last_term, pre), LATER)
    member.sync(LATER)
    [(peer, answer)] = member.leaving(LATER)
    assert isinstance(answer, VoteResponse)
    assert (peer, answer.granted) == ("n1", granted)


@pytest.mark.parametrize(("acknowledged", "committed"), [(0, -1), (1, -1), (2, 2), (3, 3)])
def test_5_4_2_only_entries_of_the_leaders_own_term_commit_by_counting(
    acknowledged: int, committed: int
) -> None:
    member = leader([1, 2], HardState(2), size=2)
    member.replica.propose(1)
    member.sync(LATER)
    assert member.log == [1, 2, 3, 3]
    answer = PushResponse(3, Phase.APPEND, ok=True, index=acknowledged, match=acknowledged)
    member.replica.receive("n1", answer, LATER)
    assert member.committed == committed
