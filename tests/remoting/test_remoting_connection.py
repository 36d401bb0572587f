"""Server, client and connections over real loopback sockets and over streams in memory."""

import logging
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import pytest
import trio
import trio.testing

from remoting.address import Address, parse_address, peer_address
from remoting.answering import answer_each
from remoting.client import ClientLimits, RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_FLAG, Command, server_request
from remoting.connection import Connection, ConnectionLimits
from remoting.dispatch import DispatchTable
from remoting.errors import (
    AddressMalformed,
    ConnectFailed,
    ConnectionClosed,
    FieldMissing,
    FrameError,
    FrameTooLarge,
    IdleTooLong,
    ListenFailed,
    PeerTooSlow,
    PortInUse,
    RemotingError,
    RequestTimedOut,
    TooManyConnections,
    TooManyRequests,
)
from remoting.frame import MAX_FRAME_BYTES, FrameDecoder, encode_command
from remoting.server import ServerLimits, serve

ECHO, FAIL, MISSING, SILENT, CALL_BACK = 1000, 1001, 1002, 1003, 1004

PEER = Address("192.0.2.1", 1)


class Recorder:
    """A handler that answers a few codes and remembers what happened."""

    def __init__(self) -> None:
        self.opened: list[Connection] = []
        self.closed: list[Connection] = []
        self.oneways: list[Command] = []
        self.table: DispatchTable[Connection] = DispatchTable()
        self.table.add(ECHO, lambda _connection, c: c.reply(0, dict(c.fields), c.body))
        self.table.add(FAIL, self._fail)
        self.table.add(MISSING, lambda _connection, c: c.reply(remark=c.text("topic")))
        self.table.add(SILENT, lambda _connection, _command: None)
        self.table.add(CALL_BACK, self._call_back)
        self.table.add(RequestCode.UPDATE_CONSUMER_OFFSET, self._oneway)

    def on_open(self, connection: Connection) -> None:
        self.opened.append(connection)

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> None:
        answer_each(connection, commands, self.table.handle)

    def on_close(self, connection: Connection) -> None:
        self.closed.append(connection)

    def _fail(self, _connection: Connection, _command: Command) -> Command:
        raise ZeroDivisionError("line one\nline two")

    def _oneway(self, _connection: Connection, command: Command) -> Command:
        self.oneways.append(command)
        return command.reply()

    def _call_back(self, connection: Connection, command: Command) -> None:
        """Ask the asker, and answer it with what it answered."""

        def settle(result: Command | RemotingError) -> None:
            remark = result.remark if isinstance(result, Command) else str(result)
            connection.send(command.reply(remark=remark))

        connection.request(server_request(RequestCode.GET_CONSUMER_RUNNING_INFO), settle, 1.0)


async def start(
    nursery: trio.Nursery, handler: Recorder, limits: ServerLimits | None = None
) -> str:
    async def run(*, task_status: trio.TaskStatus[Address]) -> None:
        await serve("127.0.0.1", 0, handler, task_status=task_status, limits=limits)

    return str(await nursery.start(run))


async def raw_stream(address: str) -> trio.SocketStream:
    host, port = parse_address(address)
    return await trio.open_tcp_stream(host, port)


async def read_until_closed(stream: trio.SocketStream) -> bytes:
    received = b""
    while True:
        try:
            data = await stream.receive_some(65536)
        except trio.BrokenResourceError:
            return received
        if not data:
            return received
        received += data


async def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await trio.sleep(0.005)
    raise AssertionError("it did not come about in 5 s")


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

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> None:
        if self.where == "commands":
            raise FieldMissing("x")
        super().on_commands(connection, commands)

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


async def test_a_taken_port_is_named(nursery: trio.Nursery) -> None:
    address = parse_address(await start(nursery, Recorder()))
    with pytest.raises(PortInUse, match=f"port {address.port} on 127.0.0.1 is in use") as caught:
        await serve("127.0.0.1", address.port, Recorder())
    assert caught.value.port == address.port


@pytest.mark.parametrize(("host", "port"), [("192.0.2.1", 0), ("127.0.0.1", 70000)])
async def test_an_address_one_cannot_listen_on_is_named(host: str, port: int) -> None:
    with pytest.raises(ListenFailed, match=host):
        await serve(host, port, Recorder())


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


@pytest.mark.parametrize("address", ["", "host", "host:", ":1", "h:0", "h:70000", "h:x", "a:b:1"])
async def test_an_address_that_is_none_is_refused(nursery: trio.Nursery, address: str) -> None:
    client = RemotingClient(nursery)
    with pytest.raises(AddressMalformed):
        await client.request(address, Command(ECHO))
    results: list[Command | RemotingError] = []
    client.request_nowait(address, Command(ECHO), results.append)
    assert isinstance(results[0], AddressMalformed)


def test_addresses_are_read_and_written() -> None:
    assert parse_address("h:1") == Address("h", 1)
    assert str(parse_address("[::1]:9876")) == "[::1]:9876"
    assert peer_address(("::ffff:10.0.0.1", 5, 0, 0)) == Address("10.0.0.1", 5)
    assert str(peer_address(("::1", 5, 0, 0))) == "[::1]:5"


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


async def test_a_request_that_was_never_sent_is_known_not_to_have_happened(
    autojump_clock: trio.testing.MockClock,
) -> None:
    connection = Connection(PEER, ConnectionLimits())
    results: list[Command | RemotingError] = []
    connection.request(Command(ECHO), results.append, 5)
    connection.close("test")
    connection.request(Command(ECHO), results.append, 5)
    for result in results:
        assert isinstance(result, ConnectionClosed)
        assert not result.outcome_unknown
    assert len(results) == 2


async def test_cancelling_a_request_forgets_it(nursery: trio.Nursery) -> None:
    handler = Recorder()
    client = RemotingClient(nursery)
    address = await start(nursery, handler)
    await client.request(address, Command(ECHO))
    with trio.move_on_after(0.05) as scope:
        await client.request(address, Command(SILENT), 60)
    assert scope.cancelled_caught
    assert (await client.request(address, Command(ECHO))).code == 0


async def in_memory(
    nursery: trio.Nursery, limits: ConnectionLimits, receive: Callable[..., None] | None = None
) -> tuple[Connection, trio.abc.Stream]:
    """A connection whose other end the test holds; its pipe takes nothing until it is read."""
    ours, theirs = trio.testing.lockstep_stream_pair()
    connection = Connection(PEER, limits)
    nursery.start_soon(connection.run, ours, receive or (lambda _connection, _commands: None))
    await trio.testing.wait_all_tasks_blocked()
    return connection, theirs


async def test_a_peer_that_does_not_read_is_cut_off_at_the_limit_in_bytes(
    nursery: trio.Nursery,
) -> None:
    connection, _theirs = await in_memory(nursery, ConnectionLimits(max_unsent_bytes=10_000))
    frame = encode_command(Command(1, {}, bytes(900)))
    while not connection.is_closed:
        assert connection.unsent_bytes <= 10_000
        connection.send_frame(frame)
    assert isinstance(connection.close_error, PeerTooSlow)
    assert connection.close_error.unsent_bytes > 10_000


async def test_what_is_queued_in_one_turn_leaves_in_one_send(nursery: trio.Nursery) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    for number in range(50):
        connection.send(Command(number))
    data = await theirs.receive_some(1 << 20)
    assert [command.code for command in FrameDecoder().feed(bytes(data))] == list(range(50))
    await trio.testing.wait_all_tasks_blocked()
    assert connection.unsent_bytes == 0


async def test_a_peer_that_asks_faster_than_it_reads_is_slowed_down(
    nursery: trio.Nursery,
) -> None:
    limits = ConnectionLimits(max_unsent_bytes=100_000, pause_unsent_bytes=5_000)
    turns: list[int] = []

    def receive(connection: Connection, commands: Sequence[Command]) -> None:
        turns.append(len(commands))
        for command in commands:
            connection.send(command.reply(body=bytes(3_000)))

    connection, theirs = await in_memory(nursery, limits, receive)
    frame = encode_command(Command(ECHO))

    async def ask() -> None:
        for _ in range(20):
            await theirs.send_all(frame)

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    assert 2 <= len(turns) < 10
    assert connection.unsent_bytes < 10_000
    received: list[Command] = []
    decoder = FrameDecoder()
    while len(received) < 20:
        received += decoder.feed(bytes(await theirs.receive_some(1 << 20)))
    assert len(turns) == 20
    assert not connection.is_closed


async def test_a_request_without_reply_times_out_on_time(
    autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    connection, theirs = await in_memory(nursery, ConnectionLimits())
    results: list[Command | RemotingError] = []
    opaque = connection.request(Command(SILENT), results.append, 3.0)
    connection.expire(trio.current_time() + 2.9)
    assert results == []
    connection.expire(trio.current_time() + 3.0)
    assert isinstance(results[0], RequestTimedOut)
    await theirs.receive_some(1 << 20)
    await theirs.send_all(encode_command(Command(0, opaque=opaque or 0, flag=1)))
    await trio.testing.wait_all_tasks_blocked()
    assert len(results) == 1
    assert not connection.is_closed


async def test_the_table_of_waiting_requests_is_bounded(nursery: trio.Nursery) -> None:
    connection, _theirs = await in_memory(nursery, ConnectionLimits(max_waiting_requests=2))
    results: list[Command | RemotingError] = []
    for _ in range(3):
        connection.request(Command(SILENT), results.append, 5)
    assert isinstance(results[0], TooManyRequests)
    assert len(results) == 1
    assert connection.waiting_requests == 2


async def test_a_request_that_cannot_be_a_frame_is_settled_with_the_reason(
    nursery: trio.Nursery,
) -> None:
    connection, _theirs = await in_memory(nursery, ConnectionLimits())
    results: list[Command | RemotingError] = []
    connection.request(Command(1, {}, bytes(MAX_FRAME_BYTES)), results.append, 5)
    assert isinstance(results[0], FrameTooLarge)
    assert connection.waiting_requests == 0


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


async def until(condition: Callable[[], bool]) -> None:
    """Let sockets and tasks work, without moving the virtual clock."""
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("it did not come about")


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
    mock_clock.jump(4.9)
    await trio.testing.wait_all_tasks_blocked()
    assert caught == []
    mock_clock.jump(0.2)
    await until(lambda: len(caught) == 1)


async def test_a_client_talks_to_a_bounded_number_of_addresses(nursery: trio.Nursery) -> None:
    limits = replace(ClientLimits(), max_connections=1)
    client = RemotingClient(nursery, limits=limits)
    first = await start(nursery, Recorder())
    second = await start(nursery, Recorder())
    await client.request(first, Command(ECHO))
    with pytest.raises(TooManyConnections):
        await client.request(second, Command(ECHO))
    client.disconnect(first)
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


def test_a_code_can_have_one_function_only() -> None:
    table: DispatchTable[None] = DispatchTable()
    table.add([1, 2], lambda _origin, command: command.reply())
    with pytest.raises(ValueError, match="request code 2"):
        table.add(2, lambda _origin, command: command.reply())
    assert table.codes() == [1, 2]
    assert 2 in table
