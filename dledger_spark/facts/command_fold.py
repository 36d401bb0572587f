"""Rows of facts about the commands of a broker's log, by the brokers' own fold.

A command becomes a row if the brokers carry it out. Other rows hold its content, or the changes
that the fold reports (`broker.log.folded`): a commit of offsets does not count for a topic that was
deleted and made again, and an acknowledgement counts for the last time that a message was popped.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from broker.dead_letters.commands import Redrive
from broker.delay.commands import Delay, Deliver, DropDelayed, MoveDelayed
from broker.features import REGISTRY
from broker.groups.commands import DeleteGroup
from broker.log.command_layout import LogCommand
from broker.offsets.commands import CommitOffsets
from broker.offsets.state import OFFSETS, OffsetMoved
from broker.pop.commands import AckPopped, BuryPopped, Pop
from broker.pop.state import POPS, PopStep
from broker.resets.commands import EndReset, ResetOffsets
from broker.topics.commands import DeleteTopic
from broker.transactions.commands import Commit, GiveUp, MoveHalf, Prepare, Resume, Rollback
from broker.transactions.state import TransactionChecked
from dledger_spark.facts.broker_command import BrokerCommand
from dledger_spark.facts.fact_rows import FactRows
from dledger_spark.facts.folded_commands import FoldedCommands

# The first columns of rows: the index of the entry, and its time.
Head = tuple[int, "int | None"]
# A group, a topic, a queue.
Key = tuple[str, str, int]
# See the columns of the table "pop_progress".
PopProgress = tuple[int, int, int]

_as_json: Final = json.JSONEncoder(separators=(",", ":")).encode
_OF_DELAYED: Final[dict[type, str]] = {
    Deliver: "delivered",
    MoveDelayed: "moved",
    DropDelayed: "dropped",
}
_BEGINS_TRANSACTION: Final[dict[type, str]] = {Prepare: "prepared", Resume: "resumed"}
_ENDS_TRANSACTION: Final[dict[type, str]] = {
    Commit: "committed",
    Rollback: "rolled back",
    GiveUp: "given up",
    MoveHalf: "moved",
}
_ENDS_OF_POPS: Final = ("acknowledged", "buried")


class CommandFold:
    """The fold of one log.

    `folded` is the state after the commands so far. `deletions` are the entries that deleted
    topics, until the caller empties the list.
    """

    def __init__(self, rows: FactRows, folded: FoldedCommands) -> None:
        self._rows = rows
        self.folded = folded
        self.deletions: list[tuple[int, str]] = []

    def fold(self, read: BrokerCommand, log_ms: int | None) -> None:
        """Add the rows of the next command. `log_ms` is the store time of the newest message before
        it.
        """
        command, entry = read.command, read.entry
        forgotten = self._queues_deleted_with(command)
        popped = {key: self._pop_progress(key) for key in self._may_be_popped(command)}
        folded = self.folded.fold(command, entry)
        if folded is None:
            return
        at_ms = getattr(command, "at_ms", None)
        head = (entry.index, log_ms if at_ms is None else at_ms)
        self._add_command(head, read)
        is_deleted = isinstance(command, DeleteGroup) or bool(folded.deleted_topics)
        for key, queue in forgotten if is_deleted else ():
            row = (*key, self._life(key[1]), queue, None, "forgotten")
            self._rows.add("consumer_progress", *head, *row)
        for topic in folded.deleted_topics:
            self.deletions.append((entry.index, topic))
            self.folded.lives[topic] = self._life(topic) + 1
        self._add_content(head, entry.body_pos, command)
        head = self._add_changes(head, folded.changes or ())
        self._add_pop_progress(head, popped)

    def _add_command(self, head: Head, read: BrokerCommand) -> None:
        command = read.command
        kind = REGISTRY.type_of(command)
        content = kind.layout.spelt_out(command, read.version)
        topic, group = content.get("topic"), content.get("group")
        for part in content.values():  # such as the configuration of a topic, which has its name
            if isinstance(part, dict):
                topic, group = part.get("topic", topic), part.get("group", group)
        self._rows.add(
            *("commands", *head, read.entry.term, command.kind, kind.name, read.version),
            kind.is_attached,
            topic if isinstance(topic, str) else None,
            group if isinstance(group, str) else None,
            _as_json(content),
        )

    def _queues_deleted_with(self, command: LogCommand) -> list[tuple[tuple[str, str], int]]:
        """Return the queues whose offsets end if the command deletes a topic or a group."""
        tables = self.folded.state[OFFSETS].tables
        keys: list[tuple[str, str]] = []
        if isinstance(command, DeleteTopic):
            keys = tables.of_topic(command.topic)
        elif isinstance(command, DeleteGroup) and command.with_offsets:
            keys = tables.of_group(command.group)
        return [(key, queue) for key in keys for queue in tables[key]]

    def _life(self, topic: str) -> int:
        """Return how often a topic of this name was deleted."""
        return self.folded.lives.get(topic, 0)

    def _add_changes(self, head: Head, changes: Iterable[object]) -> Head:
        """Add the rows of changes; return the index and the time that they have."""
        steps: list[PopStep] = []
        moves: dict[Key, tuple[OffsetMoved, OffsetMoved]] = {}  # the first and the last of a queue
        for one in changes:
            if isinstance(one, PopStep):
                steps.append(one)
            elif isinstance(one, OffsetMoved):
                key = one[:3]
                moves[key] = moves.get(key, (one, one))[0], one
            elif isinstance(one, TransactionChecked):
                self._transaction(head, one.position, "checked")
        ends = [one.popped_ms for one in steps if one.event in _ENDS_OF_POPS]
        if ends:
            # The command has no time, but the times at which its messages were popped. The newest
            # message may have been stored long before.
            head = head[0], max(head[1] or 0, *ends)
        for step in steps:
            group, topic, queue = step.key
            row = (group, topic, self._life(topic), queue, step.offset, step.event)
            self._rows.add("pop_events", *head, *row, step.visible_ms)
        for first, last in moves.values():
            if first.before != last.offset:
                group, topic, queue = last.group, last.topic, last.queue_id
                row = (group, topic, self._life(topic), queue, last.offset, last.source)
                self._rows.add("consumer_progress", *head, *row)
        return head

    def _add_pop_progress(self, head: Head, before: dict[Key, PopProgress | None]) -> None:
        """Add what groups that pop have of queues, where it is not as before."""
        for key, had in before.items():
            has = self._pop_progress(key)
            if has != had:
                group, topic, queue = key
                row = has or (None, None, None)
                self._rows.add("pop_progress", *head, group, topic, self._life(topic), queue, *row)

    def _pop_progress(self, key: Key) -> PopProgress | None:
        """Return the first message that is not acknowledged, the first that was never given, and
        how many before that are not acknowledged; None if the group does not pop from the queue.
        """
        queue = self.folded.state[POPS].queues.get(key)
        if queue is None:
            return None
        offsets = self.folded.state[OFFSETS]
        # The next pop begins where an operator has reset the group to, or where members that pull
        # are ahead, and takes back what was given.
        moved_to, committed = offsets.reset(*key), offsets.committed(*key)
        if moved_to is None and committed is not None and committed > queue.next_offset:
            moved_to = committed
        if moved_to is not None:
            return moved_to, moved_to, 0
        return queue.done_offset, queue.next_offset, len(queue.in_flight)

    def _may_be_popped(self, command: Any) -> Iterable[Key]:
        """Return the queues of groups for which a command may change what was popped."""
        kind = type(command)
        if kind in (Pop, EndReset):
            return [(command.group, command.topic, command.queue_id)]
        if kind is AckPopped:
            return dict.fromkeys(one.key for one in command.messages)
        if kind is BuryPopped:
            return [command.message.key]
        if kind is CommitOffsets:
            return dict.fromkeys(one[:3] for one in command.offsets)
        if kind is ResetOffsets:
            return [(command.group, command.topic, queue) for queue in command.offsets]
        if kind is DeleteGroup:
            return self.folded.state[POPS].queues.of_group(command.group)
        return ()

    def _add_content(self, head: Head, position: int, command: Any) -> None:
        """Add the rows of a command's content; `position` is that of its record, if it has one."""
        kind = type(command)
        if kind is Delay or (kind is Commit and command.due_ms):
            self._rows.add("delay_events", *head, position, "waits", command.due_ms)
        if event := _OF_DELAYED.get(kind):
            # The position at which the message was first stored.
            origin = self.folded.moved.pop(command.position, command.position)
            if kind is MoveDelayed:
                self.folded.moved[position] = origin
            self._rows.add("delay_events", *head, origin, event, None)
        elif event := _BEGINS_TRANSACTION.get(kind):
            self._transaction(head, position, event, command.group)
        elif event := _ENDS_TRANSACTION.get(kind):
            self._transaction(head, command.position, event)
        elif kind is Redrive:
            letter = (command.topic, self._life(command.topic), command.queue_id, command.offset)
            self._rows.add("redrives", *head, *letter)

    def _transaction(self, head: Head, position: int, event: str, group: str | None = None) -> None:
        self._rows.add("transaction_events", *head, position, event, group)
