"""What brokers have counted (315)."""

from dataclasses import dataclass

from remoting.bodies.json_object import JsonObject


@dataclass(frozen=True, slots=True)
class WindowTotal:
    """A sum over some time.

    Attributes:
        sum: of what was counted.
        per_second: its rate.
        average: what was counted each time.
    """

    sum: int
    per_second: float
    average: float


@dataclass(frozen=True, slots=True)
class Statistic:
    """What one group of brokers has counted under a name and a key.

    Attributes:
        minute: in the last minute.
        hour: in the last hour.
        day: in the last day.
    """

    minute: WindowTotal
    hour: WindowTotal
    day: WindowTotal


def decode_statistic(body: bytes) -> Statistic:
    """Read RocketMQ's BrokerStatsData.

    Raises:
        BodyMalformed: it is no such body.
    """
    data = JsonObject.parse("statistics", body)
    return Statistic(*(_window(data.object(f"stats{name}")) for name in ("Minute", "Hour", "Day")))


def _window(item: JsonObject) -> WindowTotal:
    return WindowTotal(item.integer("sum"), item.number("tps"), item.number("avgpt"))
