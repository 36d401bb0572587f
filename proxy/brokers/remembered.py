"""Answers of brokers that are remembered for some seconds."""

from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import trio

from proxy.statuses import Refused
from proxy.wire.messages_pb2 import Code

# RocketMQ's proxy takes up to 20 s to notice a change of a topic or a group; so does this one.
FRESH_S: Final = 20.0

# Each has some hundred bytes. Clients name what they like: what was asked first is dropped.
_MAX_REMEMBERED: Final = 10_000

# Codes with which a broker says that there is no such thing: then nothing older counts.
_GONE: Final = frozenset({Code.TOPIC_NOT_FOUND, Code.CONSUMER_GROUP_NOT_FOUND, Code.UNAUTHORIZED})

_Answer = TypeVar("_Answer")


class Remembered(Generic[_Answer]):
    """Answers by name. One that is no longer fresh counts on while no broker answers."""

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, _Answer]] = {}

    async def find(self, name: str, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return the answer for a name, from `ask` if it is not fresh. Raises as `ask`: Refused."""
        found = self._answers.get(name)
        if found is not None and trio.current_time() < found[0]:
            return found[1]
        if found is not None:
            # One question at a time; the others go on with the old answer meanwhile.
            self._answers[name] = (trio.current_time() + FRESH_S, found[1])
        try:
            answer = await ask()
        except Refused as refused:
            if found is None or refused.code in _GONE:
                self._answers.pop(name, None)
                raise
            return found[1]
        while len(self._answers) >= _MAX_REMEMBERED and name not in self._answers:
            del self._answers[next(iter(self._answers))]
        self._answers[name] = (trio.current_time() + FRESH_S, answer)
        return answer
