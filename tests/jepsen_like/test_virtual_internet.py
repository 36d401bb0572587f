"""The network of simulated hosts does to connections what a real one does."""

from collections.abc import Callable

import pytest
import trio

from dledger.config import Address
from jepsen_like.chance import Chance
from jepsen_like.simulation.hosts.plan import LineStyle
from jepsen_like.simulation.hosts.virtual_internet import (
    Endpoint,
    MachineNetwork,
    VirtualInternet,
)
from jepsen_like.simulation.hosts.virtual_stream import PIPE_BYTES

HERE, THERE = Address("a", 1), Address("b", 1)


class Machines:
    """Two machines, and what one process of each has of the network."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        style = LineStyle(least_s=0.01, mean_s=0.001)
        self.internet = VirtualInternet(
            style, Chance(1, "network"), lambda _name, size, _sum: self.sent.append(size)
        )
        self.a, self.b = self.internet.add("a"), self.internet.add("b")

    def network(
        self, endpoint: Endpoint, alive: Callable[[], bool] = lambda: True
    ) -> MachineNetwork:
        return MachineNetwork(self.internet, endpoint, alive)

    async def connected(self) -> tuple[trio.abc.Stream, trio.abc.Stream]:
        (listener,) = await self.network(self.b).listen(THERE)
        near = await self.network(self.a).dial(THERE)
        return near, await listener.accept()


@pytest.fixture
async def machines(autojump_clock: object) -> Machines:
    """Two machines in virtual time."""
    return Machines()


async def test_bytes_arrive_in_order_and_later(machines: Machines, autojump_clock: object) -> None:
    near, far = await machines.connected()
    began_at = trio.current_time()
    for number in range(20):
        await near.send_all(bytes([number]))
    received = b""
    while len(received) < 20:
        received += await far.receive_some()
    assert received == bytes(range(20))
    assert trio.current_time() >= began_at + 0.01
    assert machines.sent == [1] * 20


async def test_what_a_cut_holds_up_arrives_when_it_is_healed(
    machines: Machines, autojump_clock: object
) -> None:
    near, far = await machines.connected()
    machines.internet.cut("a", "b")
    await near.send_all(b"late")
    with trio.move_on_after(5.0) as patience:
        await far.receive_some()
    assert patience.cancelled_caught
    await far.send_all(b"the other way")
    assert await near.receive_some() == b"the other way"
    machines.internet.heal()
    assert await far.receive_some() == b"late"


async def test_a_dial_into_a_cut_waits_and_one_to_no_listener_is_refused(
    machines: Machines,
    autojump_clock: object,
) -> None:
    with pytest.raises(ConnectionRefusedError):
        await machines.network(machines.a).dial(THERE)
    machines.internet.cut("b", "a")
    await machines.network(machines.b).listen(THERE)
    with trio.move_on_after(5.0) as patience:
        await machines.network(machines.a).dial(THERE)
    assert patience.cancelled_caught


async def test_the_end_of_a_process_resets_its_connections(
    machines: Machines, autojump_clock: object
) -> None:
    near, _ = await machines.connected()
    machines.internet.process_ended(machines.b)
    with pytest.raises(trio.BrokenResourceError):
        await near.receive_some()
    with pytest.raises(ConnectionRefusedError):
        await machines.network(machines.a).dial(THERE)


async def test_a_machine_without_power_tells_nobody_and_resets_what_it_does_not_know(
    machines: Machines,
    autojump_clock: object,
) -> None:
    near, _ = await machines.connected()
    machines.internet.power_lost(machines.b)
    await near.send_all(b"into the dark")
    with trio.move_on_after(5.0) as patience:
        await near.receive_some()
    assert patience.cancelled_caught
    machines.internet.power_back(machines.b)
    with pytest.raises(trio.BrokenResourceError):
        await near.receive_some()


async def test_a_reader_that_reads_nothing_holds_up_its_writer(
    machines: Machines, autojump_clock: object
) -> None:
    near, far = await machines.connected()
    await near.send_all(bytes(PIPE_BYTES))
    with trio.move_on_after(5.0) as patience:
        await near.send_all(b"more")
    assert patience.cancelled_caught
    await far.receive_some()
    await near.send_all(b"more")


async def test_a_slow_line_takes_its_time(machines: Machines, autojump_clock: object) -> None:
    near, far = await machines.connected()
    machines.internet.line("a", "b").bytes_per_s = 1_000.0
    began_at = trio.current_time()
    await near.send_all(bytes(2_000))
    await far.receive_some()
    assert trio.current_time() - began_at >= 2.0


async def test_a_closed_end_is_the_end_of_the_stream_for_the_other(
    machines: Machines, autojump_clock: object
) -> None:
    near, far = await machines.connected()
    await near.send_all(b"last words")
    await near.aclose()
    assert await far.receive_some() == b"last words"
    assert await far.receive_some() == b""
    assert len(machines.internet.open_streams) == 1
    await far.aclose()
    assert not machines.internet.open_streams
    with pytest.raises(trio.ClosedResourceError):
        await far.receive_some()


async def test_a_process_that_has_ended_reaches_nobody(
    machines: Machines, autojump_clock: object
) -> None:
    with pytest.raises(ConnectionAbortedError):
        await machines.network(machines.a, lambda: False).dial(THERE)
