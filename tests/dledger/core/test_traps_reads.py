"""Known traps of linearizable reads; docs/traps.md says which test stands for which."""

from __future__ import annotations

from dledger.core.hard_state import HardState
from dledger.core.member_state import Role
from dledger.core.messages import Heartbeat, HeartbeatResponse, ReadRequest
from dledger.core.replica import Outgoing
from tests.dledger.core.core_group import Group, take_messages


def rounds(messages: list[Outgoing]) -> set[int]:
    return {message.round for _, message in messages if isinstance(message, Heartbeat)}


def test_answers_from_an_earlier_leadership_confirm_no_read_of_the_next_one() -> None:
    # n0 leads, asks many rounds of which the answers are late, is replaced, and leads again: its
    # rounds are counted anew, and the late answers carry numbers it will use for other reads.
    group = Group([[], [], []])
    leader = group.elect("n0")
    group.silent = {"n1", "n2"}
    for ticket in range(5):
        leader.replica.request_read(ticket)
        asked = rounds(leader.leaving(group.now))
    first_term, last_round = leader.term, max(asked)
    group.silent = {"n0"}
    group.elect("n1")
    group.silent = set()
    group.pass_time(0.3)
    group.silent = {"n1"}
    group.elect("n0")
    assert leader.role is Role.LEADER
    assert leader.term > first_term
    group.silent = {"n1", "n2"}
    leader.replica.request_read(99)
    [asked_now] = rounds(leader.leaving(group.now))
    assert asked_now <= last_round
    for peer in ("n1", "n2"):
        for number in range(1, last_round + 1):
            leader.replica.receive(peer, HeartbeatResponse(first_term, number), group.now)
    assert take_messages(leader.replica, group.now).reads_ready == []


def test_a_member_that_led_before_asks_its_successor() -> None:
    # A read that waited for rounds of its own would wait for what nobody sends.
    group = Group([[], [], []])
    leader = group.elect("n0")
    leader.replica.receive("n1", Heartbeat(9, -1, 1), group.now)
    leader.leaving(group.now)
    leader.replica.request_read(1)
    leader.replica.persisted(leader.replica.view.last_index, 0, HardState(9, None), group.now)
    asked = [
        peer for peer, message in leader.leaving(group.now) if isinstance(message, ReadRequest)
    ]
    assert asked == ["n1"]
