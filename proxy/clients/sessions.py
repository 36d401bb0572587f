"""The clients of this proxy: those that were heard of within the last two minutes.

All of it is soft: a client that moves to another proxy tells everything there anew.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

import trio

from dledger_mq.connection.this_process import now_ms
from proxy.caller import Caller
from proxy.clients.settings import Described, Subscribed
from proxy.statuses import Refused
from proxy.wire.messages_pb2 import ClientType, Code, TelemetryCommand
from remoting.net.bounded_log import about_client
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# RocketMQ's channelExpiredTimeout. Clients in Rust send a heartbeat every 30 s, all others every
# 10 s.
EXPIRE_S: Final = 120.0

_SWEEP_S: Final = 5.0

# Each has a kilobyte, and its connection much more.
MAX_CLIENTS: Final = 50_000

# Topics of all clients: each takes some 300 bytes for each client.
MAX_TOPICS_OF_ALL: Final = 1_000_000

# Of the clients that one host has, so many are looked at for one without a stream.
_LOOKED_AT: Final = 64

# Questions that a client has not taken from its stream: a broker repeats those about transactions.
_MAX_UNTOLD: Final = 256
_MAX_UNTOLD_BYTES: Final = 8 * 1024 * 1024


class Session:
    """A client.

    Attributes:
        client_id: chosen by the client.
        host: the address of its first call.
        kind: what it is; unspecified until its settings say so.
        group: of a consumer; empty for a producer.
        topics: that it produces for, or consumes.
        subscriptions: of a consumer.
        user: that has told its settings; None before, and without access control.
        since_ms: when it was first heard of, since 1970.
        heard_s: when it was last heard of, on trio's clock.
        is_over: it was forgotten.
        caller: in the call of its stream; None without one.
    """

    def __init__(self, client_id: str, host: str) -> None:
        self.client_id: Final = client_id
        self.host: Final = host
        self.kind: ClientType = ClientType.CLIENT_TYPE_UNSPECIFIED
        self.group = ""
        self.topics: frozenset[str] = frozenset()
        self.subscriptions: tuple[Subscribed, ...] = ()
        self.user: str | None = None
        self.since_ms: Final = now_ms()
        self.heard_s = trio.current_time()
        self.is_over = False
        self.caller: Caller | None = None
        self._outbox: list[tuple[TelemetryCommand, int]] = []
        self._changed = trio.lowlevel.ParkingLot()
        self._stream: object | None = None

    @property
    def has_stream(self) -> bool:
        """Whether it can be asked anything."""
        return self._stream is not None

    @property
    def untold_bytes(self) -> int:
        """Of commands that wait for the client's stream."""
        return sum(size for _command, size in self._outbox)

    def tell(self, command: TelemetryCommand) -> None:
        """Send a command by the client's stream. The oldest of too many are dropped, and settings
        that newer ones replace.
        """
        if command.HasField("settings"):
            self._outbox = [one for one in self._outbox if not one[0].HasField("settings")]
        self._outbox.append((command, command.ByteSize()))
        while len(self._outbox) > 1 and (
            len(self._outbox) > _MAX_UNTOLD or self.untold_bytes > _MAX_UNTOLD_BYTES
        ):
            del self._outbox[0]
        self._changed.unpark_all()

    def attach(self, stream: object, caller: Caller) -> None:
        """Send commands by this stream from now on. An older one gets no more."""
        self._stream, self.caller = stream, caller
        self._changed.unpark_all()

    def is_told_by(self, stream: object) -> bool:
        return self._stream is stream

    def detach(self, stream: object) -> None:
        """Forget a stream, and what it was not told: the next one may be another user's. Clients
        tell their settings anew, and brokers repeat their questions.
        """
        if self._stream is stream:
            self._stream = self.caller = None
            self._outbox = []

    def end(self) -> None:
        self.is_over = True
        self._changed.unpark_all()

    async def commands(self, stream: object) -> Iterable[TelemetryCommand] | None:
        """Wait for commands to send by a stream; None once another stream has taken its place, or
        the client was forgotten.
        """
        while self._stream is stream and not self.is_over:
            if self._outbox:
                taken, self._outbox = self._outbox, []
                return [command for command, _size in taken]
            await self._changed.park()
        return None


def _topics_of(sessions: Mapping[str, Session]) -> int:
    return sum(len(one.topics) for one in sessions.values())


class Sessions:
    """The clients by their ids."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}
        # By host and client. The one that was silent for longest is the first of its host.
        self._of_host: dict[str, dict[str, Session]] = {}
        self._producers: dict[str, dict[str, Session]] = {}  # by topic and client
        self._consumers: dict[str, dict[str, Session]] = {}  # by group and client
        self._topics = 0  # of all clients
        self.on_end: list[Callable[[Session], None]] = []

    def __len__(self) -> int:
        return len(self._sessions)

    def find(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    def heard(self, caller: Caller) -> Session:
        """Return the client, which has just called. Raises Refused (42900): there are too many."""
        session = self._sessions.get(caller.client_id)
        if session is None:
            if len(self._sessions) >= MAX_CLIENTS:
                self._make_room(caller.host, len, f"{MAX_CLIENTS} clients")
            session = self._sessions[caller.client_id] = Session(caller.client_id, caller.host)
        self.note(session)
        return session

    def note(self, session: Session) -> None:
        """Note that a client has said something, unless it was forgotten."""
        if session.is_over:
            return
        session.heard_s = trio.current_time()
        of_host = self._of_host.setdefault(session.host, {})
        of_host.pop(session.client_id, None)
        of_host[session.client_id] = session

    def _make_room(
        self, host: str, measure: Callable[[Mapping[str, Session]], int], has: str
    ) -> None:
        """Forget a client of the host that has most, for one of a host that has less: ids cost
        nothing, and one host could take all places.

        Args:
            host: that of the new one.
            measure: what clients have.
            has: what this proxy has, in words.

        Raises Refused (42900): no host has more.
        """
        most = max(self._of_host.values(), key=measure)
        if measure(most) <= measure(self._of_host.get(host, {})) + 1:
            raise Refused(Code.TOO_MANY_REQUESTS, f"this proxy has {has}: use another one")
        sized = (one for one in most.values() if measure({one.client_id: one}))
        longest_silent = list(islice(sized, _LOOKED_AT))
        found = next((one for one in longest_silent if not one.has_stream), longest_silent[0])
        _log.warning(
            "this proxy has %s, of which host %s has %d: others take the places of its clients",
            quoted(has),
            quoted(found.host),
            measure(most),
            extra=about_client(found.host),
        )
        self.end(found.client_id)

    def describe(self, session: Session, described: Described) -> None:
        """Note what a client's settings say, unless it was forgotten meanwhile.

        Raises Refused (42900): clients have too many topics.
        """
        if session.is_over:
            return
        more = len(described.topics) - len(session.topics)
        while more > 0 and self._topics + more > MAX_TOPICS_OF_ALL:
            self._make_room(session.host, _topics_of, f"{MAX_TOPICS_OF_ALL} topics of clients")
        self._topics += more
        self._forget_names(session)
        session.kind, session.group, session.topics, session.subscriptions = described
        if session.kind == ClientType.PRODUCER:
            for topic in session.topics:
                self._producers.setdefault(topic, {})[session.client_id] = session
        elif session.group:
            self._consumers.setdefault(session.group, {})[session.client_id] = session

    def consumers_of(self, group: str) -> list[Session]:
        """Return the members of a group that have told their settings here."""
        return list(self._consumers.get(group, {}).values())

    def producer_of(self, topic: str) -> Session | None:
        """Return a client that produces for a topic and can be asked; another one each time."""
        found = self._producers.get(topic, {})
        for client_id in list(found):
            session = found.pop(client_id)
            found[client_id] = session  # the next question goes to another one
            if session.has_stream:
                return session
        return None

    def end(self, client_id: str) -> None:
        """Forget a client that leaves, or is gone."""
        session = self._sessions.pop(client_id, None)
        if session is not None:
            session.end()
            self._topics -= len(session.topics)
            of_host = self._of_host[session.host]
            del of_host[client_id]
            if not of_host:
                del self._of_host[session.host]
            self._forget_names(session)
            for told in self.on_end:
                told(session)

    def end_all(self) -> None:
        """Forget all clients: this proxy ends, and they go to another one, with their messages."""
        self.on_end.clear()
        for client_id in list(self._sessions):
            self.end(client_id)

    async def expire(self) -> None:
        """Forget silent clients, until cancelled."""
        while True:
            await trio.sleep(_SWEEP_S)
            before = trio.current_time() - EXPIRE_S
            silent = [session for session in self._sessions.values() if session.heard_s < before]
            for session in silent:
                _log.info("client %s was silent for too long", quoted(session.client_id))
                self.end(session.client_id)

    def _forget_names(self, session: Session) -> None:
        if session.kind != ClientType.PRODUCER:
            members = self._consumers.get(session.group, {})
            members.pop(session.client_id, None)
            if not members:
                self._consumers.pop(session.group, None)
            return
        for topic in session.topics:
            others = self._producers.get(topic)
            if others is not None:
                others.pop(session.client_id, None)
                if not others:
                    del self._producers[topic]
