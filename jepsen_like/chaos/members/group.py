"""The group of a run: all members, and their state as they report it."""

from __future__ import annotations

from collections.abc import Callable

import trio

from jepsen_like.chaos.members.member import Member

LOOK_S = 0.05


class Group:
    """Members by name, and the leader among them."""

    def __init__(self, start: Callable[[Member], None]) -> None:
        self.members: dict[str, Member] = {}
        self._start = start

    def start(self, member: Member) -> None:
        self.members[member.name] = member
        self._start(member)

    @property
    def present(self) -> list[Member]:
        """The members that belong to the group, whether they run or not."""
        return [member for member in self.members.values() if not member.retired]

    @property
    def leader(self) -> Member | None:
        """The member that leads in the highest term and serves, as far as members say."""
        leaders = [
            member
            for member in self.present
            if member.runs and not member.frozen and member.status.get("ready")
        ]
        return max(leaders, key=lambda member: int(member.status["term"]), default=None)

    @property
    def healthy(self) -> bool:
        """Whether all members run, are proven, know one leader, and have nearly all entries."""
        statuses = [member.status for member in self.present]
        if not all(statuses) or any(member.frozen for member in self.present):
            return False
        ends = [int(status["applied"]) for status in statuses]
        return (
            self.leader is not None
            and len({status["leader"] for status in statuses}) == 1
            and all(status["proven"] for status in statuses)
            and max(ends) - min(ends) < 100
        )

    async def wait_healthy(self, timeout_s: float) -> bool:
        with trio.move_on_after(timeout_s):
            while not self.healthy:
                await trio.sleep(LOOK_S)
        return self.healthy
