from random import Random

import pytest

from dledger.core.agenda import Agenda
from dledger.core.entry_dispatcher import (
    MAX_BATCHES_IN_FLIGHT,
    EntryDispatcher,
)
from dledger.core.entry_handler import Truncation
from dledger.core.hard_state import HardState
from dledger.core.ledger_view import TermRun
from dledger.core.messages import Heartbeat, Message, Phase, PushRequest, PushResponse
from dledger.core.round_trip import LEAST_WAIT_S
from dledger.errors import PeerFault
from tests.dledger.core.core_group import EntriesAtOnce, Group, Member, view_of

TWO = ["n0", "n1"]
TRUNCATIONS_FROM_THE_PAPER = {
    # Figure 7: what a leader with the first of these logs may meet.
    "leader": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6],
    "a": [1, 1, 1, 4, 4, 5, 5, 6, 6],
    "b": [1, 1, 1, 4],
    "c": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
    "d": [1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
    "e": [1, 1, 1, 4, 4, 4, 4],
    "f": [1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
}


def push(
    phase: Phase,
    prev: int,
    terms: list[int],
    *,
    prev_term: int = 1,
    committed: int = -1,
    term: int = 5,
) -> PushRequest:
    """A push of entries of these terms behind `prev`."""
    runs: list[TermRun] = []
    for index, entry_term in enumerate(terms, prev + 1):
        if not runs or runs[-1].term != entry_term:
            runs.append(TermRun(entry_term, index))
    prev_term = -1 if prev < 0 else prev_term
    return PushRequest(term, phase, prev, prev_term, prev + len(terms), committed, runs=tuple(runs))


def follower(terms: list[int], committed: int = -1) -> Member:
    """n0, which follows n1 in term 5; its log is durable."""
    member = Member("n0", TWO, terms, HardState(5, None, committed))
    member.replica.receive("n1", Heartbeat(5, committed, 1), 0.0)
    member.leaving(0.0)
    return member


def answer(member: Member, request: PushRequest) -> list[Message]:
    """What the member answers at once, before any sync."""
    member.replica.receive("n1", request, 0.0)
    return [message for _, message in member.leaving(0.0)]


# --- the follower ---------------------------------------------------------------------------------


def test_an_append_is_acknowledged_only_after_the_sync() -> None:
    member = follower([1, 1])
    assert answer(member, push(Phase.APPEND, 1, [5, 5])) == []
    begun = member.begin_sync()
    assert answer(member, push(Phase.APPEND, 3, [5], prev_term=5)) == []
    member.replica.persisted(*begun, 0.0)
    [(_, first)] = member.leaving(0.0)
    assert isinstance(first, PushResponse)
    assert (first.ok, first.index, first.match) == (True, 3, 3)
    member.sync(0.0)
    [(_, second)] = member.leaving(0.0)
    assert isinstance(second, PushResponse)
    assert second.match == 4


def test_a_late_short_append_cuts_nothing() -> None:
    member = follower([1, 1, 5, 5, 5])
    answers = answer(member, push(Phase.APPEND, 1, [5]))
    assert member.log == [1, 1, 5, 5, 5]
    assert member.written == []
    [late] = answers
    assert isinstance(late, PushResponse)
    # The last entry is of the leader's own term, so the whole log agrees.
    assert (late.ok, late.match) == (True, 4)


def test_a_short_append_confirms_no_tail_of_another_term() -> None:
    member = follower([1, 1, 3, 3, 3])
    answers = answer(member, push(Phase.APPEND, 1, [3]))
    assert member.log == [1, 1, 3, 3, 3]
    [late] = answers
    assert isinstance(late, PushResponse)
    assert (late.ok, late.match) == (True, 2)


def test_an_append_that_begins_inside_the_log_adds_only_what_is_new() -> None:
    member = follower([1, 1, 5])
    answer(member, push(Phase.APPEND, 1, [5, 5, 5]))
    assert member.log == [1, 1, 5, 5, 5]
    assert [write.first for write in member.written] == [3]  # type: ignore[union-attr]


def test_an_append_beyond_the_end_is_refused_with_a_hint() -> None:
    member = follower([1, 1])
    [refusal] = answer(member, push(Phase.APPEND, 5, [5], prev_term=5))
    assert isinstance(refusal, PushResponse)
    assert (refusal.ok, refusal.index) == (False, 5)
    assert (refusal.hint_index, refusal.hint_term) == (1, 1)
    assert member.log == [1, 1]


def test_a_conflict_inside_an_append_truncates_nothing_by_itself() -> None:
    member = follower([1, 1, 2, 2])
    [refusal] = answer(member, push(Phase.APPEND, 0, [1, 5, 5]))
    assert isinstance(refusal, PushResponse)
    assert (refusal.ok, refusal.index, refusal.verified) == (False, 0, 1)
    assert member.log == [1, 1, 2, 2]


def test_truncate_drops_what_contradicts_and_all_behind_it() -> None:
    member = follower([1, 1, 2, 2])
    request = push(Phase.TRUNCATE, 1, [])._replace(next_term=5)
    [done] = answer(member, request)
    assert isinstance(done, PushResponse)
    assert done.ok
    assert member.log == [1, 1]
    assert member.written == [Truncation(1)]
    assert member.replica.state.durable == 1


def test_a_late_truncate_drops_nothing_that_agrees() -> None:
    member = follower([1, 1, 5, 5])
    [done] = answer(member, push(Phase.TRUNCATE, 1, [])._replace(next_term=5))
    assert isinstance(done, PushResponse)
    assert done.ok
    assert member.log == [1, 1, 5, 5]


def test_committed_entries_are_never_truncated() -> None:
    member = follower([1, 1, 2, 2], committed=2)
    cut = push(Phase.TRUNCATE, 1, [])._replace(next_term=5)
    answer(member, cut)  # the leader's entries follow, which show more
    assert member.log == [1, 1, 2, 2]
    with pytest.raises(PeerFault, match="contradicts the committed entry 2"):
        answer(member, push(Phase.APPEND, 1, [5]))
    with pytest.raises(PeerFault, match="2 is committed"):
        answer(member, cut)
    assert member.log == [1, 1, 2, 2]


def test_a_refusal_acknowledges_nothing() -> None:
    member = follower([1, 1, 2, 2], committed=2)
    (said,) = answer(member, push(Phase.COMPARE, 9, [], prev_term=5))
    assert isinstance(said, PushResponse)
    assert (said.ok, said.match, said.verified, said.hint_index) == (False, -1, -1, 3)


def test_a_heartbeat_commits_only_what_was_compared() -> None:
    member = follower([1, 1, 2, 2])
    member.replica.receive("n1", Heartbeat(5, 3, 2), 0.0)
    assert member.committed == -1
    answer(member, push(Phase.COMPARE, 1, [], committed=3))
    assert member.committed == 1


def test_an_append_commits_only_up_to_its_own_end() -> None:
    member = follower([1, 1, 1, 2, 2])
    answer(member, push(Phase.APPEND, 0, [1, 1], committed=4))
    assert member.committed == 2


def test_what_an_earlier_leader_verified_says_nothing_about_the_next_one() -> None:
    member = follower([1, 1, 2, 2])
    answer(member, push(Phase.COMPARE, 3, [], prev_term=2, committed=1))
    assert (member.replica.handler.verified, member.committed) == (3, 1)
    member.replica.receive("n1", Heartbeat(6, 3, 1), 0.0)
    assert member.replica.handler.verified == 1
    assert member.committed == 1


def test_a_push_of_an_older_term_changes_nothing() -> None:
    member = follower([1, 1])
    answer(member, push(Phase.APPEND, 1, [4], term=4))
    assert member.log == [1, 1]


def test_a_sync_from_before_a_truncation_makes_nothing_durable() -> None:
    # The same indexes are written, dropped and written again while the sync is on its way.
    member = follower([1, 1])
    answer(member, push(Phase.APPEND, 1, [4, 4, 4]))
    begun = member.begin_sync()
    answer(member, push(Phase.TRUNCATE, 1, [], term=6)._replace(next_term=6))
    answer(member, push(Phase.APPEND, 1, [6, 6, 6], term=6))
    member.replica.persisted(*begun, 0.0)
    assert member.replica.state.durable == 1
    member.sync(0.0)
    assert member.replica.state.durable == 4


# --- the leader -----------------------------------------------------------------------------------


def dispatcher(terms: list[int], batch: int = 1) -> EntryDispatcher:
    """A leader's side of one peer; the leader's term is that of its last entry."""
    return EntryDispatcher("n1", terms[-1], view_of(terms), EntriesAtOnce(batch), 0.0, Agenda())


def accepted(phase: Phase, index: int, match: int, last: int | None = None) -> PushResponse:
    last = index if last is None else last
    return PushResponse(
        1, phase, ok=True, index=index, match=match, verified=match, last_index=last
    )


def test_a_leader_begins_with_one_probe_and_no_entries() -> None:
    probing = dispatcher([1, 1, 1])
    [probe] = probing.pump(-1, 0.0)
    assert (probe.phase, probe.prev_index, probe.runs) == (Phase.COMPARE, 1, ())
    assert probing.pump(-1, 0.01) == []
    assert len(probing.pump(-1, LEAST_WAIT_S)) == 1


def test_a_window_is_filled_and_no_more() -> None:
    streaming = dispatcher([1] * 100)
    streaming.pump(-1, 0.0)
    streaming.next_index = 1
    streaming.receive(accepted(Phase.COMPARE, 0, 0), 0.0)
    assert len(streaming.pump(-1, 0.0)) == MAX_BATCHES_IN_FLIGHT
    assert streaming.pump(-1, 0.0) == []
    streaming.receive(accepted(Phase.APPEND, 3, 3), 0.0)
    assert [p.last_index for p in streaming.pump(-1, 0.0)] == [17, 18, 19]


class LargeEntries(EntriesAtOnce):
    """Each push has one entry, which counts as many pushes."""

    def batch_weight(self, first: int) -> int:
        return MAX_BATCHES_IN_FLIGHT // 2


def test_large_entries_fill_a_window_sooner() -> None:
    streaming = EntryDispatcher("n1", 1, view_of([1] * 100), LargeEntries(1), 0.0, Agenda())
    streaming.pump(-1, 0.0)
    streaming.next_index = 1
    streaming.receive(accepted(Phase.COMPARE, 0, 0), 0.0)
    assert [p.last_index for p in streaming.pump(-1, 0.0)] == [1, 2]
    assert streaming.next_deadline(-1) > 0.0
    streaming.receive(accepted(Phase.APPEND, 1, 1), 0.0)
    assert [p.last_index for p in streaming.pump(-1, 0.0)] == [3]
    streaming.lost(0.0)  # what was on its way is forgotten, and weighs nothing
    streaming.receive(accepted(Phase.COMPARE, 3, 3), 1.0)
    assert len(streaming.pump(-1, 1.0)) == 2


def test_a_window_whose_pushes_were_all_lost_is_compared_anew() -> None:
    streaming = dispatcher([1] * 100)
    streaming.pump(-1, 0.0)
    streaming.next_index = 1
    streaming.receive(accepted(Phase.COMPARE, 0, 0), 0.0)
    streaming.pump(-1, 0.0)
    assert streaming.next_deadline(-1) == LEAST_WAIT_S
    probes = [(push.phase, push.prev_index) for push in streaming.pump(-1, LEAST_WAIT_S)]
    assert probes == [(Phase.COMPARE, MAX_BATCHES_IN_FLIGHT)]


def test_a_full_window_does_not_ask_for_turns_because_of_a_commit() -> None:
    streaming = dispatcher([1] * 100)
    streaming.pump(-1, 0.0)
    streaming.next_index = 1
    streaming.receive(accepted(Phase.COMPARE, 0, 0), 0.0)
    streaming.pump(0, 0.0)
    assert streaming.pump(50, 0.1) == []
    assert streaming.next_deadline(50) > 0.1


def test_a_match_that_overtakes_the_probe_does_not_block_the_window() -> None:
    # The acknowledgements of an earlier window arrive while the peer is compared anew from below
    # them. Entries that are acknowledged already must not take room in the window for ever.
    streaming = dispatcher([1] * 40)
    streaming.pump(-1, 0.0)
    streaming.next_index = 2
    late = accepted(Phase.APPEND, 20, 20)
    streaming.receive(late, 0.0)
    streaming.receive(accepted(Phase.COMPARE, 1, 20), 0.0)
    pushed = streaming.pump(-1, 0.0)
    assert (pushed[0].prev_index, pushed[-1].last_index) == (20, 20 + MAX_BATCHES_IN_FLIGHT)
    streaming.receive(accepted(Phase.APPEND, 36, 36), 0.0)
    assert [p.last_index for p in streaming.pump(-1, 0.0)] == [37, 38, 39]


def test_a_commit_is_told_in_the_turn_in_which_the_peer_is_found_equal() -> None:
    idle = dispatcher([1, 1])
    idle.next_index = 2
    idle.pump(-1, 0.0)
    idle.receive(accepted(Phase.COMPARE, 1, 1), 0.5)
    [notice] = idle.pump(1, 0.5)
    assert (notice.phase, notice.committed) == (Phase.COMMIT, 1)
    assert idle.next_deadline(1) == float("inf")


def test_a_late_refusal_does_not_take_back_what_was_acknowledged() -> None:
    streaming = dispatcher([1] * 10)
    streaming.pump(-1, 0.0)
    streaming.receive(accepted(Phase.COMPARE, 8, 8), 0.0)
    streaming.pump(-1, 0.0)
    streaming.receive(accepted(Phase.APPEND, 9, 9), 0.0)
    refusal = PushResponse(1, Phase.APPEND, ok=False, index=2, hint_index=1, hint_term=1)
    streaming.receive(refusal, 0.0)
    assert (streaming.match_index, streaming.next_index) == (9, 10)


def test_a_peer_that_lost_what_it_acknowledged_is_not_probed_without_a_pause() -> None:
    probing = dispatcher([1, 1, 1, 1])
    probing.pump(-1, 0.0)
    probing.match_index = 2
    refusal = PushResponse(1, Phase.COMPARE, ok=False, index=2, hint_index=0, hint_term=1)
    probing.receive(refusal, 0.01)
    assert probing.pump(-1, 0.01) == []
    assert probing.next_deadline(-1) == LEAST_WAIT_S


def test_an_acknowledgement_beyond_the_leaders_log_is_refused() -> None:
    with pytest.raises(PeerFault, match="n1: it acknowledges entry 9"):
        dispatcher([1, 1]).receive(accepted(Phase.APPEND, 9, 9), 0.0)


# --- both -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(TRUNCATIONS_FROM_THE_PAPER))
def test_a_leader_makes_every_log_of_figure_7_equal_to_its_own(name: str) -> None:
    leader_log = TRUNCATIONS_FROM_THE_PAPER["leader"]
    group = Group([leader_log, TRUNCATIONS_FROM_THE_PAPER[name], [], []])
    group["n0"].replica.state.term = 7
    group.silent = {"n1"}
    group.members["n3"] = Member("n3", group.names, leader_log, HardState(7))
    group.elect("n0")
    group.silent = set()
    group["n0"].replica.reachable("n1", group.now)
    group.pass_time(1.0)
    assert group["n1"].log == [*leader_log, 8]
    assert group["n1"].committed == len(leader_log)
    truncations = [write for write in group["n1"].written if isinstance(write, Truncation)]
    common = 0
    other = TRUNCATIONS_FROM_THE_PAPER[name]
    while common < min(len(other), len(leader_log)) and other[common] == leader_log[common]:
        common += 1
    assert truncations == ([Truncation(common - 1)] if common < len(other) else [])


@pytest.mark.parametrize(
    ("leader_log", "other_log"),
    [
        ([1] * 50 + [6] * 50, [1] * 50 + [2] * 20 + [3] * 20 + [4] * 20 + [5] * 20),
        ([1] * 10 + [2] * 20 + [4] * 20 + [6] * 20, [1] * 10 + [3] * 300 + [5] * 300),
        ([1] * 1000 + [3] * 5, [1] * 20),
    ],
)
def test_a_probe_skips_whole_term_runs(leader_log: list[int], other_log: list[int]) -> None:
    group = Group([leader_log, other_log, leader_log])
    group.silent = {"n1"}
    group.elect("n0")
    group.silent = set()
    group.sent.clear()
    group["n0"].replica.reachable("n1", group.now)
    group.pass_time(1.0)
    assert group["n1"].log == group["n0"].log
    probes = [
        message
        for _, receiver, message in group.sent
        if receiver == "n1" and isinstance(message, PushRequest) and message.phase is Phase.COMPARE
    ]
    assert len(probes) <= len(set(leader_log) | set(other_log)) + 1


def test_pushes_that_arrive_reordered_and_twice_lead_to_equal_logs() -> None:
    group = Group([[], []], batch=1)
    group.elect("n0")
    group.propose("n0", 8)
    group["n0"].sync(group.now)
    pushes = [message for peer, message in group["n0"].leaving(group.now) if peer == "n1"]
    for message in [*reversed(pushes), *pushes]:
        group["n1"].replica.receive("n0", message, group.now)
    group.pass_time(1.0)
    assert group["n1"].log == group["n0"].log
    assert group["n1"].committed == 8


def test_a_follower_that_lost_half_of_everything_still_catches_up() -> None:
    group = Group([[], [], []], batch=2)
    group.elect("n0")
    chance = Random(1)

    def lost(sender: str, receiver: str, message: Message) -> bool:
        return chance.random() < 0.2

    group.propose("n0", 30)
    for _ in range(200):
        group.now += 0.05
        group["n0"].replica.tick(group.now)
        group.run(dropped=lost)
    assert group["n1"].log == group["n2"].log == group["n0"].log
