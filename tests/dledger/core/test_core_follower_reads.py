"""Reads on members that do not lead: one question for many, repeated, and always answered."""

from collections.abc import Callable

import pytest

from dledger.core.member_state import Role
from dledger.core.messages import (
    Heartbeat,
    HeartbeatResponse,
    Message,
    ReadRequest,
    ReadResponse,
    TimeoutNow,
)
from dledger.core.reads.member_reads import ForwardedReads
from dledger.core.reads.read_index import ReadReady
from dledger.core.replica_config import READ_WAIT_TIMEOUTS
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group, Member, take_messages

THREE = ["n0", "n1", "n2"]
WAIT_S = READ_WAIT_TIMEOUTS * TIMEOUT_S


class Reads:
    """Moves a group and gathers what becomes of the reads of its members."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.ready: dict[str, list[ReadReady]] = {name: [] for name in group.names}
        self.lost: dict[str, list[int]] = {name: [] for name in group.names}
        self.sent: list[tuple[str, Message]] = []
        self.dropped: Callable[[str, str, Message], bool] = lambda sender, receiver, message: False

    def move(self, for_s: float = 0.0) -> None:
        """Let time pass in small steps; everything is synced, delivered and applied."""
        group, end = self.group, self.group.now + for_s
        while True:
            for name in group.names:
                if name not in group.silent:
                    group[name].replica.tick(group.now)
            for _ in range(8):
                self._deliver_once()
            if group.now >= end:
                return
            group.now += HEARTBEAT_S / 4

    def _deliver_once(self) -> None:
        group = self.group
        for name in group.names:
            member = group[name]
            if name in group.silent:
                continue
            member.sync(group.now)
            member.take_writes()
            messages = take_messages(member.replica, group.now)
            member.replica.applied_to(max(member.replica.appliable, -1))
            self.ready[name] += messages.reads_ready
            self.lost[name] += [lost.ticket for lost in messages.reads_lost]
            for receiver, message in messages.outgoing:
                self.sent.append((name, message))
                if receiver not in group.silent and not self.dropped(name, receiver, message):
                    group[receiver].replica.receive(name, message, group.now)

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for _, message in self.sent)


def led_by_n0(size: int = 3) -> Reads:
    group = Group([[] for _ in range(size)])
    group.elect("n0")
    reads = Reads(group)
    reads.move(2 * HEARTBEAT_S)
    reads.sent.clear()
    return reads


def tickets(ready: list[ReadReady]) -> list[int]:
    return [read.ticket for read in ready]


def test_a_follower_s_read_sees_what_was_committed_before_it() -> None:
    reads = led_by_n0()
    index = reads.group.propose("n0", 3)
    reads.move()
    reads.group["n1"].replica.request_read(7)
    reads.move()
    assert reads.ready["n1"] == [ReadReady(7, index)]


def test_many_reads_ride_on_one_question_and_one_round() -> None:
    reads = led_by_n0()
    for ticket in range(100):
        reads.group["n1"].replica.request_read(ticket)
    before = reads.group["n0"].replica.reads.round  # type: ignore[union-attr]
    reads.move()
    assert tickets(reads.ready["n1"]) == list(range(100))
    assert reads.count(ReadRequest) == 1
    assert reads.group["n0"].replica.reads.round == before + 1  # type: ignore[union-attr]


def test_reads_of_all_members_share_a_round() -> None:
    reads = led_by_n0(5)
    for name in ("n1", "n2", "n3", "n4"):
        member = reads.group[name]
        member.replica.request_read(1)
        (receiver, message), *_ = member.leaving(reads.group.now)
        assert (receiver, type(message)) == ("n0", ReadRequest)
        reads.group["n0"].replica.receive(name, message, reads.group.now)
    before = reads.group["n0"].replica.reads.round  # type: ignore[union-attr]
    reads.move()
    assert all(tickets(reads.ready[name]) == [1] for name in ("n1", "n2", "n3", "n4"))
    assert reads.group["n0"].replica.reads.round == before + 1  # type: ignore[union-attr]


def test_reads_that_come_while_a_question_is_open_share_the_next_one() -> None:
    reads = led_by_n0()
    reads.dropped = lambda s, r, m: isinstance(m, ReadResponse)
    follower = reads.group["n1"].replica
    follower.request_read(1)
    reads.move()
    for ticket in (2, 3, 4):
        follower.request_read(ticket)
    reads.move()
    assert reads.count(ReadRequest) == 1
    reads.dropped = lambda s, r, m: False
    reads.move(3 * HEARTBEAT_S)
    assert tickets(reads.ready["n1"]) == [1, 2, 3, 4]
    assert reads.count(ReadRequest) == 2


def test_an_answer_covers_no_read_that_came_after_its_question() -> None:
    forwarded = ForwardedReads(first_number=100, repeat_s=0.2)
    forwarded.add(1)
    question = forwarded.question("n0", 1, 0.0)
    assert question is not None
    forwarded.add(2)
    assert forwarded.answer(ReadResponse(1, question.number, 5)) == [ReadReady(1, 5)]
    again = forwarded.question("n0", 1, 0.0)
    assert again is not None
    assert again.number > question.number
    assert forwarded.answer(ReadResponse(1, question.number, 9)) == []
    assert forwarded.answer(ReadResponse(1, again.number, 9)) == [ReadReady(2, 9)]


def test_an_answer_to_another_life_of_this_member_covers_nothing() -> None:
    before = ForwardedReads(first_number=7_000, repeat_s=0.2)
    before.add(1)
    question = before.question("n0", 1, 0.0)
    assert question is not None
    after = ForwardedReads(first_number=3_000, repeat_s=0.2)
    after.add(1)
    after.question("n0", 1, 0.0)
    assert after.answer(ReadResponse(1, question.number, 9)) == []


def test_two_lives_of_a_member_ask_under_different_numbers() -> None:
    numbers, lives = [], []
    for share in (0.2, 0.7):
        member = Member("n1", THREE, share=share)
        member.replica.receive("n0", Heartbeat(1, -1, 1), 0.0)
        member.sync(0.0)
        member.replica.request_read(1)
        left = [message for _, message in member.leaving(0.0)]
        numbers += [message.number for message in left if isinstance(message, ReadRequest)]
        lives.append(member.replica)
    assert len(numbers) == 2
    lives[1].receive("n0", ReadResponse(1, numbers[0], -1), 0.1)
    assert take_messages(lives[1], 0.1).reads_ready in ([], ())
    lives[1].receive("n0", ReadResponse(1, numbers[1], -1), 0.1)
    assert tickets([*take_messages(lives[1], 0.1).reads_ready]) == [1]


def test_a_late_answer_to_a_repeated_question_still_counts() -> None:
    forwarded = ForwardedReads(first_number=0, repeat_s=0.2)
    forwarded.add(1)
    first = forwarded.question("n0", 1, 0.0)
    assert forwarded.question("n0", 1, 0.1) is None
    second = forwarded.question("n0", 1, 0.2)
    assert first is not None
    assert second is not None
    assert second.number > first.number
    assert forwarded.answer(ReadResponse(1, first.number, 3)) == [ReadReady(1, 3)]


@pytest.mark.parametrize("kind", [ReadRequest, ReadResponse, Heartbeat, HeartbeatResponse])
def test_a_lost_message_costs_a_read_time_and_no_more(kind: type) -> None:
    reads = led_by_n0()
    gone: list[Message] = []

    def lose(sender: str, receiver: str, message: Message) -> bool:
        if isinstance(message, kind) and len(gone) < 2:
            gone.append(message)
            return True
        return False

    reads.dropped = lose
    reads.group["n1"].replica.request_read(1)
    reads.move(6 * HEARTBEAT_S)
    assert gone
    assert tickets(reads.ready["n1"]) == [1]


def test_a_read_survives_the_death_of_the_leader() -> None:
    reads = led_by_n0()
    reads.group.silent = {"n0"}
    reads.group["n1"].replica.request_read(1)
    reads.group["n2"].replica.request_read(1)
    reads.group["n2"].replica.elector.deadline += TIMEOUT_S
    reads.move(WAIT_S * 0.9)
    assert sum(reads.group[name].role is Role.LEADER for name in ("n1", "n2")) == 1
    assert tickets(reads.ready["n1"]) == tickets(reads.ready["n2"]) == [1]


def test_a_read_survives_that_its_own_member_becomes_leader() -> None:
    reads = led_by_n0()
    reads.dropped = lambda s, r, m: isinstance(m, ReadResponse)
    follower = reads.group["n1"].replica
    follower.request_read(1)
    reads.move()
    follower.receive("n0", TimeoutNow(1), reads.group.now)
    reads.move()
    assert reads.group["n1"].role is Role.LEADER
    assert reads.ready["n1"] == [ReadReady(1, 1)]


def test_a_read_without_any_leader_is_lost_in_bounded_time() -> None:
    reads = led_by_n0()
    reads.group.silent = {"n0", "n2"}
    reads.group["n1"].replica.request_read(1)
    reads.move(WAIT_S * 0.9)
    assert reads.lost["n1"] == []
    reads.move(WAIT_S * 0.2)
    assert reads.lost["n1"] == [1]
    reads.group.silent = set()
    reads.move(2 * TIMEOUT_S)
    assert (reads.ready["n1"], reads.lost["n1"]) == ([], [1])


def test_a_read_that_its_leader_cannot_confirm_is_lost_in_bounded_time() -> None:
    # The leader keeps its quorum and answers everything but the question.
    reads = led_by_n0()
    reads.dropped = lambda s, r, m: isinstance(m, ReadRequest)
    reads.group["n1"].replica.request_read(1)
    reads.move(WAIT_S * 1.1)
    assert reads.lost["n1"] == [1]


def test_a_leader_s_read_that_its_term_never_commits_for_is_lost_in_bounded_time() -> None:
    group = Group([[1, 1], [1, 1], [1, 1]])
    group.stand("n0")
    leader = group["n0"]
    group.run(until=lambda: leader.role is Role.LEADER)
    leader.replica.request_read(1)
    reads = Reads(group)
    reads.dropped = lambda s, r, m: not isinstance(m, Heartbeat | HeartbeatResponse)
    reads.move(WAIT_S * 1.1)
    assert leader.role is Role.LEADER
    assert reads.lost["n0"] == [1]


def test_a_confirmed_read_whose_index_never_arrives_is_lost_in_bounded_time() -> None:
    reads = led_by_n0()
    reads.dropped = lambda s, r, m: r == "n1" and not isinstance(m, Heartbeat | ReadResponse)
    reads.group.propose("n0", 1)
    reads.move()
    reads.group["n1"].replica.request_read(1)
    reads.move(2 * HEARTBEAT_S)
    assert reads.ready["n1"] == [ReadReady(1, 1)]
    assert reads.group["n1"].replica.state.applied == 0
    reads.move(WAIT_S)
    assert reads.lost["n1"] == [1]


def test_a_question_of_an_older_term_is_not_answered_and_asked_again() -> None:
    reads = led_by_n0()
    leader = reads.group["n0"]
    leader.replica.receive("n1", ReadRequest(0, 5), reads.group.now)
    reads.move()
    assert reads.count(ReadResponse) == 0


def test_a_new_leader_answers_questions_only_when_its_term_has_committed() -> None:
    group = Group([[1, 1], [1, 1], [1, 1]])
    group.stand("n0")
    leader = group["n0"]
    group.run(until=lambda: leader.role is Role.LEADER)
    leader.leaving(group.now)
    for number in range(5):
        leader.replica.receive("n1", ReadRequest(2, number), group.now)
    reads = Reads(group)
    reads.dropped = lambda s, r, m: not isinstance(m, Heartbeat | HeartbeatResponse)
    reads.move(HEARTBEAT_S)
    assert reads.count(ReadResponse) == 0
    reads.dropped = lambda s, r, m: False
    reads.move(4 * HEARTBEAT_S)
    answers = [message for _, message in reads.sent if isinstance(message, ReadResponse)]
    assert answers == [ReadResponse(2, 4, 2)]


def test_a_finished_read_is_not_lost_afterwards() -> None:
    reads = led_by_n0()
    for name in THREE:
        reads.group[name].replica.request_read(1)
    reads.move(1.5 * WAIT_S)
    assert all(tickets(reads.ready[name]) == [1] for name in THREE)
    assert all(reads.lost[name] == [] for name in THREE)


def test_a_deadline_is_never_in_the_past_after_a_turn() -> None:
    reads = led_by_n0()
    reads.dropped = lambda s, r, m: isinstance(m, ReadResponse)
    follower = reads.group["n1"].replica
    for ticket in range(20):
        follower.request_read(ticket)
        reads.move(WAIT_S / 15)
        follower.tick(reads.group.now)
        take_messages(follower, reads.group.now)
        assert follower.next_deadline() > reads.group.now
