import pytest

from dledger.core.member_state import Role
from dledger.core.membership.quorum import Majority
from dledger.core.messages import Message, Phase, PushRequest, PushResponse
from dledger.core.quorum_ack_checker import QuorumAckChecker
from dledger.errors import InvariantBroken, NotLeader
from tests.dledger.core.core_group import Group, Member, view_of

FIVE = ["n0", "n1", "n2", "n3", "n4"]


def test_an_older_entry_on_a_quorum_is_not_committed_by_counting() -> None:
    tally = QuorumAckChecker(Majority(FIVE), term=4)
    view = view_of([1, 2, 4])
    for voter in FIVE[:3]:
        tally.acknowledge(voter, 1)
    assert tally.committed(view) is None
    for voter in FIVE[:3]:
        tally.acknowledge(voter, 2)
    assert tally.committed(view) == 2


def test_figure_8_of_the_paper_loses_nothing_that_was_committed() -> None:
    # (a) n0 leads term 2 and reaches n1 only. (b) n4 leads term 3 by n2, n3 and n4. (c) n0 leads
    # term 4 and brings its entry of term 2 to a quorum, but not the one that opens term 4.
    group = Group([[1, 2], [1, 2], [1], [1], [1, 3]], batch=1)
    group["n0"].replica.state.term = group["n1"].replica.state.term = 3
    group.silent = {"n4"}
    group.stand("n0")
    leader = group["n0"]

    def opens_term_4(sender: str, receiver: str, message: Message) -> bool:
        return isinstance(message, PushRequest) and bool(message.runs) and message.last_index == 2

    group.run(dropped=opens_term_4)
    assert leader.log == [1, 2, 4]
    assert group["n1"].log == group["n2"].log == group["n3"].log == [1, 2]
    assert leader.replica.dispatchers["n2"].match_index == 1
    assert leader.committed == -1
    # (e) Once the entry of its own term is on a quorum, everything before it is committed too,
    # and nobody without it can win an election.
    group.pass_time(0.4)
    assert leader.committed == 2
    group.silent = {"n0"}
    group.stand("n4")
    group.run()
    assert group["n4"].role is not Role.LEADER


def test_a_new_leader_commits_what_it_found_without_any_client() -> None:
    group = Group([[1, 1, 1], [1, 1, 1], []])
    group.elect("n0")
    assert group["n0"].log == [1, 1, 1, 2]
    assert group["n0"].committed == 3
    group.pass_time(0.1)
    assert {group[name].committed for name in group.names} == {3}


def test_a_leader_counts_itself_only_after_its_own_sync() -> None:
    group = Group([[], [], []])
    leader = group.elect("n0")
    index = group.propose("n0", 1)
    begun = leader.begin_sync()
    leader.replica.receive(
        "n1", PushResponse(1, Phase.APPEND, ok=True, index=index, match=index), group.now
    )
    assert leader.committed == index - 1
    leader.replica.persisted(*begun, group.now)
    assert leader.committed == index


def test_a_leader_may_commit_what_its_own_disk_does_not_have_and_does_not_apply_it() -> None:
    group = Group([[], [], []])
    leader = group.elect("n0")
    index = group.propose("n0", 1)
    for peer in ("n1", "n2"):
        leader.replica.receive(
            peer, PushResponse(1, Phase.APPEND, ok=True, index=index, match=index), group.now
        )
    assert leader.committed == index
    assert leader.replica.appliable == index - 1


def test_an_acknowledgement_of_an_earlier_leadership_counts_nothing() -> None:
    # n0 led term 1 and n1 acknowledges entry 1 of it. Leading again, n0 has another entry 1.
    group = Group([[1], [1], [1]])
    leader = group.elect("n0")
    assert leader.log == [1, 2]
    group.silent = {"n1", "n2"}
    index = group.propose("n0", 1)
    group.run()
    for peer in ("n1", "n2"):
        late = PushResponse(1, Phase.APPEND, ok=True, index=index, match=index, verified=index)
        leader.replica.receive(peer, late, group.now)
    assert leader.committed == 1
    assert leader.replica.dispatchers["n1"].match_index == 1


def test_an_old_acknowledgement_takes_nothing_back() -> None:
    tally = QuorumAckChecker(Majority("abc"), term=1)
    view = view_of([1] * 10)
    tally.acknowledge("a", 9)
    assert tally.acknowledge("b", 7)
    assert not tally.acknowledge("b", 3)
    assert tally.committed(view) == 7


@pytest.mark.parametrize(
    ("acked", "committed"),
    [
        ([9, -1, -1], None),
        ([9, 4, -1], 4),
        ([9, 9, 9], 9),
        ([3, 7, 5], 5),
    ],
)
def test_the_commit_index_is_what_a_quorum_has(acked: list[int], committed: int | None) -> None:
    tally = QuorumAckChecker(Majority("abc"), term=1)
    for voter, index in zip("abc", acked, strict=True):
        tally.acknowledge(voter, index)
    assert tally.committed(view_of([1] * 10)) == committed


def test_only_a_leader_takes_proposals_and_says_who_else_does() -> None:
    group = Group([[], [], []])
    group.elect("n1")
    with pytest.raises(NotLeader) as caught:
        group["n0"].replica.propose(1)
    assert (caught.value.leader, caught.value.term) == ("n1", 1)


def test_entries_are_not_proposed_before_the_no_op_was_taken() -> None:
    member = Member("n0", ["n0"])
    member.replica.tick(0.0)
    member.sync(0.0)
    with pytest.raises(InvariantBroken, match="writes must be taken"):
        member.replica.propose(1)


def test_a_group_of_one_commits_by_its_own_disk() -> None:
    group = Group([[]])
    group["n0"].replica.tick(0.0)
    group.run()
    index = group.propose("n0", 3)
    assert group["n0"].committed < index
    group.run()
    assert group["n0"].committed == index


def test_the_others_learn_a_commit_within_one_heartbeat() -> None:
    group = Group([[], [], []])
    group.elect("n0")
    index = group.propose("n0", 1)
    group.pass_time(0.1)
    assert {group[name].committed for name in group.names} == {index}
