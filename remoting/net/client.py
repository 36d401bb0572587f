"""A client: connections by address, made on demand and shared by everything sent there."""

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import trio

from dledger.network.tls import TlsRefused
from dledger.patient_limit import LATE_S, MOMENT_S
from dledger.sockets import dialled
from dledger.system_refusals import meaning
from remoting.net.address import Address, parse_address
from remoting.net.answering import answer_each
from remoting.net.connection import Connection, ConnectionLimits
from remoting.net.dispatch import unsupported
from remoting.net.errors import ConnectFailed, IdleTooLong, TooManyConnections
from remoting.net.request_table import Settle
from remoting.net.starts_tasks import StartsTasks
from remoting.net.tls import ClientTls
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.quoted import quoted
from remoting.wire.signature import Credentials

_log = logging.getLogger(__name__)

# RocketMQ's timeout of a send.
DEFAULT_TIMEOUT_S: Final = 3.0

# How often connections are checked for silence and for requests without a reply.
SWEEP_S: Final = 0.5

# The shortest time between two checks, if a request's timeout ends before the next one is due: each
# check goes through all waiting requests.
_LEAST_SWEEP_S: Final = 0.02

# Late checks in a row that postpone timeouts. A process that is always late must time out as well.
_MOST_LATE_LOOKS: Final = 8

# A connection with an overdue request is closed if the server has sent nothing for this long since
# it was asked, and the next request makes a new one. A router in between may have forgotten it, or
# the system resends lost bytes ever more seldom. No healthy server is silent for so long; requests
# with shorter timeouts count from the first of them.
MOST_SILENT_S: Final = 0.5

OnRequest: TypeAlias = Callable[[Connection, Command], Command | None]


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Limits of a client.

    Attributes:
        max_connections: addresses talked to at once.
        connect_s: how long making a connection may take; RocketMQ's value.
        idle_s: a connection silent in both directions for this long is closed; RocketMQ's
            value. It is made again when needed.
        connection: limits of each connection.
    """

    max_connections: int = 1024
    connect_s: float = 3.0
    idle_s: float = 120.0
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)


class RemotingClient:
    """Sends requests to any number of servers.

    Its tasks run in the given nursery, and end when that is cancelled or after `close`.

    Args:
        nursery: where its tasks run.
        on_request: answers requests that servers send us (such as 40, 220, 221, 307); returns the
            reply or None. Without it they are answered as not supported.
        on_connected: called with the address of each new connection; must not block.
        limits: the defaults if None.
        credentials: sign each request; None for requests without a signature.
        tls: TLS with every server; plain connections if None.
    """

    def __init__(
        self,
        nursery: StartsTasks,
        on_request: OnRequest | None = None,
        *,
        on_connected: Callable[[str], None] | None = None,
        limits: ClientLimits | None = None,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._nursery = nursery
        self._on_request: OnRequest = on_request or _answer_unsupported
        self._on_connected = on_connected
        self._limits = limits or ClientLimits()
        self._tls = tls
        self._credentials = credentials
        self._connections: dict[str, Connection] = {}
        self._gathers = False
        self._closed = trio.Event()
        self._clock = trio.lowlevel.current_clock().current_time
        self._rest = trio.CancelScope(deadline=-math.inf)  # the sweep's sleep between two checks
        nursery.start_soon(self._sweep)

    async def request(
        self, address: str, command: Command, timeout_s: float = DEFAULT_TIMEOUT_S
    ) -> Command:
        """Send a request and wait for its reply, whatever its code. Cancelling ends the wait only.

        Args:
            address: "host:port".
            command: the request; its opaque is set here.
            timeout_s: how long to wait, including the connection's set-up; up to 20 ms more,
                and longer if this process was kept from reading the reply.

        Raises:
            ConnectFailed, TooManyRequests, TooManyConnections, AddressMalformed, FrameError: it was
                certainly not sent.
            ConnectionClosed: see its `outcome_unknown`.
            RequestTimedOut: it may or may not have been carried out.
        """
        task = trio.lowlevel.current_task()
        results: list[Command | RemotingError] = []
        is_waiting = False

        def settle(result: Command | RemotingError) -> None:
            results.append(result)
            if is_waiting:
                trio.lowlevel.reschedule(task)

        try:
            connection = self._connection(address)
        except RemotingError:
            # If the task was cancelled as well, it gets that rather than a closed client's error.
            await trio.lowlevel.checkpoint()
            raise
        self.sign(command)
        opaque = connection.request(command, settle, timeout_s)

        def abort(_raise_cancel: Callable[[], object]) -> trio.lowlevel.Abort:
            if opaque is not None:
                connection.forget(opaque)
            return trio.lowlevel.Abort.SUCCEEDED

        if results:
            await trio.lowlevel.checkpoint()
        else:
            # A cancel scope for each request would take a tenth of the time of a pull.
            self._sweep_within(timeout_s)
            is_waiting = True
            await trio.lowlevel.wait_task_rescheduled(abort)
        result = results[0]
        if isinstance(result, RemotingError):
            raise result
        return result

    def request_nowait(
        self,
        address: str,
        command: Command,
        callback: Settle,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Send a request; `callback` is called exactly once, with the reply or the error.

        Costs no task, so thousands can be in flight. The callback is synchronous, and may be called
        before this returns if the request cannot be sent at all.

        Args:
            address: "host:port".
            command: the request; its opaque is set here.
            callback: must not block; what it raises is logged.
            timeout_s: after this long, and at most half a second more, it gets
                RequestTimedOut.
        """
        try:
            connection = self._connection(address)
        except RemotingError as error:
            callback(error)
            return
        self.sign(command)
        connection.request(command, callback, timeout_s)

    def send_oneway(self, address: str, command: Command) -> None:
        """Send a request without a reply. It is lost silently if the connection fails.

        Raises:
            AddressMalformed, TooManyConnections, FrameError: it was certainly not sent.
        """
        self.sign(command)
        self._connection(address).send_oneway(replace(command))

    def gather(self) -> None:
        """Have requests of the same pass of the loop leave in one write, from now on.

        A server that reads many requests at once takes less time for each.
        """
        self._gathers = True
        for connection in self._connections.values():
            connection.gathers_requests = True

    def sign_by(self, credentials: Credentials) -> None:
        """Sign later requests by other credentials; connections stay."""
        self._credentials = credentials

    def sign(self, command: Command) -> None:
        """Sign a request that is sent by a `Connection` itself."""
        if self._credentials is not None:
            self._credentials.sign(command)

    def is_connected(self, address: str) -> bool:
        return address in self._connections

    def close(self) -> None:
        """Close every connection and end the client's tasks. Later requests fail."""
        self._closed.set()
        for connection in list(self._connections.values()):
            connection.close("this client closed it")

    def _connection(self, address: str) -> Connection:
        """Return the connection with `address`, or one that is being made."""
        connection = self._connections.get(address)
        if connection is not None and not connection.is_closed:
            return connection
        parsed = parse_address(address)
        if self._closed.is_set():
            raise ConnectFailed(address, "this client is closed")
        if len(self._connections) >= self._limits.max_connections:
            raise TooManyConnections(address, self._limits.max_connections)
        connection = Connection(parsed, self._limits.connection)
        connection.gathers_requests = self._gathers
        self._connections[address] = connection
        self._nursery.start_soon(self._run, address, parsed, connection)
        return connection

    async def _run(self, address: str, parsed: Address, connection: Connection) -> None:
        try:
            stream = await self._connect(address, parsed, connection)
            if stream is not None:
                if self._on_connected is not None:
                    self._on_connected(address)
                await connection.run(stream, self._receive)
                _log.debug("connection with %s ended: %s", address, quoted(connection.close_error))
        except Exception:
            _log.exception("the connection with %s failed; a new one is made when needed", address)
        finally:
            connection.close("this client ended it")
            if self._connections.get(address) is connection:
                del self._connections[address]

    async def _connect(
        self, address: str, parsed: Address, connection: Connection
    ) -> trio.abc.Stream | None:
        """Open the stream, or close the connection with the reason. trio sets TCP_NODELAY."""
        reason = f"no answer in {self._limits.connect_s:g} s"
        plain: trio.SocketStream | None = None
        try:
            with trio.move_on_after(self._limits.connect_s):
                plain = await dialled(parsed.host, parsed.port)
                if self._tls is None:
                    return plain
                return await self._tls.dialled(plain, parsed.host)
        except TlsRefused as error:
            reason = error.problem
        except (OSError, UnicodeError, trio.BrokenResourceError) as error:
            # UnicodeError: a name that the domain name system cannot have.
            reason = meaning(error.__cause__ or error)
        if plain is not None:
            await trio.aclose_forcefully(plain)
        connection.close(ConnectFailed(address, reason))
        return None

    def _receive(self, connection: Connection, commands: Sequence[Command]) -> int:
        return answer_each(connection, commands, self._on_request)

    def _sweep_within(self, within_s: float) -> None:
        """Have the sweep check in `within_s` at the latest."""
        due = self._clock() + max(within_s, _LEAST_SWEEP_S)
        if due < self._rest.deadline:  # noqa: PLR1730  # setting it costs as much as a scope
            self._rest.deadline = due

    def _until_the_next_look(self) -> float:
        connections = self._connections.values()
        due = min((one.next_deadline for one in connections), default=math.inf)
        return min(max(due - self._clock(), _LEAST_SWEEP_S), SWEEP_S)

    async def _sleep(self, sleep_s: float) -> None:
        with trio.CancelScope(deadline=self._clock() + sleep_s) as self._rest:
            await self._closed.wait()

    async def _sweep(self) -> None:
        """Time out requests, and close silent connections."""
        late_looks = 0
        while not self._closed.is_set():
            await self._sleep(MOMENT_S if late_looks else self._until_the_next_look())
            now = self._clock()
            if now > self._rest.deadline + LATE_S and late_looks < _MOST_LATE_LOOKS:
                late_looks += 1
                continue  # this process was stopped: it first reads what arrived
            late_looks = 0
            for address, connection in list(self._connections.items()):
                connection.expire(now, MOST_SILENT_S)
                silent = now - connection.last_activity
                if silent >= self._limits.idle_s:
                    connection.close(IdleTooLong(address, silent))


def _answer_unsupported(_connection: Connection, command: Command) -> Command | None:
    return unsupported(command)
