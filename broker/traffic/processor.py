"""Answers requests for statistics by topic and group (315).

Source: RocketMQ's AdminBrokerProcessor and BrokerStatsManager.
"""

import json

from broker.errors import RequestRefused
from broker.offsets.state import OFFSETS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER
from broker.traffic.counter import Total
from broker.traffic.traffic import TRAFFIC, Counted
from remoting.wire.command import Command
from remoting.wire.field_values import read_int32

_FALL_SIZE = "GROUP_GET_FALL_SIZE"
_FALL_TIME = "GROUP_GET_FALL_TIME"


class TrafficProcessor:
    def __init__(self, parts: Parts) -> None:
        self._traffic = parts[TRAFFIC]
        self._offsets = parts.state[OFFSETS]
        self._reader = parts[MESSAGE_READER]
        self._wall_clock_ms = parts.wall_clock_ms

    def view(self, _origin: Origin, command: Command) -> Command:
        """Return sums and rates of the last minute, hour and day.

        The lag of a group, in bytes and in milliseconds, is that of the moment.

        Raises RequestRefused (1): there is no counter with this name and key.
        """
        name, key = command.text("statsName"), command.text("statsKey")
        if name in (_FALL_SIZE, _FALL_TIME):
            behind = self._behind(key, in_time=name == _FALL_TIME)
            if behind is None:
                raise _unknown(name, key)
            total = Total(behind, 1, 1)
            return _reply(command, total, total, total)
        counted = Counted.__members__.get(name)
        counter = None if counted is None else self._traffic.counter(counted, key)
        if counted is None or counter is None:
            raise _unknown(name, key)
        now = self._traffic.second
        totals = counter.minute(now), counter.hour(now), counter.day(now)
        return _reply(command, *totals, units=1000 if counted.is_time else 1)

    def _behind(self, key: str, *, in_time: bool) -> int | None:
        """Return the lag of a group in a queue; the key is `queue@topic@group`."""
        number, _, rest = key.partition("@")
        topic, _, group = rest.partition("@")
        queue_id = read_int32(number)
        if queue_id is None:
            return None
        committed = self._offsets.committed(group, topic, queue_id)
        if committed is None:
            return None
        at = max(committed, self._reader.begin(topic, queue_id))
        if in_time:
            stored_ms = self._reader.store_timestamp_ms(topic, queue_id, at)
            return 0 if stored_ms is None else max(0, self._wall_clock_ms() - stored_ms)
        return self._reader.distance_bytes(topic, queue_id, at)


def _unknown(name: str, key: str) -> RequestRefused:
    return RequestRefused.failed(f"The stats <{name:.100}> <{key:.200}> not exist")


def _reply(command: Command, minute: Total, hour: Total, day: Total, units: int = 1) -> Command:
    """Reply with totals, divided by `units`. RocketMQ's tools read a sum as a whole number."""
    named = {"statsMinute": minute, "statsHour": hour, "statsDay": day}
    content = {
        name: {
            "sum": one.sum // units,
            "tps": round(one.per_second / units, 3),
            "avgpt": round(one.average / units, 3),
        }
        for name, one in named.items()
    }
    return command.reply(body=json.dumps(content).encode())
