"""When a leader raises the format of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from broker.features import empty_state
from broker.formats.commands import RaiseFormat
from broker.formats.gate import READ_BY_ALL, FormatGate
from broker.formats.state import FORMATS
from broker.log.entry import FORMAT_VERSION, RUNS_VERSION, encode_log_command
from broker.log.state import BrokerState
from broker.machine import BrokerMachine
from dledger import Appended, DLedgerError, LogFull
from tests.broker.one_broker import until
from tests.broker.parts_alone import parts_alone
from tests.broker.three_brokers import group_of_three

RAISED = [encode_log_command(RaiseFormat(FORMAT_VERSION))]


class TakenLog:
    """Notes what is appended; the test decides what becomes of it."""

    is_ready_leader = True
    term = 1
    max_body_bytes = 4 << 20
    begin_position = 0

    def __init__(self) -> None:
        self.appended: list[Sequence[bytes]] = []
        self.done: Callable[[list[Appended] | DLedgerError], None]

    def submit(
        self, bodies: Sequence[object], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None:
        self.appended.append(bodies)  # type: ignore[arg-type]
        self.done = done

    def read_bytes(self, pos: int, size: int) -> bytes:
        return b""

    def check_at(self, pos: int) -> None:
        """Check nothing."""


def gate_over(
    log: TakenLog,
    state: BrokerState,
    read_by_all: Callable[[], int | None] = lambda: FORMAT_VERSION,
) -> FormatGate:
    return FormatGate(parts_alone(state, log, made={READ_BY_ALL: read_by_all}))


def test_the_format_is_raised_once_all_members_read_it() -> None:
    log, known = TakenLog(), [None]
    gate = gate_over(log, empty_state(), lambda: known[0])
    gate.begin_term()
    for version in (None, 1, FORMAT_VERSION - 1):
        known[:] = [version]  # type: ignore[list-item]
        gate.look()
    assert log.appended == []
    known[:] = [FORMAT_VERSION]  # type: ignore[list-item]
    gate.look()
    gate.look()
    assert log.appended == [RAISED]


def test_it_is_raised_again_if_the_append_failed_or_the_term_ended() -> None:
    log = TakenLog()
    gate = gate_over(log, empty_state())
    gate.begin_term()
    log.done(LogFull(1, 1))
    gate.look()
    gate.begin_term()
    assert log.appended == [RAISED] * 3


def test_a_format_that_was_raised_already_is_left() -> None:
    log, state = TakenLog(), empty_state()
    state[FORMATS].format_version = FORMAT_VERSION
    gate = gate_over(log, state)
    gate.begin_term()
    gate.look()
    assert log.appended == []


async def test_the_format_rises_when_the_last_old_broker_was_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with group_of_three(tmp_path) as group:

        async def stands_at(version: int) -> bool:
            formats = [one.machine.state[FORMATS] for one in group.brokers.values()]
            return all(one.format_version == version for one in formats)

        await until(lambda: stands_at(FORMAT_VERSION))

    monkeypatch.setattr(BrokerMachine, "machine_version", RUNS_VERSION)
    async with group_of_three(tmp_path / "old") as group:
        leader, client = await group.leader()
        follower = next(name for name in group.brokers if name != leader)
        monkeypatch.undo()
        for name in [name for name in group.brokers if name != follower]:
            await group.restart(name)

        async def knows_all() -> bool:
            versions = {
                peer.machine_version
                for name in group.brokers
                for peer in group.brokers[name].node.status().peers.values()
            }
            return versions == {RUNS_VERSION, FORMAT_VERSION}

        await until(knows_all)
        leader, client = await group.leader()
        assert (await client.send("orders", b"1")).code == 0
        assert await stands_at(1)
        await group.restart(follower)
        await until(lambda: stands_at(FORMAT_VERSION))
