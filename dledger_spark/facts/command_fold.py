"""Folds the commands of a broker's log into rows of facts, as the brokers fold them.

What a command changes may depend on those before: a commit of offsets does not count for a topic
that was deleted and made again, nor for a group that an operator has moved meanwhile; an
acknowledgement counts for the last time that a message was given. So the fold keeps as much of the
state of a broker as that needs.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

from dledger.declared_error import DeclaredError
from dledger_spark.acceptance import is_topic_config
from dledger_spark.facts.broker_command import BrokerCommand
from dledger_spark.facts.command_kinds import KINDS
from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.known_topics import KnownTopics
from dledger_spark.facts.popped import Popped, QueueKey

_HEADER_BYTES: Final = 48
_MAX_NATURAL: Final = (1 << 63) - 1
_VERSION_WITH_LIMITS: Final = 3
_VERSION_OF_ATTACHED: Final = 4
_VERSION_WITH_TIME_OF_ENDS: Final = 6  # of ends of resets
# Commands behind a record, by their kinds.
_ATTACHED: Final = frozenset({10, 11, 12, 14, 15, 18, 19, 26, 31, 34})
_SINCE_ATTACHED: Final = frozenset({*range(10, 28), 30, 31, 32, 34})


class Refused(DeclaredError):
    """A command that brokers pass over: its members make no sense."""


class CommandFold:
    """The fold of one log.

    Args:
        rows: where rows go.
        is_whole: whether it begins with the log's first entry.
    """

    def __init__(self, rows: FactRows, *, is_whole: bool) -> None:
        self._rows = rows
        self.topics = KnownTopics(is_whole=is_whole)
        self._popped = Popped()
        # Entries that deleted topics, since the caller last emptied the list.
        self.deletions: list[tuple[int, str]] = []
        # The next message to consume, by consumer group and topic, then by queue.
        self.progress: dict[tuple[str, str], dict[int, int]] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        # Where delayed messages that were moved were stored first.
        self._moved: dict[int, int] = {}
        self._folds: dict[int, Callable[..., None]] = {
            1: self._put_topic,
            2: self._delete_topic,
            4: self._delete_group,
            5: self._commit_offsets,
            10: self._delay,
            11: self._deliver,
            12: self._move_delayed,
            13: self._drop_delayed,
            14: self._prepare,
            15: self._commit,
            16: self._roll_back,
            17: self._checked,
            18: self._give_up,
            19: self._move_half,
            21: self._reset,
            22: self._end_reset,
            23: self._pop,
            24: self._acknowledge,
            25: self._hide,
            26: self._bury,
            31: self._resume,
            34: self._redrive,
        }

    def fold(self, command: BrokerCommand, log_ms: int | None) -> None:
        """Add the rows of one command.

        Args:
            command: the next one.
            log_ms: the store time of the newest message before it; None without one.
        """
        kind = KINDS.get(command.kind)
        if kind is None or (command.kind in _ATTACHED) is not command.is_attached:
            return
        if command.kind in _SINCE_ATTACHED and command.version < _VERSION_OF_ATTACHED:
            return
        members = command.members
        if len(members) > len(kind.members):
            return
        at_ms = log_ms
        if kind.time_at is not None and kind.time_at < len(members):
            at_ms = members[kind.time_at]
            if type(at_ms) is not int:
                return
        head = (command.index, at_ms)
        fold = self._folds.get(command.kind)
        if fold is not None:
            try:
                fold(head, command, *members)
            except (Refused, TypeError, ValueError):
                return  # members that make no sense: brokers pass the command over
        told = kind.spelt_out(members)
        about = dict(told)
        for part in told.values():  # such as the configuration of a topic, which has its name
            if isinstance(part, dict):
                about |= part
        topic, group = about.get("topic"), about.get("group")
        self._rows.add(
            *("commands", *head, command.term, command.kind, kind.name, command.version),
            command.is_attached,
            topic if isinstance(topic, str) else None,
            group if isinstance(group, str) else None,
            json.dumps(told, separators=(",", ":"), default=_as_text),
        )

    # --- topics and groups --------------------------------------------------------------------

    def _put_topic(
        self, _head: Any, command: BrokerCommand, config: Any, at_ms: int, _flag: Any, *limit: int
    ) -> None:
        has_limit = command.version >= _VERSION_WITH_LIMITS
        if len(limit) != has_limit or not isinstance(config, list) or not is_topic_config(config):
            raise Refused
        most = _number(limit[0]) if limit else None
        self.topics.put(config[0], command.position - _HEADER_BYTES, most)

    def _delete_topic(self, head: Any, _command: BrokerCommand, topic: Any, at_ms: Any) -> None:
        _number(at_ms)
        if not self.topics.delete(_text(topic)):
            return
        self.deletions.append((head[0], topic))
        self._forget(head, 1, topic)
        self._popped.drop_topic(topic)

    def _delete_group(self, head: Any, _command: BrokerCommand, group: Any, offsets: Any) -> None:
        self._popped.drop_group(_text(group))
        if offsets:
            self._forget(head, 0, group)

    def _forget(self, head: Any, at: int, name: str) -> None:
        for key in [key for key in self.progress if key[at] == name]:
            for queue in self.progress.pop(key):
                life = self.topics.life(key[1]) - (at == 1)
                row = (*head, *key, life, queue, None, "forgotten")
                self._rows.add("consumer_progress", *row)
        for reset in [key for key in self._resets if key[at] == name]:
            del self._resets[reset]

    # --- progress -----------------------------------------------------------------------------

    def _commit_offsets(
        self, head: Any, command: BrokerCommand, offsets: Any, *numbers: int
    ) -> None:
        if len(numbers) != min(command.version - 1, 2):
            raise Refused
        as_of = numbers[1] if len(numbers) > 1 else None
        commits = [
            (_text(group), _text(topic), _number(queue), _number(offset))
            for group, topic, queue, offset in offsets
        ]
        last = {}  # the last one of a queue counts
        for group, topic, queue, offset in commits:
            if as_of is not None and not self.topics.existed(topic, _number(as_of)):
                continue
            if self._resets.get((group, topic, queue), offset) == offset:
                last[group, topic, queue] = offset
        for key, offset in last.items():
            self._progress(head, *key, offset, "committed")

    def _progress(
        self, head: Any, group: str, topic: str, queue: int, offset: int, source: str
    ) -> None:
        queues = self.progress.setdefault((group, topic), {})
        if queues.get(queue) == offset:
            return
        queues[queue] = offset
        row = (*head, group, topic, self.topics.life(topic), queue, offset, source)
        self._rows.add("consumer_progress", *row)

    def _reset(
        self,
        head: Any,
        _command: BrokerCommand,
        group: Any,
        topic: Any,
        offsets: Any,
        at_ms: Any,
        as_of: Any,
    ) -> None:
        table = {_natural(queue): _natural(offset) for queue, offset in offsets}
        _text(group), _natural(at_ms)
        if not table or not self.topics.existed(_text(topic), _natural(as_of)):
            raise Refused
        for queue, offset in table.items():
            self._resets[group, topic, queue] = offset
            self._progress(head, group, topic, queue, offset, "reset")

    def _end_reset(
        self,
        _head: Any,
        command: BrokerCommand,
        group: Any,
        topic: Any,
        queue: Any,
        offset: Any,
        *at_ms: Any,
    ) -> None:
        if len(at_ms) != (command.version >= _VERSION_WITH_TIME_OF_ENDS):
            raise Refused
        for one in at_ms:
            _natural(one)
        key = (_text(group), _text(topic), _natural(queue))
        if self._resets.get(key) == _natural(offset):
            del self._resets[key]

    # --- pops ---------------------------------------------------------------------------------

    def _pop(
        self,
        head: Any,
        _command: BrokerCommand,
        group: Any,
        topic: Any,
        queue: Any,
        popped_ms: Any,
        visible_ms: Any,
        first: Any,
        next_offset: Any,
        offsets: Any,
        attempt_id: Any,
        begins: Any,
        as_of: Any,
    ) -> None:
        key = (_text(group), _text(topic), _natural(queue))
        taken = [_natural(offset) for offset in offsets]
        if not _natural(first) <= _natural(next_offset) or taken != sorted(set(taken)):
            raise Refused
        if taken and taken[-1] >= next_offset:
            raise Refused
        if attempt_id is not None:
            _text(attempt_id)
        times = (_natural(popped_ms), _natural(visible_ms))
        if not self.topics.existed(topic, _natural(as_of)):
            raise Refused
        given = self._popped.give(
            *(key, *times, first, next_offset, taken, attempt_id), begins=bool(begins)
        )
        if given is None:
            raise Refused
        if begins:
            self._resets.pop(key, None)
        for offset in given:
            self._pop_event(head, key, offset, "given", visible_ms)
        self._popped_progress(head, key)

    def _acknowledge(self, head: Any, _command: BrokerCommand, messages: Any) -> None:
        landed = [
            one
            for one in [_popped_message(*message) for message in messages]
            if self._popped.land(*one)
        ]
        if not landed:
            return
        head = _not_before(head, max(popped_ms for _, _, popped_ms in landed))
        for key, offset, _ in landed:
            self._pop_event(head, key, offset, "acknowledged", None)
        for key in dict.fromkeys(key for key, _, _ in landed):
            self._popped_progress(head, key)

    def _hide(
        self, head: Any, _command: BrokerCommand, message: Any, hidden_ms: Any, visible_ms: Any
    ) -> None:
        key, offset, popped_ms = _popped_message(*message)
        times = (_natural(hidden_ms), _natural(visible_ms))
        if self._popped.hide(key, offset, popped_ms, *times):
            self._pop_event(head, key, offset, "hidden", visible_ms)

    def _bury(self, head: Any, _command: BrokerCommand, message: Any) -> None:
        key, offset, popped_ms = _popped_message(*message)
        if not self._popped.bury(key, offset, popped_ms):
            raise Refused
        head = _not_before(head, popped_ms)
        self._pop_event(head, key, offset, "buried", None)
        self._popped_progress(head, key)

    def _pop_event(
        self, head: Any, key: QueueKey, offset: int, event: str, visible_ms: int | None
    ) -> None:
        group, topic, queue = key
        row = (*head, group, topic, self.topics.life(topic), queue, offset, event, visible_ms)
        self._rows.add("pop_events", *row)

    def _popped_progress(self, head: Any, key: QueueKey) -> None:
        self._progress(head, *key, self._popped.queues[key].done_offset, "popped")

    # --- delayed messages ---------------------------------------------------------------------

    def _delay(self, head: Any, command: BrokerCommand, due_ms: Any) -> None:
        row = (*head, command.position, "waits", _natural(due_ms))
        self._rows.add("delay_events", *row)

    def _deliver(self, head: Any, _command: BrokerCommand, position: Any) -> None:
        origin = self._moved.pop(_natural(position), position)
        self._rows.add("delay_events", *head, origin, "delivered", None)

    def _move_delayed(self, head: Any, command: BrokerCommand, position: Any) -> None:
        origin = self._moved.pop(_natural(position), position)
        self._moved[command.position] = origin
        self._rows.add("delay_events", *head, origin, "moved", None)

    def _drop_delayed(self, head: Any, _command: BrokerCommand, position: Any) -> None:
        origin = self._moved.pop(_natural(position), position)
        self._rows.add("delay_events", *head, origin, "dropped", None)

    # --- transactions -------------------------------------------------------------------------

    def _transaction(self, head: Any, position: Any, event: str, group: str | None = None) -> None:
        self._rows.add("transaction_events", *head, _natural(position), event, group)

    def _prepare(self, head: Any, command: BrokerCommand, group: Any, due_ms: Any) -> None:
        _natural(due_ms)
        self._transaction(head, command.position, "prepared", _text(group))

    def _commit(self, head: Any, command: BrokerCommand, position: Any, due_ms: Any = 0) -> None:
        if _natural(due_ms):
            self._delay(head, command, due_ms)
        self._transaction(head, position, "committed")

    def _roll_back(self, head: Any, _command: BrokerCommand, position: Any) -> None:
        self._transaction(head, position, "rolled back")

    def _checked(self, head: Any, _command: BrokerCommand, due_ms: Any, positions: Any) -> None:
        _natural(due_ms)
        for position in [_natural(position) for position in positions]:
            self._transaction(head, position, "checked")

    def _give_up(self, head: Any, _command: BrokerCommand, position: Any) -> None:
        self._transaction(head, position, "given up")

    def _move_half(self, head: Any, _command: BrokerCommand, position: Any) -> None:
        self._transaction(head, position, "moved")

    def _resume(
        self, head: Any, command: BrokerCommand, position: Any, group: Any, due_ms: Any
    ) -> None:
        _natural(position), _natural(due_ms)
        self._transaction(head, command.position, "resumed", _text(group))

    # --- dead letters -------------------------------------------------------------------------

    def _redrive(
        self,
        head: Any,
        _command: BrokerCommand,
        topic: Any,
        queue: Any,
        offset: Any,
        position: Any,
        begin: Any,
    ) -> None:
        _natural(begin)
        if not self.topics.existed(_text(topic), _natural(position)):
            raise Refused
        letter = (topic, self.topics.life(topic), _natural(queue), _natural(offset))
        self._rows.add("redrives", *head, *letter)

    # --- the state, from one run to the next --------------------------------------------------

    def as_json(self) -> dict[str, Any]:
        """All of it, for `take`."""
        return {
            "topics": self.topics.as_json(),
            "popped": self._popped.as_json(),
            "progress": [[*key, *pair] for key, of in self.progress.items() for pair in of.items()],
            "resets": [[*key, offset] for key, offset in self._resets.items()],
            "moved": list(self._moved.items()),
        }

    def take(self, content: dict[str, Any]) -> None:
        """Go on from what `as_json` gave. Raises KeyError, ValueError, TypeError."""
        self.topics.take(content["topics"])
        self._popped.take(content["popped"])
        for group, topic, queue, offset in content["progress"]:
            self.progress.setdefault((group, topic), {})[int(queue)] = int(offset)
        self._resets = {tuple(key): int(offset) for *key, offset in content["resets"]}
        self._moved = {int(position): int(origin) for position, origin in content["moved"]}


def _popped_message(
    group: Any, topic: Any, queue: Any, offset: Any, popped_ms: Any
) -> tuple[QueueKey, int, int]:
    key = (_text(group), _text(topic), _natural(queue))
    return key, _natural(offset), _natural(popped_ms)


def _not_before(head: Any, popped_ms: int) -> tuple[int, int]:
    """The head of rows about the end of a message, whose command carries no time.

    It names when the message was given. No message may have been stored since, so the newest one
    says too little.
    """
    index, log_ms = head
    return index, max(log_ms or 0, popped_ms)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Refused
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int):
        raise Refused
    return value


def _natural(value: Any) -> int:
    if not 0 <= _number(value) <= _MAX_NATURAL:
        raise Refused
    return int(value)


def _as_text(value: Any) -> str:
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)
