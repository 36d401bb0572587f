"""Members of a consumer group are told of changes, and large groups do not hold up the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from broker.consumers.members import Consumers, Member
from broker.consumers.notices import AT_ONCE_MEMBERS, MAX_NOTICES_A_TICK, Notices
from remoting.bodies.heartbeat import ConsumerData
from remoting.net.address import Address
from remoting.wire.command import Command
from tests.broker.untimed import Untimed


class Told(Untimed):
    """A member's connection, which counts the notices of each group."""

    is_closed = False
    is_behind = False

    def __init__(self) -> None:
        self.notices: Counter[str] = Counter()

    @property
    def peer(self) -> Address:
        return Address("127.0.0.1", 1)

    def send(self, command: Command) -> None:
        raise AssertionError("a notice is no reply")

    def send_all(self, commands: Sequence[Command]) -> None:
        raise AssertionError("a notice is no reply")

    def gather(self) -> None: ...

    def write_gathered(self) -> None: ...

    def set_aside(self, command: Command) -> None: ...

    def when_taken(self, then: object) -> None:
        raise AssertionError("a notice is no reply")

    def request(self, command: Command, settle: object, timeout_s: float) -> None:
        raise AssertionError("a notice wants no reply")

    def send_oneway(self, command: Command) -> None:
        self.notices[command.fields["consumerGroup"]] += 1


def join(consumers: Consumers, group: str, count: int) -> list[Told]:
    members = [Told() for _ in range(count)]
    for number, member in enumerate(members):
        consumers.register(member, Member(f"c{number}", 0.0, ConsumerData(group)))
    return members


def test_a_small_group_is_told_at_once() -> None:
    consumers = Consumers()
    notices = Notices(consumers)
    members = join(consumers, "g", AT_ONCE_MEMBERS)
    notices.changed("g")
    assert [member.notices["g"] for member in members] == [1] * AT_ONCE_MEMBERS
    notices.tick()
    assert [member.notices["g"] for member in members] == [1] * AT_ONCE_MEMBERS


def test_a_thousand_changes_of_a_large_group_are_one_notice_for_each_member() -> None:
    consumers = Consumers()
    notices = Notices(consumers)
    members = join(consumers, "g", 500)
    for _ in range(1000):
        notices.changed("g")
    assert sum(member.notices["g"] for member in members) == 0
    notices.tick()
    assert [member.notices["g"] for member in members] == [1] * 500
    notices.tick()
    assert [member.notices["g"] for member in members] == [1] * 500


def test_a_tick_sends_so_many_notices_and_each_group_has_its_turn() -> None:
    consumers = Consumers()
    notices = Notices(consumers)
    large = join(consumers, "large", 3 * MAX_NOTICES_A_TICK)
    other = join(consumers, "other", AT_ONCE_MEMBERS + 1)
    notices.changed("large")
    notices.changed("other")
    sent = 0
    for tick in range(4):
        notices.tick()
        before, sent = sent, sum(sum(member.notices.values()) for member in (*large, *other))
        assert sent - before <= MAX_NOTICES_A_TICK
        notices.changed("large")  # it changes all the time, and the other one still has its turn
        if tick == 3:
            assert {member.notices["other"] for member in other} == {1}
    assert {member.notices["large"] for member in large} == {1, 2}  # the second round has begun


@given(st.lists(st.sampled_from(["join", "change", "tick"]), max_size=30), st.data())
def test_each_member_is_told_after_the_last_change(steps: list[str], data: st.DataObject) -> None:
    consumers = Consumers()
    notices = Notices(consumers, at_once_members=3, max_a_tick=5)
    members = join(consumers, "g", data.draw(st.integers(1, 8)))
    told_before: dict[Told, int] = {}
    for step in steps:
        if step == "join":
            members += join(consumers, "g", data.draw(st.integers(1, 8)))
        if step == "tick":
            notices.tick()
        else:
            told_before = {member: member.notices["g"] for member in members}
            notices.changed("g")
    for _ in range(2 * len(members)):
        notices.tick()
    for member, before in told_before.items():
        assert member.notices["g"] > before
    settled = [member.notices["g"] for member in members]
    notices.tick()
    assert [member.notices["g"] for member in members] == settled


def test_nothing_more_is_told_when_the_term_has_ended() -> None:
    consumers = Consumers()
    notices = Notices(consumers)
    members = join(consumers, "g", 100)
    notices.changed("g")
    notices.clear()
    notices.tick()
    assert sum(member.notices["g"] for member in members) == 0
