"""Many groups on three real processes: one is killed, one is frozen, and all go on."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from operator import sub
from typing import NamedTuple

import pytest
import trio

import dledger
from bench.groups import GroupProcesses
from bench.process_figures import delayed_s
from dledger.core.leader_elector import TURN

# Twice the default: the machine that runs the tests has other things to do.
ELECTION_TIMEOUT_MS = 1_000

# An election timeout of twice the configured one at most, an election, and one that was split.
FAIL_OVER_S = 5 * ELECTION_TIMEOUT_MS / 1000
# What a busy machine may take for all of that, for each of the groups.
PATIENCE_S = 300.0
PATIENCE_MS = int(PATIENCE_S * 1000)

pytestmark = pytest.mark.forked_programs


@pytest.fixture(scope="module", params=[40, pytest.param(100, marks=pytest.mark.long)])
def processes(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[GroupProcesses]:
    running = GroupProcesses(tmp_path_factory.mktemp("groups"), request.param, ELECTION_TIMEOUT_MS)
    yield running
    running.stop()


def append_everywhere(processes: GroupProcesses, body: bytes) -> dict[str, int]:
    """One entry to each group; the index of each that was acknowledged."""

    async def append() -> dict[str, int]:
        acknowledged: dict[str, int] = {}
        for group in processes.groups:
            client = dledger.GroupClient(group, processes.peers)
            while group not in acknowledged:
                with suppress(dledger.OutcomeUnknown):  # a busy machine deposes leaders
                    ((acknowledged[group], _, _),) = await client.append([body], PATIENCE_S)
        return acknowledged

    return trio.run(append)


def read_everywhere(processes: GroupProcesses, start: dict[str, int]) -> dict[str, bytes]:
    """What is in each group at that index."""

    async def read() -> dict[str, bytes]:
        found = {}
        for group, index in start.items():
            client = dledger.GroupClient(group, processes.peers)
            # Any member answers: one that was restarted may still be behind.
            entries = await client.entries(index, wait_ms=PATIENCE_MS)
            found[group] = bytes(entries[0].body)
        return found

    return trio.run(read)


class FailOver(NamedTuple):
    """How long it took until all groups were led again, and for how much of it the loop of each
    process waited while others had the processors.
    """

    took_s: float
    delays_s: list[float]


def failed_over(processes: GroupProcesses, victim: str) -> FailOver:
    pids = [os.getpid(), *(processes.pid(name) for name in processes.peers if name != victim)]
    began_s, before_s = time.monotonic(), list(map(delayed_s, pids))
    assert processes.watch(processes.all_led, PATIENCE_S)
    took_s = time.monotonic() - began_s
    return FailOver(took_s, list(map(sub, map(delayed_s, pids), before_s)))


def test_all_groups_of_a_killed_process_find_new_leaders_and_lose_nothing(
    processes: GroupProcesses,
) -> None:
    assert processes.watch(processes.all_led, PATIENCE_S)
    written = append_everywhere(processes, b"before")
    victim = max(processes.peers, key=lambda node_id: len(processes.led_by(node_id)))
    orphans = processes.led_by(victim)
    assert len(orphans) > len(processes.groups) / len(processes.peers)
    processes.kill(victim)
    done = failed_over(processes, victim)
    assert done.took_s - sum(done.delays_s) < FAIL_OVER_S
    heirs = Counter(processes.leaders[group][1] for group in orphans)
    if max(done.delays_s) < TURN * ELECTION_TIMEOUT_MS / 1000:  # else one may miss its turns
        assert len(heirs) == 2, heirs  # not all of them to the same process
    assert read_everywhere(processes, written) == dict.fromkeys(processes.groups, b"before")
    processes.start(victim)
    more = append_everywhere(processes, b"after")
    assert read_everywhere(processes, more) == dict.fromkeys(processes.groups, b"after")


def test_leaders_that_were_deposed_while_they_were_frozen_learn_so(
    processes: GroupProcesses,
) -> None:
    assert processes.watch(processes.all_led, PATIENCE_S)
    frozen = max(processes.peers, key=lambda node_id: len(processes.led_by(node_id)))
    terms = {group: processes.leaders[group][0] for group in processes.led_by(frozen)}
    processes.signal(frozen, signal.SIGSTOP)
    try:
        assert processes.watch(
            lambda: all(processes.leaders[group][0] > term for group, term in terms.items()),
            PATIENCE_S,
        )
    finally:
        processes.signal(frozen, signal.SIGCONT)
    assert processes.watch(
        lambda: all(processes.term_at(frozen, group) > term for group, term in terms.items()),
        PATIENCE_S,
    )
