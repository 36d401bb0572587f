"""Answers what operators ask about producers (204, 328).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Callable
from typing import Final

from broker.errors import RequestRefused
from broker.producers.members import Producer, Producers
from broker.serving.origin import Origin
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

# In one answer; the members of so many are a few milliseconds of the event loop.
_MAX_TOLD: Final = 10_000


class ProducerProcessor:
    """Tells which producers are connected.

    Args:
        producers: the members of the groups.
        wall_clock_ms: milliseconds since 1970.
        clock: seconds on the monotonic clock.
    """

    def __init__(
        self,
        producers: Producers,
        wall_clock_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._producers = producers
        self._wall_clock_ms = wall_clock_ms
        self._clock = clock

    def connections(self, _origin: Origin, command: Command) -> Command:
        """The members of one group (204).

        Raises:
            FieldMissing: the group is not named.
            RequestRefused (1): it has no member.
        """
        group = command.name("producerGroup")
        members = self._producers.members(group)
        if not members:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{group:.120}] not exist"
            )
        told = list(members.items())[:_MAX_TOLD]
        connections = [
            {
                "clientAddr": str(origin.peer),
                "clientId": member.client_id,
                "language": _language(member),
                "version": member.version,
            }
            for origin, member in told
        ]
        return command.reply(body=compact_json({"connectionSet": connections}).encode())

    def all_producers(self, _origin: Origin, command: Command) -> Command:
        """The members of all groups (328)."""
        told: dict[str, JsonValue] = {}
        left = _MAX_TOLD
        for group in self._producers.groups():
            members = list(self._producers.members(group).items())[:left]
            left -= len(members)
            told[group] = [self._row(origin, member) for origin, member in members]
            if not left:
                break
        return command.reply(body=compact_json({"data": told}).encode())

    def drop(self, origin: Origin) -> None:
        """A connection is gone."""
        self._producers.drop(origin)

    def expire(self) -> None:
        """Drop members that have been silent for too long."""
        self._producers.expire(self._clock())

    def _row(self, origin: Origin, member: Producer) -> JsonValue:
        silent_ms = round((self._clock() - member.last_heartbeat) * 1000)
        return {
            "clientId": member.client_id,
            "language": _language(member),
            "lastUpdateTimestamp": self._wall_clock_ms() - silent_ms,
            "remoteIP": str(origin.peer),
            "version": member.version,
        }


def _language(member: Producer) -> str:
    return getattr(member.language, "name", str(member.language))
