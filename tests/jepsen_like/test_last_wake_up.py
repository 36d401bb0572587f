"""At rest nothing is left undone: no wake-up is lost, in whole hosts, by writes of each kind."""

from __future__ import annotations

from itertools import count

import pytest

from dledger.client import node_connection
from dledger.network import conversation, host_connection
from dledger.network.plain_socket import NO_DESCRIPTOR
from dledger.serving import client_server
from jepsen_like.chance import Chance
from jepsen_like.simulation.failure import Failure
from jepsen_like.simulation.hosts import virtual_stream
from jepsen_like.simulation.hosts.host_simulation import HostSimulation
from jepsen_like.simulation.hosts.plan import HostsPlan, plan_of
from jepsen_like.simulation.hosts.virtual_stream import VirtualStream
from tests.examples import seeds

# Of the moments at rest; each costs as much as a turn of each member.
SHARE = 0.1
FAULT_S = 3.0
# Of the runs of three hosts in the default suite.
SHORT_FAULT_S = 1.0


class DirectWrites:
    """Stands for `plain_socket` over virtual streams: what a socket takes at once."""

    def __init__(self, seed: int) -> None:
        self._chance = Chance(seed, "direct writes")
        self._numbers = count(1 << 30)
        self._streams: dict[int, VirtualStream] = {}

    def descriptor(self, stream: object) -> int:
        if not isinstance(stream, VirtualStream):
            return NO_DESCRIPTOR
        number = next(self._numbers)
        self._streams[number] = stream
        return number

    def write_now(self, descriptor: int, frame: bytes) -> int:
        size = len(frame) if self._chance.happens(0.7) else self._chance.randint(0, len(frame))
        return self._streams[descriptor].write_some(frame[:size])

    async def read_some(self, descriptor: int, max_bytes: int) -> bytes:
        return await self._streams[descriptor].receive_some(max_bytes)


def use_direct_writes(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    direct = DirectWrites(seed)
    for module in (host_connection, conversation, client_server, node_connection):
        monkeypatch.setattr(module, "plain_descriptor", direct.descriptor)
    for module in (host_connection, client_server, node_connection):
        monkeypatch.setattr(module, "write_now", direct.write_now)
    monkeypatch.setattr(conversation, "read_some", direct.read_some)


def shorten_queues(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """So that tasks wait for room, and writers for the network."""
    monkeypatch.setattr(client_server, "MAX_OPEN_REQUESTS", 1 + seed % 2)
    monkeypatch.setattr(node_connection, "MOST_REQUESTS", 4)
    monkeypatch.setattr(virtual_stream, "PIPE_BYTES", 2_000)


def run(plan: HostsPlan) -> None:
    found: Failure | None = None
    try:
        HostSimulation(plan, looked_at=SHARE).run()
    except Failure as failure:
        found = failure
    assert found is None


@pytest.mark.parametrize("seed", seeds(3, 1))
def test_no_wake_up_is_lost_in_groups_of_three(seed: int) -> None:
    run(plan_of(seed, hosts=3, fault_s=FAULT_S if seed else SHORT_FAULT_S))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_no_wake_up_is_lost_by_direct_writes_and_short_queues(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_direct_writes(monkeypatch, seed)
    shorten_queues(monkeypatch, seed)
    fault_s = SHORT_FAULT_S if seed == 1 else FAULT_S
    plan = plan_of(seed, hosts=3, fault_s=fault_s)._replace(clients=8, pause_s=0.02)
    run(plan)


@pytest.mark.parametrize("seed", [2, pytest.param(3, marks=pytest.mark.long)])
def test_no_wake_up_is_lost_in_members_that_are_alone(seed: int) -> None:
    plan = plan_of(seed, hosts=1, fault_s=FAULT_S)._replace(changes=False, fault_every_s={})
    run(plan)
