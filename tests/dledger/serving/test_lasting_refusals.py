"""Two processes of one name: the second is refused, and told of only if that lasts."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from dledger.network.connections import Connections
from dledger.serving.group_port import GroupPort
from dledger.serving.lasting_refusals import LASTING_S, MAX_NAMES, OVER_S, LastingRefusals
from dledger.wire.group_identity import SECOND_PROCESS, UNKNOWN_GROUP, GroupIdentity
from tests.dledger.serving.test_peer_conversation import HERE, Member

FIRST, SECOND = GroupIdentity(process=1), GroupIdentity(process=2)


async def after(for_s: float) -> None:
    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.jump(for_s)


async def ask_for(port: GroupPort, identity: GroupIdentity, for_s: float) -> list[str | None]:
    """Ask once a second for a channel from n1, as a refused member does."""
    answers = []
    for _ in range(int(for_s) + 1):
        answers.append(port.refusal("n1", "n0", identity))
        await after(1.0)
    return answers


async def test_a_second_process_is_refused_while_a_channel_of_the_first_is_open(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        port = Member("g", Connections(nursery, HERE)).port
        port.caller_came("n1", FIRST)
        with caplog.at_level(logging.ERROR):
            answers = await ask_for(port, SECOND, 2 * LASTING_S)
        assert all(answer and answer.startswith(SECOND_PROCESS) for answer in answers)
        assert port.rivals.names == ["n1"]
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == "two processes run as n1 of group g: the second one is refused"
        port.caller_left("n1", FIRST)
        assert port.refusal("n1", "n0", SECOND) is None
        await after(OVER_S + 1)
        assert port.rivals.names == []


async def test_a_process_that_was_restarted_is_not_taken_for_a_second_one(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Its old connection counts as open for a moment, at most until the keep-alives end it."""
    async with trio.open_nursery() as nursery:
        port = Member("g", Connections(nursery, HERE)).port
        port.caller_came("n1", FIRST)
        with caplog.at_level(logging.ERROR):
            assert all(await ask_for(port, SECOND, 4.0))
            port.caller_left("n1", FIRST)
            assert port.refusal("n1", "n0", SECOND) is None
        assert not caplog.records
        assert port.rivals.names == []


@pytest.mark.parametrize(
    ("caller", "identity"),
    [("n1", FIRST), ("n1", UNKNOWN_GROUP), ("n2", SECOND)],
    ids=["the same process", "an earlier version", "another member"],
)
async def test_nobody_else_is_refused(
    mock_clock: MockClock, caller: str, identity: GroupIdentity
) -> None:
    async with trio.open_nursery() as nursery:
        port = Member("g", Connections(nursery, HERE)).port
        port.caller_came("n1", FIRST)
        assert port.refusal(caller, "n0", identity) is None


async def test_a_member_of_an_earlier_version_refuses_no_process(mock_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        port = Member("g", Connections(nursery, HERE)).port
        port.caller_came("n1", UNKNOWN_GROUP)
        assert port.refusal("n1", "n0", SECOND) is None


async def test_a_port_that_is_renewed_still_knows_of_second_processes(
    mock_clock: MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        port = Member("g", Connections(nursery, HERE)).port
        port.caller_came("n1", FIRST)
        await ask_for(port, SECOND, LASTING_S)
        assert port.renewed().rivals.names == ["n1"]


async def test_refusals_that_come_again_later_are_told_again(
    mock_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = LastingRefusals()
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            for _ in range(int(LASTING_S) + 3):
                refusals.add("n1", "refused", "second_process")
                await after(1.0)
            await after(OVER_S + 1)
    assert len(caplog.records) == 2


async def test_only_so_many_names_are_kept(mock_clock: MockClock) -> None:
    refusals = LastingRefusals()
    for _ in range(4):
        for number in range(MAX_NAMES + 9):
            refusals.add(f"n{number}", "refused", "second_process")
        await after(LASTING_S / 3)
    assert len(refusals.names) == MAX_NAMES
