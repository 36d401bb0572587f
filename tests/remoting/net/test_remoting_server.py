"""The server, over real loopback sockets."""

import logging
import struct
from collections.abc import Awaitable, Callable, Sequence

import pytest
import trio
import trio.testing

from dledger.config import Address as LogAddress
from dledger.wire.frame import FrameDecoder as LogFrameDecoder
from dledger.wire.handshake import Caller, Hello, Refused, check_welcome, encode_hello
from remoting.net.address import parse_address
from remoting.net.bounded_log import BoundedLog
from remoting.net.client import RemotingClient
from remoting.net.connection import Connection
from remoting.net.dispatch import DispatchTable
from remoting.net.errors import IdleTooLong, ListenFailed, PortInUse, RequestTimedOut
from remoting.net.server import ServerLimits, serve
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import ONEWAY_FLAG, Command, server_request
from remoting.wire.errors import FieldMissing, FrameError, FrameTooLarge, RemotingError
from remoting.wire.frame import MAX_FRAME_BYTES, FrameDecoder, encode_command
from tests.remoting.net.recording_server import (
    ECHO,
    FAIL,
    MISSING,
    Recorder,
    raw_stream,
    read_until_closed,
    start,
    until,
    wait_for,
)


async def test_a_code_nobody_answers_is_answered_as_not_supported(nursery: trio.Nursery) -> None:
    client = RemotingClient(nursery)
    address = await start(nursery, Recorder())
    reply = await client.request(address, Command(4711))
    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert reply.remark == " request type 4711 not supported"


async def test_an_error_in_a_handler_is_answered_and_the_server_goes_on(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    client = RemotingClient(nursery)
    address = await start(nursery, Recorder())
    reply = await client.request(address, Command(FAIL))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert reply.remark == "ZeroDivisionError: line one line two"
    assert caplog.records[-1].exc_info is not None
    assert (await client.request(address, Command(ECHO))).code == 0


async def test_a_missing_field_is_answered_and_logged_without_a_traceback(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    client = RemotingClient(nursery)
    address = await start(nursery, Recorder())
    reply = await client.request(address, Command(MISSING))
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert str(reply.remark).startswith("the custom field <topic> is null")
    assert caplog.records[-1].exc_info is None


class FailsWhole(Recorder):
    """A handler that fails for a whole turn, or at opening, or at closing."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def on_open(self, connection: Connection) -> None:
        super().on_open(connection)
        if self.where == "open" and len(self.opened) == 1:
            raise FieldMissing("x")

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        if self.where == "commands":
            raise FieldMissing("x")
        return super().on_commands(connection, commands)

    def on_close(self, connection: Connection) -> None:
        super().on_close(connection)
        if self.where == "close":
            raise FieldMissing("x")


async def test_an_error_for_a_whole_turn_answers_every_command_of_it(
    nursery: trio.Nursery,
) -> None:
    address = await start(nursery, FailsWhole("commands"))
    stream = await raw_stream(address)
    oneway = Command(ECHO, opaque=2, flag=ONEWAY_FLAG)
    asked = [Command(ECHO, opaque=1), oneway, Command(ECHO, opaque=3)]
    await stream.send_all(b"".join(map(encode_command, asked)))
    decoder = FrameDecoder()
    replies: list[Command] = []
    while len(replies) < 2:
        replies += decoder.feed(bytes(await stream.receive_some(65536)))
    assert [(reply.opaque, reply.code) for reply in replies] == [(1, 1), (3, 1)]
    await stream.aclose()


@pytest.mark.parametrize("where", ["open", "close"])
async def test_an_error_at_opening_or_closing_does_not_end_the_server(
    nursery: trio.Nursery, where: str
) -> None:
    handler = FailsWhole(where)
    address = await start(nursery, handler)
    first = await raw_stream(address)
    if where == "close":
        await first.aclose()
    else:
        assert await read_until_closed(first) == b""
        await first.aclose()
    await wait_for(lambda: len(handler.closed) == 1)
    client = RemotingClient(nursery)
    assert (await client.request(address, Command(ECHO))).code == 0


async def test_a_oneway_request_is_carried_out_and_not_answered(nursery: trio.Nursery) -> None:
    handler = Recorder()
    address = await start(nursery, handler)
    stream = await raw_stream(address)
    code = RequestCode.UPDATE_CONSUMER_OFFSET
    await stream.send_all(encode_command(Command(code, opaque=1, flag=ONEWAY_FLAG)))
    await stream.send_all(encode_command(Command(FAIL, opaque=2, flag=ONEWAY_FLAG)))
    await stream.send_all(encode_command(Command(ECHO, opaque=3)))
    (reply,) = FrameDecoder().feed(bytes(await stream.receive_some(65536)))
    assert reply.opaque == 3
    assert len(handler.oneways) == 1
    await stream.aclose()


async def test_each_protocol_that_is_no_remoting_is_named_once_a_minute_for_a_host(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    server = await start(nursery, handler)
    caplog.handler.addFilter(BoundedLog(trio.current_time))
    try:
        for spoken in (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"PRI * HTTP/2.0\r\n") * 2:
            stream = await raw_stream(server)
            await stream.send_all(spoken)
            assert await read_until_closed(stream) == b""
            await stream.aclose()
        await wait_for(lambda: len(handler.closed) == 4)
        assert caplog.text.count("closed: the peer speaks TLS") == 1
        assert caplog.text.count("closed: the peer speaks HTTP/2") == 1
    finally:
        caplog.handler.filters.clear()


async def test_programs_of_http_and_of_the_log_are_answered_as_they_understand(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    server = await start(nursery, Recorder())
    stream = await raw_stream(server)
    await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await read_until_closed(stream)
    head, _, text = answer.decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 400 Bad Request\r\n")
    assert f"Content-Length: {len(text)}" in head
    assert text.count("\n") == 1
    assert "RocketMQ's remoting" in text
    await stream.aclose()
    for caller in (Caller.PEER, Caller.CLIENT):
        stream = await raw_stream(server)
        await stream.send_all(encode_hello(Hello(caller, "g", "n0", LogAddress("10.0.0.1", 1))))
        (frame,) = LogFrameDecoder().feed(await read_until_closed(stream))
        with pytest.raises(Refused, match="this is a port for clients of RocketMQ") as refused:
            check_welcome(frame)
        assert refused.value.lasting
        await stream.aclose()
    await wait_for(lambda: caplog.text.count("the peer speaks the protocol of the log's") == 2)


@pytest.mark.feature("F12")
async def test_a_frame_of_16_mib_plus_one_closes_its_connection_and_no_other(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    await client.request(address, Command(ECHO))
    stream = await raw_stream(address)
    await stream.send_all(struct.pack(">II", MAX_FRAME_BYTES + 1, 10))
    assert await read_until_closed(stream) == b""
    await stream.aclose()
    await wait_for(lambda: len(handler.closed) == 1)
    assert isinstance(handler.closed[0].close_error, FrameTooLarge)
    assert (await client.request(address, Command(ECHO))).code == 0
    lines = [one for one in caplog.records if one.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "over the limit" in lines[0].getMessage()


async def test_what_came_before_garbage_is_carried_out(nursery: trio.Nursery) -> None:
    handler = Recorder()
    address = await start(nursery, handler)
    stream = await raw_stream(address)
    oneway = Command(RequestCode.UPDATE_CONSUMER_OFFSET, flag=ONEWAY_FLAG)
    await stream.send_all(encode_command(oneway) + b"GET / HTTP/1.1\r\n\r\n")
    assert await read_until_closed(stream) == b""
    await stream.aclose()
    await wait_for(lambda: len(handler.closed) == 1)
    assert isinstance(handler.closed[0].close_error, FrameError)
    assert len(handler.oneways) == 1


async def test_connections_over_the_limit_are_closed_and_the_others_stay(
    nursery: trio.Nursery,
) -> None:
    client = RemotingClient(nursery)
    address = await start(nursery, Recorder(), ServerLimits(max_connections=1))
    await client.request(address, Command(ECHO))
    stream = await raw_stream(address)
    assert await read_until_closed(stream) == b""
    await stream.aclose()
    assert (await client.request(address, Command(ECHO))).code == 0


async def test_connections_of_one_host_leave_room_for_those_of_others(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    client, handler = RemotingClient(nursery), Recorder()
    address = await start(nursery, handler, ServerLimits(max_connections=10))
    kept = [await raw_stream(address) for _ in range(8)]
    ninth = await raw_stream(address)
    with trio.fail_after(5):
        assert await read_until_closed(ninth) == b""
    assert "of 10 descriptors for connections 8 are taken, 8 of them by its host" in caplog.text
    other = await trio.open_tcp_stream(
        "127.0.0.1", parse_address(address).port, local_address="127.0.0.2"
    )
    await other.send_all(encode_command(Command(ECHO)))
    assert await other.receive_some()
    await kept[0].aclose()
    await wait_for(lambda: len(handler.closed) == 1)
    assert (await client.request(address, Command(ECHO))).code == 0
    for stream in (*kept, ninth, other):
        await stream.aclose()


async def test_a_taken_port_is_named(nursery: trio.Nursery) -> None:
    address = parse_address(await start(nursery, Recorder()))
    with pytest.raises(PortInUse, match=f"port {address.port} on 127.0.0.1 is in use") as caught:
        await serve("127.0.0.1", address.port, Recorder())
    assert caught.value.port == address.port


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 70000)])
async def test_an_address_one_cannot_listen_on_is_named(host: str, port: int) -> None:
    with pytest.raises(ListenFailed, match=host):
        await serve(host, port, Recorder())


async def on_virtual_time(
    clock: trio.testing.MockClock,
    scenario: Callable[[trio.Nursery, Recorder, str], Awaitable[None]],
) -> Recorder:
    """Run a scenario against a server over real sockets; time moves only when it says so."""
    handler = Recorder()
    async with trio.open_nursery() as nursery:
        address = await start(nursery, handler)
        await scenario(nursery, handler, address)
        nursery.cancel_scope.cancel()
    return handler


@pytest.mark.feature("F17")
async def test_a_connection_silent_for_120_seconds_is_closed(
    mock_clock: trio.testing.MockClock,
) -> None:
    async def scenario(nursery: trio.Nursery, handler: Recorder, address: str) -> None:
        stream = await raw_stream(address)
        await until(lambda: len(handler.opened) == 1)
        for _ in range(2 * 119):
            mock_clock.jump(0.5)
            await trio.testing.wait_all_tasks_blocked()
        assert handler.closed == []
        mock_clock.jump(1.5)
        await until(lambda: len(handler.closed) == 1)
        assert isinstance(handler.closed[0].close_error, IdleTooLong)
        await stream.aclose()

    await on_virtual_time(mock_clock, scenario)


async def test_a_request_of_a_server_to_a_silent_client_is_given_up(
    mock_clock: trio.testing.MockClock,
) -> None:
    results: list[Command | RemotingError] = []

    async def scenario(nursery: trio.Nursery, handler: Recorder, address: str) -> None:
        stream = await raw_stream(address)
        await until(lambda: len(handler.opened) == 1)
        handler.opened[0].request(server_request(307), results.append, 10)
        mock_clock.jump(9.9)
        await trio.testing.wait_all_tasks_blocked()
        assert results == []
        mock_clock.jump(0.6)
        await until(lambda: len(results) == 1)
        assert isinstance(results[0], RequestTimedOut)
        await stream.aclose()

    await on_virtual_time(mock_clock, scenario)


def test_a_code_can_have_one_function_only() -> None:
    table: DispatchTable[None] = DispatchTable()
    table.add([1, 2], lambda _origin, command: command.reply())
    with pytest.raises(ValueError, match="request code 2"):
        table.add(2, lambda _origin, command: command.reply())
    assert table.codes() == [1, 2]
    assert 2 in table
