"""A connection on which nothing comes back is closed, and the next request makes a new one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from remoting.net.client import MOST_SILENT_S, SWEEP_S, RemotingClient
from remoting.net.connection import Connection, ConnectionLimits
from remoting.net.errors import ConnectionClosed, PeerSilent, RequestTimedOut
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.frame import encode_command
from tests.remoting.net.recording_server import ECHO, SILENT, Recorder, start, until, wait_for
from tests.remoting.net.swallowing_proxy import SwallowingProxy
from tests.remoting.net.test_remoting_connection import in_memory

Results = list[Command | RemotingError]


async def answer(theirs: trio.abc.Stream, opaque: int) -> None:
    """Have the other end answer a request, or send what no request waits for."""
    await theirs.send_all(encode_command(Command(ECHO, opaque=opaque).reply()))
    await trio.testing.wait_all_tasks_blocked()


async def asked(connection: Connection, theirs: trio.abc.Stream, timeout_s: float) -> Results:
    """Send a request, which the other end takes; returns where its outcome will be."""
    results: Results = []
    connection.request(Command(ECHO), results.append, timeout_s)
    await theirs.receive_some(1 << 20)
    return results


async def test_a_request_without_its_answer_closes_a_silent_connection(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    held = await asked(connection, theirs, 30)
    late = await asked(connection, theirs, 3)
    mock_clock.jump(2.9)
    connection.expire(trio.current_time(), MOST_SILENT_S)
    assert not connection.is_closed
    mock_clock.jump(0.2)
    connection.expire(trio.current_time(), MOST_SILENT_S)
    assert isinstance(connection.close_error, PeerSilent)
    assert isinstance(late[0], RequestTimedOut)
    # A request that the server holds is lost with it, and is asked again elsewhere.
    assert isinstance(held[0], ConnectionClosed)
    assert held[0].outcome_unknown


async def test_a_connection_is_closed_before_its_requests_are_told(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    was_closed: list[bool] = []
    connection.request(Command(ECHO), lambda _late: was_closed.append(connection.is_closed), 3)
    await theirs.receive_some(1 << 20)
    mock_clock.jump(3.1)
    connection.expire(trio.current_time(), MOST_SILENT_S)
    assert was_closed == [True]


async def test_a_peer_that_sends_something_is_only_late_with_an_answer(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    late = await asked(connection, theirs, 3)
    mock_clock.jump(1)
    await answer(theirs, 4711)
    mock_clock.jump(5)
    connection.expire(trio.current_time(), MOST_SILENT_S)
    assert isinstance(late[0], RequestTimedOut)
    assert not connection.is_closed


async def test_requests_of_little_time_find_a_silent_peer_together(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    was_closed: list[bool] = []
    for _ in range(4):
        await asked(connection, theirs, 0.1)
        mock_clock.jump(0.15)
        connection.expire(trio.current_time(), MOST_SILENT_S)
        was_closed.append(connection.is_closed)
    assert was_closed == [False, False, False, True]  # after 0.6 s of silence


async def test_an_answer_ends_the_suspicion(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    for _ in range(10):
        await asked(connection, theirs, 0.1)
        mock_clock.jump(0.3)
        connection.expire(trio.current_time(), MOST_SILENT_S)
        await answer(theirs, 4711)
    assert not connection.is_closed


async def test_a_server_keeps_the_connection_of_a_client_that_does_not_answer(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    late = await asked(connection, theirs, 3)
    mock_clock.jump(60)
    connection.expire(trio.current_time())
    assert isinstance(late[0], RequestTimedOut)
    assert not connection.is_closed


async def by_waiting(client: RemotingClient, address: str) -> None:
    with pytest.raises(RequestTimedOut):
        await client.request(address, Command(SILENT), 3)


async def by_callback(client: RemotingClient, address: str) -> None:
    client.request_nowait(address, Command(SILENT), lambda _late: None, 3)


@pytest.mark.parametrize("way", [by_waiting, by_callback])
async def test_every_way_to_ask_closes_a_connection_that_stays_silent(
    mock_clock: trio.testing.MockClock,
    nursery: trio.Nursery,
    way: Callable[[RemotingClient, str], Awaitable[None]],
) -> None:
    handler = Recorder()
    made: list[str] = []
    client = RemotingClient(nursery, on_connected=made.append)
    address = await start(nursery, handler)
    await client.request(address, Command(ECHO))
    nursery.start_soon(way, client, address)
    for _ in range(8):  # one jump would be a pause of this process
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(SWEEP_S)
    await until(lambda: len(handler.closed) == 1)
    await client.request(address, Command(ECHO))
    assert made == [address, address]


async def test_a_client_goes_on_over_a_new_connection_when_the_old_one_is_forgotten(
    nursery: trio.Nursery,
) -> None:
    proxy = SwallowingProxy(await start(nursery, Recorder()))
    address = await proxy.start(nursery)
    client = RemotingClient(nursery)
    await client.request(address, Command(ECHO))
    proxy.cut()
    with pytest.raises(RequestTimedOut):
        await client.request(address, Command(ECHO), 0.6)
    proxy.heal()
    assert (await client.request(address, Command(ECHO), 5)).code == 0
    assert proxy.connections == 2
    await wait_for(lambda: client.is_connected(address))
