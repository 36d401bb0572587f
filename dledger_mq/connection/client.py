"""A client: its identity, connections and routes, and the heartbeats that keep it registered."""

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias, TypeVar

import trio

from dledger.errors import ConfigInvalid
from dledger.renamed import renamed_arguments
from dledger.wake_up import WakeUp
from dledger_mq.argument_checks import kind_of
from dledger_mq.connection import requests
from dledger_mq.connection.identity import Identity, check_client_id
from dledger_mq.connection.lifetime import Background, Lifetime
from dledger_mq.connection.replies import AwaitedReplies
from dledger_mq.connection.routes import Routes, read_nameservers
from dledger_mq.connection.running_info import RunningInfo, encode_offsets, encode_running_info
from dledger_mq.connection.side_work import SideWork
from dledger_mq.connection.silence_watch import SilenceWatch
from dledger_mq.connection.this_process import new_identity
from dledger_mq.connection.topic_route import ClientRoute
from dledger_mq.errors import GroupInUse, InvalidCredentials, InvalidTls
from dledger_mq.listener_watch import ListenerWatch
from remoting.bodies.heartbeat import ConsumerData, Heartbeat
from remoting.message.errors import MessageMalformed
from remoting.message.properties import PRODUCER_GROUP
from remoting.message.record import decode_record
from remoting.net.client import RemotingClient
from remoting.net.connection import Connection
from remoting.net.dispatch import unsupported
from remoting.net.tls import ClientTls
from remoting.net.tls_config import Tls
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import RemotingError
from remoting.wire.signature import Credentials
from remoting.wire.users import secret_problem, user_problem

_log = logging.getLogger(__name__)

# RocketMQ's heartbeatBrokerInterval; brokers forget a client after 120 s of silence.
HEARTBEAT_S: Final = 30.0

# For heartbeats, commits and leaving: RocketMQ's client gives them this long.
HOUSEKEEPING_TIMEOUT_S: Final = 3.0

# Unregistering is a courtesy: the broker also sees the connection close.
LEAVE_TIMEOUT_S: Final = 1.0

Outcome: TypeAlias = "Command | RemotingError"
Asked: TypeAlias = Callable[[Connection, Command], None]
_Part = TypeVar("_Part")


@dataclass(frozen=True, slots=True)
class ConsumerEntry:
    """A consumer of this client.

    Attributes:
        data: its part of heartbeats.
        on_members_changed: called when a broker says that the group's members changed.
        running_info: returns the consumer's own report.
        asked_to_consume: consumes the message of a request (309), and passes the answer to its
            second argument.
    """

    data: ConsumerData
    on_members_changed: Callable[[], None]
    running_info: Callable[[], RunningInfo]
    asked_to_consume: Callable[[Command, Callable[[Command], None]], None]


class Client:
    """The identity, connections and routes that producers and consumers share: one for a process.

    A producer or consumer that is given name servers instead opens a client of its own.

    Args:
        nameservers: "host:port" each, or one text with semicolons between them.
        client_id: the id that brokers know it by; None for one that no other client has. Members of
            a group share its queues by their ids, so no two may have the same.
        credentials: the user that it is, where brokers have access control.
        tls: TLS with all name servers and brokers; plain connections if None.

    Attributes:
        replies: the requests that wait for a consumer's reply.
        side_work: runs long computations in threads.
        lifetime: of its block.
        listener_watch: watches the calls of users' functions.

    Raises:
        InvalidNameServers: there is none, or one is no address.
        InvalidClientId: the id is empty, longer than 255 characters, or not printable.
        InvalidTls: the certificates cannot be used.
    """

    def __init__(
        self,
        nameservers: str | Sequence[str],
        *,
        client_id: str | None = None,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
    ) -> None:
        if client_id is not None:
            check_client_id(client_id)
        self._given_id = client_id
        self._credentials = _read_credentials(credentials)
        self._nameservers = read_nameservers(nameservers)
        self._tls = _read_tls(tls)
        self.lifetime = Lifetime(
            "client", "Client", "give `nameservers` to what would share it, and open that"
        )
        self._stack = AsyncExitStack()
        self._remoting: RemotingClient | None = None
        self._routes: Routes | None = None
        self._silence: SilenceWatch | None = None
        self._identity: Identity | None = None
        self._producers: dict[str, list[Asked | None]] = {}
        self.replies = AwaitedReplies()
        self.side_work = SideWork()
        self.listener_watch = ListenerWatch()
        self._consumers: dict[str, ConsumerEntry] = {}
        self._others: dict[int, Asked] = {}
        self._met: set[str] = set()  # masters that this client has been connected to
        self._heartbeat_wanted = WakeUp()

    async def __aenter__(self) -> "Client":
        """Start the tasks of the client; nothing is sent yet.

        Raises:
            OpenedTwice: it was opened before.
        """
        self.lifetime.open()
        self._identity = new_identity(self._nameservers[0], self._given_id)
        nursery = await self._stack.enter_async_context(
            Background(self.lifetime, until_the_end=True)
        )
        self._remoting = RemotingClient(
            nursery,
            self._answer,
            on_connected=self._connected,
            tls=self._tls,
            credentials=self._credentials,
        )
        self._routes = Routes(self._remoting, self._nameservers)
        self._routes.watch(self._route_changed)
        self._silence = SilenceWatch(self._remoting, self._routes)
        nursery.start_soon(self._routes.keep_fresh)
        nursery.start_soon(self._silence.run)
        nursery.start_soon(self._keep_known)
        nursery.start_soon(self.listener_watch.run)
        return self

    async def __aexit__(self, *raised: object) -> None:
        self.lifetime.close()
        if self._remoting is not None:
            self._remoting.close()
        await self._stack.aclose()
        self._remoting = None

    def check_open(self) -> None:
        """Check that the client is open, in this trio loop.

        Raises:
            ClientClosed: its block has not begun, or has ended.
            OtherLoop: it was opened in another trio loop.
        """
        self.lifetime.check()

    @property
    def remoting(self) -> RemotingClient:
        """The connections. Raises ClientClosed, OtherLoop."""
        self.lifetime.check_loop()
        return self._opened(self._remoting)

    @property
    def routes(self) -> Routes:
        """The routes, also after the end of the block. Raises ClientClosed, OtherLoop."""
        self.lifetime.check_loop()
        return self._opened(self._routes)

    @property
    def silence(self) -> SilenceWatch:
        """The watch over brokers that hold pulls. Raises ClientClosed if it was never opened."""
        return self._opened(self._silence)

    @property
    def identity(self) -> Identity:
        """The name of the client. Raises ClientClosed if it was never opened."""
        return self._opened(self._identity)

    @property
    def client_id(self) -> str:
        """The id that brokers know this client by."""
        return self.identity.client_id

    def add_producer(self, group: str, asked: Asked | None = None) -> None:
        """Name a producer group in heartbeats.

        Args:
            group: the group.
            asked: called when a broker asks for the state of a transaction of the group.
        """
        self._producers.setdefault(group, []).append(asked)

    async def remove_producer(self, group: str, asked: Asked | None = None) -> None:
        """Leave a producer group; the brokers are told if no other producer here is in it."""
        self._producers[group].remove(asked)
        if not self._producers[group]:
            del self._producers[group]
            await self._leave(requests.unregister(self.client_id, producer_group=group))

    def answer(self, code: RequestCode, asked: Asked) -> None:
        """Have requests of brokers answered by `asked` alone."""
        self._others[code] = asked

    def add_consumer(self, entry: ConsumerEntry) -> None:
        """Name a consumer in heartbeats.

        Raises:
            GroupInUse: this client already has one of the same group.
        """
        if entry.data.group in self._consumers:
            raise GroupInUse(entry.data.group)
        self._consumers[entry.data.group] = entry

    async def remove_consumer(self, group: str) -> None:
        """Leave a consumer group; the brokers tell the other members."""
        del self._consumers[group]
        await self._leave(requests.unregister(self.client_id, consumer_group=group))

    async def send_heartbeats(self, addresses: Sequence[str] | None = None) -> None:
        """Register this client's groups with brokers now; failures are logged.

        Args:
            addresses: the brokers; all known masters when None.
        """
        if not self._producers and not self._consumers:
            return
        content = Heartbeat(
            self.client_id,
            list(self._producers),
            [entry.data for entry in self._consumers.values()],
        )
        targets = sorted(self.routes.masters()) if addresses is None else list(addresses)
        outcomes = await self.request_all(
            [(address, requests.heartbeat(content)) for address in targets]
        )
        for address, outcome in zip(targets, outcomes, strict=True):
            if isinstance(outcome, RemotingError):
                _log.info("heartbeat to %s failed: %s", address, outcome)
            elif outcome.code == ResponseCode.NO_PERMISSION:
                _log.warning("heartbeat to %s refused: %s", address, outcome.remark)
            elif outcome.code:
                _log.info("heartbeat to %s refused: %d %s", address, outcome.code, outcome.remark)

    @renamed_arguments(timeout_seconds="timeout_s")
    async def request_all(
        self,
        wanted: Sequence[tuple[str, Command]],
        timeout_s: float = HOUSEKEEPING_TIMEOUT_S,
    ) -> list[Outcome]:
        """Send requests at once; wait for all outcomes, in the order of the requests.

        Args:
            wanted: the address and the request of each.
            timeout_s: how long each may take.
        """
        outcomes: dict[int, Outcome] = {}
        done = trio.Event()

        def settle(number: int, outcome: Outcome) -> None:
            outcomes[number] = outcome
            if len(outcomes) == len(wanted):
                done.set()

        for number, (address, command) in enumerate(wanted):
            settled = partial(settle, number)
            self.remoting.request_nowait(address, command, settled, timeout_s)
        if wanted:
            await done.wait()
        return [outcomes[number] for number in range(len(wanted))]

    def _opened(self, part: _Part | None) -> _Part:
        """Raises ClientClosed."""
        if part is None:
            raise self.lifetime.closed()
        return part

    def _answer(self, connection: Connection, command: Command) -> Command | None:
        """Answer a request of a broker; None if the answer follows later."""
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            entry = self._consumers.get(command.fields.get("consumerGroup", ""))
            if entry is not None:
                entry.on_members_changed()
            return command.reply()
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            self.replies.pushed(command)
            return command.reply()
        if command.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._asked(connection, command)
            return None
        if command.code == RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT:
            return self._report(
                command,
                command.fields.get("group", ""),
                lambda info: encode_offsets(info, command.fields.get("topic", "")),
            )
        if (answers := self._others.get(command.code)) is not None:
            answers(connection, command)
            return None
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return self._report(
                command, command.fields.get("consumerGroup", ""), encode_running_info
            )
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            group = command.fields.get("consumerGroup", "")
            entry = self._consumers.get(group)
            if entry is None:
                return _no_consumer(command, group)
            entry.asked_to_consume(command, connection.send)
            return None
        return unsupported(command)

    def _report(
        self, command: Command, group: str, encode: Callable[[RunningInfo], bytes]
    ) -> Command:
        entry = self._consumers.get(group)
        if entry is None:
            return _no_consumer(command, group)
        return command.reply(body=encode(entry.running_info()))

    def _asked(self, connection: Connection, command: Command) -> None:
        """Pass a broker's question to a producer of the group that has a transaction check."""
        try:
            group = decode_record(command.body)[0].property_map().get(PRODUCER_GROUP, "")
        except MessageMalformed as error:
            _log.warning("a broker's question about a transaction cannot be read: %s", error)
            return
        for asked in self._producers.get(group, ()):
            if asked is not None:
                asked(connection, command)
                return

    def _route_changed(self, _route: ClientRoute) -> None:
        """Send heartbeats: there may be a broker that does not know this client yet."""
        self._heartbeat_wanted.set()

    def _connected(self, address: str) -> None:
        """Send heartbeats after a reconnection: a broker forgets a client with its connection."""
        if address in self._met:
            self._heartbeat_wanted.set()
        self._met = (self._met | {address}) & self.routes.masters()

    async def _keep_known(self) -> None:
        while True:
            with trio.move_on_after(HEARTBEAT_S):
                await self._heartbeat_wanted.wait()
            await self.send_heartbeats()

    async def _leave(self, command: Command) -> None:
        connected = [one for one in self.routes.masters() if self.remoting.is_connected(one)]
        with trio.move_on_after(LEAVE_TIMEOUT_S, shield=True):
            await self.request_all(
                [(address, Command(command.code, dict(command.fields))) for address in connected],
                LEAVE_TIMEOUT_S,
            )


def _no_consumer(command: Command, group: str) -> Command:
    remark = f"the consumer group <{group:.120}> not exist in the consumer"
    return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)


def _read_credentials(credentials: Credentials | None) -> Credentials | None:
    """Raises InvalidCredentials."""
    if credentials is not None:
        if not isinstance(credentials, Credentials):
            raise InvalidCredentials(f"give Credentials(...), not {kind_of(credentials)}")
        for value in (credentials.access_key, credentials.secret_key):
            if not isinstance(value, str):
                raise InvalidCredentials(f"names and secrets are texts, not {kind_of(value)}")
        problem = user_problem(credentials.access_key) or secret_problem(credentials.secret_key)
        if problem is not None:
            raise InvalidCredentials(problem)
    return credentials


def _read_tls(config: Tls | None) -> ClientTls | None:
    """Raises InvalidTls."""
    if config is not None and not isinstance(config, Tls):
        raise InvalidTls(f"give Tls(...), not {kind_of(config)}")
    try:
        return None if config is None else ClientTls(config)
    except (ConfigInvalid, TypeError, ValueError) as error:  # the last two: no names of files
        raise InvalidTls(str(error)) from error
