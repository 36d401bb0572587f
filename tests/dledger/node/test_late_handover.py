"""A leader that comes late hands over for one election timeout, whatever asks for it first."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import dledger
from dledger.node.driver import Driver
from tests.dledger.core.core_group import HEARTBEAT_S, TIMEOUT_S, Group
from tests.syntax_trees import tree_of


@pytest.mark.parametrize("late_s", [0.0, 0.4, 30.0])
async def test_its_lateness_is_not_the_time_of_a_handover(
    late_s: float, autojump_clock: MockClock
) -> None:
    group = Group([[], [], []])
    group.elect("n0")
    group.pass_time(2 * HEARTBEAT_S)
    group.silent = {"n1"}
    replica = group["n0"].replica
    await trio.sleep(group.now + late_s)
    member = SimpleNamespace(replica=replica)
    driver: Any = SimpleNamespace(member=member, wake=lambda: None, _clock=trio.current_time)
    transfer = Driver.transfer_leadership(driver, "n1")
    assert transfer is not None
    group.now = trio.current_time()
    replica.patience.look(group.now)  # as its next turn does
    group.pass_time(1.1 * TIMEOUT_S)
    assert transfer.end is not None


def test_every_handover_of_a_member_begins_at_its_driver() -> None:
    calls: set[str] = set()
    for path in Path(dledger.__file__).parent.rglob("*.py"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                receiver = ast.unparse(node.func.value)
                if node.func.attr == "transfer_leadership" and receiver.endswith("replica"):
                    calls.add(path.name)
    assert calls == {"driver.py"}
