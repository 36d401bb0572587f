import pytest

from dledger.core.member_state import Role
from dledger.core.membership.quorum import Majority
from dledger.core.messages import Heartbeat, HeartbeatResponse, Message
from dledger.core.reads.read_index import ReadIndex, ReadReady
from tests.dledger.core.core_group import Group, take_messages

THREE = ["n0", "n1", "n2"]


def outcome(group: Group, name: str) -> tuple[list[ReadReady], list[int]]:
    """What became of the reads of a member in this turn."""
    member = group[name]
    member.take_writes()
    messages = take_messages(member.replica, group.now)
    for receiver, message in messages.outgoing:
        if receiver not in group.silent:
            group[receiver].replica.receive(name, message, group.now)
    return list(messages.reads_ready), [lost.ticket for lost in messages.reads_lost]


def answer_rounds(group: Group) -> None:
    """Deliver what the others answer."""
    for name in THREE[1:]:
        if name not in group.silent:
            group[name].sync(group.now)
            for receiver, message in group[name].leaving(group.now):
                group[receiver].replica.receive(name, message, group.now)


def led_by_n0() -> Group:
    group = Group([[], [], []])
    group.elect("n0")
    return group


def test_a_read_is_served_after_a_round_that_began_after_it() -> None:
    group = led_by_n0()
    group["n0"].replica.request_read(7)
    assert outcome(group, "n0") == ([], [])
    answer_rounds(group)
    assert outcome(group, "n0") == ([ReadReady(7, 0)], [])


def test_an_answer_to_an_earlier_round_confirms_no_read() -> None:
    group = led_by_n0()
    leader = group["n0"]
    round_before = leader.replica.reads.round  # type: ignore[union-attr]
    leader.replica.request_read(7)
    assert outcome(group, "n0") == ([], [])
    for peer in THREE[1:]:
        leader.replica.receive(peer, HeartbeatResponse(1, round_before), group.now)
    assert outcome(group, "n0") == ([], [])


def test_an_answer_of_another_term_confirms_no_read() -> None:
    group = led_by_n0()
    leader = group["n0"]
    leader.replica.request_read(7)
    assert outcome(group, "n0") == ([], [])
    for peer in THREE[1:]:
        leader.replica.receive(peer, HeartbeatResponse(0, 999), group.now)
    assert outcome(group, "n0") == ([], [])


def test_reads_that_come_together_share_a_round() -> None:
    group = led_by_n0()
    for ticket in range(5):
        group["n0"].replica.request_read(ticket)
    before = group["n0"].replica.reads.round  # type: ignore[union-attr]
    outcome(group, "n0")
    assert group["n0"].replica.reads.round == before + 1  # type: ignore[union-attr]
    answer_rounds(group)
    ready, _ = outcome(group, "n0")
    assert [read.ticket for read in ready] == [0, 1, 2, 3, 4]


def test_a_read_sees_what_was_committed_before_it() -> None:
    group = led_by_n0()
    index = group.propose("n0", 3)
    group.run()
    group["n0"].replica.request_read(1)
    outcome(group, "n0")
    answer_rounds(group)
    assert outcome(group, "n0") == ([ReadReady(1, index)], [])


def test_a_new_leader_holds_reads_until_its_term_has_committed() -> None:
    group = Group([[1, 1], [1, 1], [1, 1]])
    group.stand("n0")
    leader = group["n0"]
    group.run(until=lambda: leader.role is Role.LEADER)
    assert leader.committed == -1
    leader.replica.request_read(3)
    beats = [m for _, m in leader.leaving(group.now) if isinstance(m, Heartbeat)]
    for peer in THREE[1:]:
        leader.replica.receive(peer, HeartbeatResponse(2, beats[-1].round), group.now)
    assert outcome(group, "n0") == ([], [])
    ready: list[ReadReady] = []
    for _ in range(10):
        group.now += 0.05
        leader.replica.tick(group.now)
        leader.sync(group.now)
        ready += outcome(group, "n0")[0]
        answer_rounds(group)
    assert ready == [ReadReady(3, 2)]


def test_a_read_without_a_quorum_is_lost_and_never_served() -> None:
    group = led_by_n0()
    group.silent = {"n1", "n2"}
    group["n0"].replica.request_read(5)
    assert outcome(group, "n0") == ([], [])
    group.now += 1.2
    group["n0"].replica.tick(group.now)
    assert outcome(group, "n0") == ([], [5])
    assert outcome(group, "n0") == ([], [])


@pytest.mark.parametrize("held", [True, False])
def test_a_deposed_leader_answers_every_open_read(held: bool) -> None:
    group = led_by_n0()
    leader = group["n0"]
    if held:
        leader.replica.state.committed = -1
    leader.replica.request_read(1)
    outcome(group, "n0")
    leader.replica.receive("n1", Heartbeat(9, -1, 1), group.now)
    assert outcome(group, "n0") == ([], [1])


def test_a_group_of_one_serves_reads_at_once() -> None:
    group = Group([[]])
    group["n0"].replica.tick(0.0)
    group.run()
    group["n0"].replica.request_read(1)
    assert outcome(group, "n0") == ([ReadReady(1, 0)], [])


def test_one_voter_alone_confirms_nothing_in_a_group_of_five() -> None:
    reads = ReadIndex("a", Majority("abcde"))
    reads.add(1, 4)
    sent = reads.next_round()
    for _ in range(3):
        reads.confirm("b", sent)
    assert reads.take_ready() == []
    reads.confirm("c", sent)
    assert reads.take_ready() == [ReadReady(1, 4)]


def test_a_lost_heartbeat_does_not_hold_a_read_for_ever() -> None:
    group = led_by_n0()
    group["n0"].replica.request_read(1)
    ready: list[ReadReady] = []
    lose: list[Message] = []
    member = group["n0"]
    lose += [message for _, message in take_messages(member.replica, group.now).outgoing]
    assert lose
    for _ in range(5):
        group.now += 0.1
        member.replica.tick(group.now)
        ready += outcome(group, "n0")[0]
        answer_rounds(group)
    assert ready == [ReadReady(1, 0)]
