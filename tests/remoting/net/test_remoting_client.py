"""The client, over real loopback sockets."""

from dataclasses import replace

import pytest
import trio
import trio.testing

from dledger.network.plain_socket import write_now
from remoting.net.client import ClientLimits, RemotingClient
from remoting.net.connection import Connection
from remoting.net.errors import (
    AddressMalformed,
    ConnectFailed,
    ConnectionClosed,
    RequestTimedOut,
    TooManyConnections,
)
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from tests.remoting.net.recording_server import (
    CALL_BACK,
    ECHO,
    SILENT,
    Recorder,
    start,
    until,
    wait_for,
)


async def test_a_request_gets_its_reply(nursery: trio.Nursery) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    reply = await client.request(address, Command(ECHO, {"k": "v"}, b"body"))
    assert (reply.code, reply.fields, reply.body) == (0, {"k": "v"}, b"body")
    assert len(handler.opened) == 1


async def test_requests_to_one_address_share_one_connection_and_may_be_many(
    nursery: trio.Nursery,
) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    replies: list[Command | RemotingError] = []
    for number in range(500):
        client.request_nowait(address, Command(ECHO, {"n": str(number)}), replies.append)
    await wait_for(lambda: len(replies) == 500)
    numbers = [reply.fields["n"] for reply in replies if isinstance(reply, Command)]
    assert numbers == [str(number) for number in range(500)]
    assert len(handler.opened) == 1


async def test_requests_of_one_pass_of_the_loop_leave_together_if_the_client_gathers(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[bytes] = []

    def write(descriptor: int, frame: bytes) -> int:
        if b'"flag":0' in frame:
            alone.append(frame)
        return write_now(descriptor, frame)

    monkeypatch.setattr("remoting.net.connection.write_now", write)
    client = RemotingClient(nursery)
    client.gather()
    address = await start(nursery, Recorder())
    await client.request(address, Command(ECHO))
    async with trio.open_nursery() as asking:
        for _ in range(20):
            asking.start_soon(client.request, address, Command(ECHO))
    # The first one does not wait for others; the writing task joins those that follow it.
    assert len(alone) == 1


async def test_a_client_sends_oneway_requests(nursery: trio.Nursery) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, {"commitOffset": "5"})
    client.send_oneway(address, command)
    await wait_for(lambda: bool(handler.oneways))
    assert handler.oneways[0].is_oneway
    assert not command.is_oneway


async def test_a_server_can_ask_its_client(nursery: trio.Nursery) -> None:
    asked: list[int] = []

    def on_request(_connection: Connection, command: Command) -> Command:
        asked.append(command.opaque)
        return command.reply(remark="running")

    client = RemotingClient(nursery, on_request)
    address = await start(nursery, Recorder())
    reply = await client.request(address, Command(CALL_BACK))
    assert reply.remark == "running"
    assert asked[0] >= 1 << 30


async def test_a_client_without_a_handler_answers_servers_as_not_supported(
    nursery: trio.Nursery,
) -> None:
    client = RemotingClient(nursery)
    address = await start(nursery, Recorder())
    reply = await client.request(address, Command(CALL_BACK))
    assert reply.remark == " request type 307 not supported"


async def test_a_port_nobody_listens_on_fails_every_request(nursery: trio.Nursery) -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
    await listener.aclose()
    client = RemotingClient(nursery)
    results: list[Command | RemotingError] = []
    client.request_nowait(address, Command(ECHO), results.append)
    with pytest.raises(ConnectFailed) as caught:
        await client.request(address, Command(ECHO))
    assert not caught.value.outcome_unknown
    assert isinstance(results[0], ConnectFailed)
    assert len(results) == 1
    await wait_for(lambda: not client.is_connected(address))


@pytest.mark.parametrize("host", ["x" * 70, "a..b", "\u00e9..b", "."])
async def test_a_name_that_cannot_be_is_an_address_that_cannot_be_reached(
    nursery: trio.Nursery, host: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = RemotingClient(nursery)
    with pytest.raises(ConnectFailed, match="label"):
        await client.request(f"{host}:1", Command(ECHO))
    assert caplog.messages == []


ADDRESSES_THAT_ARE_NONE = (
    *("", "host", "host:", ":1", "h:0", "h:70000", "h:x", "a:b:1"),
    *("[]:1", "[[a]]:1", "a b:1", "a\0b:1", "a\nb:1", "h" * 254 + ":1"),
)


@pytest.mark.parametrize("address", ADDRESSES_THAT_ARE_NONE)
async def test_an_address_that_is_none_is_refused(nursery: trio.Nursery, address: str) -> None:
    client = RemotingClient(nursery)
    with pytest.raises(AddressMalformed):
        await client.request(address, Command(ECHO))
    results: list[Command | RemotingError] = []
    client.request_nowait(address, Command(ECHO), results.append)
    assert isinstance(results[0], AddressMalformed)


@pytest.mark.feature("F17")
async def test_a_lost_connection_fails_every_waiting_request_at_once(
    nursery: trio.Nursery,
) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    await client.request(address, Command(ECHO))
    results: list[Command | RemotingError] = []
    for _ in range(3):
        client.request_nowait(address, Command(SILENT), results.append, 60)
    handler_saw = handler.opened[0]
    await client.request(address, Command(ECHO))
    handler_saw.close("test")
    await wait_for(lambda: len(results) == 3)
    for result in results:
        assert isinstance(result, ConnectionClosed)
        assert result.outcome_unknown
    await wait_for(lambda: not client.is_connected(address))
    assert (await client.request(address, Command(ECHO))).code == 0
    assert len(handler.opened) == 2


async def test_cancelling_a_request_forgets_it(nursery: trio.Nursery) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    await client.request(address, Command(ECHO))
    with trio.move_on_after(0.05) as scope:
        await client.request(address, Command(SILENT), 60)
    assert scope.cancelled_caught
    assert (await client.request(address, Command(ECHO))).code == 0


async def test_an_error_in_a_callback_does_not_end_the_connection(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    client = RemotingClient(nursery)
    address = await start(nursery, Recorder())

    def callback(_result: Command | RemotingError) -> None:
        raise ZeroDivisionError

    client.request_nowait(address, Command(ECHO), callback)
    assert (await client.request(address, Command(ECHO))).code == 0
    assert "callback" in caplog.text


async def test_a_client_gives_up_a_request_and_an_unanswered_connect(
    mock_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    caught: list[RemotingError] = []

    async def ask() -> None:
        with pytest.raises(RequestTimedOut) as error:
            await client.request(address, Command(SILENT), 5)
        caught.append(error.value)

    nursery.start_soon(ask)
    await until(lambda: len(handler.opened) == 1)
    await trio.testing.wait_all_tasks_blocked()
    for _ in range(98):  # one that finds itself late first reads what has arrived
        mock_clock.jump(0.05)
        await trio.testing.wait_all_tasks_blocked()
    assert caught == []
    mock_clock.jump(0.11)
    await until(lambda: len(caught) == 1)


async def test_a_client_talks_to_a_bounded_number_of_addresses(nursery: trio.Nursery) -> None:
    limits = replace(ClientLimits(), max_connections=1)
    client, handler = RemotingClient(nursery, limits=limits), Recorder()
    first = await start(nursery, handler)
    second = await start(nursery, Recorder())
    await client.request(first, Command(ECHO))
    with pytest.raises(TooManyConnections):
        await client.request(second, Command(ECHO))
    handler.opened[0].close("the server ends it")
    await wait_for(lambda: not client.is_connected(first))
    assert (await client.request(second, Command(ECHO))).code == 0


async def test_a_closed_client_fails_what_waits_and_what_comes() -> None:
    handler = Recorder()
    async with trio.open_nursery() as servers:
        address = await start(servers, handler)
        results: list[Command | RemotingError] = []
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:  # ends only when the client's tasks do
                client = RemotingClient(nursery)
                await client.request(address, Command(ECHO))
                client.request_nowait(address, Command(SILENT), results.append, 60)
                client.close()
        assert isinstance(results[0], ConnectionClosed)
        with pytest.raises(ConnectFailed):
            client.send_oneway(address, Command(ECHO))
        servers.cancel_scope.cancel()
