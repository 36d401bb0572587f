"""Which members the faults of processes hit."""

from __future__ import annotations

from typing import cast

import pytest

from jepsen_like.chance import Chance
from jepsen_like.chaos.members.group import Group
from jepsen_like.chaos.nemeses.catalogue import NEMESES
from jepsen_like.chaos.nemeses.process_faults import freeze


class FakeMember:
    """One that runs, or does not."""

    def __init__(self, name: str, runs: bool = True) -> None:
        self.name = name
        self.runs = runs
        self.frozen = False

    def freeze(self) -> None:
        self.frozen = True

    def resume(self) -> None:
        self.frozen = False


class FakeGroup:
    """Four members: n0 leads, and n3 is down."""

    def __init__(self) -> None:
        self.present = [FakeMember(f"n{number}", number < 3) for number in range(4)]
        self.leader = self.present[0]


@pytest.mark.parametrize("kind", [kind.name for kind in NEMESES["freeze"].kinds])
async def test_a_freeze_hits_whom_its_name_says_and_lets_them_go_on(kind: str) -> None:
    group = FakeGroup()
    async with freeze(cast(Group, group), Chance(7, "freezes"), kind) as done:
        frozen = tuple(member.name for member in group.present if member.frozen)
        assert frozen == done.targets
    if "all" in kind:
        assert frozen == ("n0", "n1", "n2")
    elif "leader" in kind:
        assert frozen == ("n0",)
    else:
        assert len(frozen) == 1
    assert not any(member.frozen for member in group.present)
