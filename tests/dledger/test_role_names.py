"""The role that a member tells, in every way in which it can be without a vote."""

from __future__ import annotations

from collections.abc import Callable

from dledger.core.hard_state import HardState
from dledger.core.member_state import MemberState
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import NumberedConfiguration
from dledger.core.membership.membership import Membership
from dledger.status import role_name
from tests.dledger.core.configurations import configuration

NOBODY = Configuration()
A, AB, ABC = configuration("a"), configuration("ab"), configuration("abc")
ABC_LEARNER = Configuration(
    voters=frozenset("a"), learners=frozenset("c"), addresses=configuration("ac").addresses
)


def after(membership: Membership, *steps: Callable[[Membership], None]) -> str:
    """The role of member c after these steps."""
    for step in steps:
        step(membership)
    return role_name(MemberState("c", membership, HardState(3, "a"), durable=99))


def change(index: int, before: int, to: Configuration) -> Callable[[Membership], None]:
    """The change at `index` is committed."""

    def step(membership: Membership) -> None:
        membership.appended(index, NumberedConfiguration(before, to))
        assert membership.committed_to(index)[0].refusal is None

    return step


def snapshot(index: int, to: Configuration) -> Callable[[Membership], None]:
    """A leader's snapshot with the configuration of that entry replaces the log."""
    return lambda membership: membership.install(NumberedConfiguration(index, to))


def test_a_member_is_removed_only_if_it_was_a_member_before() -> None:
    told = {
        "nothing known": after(Membership(NOBODY)),
        "log from before": after(Membership(NOBODY), change(5, -1, A), change(8, 5, AB)),
        "snapshot from before": after(Membership(NOBODY), snapshot(8, AB)),
        "snapshot, then admitted": after(
            Membership(NOBODY), snapshot(8, A), change(9, 8, ABC_LEARNER)
        ),
        "admitted": after(Membership(NOBODY), change(5, -1, AB), change(8, 5, ABC)),
        "removed by the log": after(Membership(ABC), change(5, -1, AB)),
        "removed by a snapshot": after(Membership(ABC), snapshot(5, AB)),
        "admitted and removed": after(
            Membership(NOBODY), change(5, -1, ABC), change(8, 5, AB), change(9, 8, A)
        ),
        "started after its removal": after(Membership(AB, 8, began_with=ABC)),
        "started on the snapshot from before": after(Membership(AB, 8, began_with=NOBODY)),
        "removed and admitted again": after(Membership(ABC), change(5, -1, AB), change(8, 5, ABC)),
    }
    assert told == {
        "nothing known": "joining",
        "log from before": "joining",
        "snapshot from before": "joining",
        "snapshot, then admitted": "learner",
        "admitted": "follower",
        "removed by the log": "removed",
        "removed by a snapshot": "removed",
        "admitted and removed": "removed",
        "started after its removal": "removed",
        "started on the snapshot from before": "joining",
        "removed and admitted again": "follower",
    }
