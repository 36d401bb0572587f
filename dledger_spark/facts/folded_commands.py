"""The state after the commands of a log, which one run of a fold hands to the next.

It is the brokers' own state, folded by their own code, and some more for the tables. If the
beginning of the log is missing, a command may refer to something that missing entries made: it is
assumed to be as the command describes it.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any, Final

from broker.delay.commands import Deliver, DropDelayed, MoveDelayed
from broker.delay.state import DELAYS
from broker.delay.waiting_table import Waiting
from broker.errors import SnapshotUnreadable
from broker.features import REGISTRY, empty_state
from broker.log.command_layout import LogCommand
from broker.log.folded import Folded
from broker.log.state_snapshot import captured, restored
from broker.offsets.commands import CommitOffsets
from broker.offsets.state import OFFSETS
from broker.pop.state import POPS, InFlight, PopQueue
from broker.topics.state import TOPICS
from broker.transactions.commands import Checked, Commit, GiveUp, MoveHalf, Rollback
from broker.transactions.state import TRANSACTIONS, Half
from dledger import Entry
from remoting.bodies.topic_config import TopicConfig

_ENDS_DELAYED: Final = (Deliver, MoveDelayed, DropDelayed)
_OF_TRANSACTION: Final = (Commit, Rollback, GiveUp, MoveHalf)
# Greater than every position.
_NOTHING_KNOWN: Final = 1 << 63


class FoldedCommands:
    """The state after the commands so far.

    `is_whole`: all entries from the log's first one on are folded.

    Attributes:
        state: of the brokers.
        lives: how often each topic was deleted, if it was.
        moved: where delayed messages that were moved were first stored, by their current position.
    """

    def __init__(self, *, is_whole: bool) -> None:
        self.state = empty_state()
        self.lives: dict[str, int] = {}
        self.moved: dict[int, int] = {}
        # Entries before this position are missing; None: the next entry is the first one.
        self._known_from: int | None = 0 if is_whole else None

    def fold(self, command: LogCommand, entry: Entry) -> Folded | None:
        """Fold the next command, whose record, if it has one, the brokers accepted.

        Returns the changes; None if the brokers refuse the command.
        """
        if self._known_from is None:
            self._known_from = entry.pos
        configs = self.state[TOPICS].configs
        assumed: set[str] = set()
        if self._known_from:
            self._assume_waiting(command, self._known_from)
            assumed = _topics_of(command) - configs.keys() - self.lives.keys()
            configs.update((topic, TopicConfig(topic)) for topic in assumed)
        folded = Folded(changes=[])
        refused = REGISTRY.type_of(command).fold(self.state, folded, command, entry)
        for topic in assumed:
            configs.pop(topic, None)  # a command that makes the topic shows where it begins
        return None if refused is not None else folded

    def _assume_waiting(self, command: LogCommand, known_from: int) -> None:
        transactions, waiting = self.state[TRANSACTIONS], self.state[DELAYS].waiting
        positions: tuple[int, ...] = command.positions if isinstance(command, Checked) else ()
        if isinstance(command, _OF_TRANSACTION):
            positions = (command.position,)
        for position in positions:
            if position < known_from and position not in transactions.halves:
                transactions.put(position, Half("", position, 0, 0, 0, 0))
        positions = (command.position,) if isinstance(command, _ENDS_DELAYED) else ()
        for position in positions:
            if position < known_from and position not in waiting:
                waiting.add([Waiting(position, 0, 0)])

    def as_json(self) -> dict[str, Any]:
        return {
            "state": [b64encode(chunk).decode("ascii") for chunk in captured(self.state)],
            "lives": self.lives,
            "moved": list(self.moved.items()),
            "known_from": self._known_from,
        }

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> FoldedCommands:
        """Restore the state from `as_json`. Raises KeyError, ValueError, TypeError."""
        found = cls(is_whole=False)
        found.lives = {str(topic): int(count) for topic, count in content["lives"].items()}
        found.moved = {int(position): int(origin) for position, origin in content["moved"]}
        found._known_from = content["known_from"]
        found.state.close()
        try:
            found.state = restored(map(b64decode, content["state"]), REGISTRY)
        except SnapshotUnreadable as error:
            raise ValueError(str(error)) from error
        return found

    @classmethod
    def of_first_version(cls, content: dict[str, Any]) -> FoldedCommands:
        """Restore the state from an earlier version, which had less. Raises what `of_json` does."""
        existing, lives, created_at = content["topics"]
        found = cls(is_whole=False)
        found._known_from = _NOTHING_KNOWN
        found.lives = {str(topic): int(count) for topic, count in lives.items()}
        found.moved = {int(position): int(origin) for position, origin in content["moved"]}
        topics, offsets, pops = found.state[TOPICS], found.state[OFFSETS], found.state[POPS]
        topics.configs = {topic: TopicConfig(topic) for topic in existing}
        topics.created_at = {str(topic): int(position) for topic, position in created_at.items()}
        for group, topic, queue, offset in content["progress"]:
            offsets.tables.setdefault((group, topic), {})[int(queue)] = int(offset)
        for group, topic, queue, offset in content["resets"]:
            offsets.resets.setdefault((group, topic), {})[int(queue)] = int(offset)
        for group, topic, queue, next_offset, attempt_id, *flights in content["popped"]:
            popped = PopQueue(int(next_offset), attempt_id=str(attempt_id))
            for offset, popped_ms, visible_ms, is_ordered in flights:
                flight = InFlight(int(popped_ms), int(visible_ms), 1, bool(is_ordered))
                popped.in_flight[int(offset)] = flight
            pops.queues[group, topic, int(queue)] = popped
            pops.in_flight_count += len(popped.in_flight)
        return found


def _topics_of(command: LogCommand) -> set[str]:
    """Return the topics that must exist, or the brokers refuse a command."""
    about = command.offsets if isinstance(command, CommitOffsets) else [command]
    found: set[Any] = {getattr(one, "topic", None) for one in about}
    return found - {None}
