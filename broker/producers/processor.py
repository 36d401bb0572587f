"""Answers operators' requests about producers (204, 328).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Iterator
from typing import Final

from broker.errors import RequestRefused
from broker.producers.members import PRODUCERS, Producer
from broker.serving.memberships import Client
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

# Producers in one answer.
_MAX_TOLD: Final = 10_000


class ProducerProcessor:
    """Lists the connected producers."""

    def __init__(self, parts: Parts) -> None:
        self._producers = parts[PRODUCERS]
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._work = parts.work

    def connections(self, _origin: Origin, command: Command) -> Steps:
        """List the members of one group (204). Raises RequestRefused (1): it has no member."""
        group = command.name("producerGroup")
        members = self._producers.members(group)
        if not members:
            raise RequestRefused.failed(f"the producer group[{group:.120}] not exist")
        connections: list[str] = []
        for piece in pieces(list(members.items())[:_MAX_TOLD]):
            connections += [compact_json(_connection(*one)) for one in piece]
            yield
        body = f'{{"connectionSet":[{",".join(connections)}]}}'
        return command.reply(body=body.encode())

    def all_producers(self, _origin: Origin, command: Command) -> Steps:
        """List the members of all groups (328)."""
        told: list[str] = []
        left = _MAX_TOLD
        for group in self._producers.groups():
            members = list(self._producers.members(group).items())[:left]
            left -= len(members)
            rows: list[str] = []
            for piece in pieces(members):
                rows += [compact_json(self._row(*one)) for one in piece]
                yield
            told.append(f"{compact_json(group)}:[{','.join(rows)}]")
            if not left:
                break
        return command.reply(body=f'{{"data":{{{",".join(told)}}}}}'.encode())

    def drop(self, origin: Origin) -> None:
        """Forget the producers of a connection that has ended."""
        self._work.begin("dropping producers that disconnected", self._dropping(origin))

    def _dropping(self, origin: Origin) -> Iterator[None]:
        while self._producers.drop_some(origin):
            yield

    def expire(self) -> None:
        self._work.begin("dropping silent producers", self._expiring(self._clock()))

    def _expiring(self, now: float) -> Iterator[None]:
        while self._producers.expire(now):
            yield

    def _row(self, client: Client, member: Producer) -> JsonValue:
        silent_ms = round((self._clock() - member.last_heartbeat) * 1000)
        return {
            "clientId": member.client_id,
            "language": _language(member),
            "lastUpdateTimestamp": self._wall_clock_ms() - silent_ms,
            "remoteIP": str(client.origin.peer),
            "version": member.version,
        }


def _connection(client: Client, member: Producer) -> JsonValue:
    return {
        "clientAddr": str(client.origin.peer),
        "clientId": member.client_id,
        "language": _language(member),
        "version": member.version,
    }


def _language(member: Producer) -> str:
    return getattr(member.language, "name", str(member.language))
