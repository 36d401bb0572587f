"""A server for tests that answers a few codes and remembers what happened."""

from collections.abc import Callable, Sequence

import trio
import trio.testing

from remoting.net.address import Address, parse_address
from remoting.net.answering import answer_each
from remoting.net.connection import Connection
from remoting.net.dispatch import DispatchTable
from remoting.net.server import ServerLimits, serve
from remoting.net.tls import ServerTls
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command, server_request
from remoting.wire.errors import RemotingError

ECHO, FAIL, MISSING, SILENT, CALL_BACK = 1000, 1001, 1002, 1003, 1004


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

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        return answer_each(connection, commands, self.table.handle)

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
    nursery: trio.Nursery,
    handler: Recorder,
    limits: ServerLimits | None = None,
    tls: ServerTls | None = None,
) -> str:
    async def run(*, task_status: trio.TaskStatus[Address]) -> None:
        await serve("127.0.0.1", 0, handler, task_status=task_status, limits=limits, tls=tls)

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


async def until(condition: Callable[[], bool]) -> None:
    """Let sockets and tasks work, without moving the virtual clock."""
    for _ in range(10_000):
        if condition():
            return
        await trio.lowlevel.checkpoint()
    raise AssertionError("it did not come about")
