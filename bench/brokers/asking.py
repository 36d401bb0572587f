"""One blocking connection to a broker or a name server of RocketMQ's protocol."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Sequence

from remoting.bodies.route import TopicRoute, decode_route
from remoting.net.address import parse_address
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command
from remoting.wire.errors import BodyMalformed, RemotingError
from remoting.wire.frame import FrameDecoder, encode_command
from remoting.wire.signature import Credentials

# RocketMQ's brokers make a topic at the first send as this one is.
TEMPLATE = "TBW102"

_TIMEOUT_S = 10.0
_RECEIVED_BYTES = 65536
# Requests that are under way at once.
_AT_ONCE = 200


class NotAnswered(Exception):
    """A request had no answer; it may be tried again."""


class Asking:
    """A connection. A context manager; its methods raise NotAnswered."""

    def __init__(self, address: str, credentials: Credentials | None = None) -> None:
        self._address = parse_address(address)
        self._credentials = credentials
        self._decoder = FrameDecoder()

    def __enter__(self) -> Asking:
        try:
            self._socket = socket.create_connection(
                (self._address.host, self._address.port), _TIMEOUT_S
            )
        except OSError as error:
            raise NotAnswered(f"{self._address}: {error}") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, command: Command) -> Command:
        return self._ask([command])[0]

    def ask_all(self, commands: Sequence[Command]) -> Iterable[Command]:
        """Send many requests, some at once; yield their replies in any order."""
        for at in range(0, len(commands), _AT_ONCE):
            yield from self._ask(commands[at : at + _AT_ONCE])

    def _ask(self, commands: Sequence[Command]) -> list[Command]:
        for number, command in enumerate(commands):
            command.opaque = number
            if self._credentials is not None:
                self._credentials.sign(command)
        replies: list[Command] = []
        try:
            self._socket.sendall(b"".join(map(encode_command, commands)))
            while len(replies) < len(commands):
                data = self._socket.recv(_RECEIVED_BYTES)
                if not data:
                    raise NotAnswered(f"{self._address} has closed the connection")
                replies += [one for one in self._decoder.feed(data) if one.is_response]
        except (OSError, RemotingError) as error:
            raise NotAnswered(f"{self._address}: {error}") from None
        return replies


def is_listening(address: str) -> bool:
    at = parse_address(address)
    try:
        with socket.create_connection((at.host, at.port), _TIMEOUT_S):
            return True
    except OSError:
        return False


def route(nameserver: str, topic: str) -> TopicRoute | None:
    """Return the route of a topic; None if the name server does not know it. Raises NotAnswered."""
    with Asking(nameserver) as asking:
        reply = asking.ask(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))
    if reply.code != ResponseCode.SUCCESS:
        return None
    try:
        return decode_route(reply.body)
    except BodyMalformed as error:
        # RocketMQ's brokers of 5.3 have the number -1 before their first election.
        raise NotAnswered(f"{nameserver}: {error}") from None


def leader_address(nameserver: str) -> str | None:
    """Return the address that name servers call the master. Raises NotAnswered."""
    found = route(nameserver, TEMPLATE)
    masters = [one.master for one in found.brokers] if found is not None else []
    return next((master for master in masters if master), None)


def send_one(address: str, topic: str, credentials: Credentials | None = None) -> bool:
    """Store one message; return whether the broker took it. Raises NotAnswered."""
    fields = {
        "producerGroup": "bench",
        "topic": topic,
        "defaultTopic": TEMPLATE,
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(time.time_ns() // 1_000_000),
        "flag": "0",
        "properties": "",
        "reconsumeTimes": "0",
        "unitMode": "false",
        "batch": "false",
    }
    with Asking(address, credentials) as asking:
        reply = asking.ask(Command(RequestCode.SEND_MESSAGE, fields, b"ready"))
    return reply.code == ResponseCode.SUCCESS


def make_topics(
    address: str, names: Sequence[str], queues: int, credentials: Credentials | None = None
) -> None:
    """Raises NotAnswered when one is refused."""
    requests = [
        Command(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": name,
                "defaultTopic": TEMPLATE,
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            },
        )
        for name in names
    ]
    with Asking(address, credentials) as asking:
        for reply in asking.ask_all(requests):
            if reply.code != ResponseCode.SUCCESS:
                raise NotAnswered(f"a topic was refused: {reply.code} {reply.remark}")
