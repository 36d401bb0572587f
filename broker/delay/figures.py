"""Answers requests about the progress of delayed messages (45, 60, 61).

RocketMQ's slaves copy these, and its tools show them. Here every member computes them from the log.
Source: RocketMQ's AdminBrokerProcessor.
"""

import struct
from collections import deque
from collections.abc import Mapping
from typing import Final

from broker.delay.due import LEVEL_MS
from broker.delay.state import DELAYS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER
from broker.topics.names import TIMER_TOPIC
from remoting.bodies.topic_config import DataVersion
from remoting.message.topic_names import SCHEDULE_TOPIC
from remoting.wire.command import Command
from remoting.wire.loose_json import JsonValue, compact_json

# RocketMQ's TimerCheckpoint: times and offsets of its timer, and a version of three numbers.
_CHECKPOINT: Final = struct.Struct(">7q")

# Samples are ten seconds apart: rates are those of the last minute.
_SAMPLES: Final = 7


class DelayFigures:
    def __init__(self, parts: Parts) -> None:
        self._state = parts.state
        self._delays = parts.state[DELAYS]
        self._reader = parts[MESSAGE_READER]
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=_SAMPLES)

    def sample(self) -> None:
        """Remember how many have come and gone; called every ten seconds."""
        self._samples.append(self._counts())

    def _counts(self) -> tuple[float, int, int]:
        """Return the time, in seconds; how many messages have come; and how many have gone."""
        gone = self._delays.delivered + self._delays.dropped
        return self._clock(), gone + len(self._delays.waiting), gone

    def _rates(self) -> tuple[float, float]:
        """Return how many came and went per second, over the last minute."""
        at, came, went = self._counts()
        began, came_before, went_before = self._samples[0] if self._samples else (at, came, went)
        if at <= began:
            return 0.0, 0.0
        return (came - came_before) / (at - began), (went - went_before) / (at - began)

    def level_offsets(self, _origin: Origin, command: Command) -> Command:
        """Return the first waiting offset of each level with messages (45)."""
        table: dict[str, JsonValue] = {
            str(level): first for level, (first, _end) in self._levels().items()
        }
        body: dict[str, JsonValue] = {
            "dataVersion": DataVersion(self._delays.delivered).to_json(),
            "offsetTable": table,
        }
        return command.reply(body=compact_json(body).encode())

    def figures(self) -> Mapping[str, str]:
        """Return the figures for code 28, by RocketMQ's names where it has some.

        For each level with messages the first waiting offset and the queue's end; how late the
        timer is, in seconds; how many messages wait, and how many come and go per second.
        """
        came, went = self._rates()
        now_ms = self._wall_clock_ms()
        overdue = self._delays.waiting.due(now_ms, 0, 1)
        return {
            **{
                f"scheduleMessageOffset_{level}": f"{first},{end}"
                for level, (first, end) in self._levels().items()
            },
            "timerCongestNum": str(len(self._delays.waiting)),
            "timerOffsetBehind": "0",  # all applied messages are on the timer
            "timerDequeueTps": f"{went:.2f}",
            "timerEnqueueTps": f"{came:.2f}",
            "dledgerDelayedDelivered": str(self._delays.delivered),
            "dledgerDelayedDropped": str(self._delays.dropped),
            "dledgerDelayedWaiting": str(len(self._delays.waiting)),
            "timerReadBehind": str((now_ms - overdue[0].due_ms) // 1000 if overdue else 0),
        }

    def _levels(self) -> Mapping[int, tuple[int, int]]:
        ends = {queue: self._reader.end(SCHEDULE_TOPIC, queue) for queue in range(len(LEVEL_MS))}
        return {queue + 1: (self._first_waiting(queue), end) for queue, end in ends.items() if end}

    def _first_waiting(self, queue_id: int) -> int:
        """Find the first waiting offset of a level.

        All messages of a level wait equally long, so waiting ones follow delivered ones. Only a
        message that retention has moved follows some that wait longer.
        """
        low = self._reader.begin(SCHEDULE_TOPIC, queue_id)
        high = self._reader.end(SCHEDULE_TOPIC, queue_id)
        while low < high:
            middle = (low + high) // 2
            units = self._reader.units(SCHEDULE_TOPIC, queue_id, middle, 1)
            if units and units[0][0] not in self._delays.waiting:
                low = middle + 1
            else:
                high = middle
        return low

    def timer_checkpoint(self, _origin: Origin, command: Command) -> Command:
        """Return the progress of the timer (60): everything applied."""
        end = self._reader.end(TIMER_TOPIC, 0)
        body = _CHECKPOINT.pack(
            *(self._wall_clock_ms(), self._state.log_end, end, end),
            *(0, self._wall_clock_ms(), self._delays.delivered),
        )
        return command.reply(body=body)

    def timer_metrics(self, _origin: Origin, command: Command) -> Command:
        """Return how many messages wait, over all topics (61). RocketMQ counts by topic."""
        waiting = {"count": len(self._delays.waiting), "timeStamp": self._wall_clock_ms()}
        body: dict[str, JsonValue] = {
            "dataVersion": DataVersion(self._delays.delivered).to_json(),
            "timingCount": {TIMER_TOPIC: dict[str, JsonValue](waiting)},
        }
        return command.reply(body=compact_json(body).encode())
