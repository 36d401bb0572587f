"""Folds the commands of a broker's log into rows of facts, as the brokers fold them.

What a command changes may depend on those before: a commit of offsets does not count for a topic
that was deleted and made again, nor for a group that an operator has moved meanwhile; an
acknowledgement counts for the last time that a message was given. So the fold keeps as much of the
state of a broker as that needs.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from broker.dead_letters.commands import Redrive
from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.folds import REGISTRY
from broker.groups.commands import DeleteGroup
from broker.offsets.commands import CommitOffsets
from broker.pop.commands import AcknowledgePopped, BuryPopped, HidePopped, Pop
from broker.resets.commands import EndReset, ResetOffsets
from broker.topics.commands import DeleteTopic, PutTopic
from broker.transactions.commands import (
    Checked,
    Commit,
    GiveUp,
    MoveHalf,
    Prepare,
    Resume,
    RollBack,
)
from dledger.declared_error import DeclaredError
from dledger_spark.facts.broker_command import BrokerCommand
from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.known_topics import KnownTopics
from dledger_spark.facts.popped import Popped, QueueKey

_HEADER_BYTES: Final = 48

# Of rows: the index of the entry, and when it was.
Head = tuple[int, "int | None"]


class Refused(DeclaredError):
    """A command that brokers pass over."""


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
        self._folds: dict[type, Callable[[Head, int, Any], None]] = {
            PutTopic: self._put_topic,
            DeleteTopic: self._delete_topic,
            DeleteGroup: self._delete_group,
            CommitOffsets: self._commit_offsets,
            Delay: self._delay,
            Deliver: self._deliver,
            MoveDelayed: self._move_delayed,
            DropDelayed: self._drop_delayed,
            Prepare: self._prepare,
            Commit: self._commit,
            RollBack: self._roll_back,
            Checked: self._checked,
            GiveUp: self._give_up,
            MoveHalf: self._move_half,
            ResetOffsets: self._reset,
            EndReset: self._end_reset,
            Pop: self._pop,
            AcknowledgePopped: self._acknowledge,
            HidePopped: self._hide,
            BuryPopped: self._bury,
            Resume: self._resume,
            Redrive: self._redrive,
        }

    def fold(self, read: BrokerCommand, log_ms: int | None) -> None:
        """Add the rows of one command.

        Args:
            read: the next one.
            log_ms: the store time of the newest message before it; None without one.
        """
        command = read.command
        at_ms = getattr(command, "at_ms", None)
        head = (read.index, log_ms if at_ms is None else at_ms)
        fold = self._folds.get(type(command))
        if fold is not None:
            try:
                fold(head, read.position, command)
            except Refused:
                return
        kind = REGISTRY.type_of(command)
        told = kind.layout.spelt_out(command, read.version)
        about = dict(told)
        for part in told.values():  # such as the configuration of a topic, which has its name
            if isinstance(part, dict):
                about |= part
        topic, group = about.get("topic"), about.get("group")
        self._rows.add(
            *("commands", *head, read.term, command.kind, kind.name, read.version),
            kind.is_attached,
            topic if isinstance(topic, str) else None,
            group if isinstance(group, str) else None,
            json.dumps(told, separators=(",", ":")),
        )

    # --- topics and groups --------------------------------------------------------------------

    def _put_topic(self, _head: Head, position: int, command: PutTopic) -> None:
        begin = position - _HEADER_BYTES
        self.topics.put(command.config.topic, begin, command.max_topics)

    def _delete_topic(self, head: Head, _position: int, command: DeleteTopic) -> None:
        if not self.topics.delete(command.topic):
            return
        self.deletions.append((head[0], command.topic))
        self._forget(head, 1, command.topic)
        self._popped.drop_topic(command.topic)

    def _delete_group(self, head: Head, _position: int, command: DeleteGroup) -> None:
        self._popped.drop_group(command.group)
        if command.with_offsets:
            self._forget(head, 0, command.group)

    def _forget(self, head: Head, at: int, name: str) -> None:
        for key in [key for key in self.progress if key[at] == name]:
            for queue in self.progress.pop(key):
                life = self.topics.life(key[1]) - (at == 1)
                row = (*head, *key, life, queue, None, "forgotten")
                self._rows.add("consumer_progress", *row)
        for reset in [key for key in self._resets if key[at] == name]:
            del self._resets[reset]

    # --- progress -----------------------------------------------------------------------------

    def _commit_offsets(self, head: Head, _position: int, command: CommitOffsets) -> None:
        last = {}  # the last one of a queue counts
        for group, topic, queue, offset in command.offsets:
            if command.as_of is not None and not self.topics.existed(topic, command.as_of):
                continue
            if self._resets.get((group, topic, queue), offset) == offset:
                last[group, topic, queue] = offset
        for key, offset in last.items():
            self._progress(head, *key, offset, "committed")

    def _progress(
        self, head: Head, group: str, topic: str, queue: int, offset: int, source: str
    ) -> None:
        queues = self.progress.setdefault((group, topic), {})
        if queues.get(queue) == offset:
            return
        queues[queue] = offset
        row = (*head, group, topic, self.topics.life(topic), queue, offset, source)
        self._rows.add("consumer_progress", *row)

    def _reset(self, head: Head, _position: int, command: ResetOffsets) -> None:
        group, topic = command.group, command.topic
        if not self.topics.existed(topic, command.as_of):
            raise Refused
        for queue, offset in command.offsets.items():
            self._resets[group, topic, queue] = offset
            self._progress(head, group, topic, queue, offset, "reset")

    def _end_reset(self, _head: Head, _position: int, command: EndReset) -> None:
        key = (command.group, command.topic, command.queue_id)
        if self._resets.get(key) == command.offset:
            del self._resets[key]

    # --- pops ---------------------------------------------------------------------------------

    def _pop(self, head: Head, _position: int, command: Pop) -> None:
        if not self.topics.existed(command.topic, command.as_of):
            raise Refused
        given = self._popped.give(
            *(command.key, command.popped_ms, command.visible_ms, command.first, command.next),
            *(command.offsets, command.attempt_id),
            begins=command.begins,
        )
        if given is None:
            raise Refused
        if command.begins:
            self._resets.pop(command.key, None)
        for offset in given:
            self._pop_event(head, command.key, offset, "given", command.visible_ms)
        self._popped_progress(head, command.key)

    def _acknowledge(self, head: Head, _position: int, command: AcknowledgePopped) -> None:
        landed = [
            one for one in command.messages if self._popped.land(one.key, one.offset, one.popped_ms)
        ]
        if not landed:
            return
        head = _not_before(head, max(one.popped_ms for one in landed))
        for one in landed:
            self._pop_event(head, one.key, one.offset, "acknowledged", None)
        for key in dict.fromkeys(one.key for one in landed):
            self._popped_progress(head, key)

    def _hide(self, head: Head, _position: int, command: HidePopped) -> None:
        one = command.message
        times = (one.popped_ms, command.hidden_ms, command.visible_ms)
        if self._popped.hide(one.key, one.offset, *times):
            self._pop_event(head, one.key, one.offset, "hidden", command.visible_ms)

    def _bury(self, head: Head, _position: int, command: BuryPopped) -> None:
        one = command.message
        if not self._popped.bury(one.key, one.offset, one.popped_ms):
            raise Refused
        head = _not_before(head, one.popped_ms)
        self._pop_event(head, one.key, one.offset, "buried", None)
        self._popped_progress(head, one.key)

    def _pop_event(
        self, head: Head, key: QueueKey, offset: int, event: str, visible_ms: int | None
    ) -> None:
        group, topic, queue = key
        row = (*head, group, topic, self.topics.life(topic), queue, offset, event, visible_ms)
        self._rows.add("pop_events", *row)

    def _popped_progress(self, head: Head, key: QueueKey) -> None:
        self._progress(head, *key, self._popped.queues[key].done_offset, "popped")

    # --- delayed messages ---------------------------------------------------------------------

    def _delay(self, head: Head, position: int, command: Delay | Commit) -> None:
        self._rows.add("delay_events", *head, position, "waits", command.due_ms)

    def _deliver(self, head: Head, _position: int, command: Deliver) -> None:
        origin = self._moved.pop(command.position, command.position)
        self._rows.add("delay_events", *head, origin, "delivered", None)

    def _move_delayed(self, head: Head, position: int, command: MoveDelayed) -> None:
        origin = self._moved.pop(command.position, command.position)
        self._moved[position] = origin
        self._rows.add("delay_events", *head, origin, "moved", None)

    def _drop_delayed(self, head: Head, _position: int, command: DropDelayed) -> None:
        origin = self._moved.pop(command.position, command.position)
        self._rows.add("delay_events", *head, origin, "dropped", None)

    # --- transactions -------------------------------------------------------------------------

    def _transaction(self, head: Head, position: int, event: str, group: str | None = None) -> None:
        self._rows.add("transaction_events", *head, position, event, group)

    def _prepare(self, head: Head, position: int, command: Prepare) -> None:
        self._transaction(head, position, "prepared", command.group)

    def _commit(self, head: Head, position: int, command: Commit) -> None:
        if command.due_ms:
            self._delay(head, position, command)
        self._transaction(head, command.position, "committed")

    def _roll_back(self, head: Head, _position: int, command: RollBack) -> None:
        self._transaction(head, command.position, "rolled back")

    def _checked(self, head: Head, _position: int, command: Checked) -> None:
        for position in command.positions:
            self._transaction(head, position, "checked")

    def _give_up(self, head: Head, _position: int, command: GiveUp) -> None:
        self._transaction(head, command.position, "given up")

    def _move_half(self, head: Head, _position: int, command: MoveHalf) -> None:
        self._transaction(head, command.position, "moved")

    def _resume(self, head: Head, position: int, command: Resume) -> None:
        self._transaction(head, position, "resumed", command.group)

    # --- dead letters -------------------------------------------------------------------------

    def _redrive(self, head: Head, _position: int, command: Redrive) -> None:
        topic = command.topic
        if not self.topics.existed(topic, command.position):
            raise Refused
        letter = (topic, self.topics.life(topic), command.queue_id, command.offset)
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


def _not_before(head: Head, popped_ms: int) -> Head:
    """The head of rows about the end of a message, whose command carries no time.

    It names when the message was given. No message may have been stored since, so the newest one
    says too little.
    """
    index, log_ms = head
    return index, max(log_ms or 0, popped_ms)
