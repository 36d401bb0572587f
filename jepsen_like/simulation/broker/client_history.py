"""The answers to clients of a broker, compared with the log at the end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from jepsen_like.simulation.broker.log_model import COMMIT, ROLLBACK, LogModel
from jepsen_like.simulation.invariants import InvariantViolated
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# Offsets that clients commit are unique and not below this; other entries have lower ones.
FIRST_OFFSET = 1_000_000
# The digits of a message id that say where the message lies in the log.
POSITION_DIGITS = 16


class Place(NamedTuple):
    """The place of a message as its sender was told."""

    topic: str
    queue_id: int
    offset: int
    position: int


class ClientHistory:
    def __init__(self) -> None:
        self._messages = 0
        self._offset = FIRST_OFFSET
        self.stored: dict[int, Place] = {}  # messages whose senders were told a place
        self._never: set[int] = set()
        self._delayed: set[int] = set()  # acknowledged
        self._recalled: set[int] = set()  # acknowledged
        self._halves: set[int] = set()  # of transactions that a client has begun
        self._begun: set[int] = set()  # whose begin was acknowledged
        self._ended: dict[int, int] = {}  # acknowledged: how it ended
        self._asked: dict[int, set[int]] = {}  # the ends that were asked for
        self._sent_back: Counter[int] = Counter()  # by message: acknowledged
        self._asked_back: Counter[int] = Counter()
        # of pops that are not in order: when a message was
        self._acknowledged_s: dict[int, float] = {}
        # messages that were given again after their acknowledgement
        self._given_again: list[str] = []
        self._meant: dict[int, int] = {}  # by committed offset: the entry that made its topic

    def new_message(self) -> int:
        self._messages += 1
        return self._messages

    def new_offset(self) -> int:
        self._offset += 1
        return self._offset

    def meant(self, offset: int, born: int) -> None:
        """Note that a leader took a commit of an offset while entry `born` was the topic's
        creation.
        """
        self._meant[offset] = born

    def offset_taken(self, offset: int, topic: str, born: int) -> None:
        """Check an offset that the log commits for the topic that entry `born` made."""
        meant = self._meant.get(offset, born)
        if meant != born:
            raise InvariantViolated(
                "no offset outlives its topic",
                f"offset {offset} was of the topic {topic} of entry {meant}, which is deleted; it "
                f"is committed for that of entry {born}",
            )

    def answered(self, topic: str, numbers: Sequence[int], reply: Command) -> None:
        """Take the reply to a send of these messages."""
        if reply.code == ResponseCode.SUCCESS:
            queue_id, offset = int(reply.fields["queueId"]), int(reply.fields["queueOffset"])
            ids = reply.fields["msgId"].split(",")
            for at, (number, one) in enumerate(zip(numbers, ids, strict=True)):
                position = int(one[-POSITION_DIGITS:], 16)
                self.stored[number] = Place(topic, queue_id, offset + at, position)
        elif reply.code != ResponseCode.SYSTEM_ERROR:  # which leaves the outcome unknown
            self._never.update(numbers)

    def delayed_answered(self, number: int, reply: Command) -> None:
        self._answered(number, reply, self._delayed)

    def _answered(self, number: int, reply: Command, acknowledged: set[int]) -> None:
        if reply.code == ResponseCode.SUCCESS:
            acknowledged.add(number)
        elif reply.code != ResponseCode.SYSTEM_ERROR:
            self._never.add(number)

    def recall_answered(self, number: int, reply: Command) -> None:
        if reply.code == ResponseCode.SUCCESS:
            self._recalled.add(number)

    def half_sent(self, number: int) -> None:
        self._halves.add(number)

    def half_answered(self, number: int, reply: Command) -> None:
        self._answered(number, reply, self._begun)

    def end_asked(self, number: int, how: int) -> None:
        """Note that a client ends a transaction; `how` is the kind of the log's command."""
        self._asked.setdefault(number, set()).add(how)

    def end_answered(self, number: int, how: int, reply: Command) -> None:
        if reply.code == ResponseCode.SUCCESS:
            self._ended[number] = how

    def asked_back(self, number: int) -> None:
        self._asked_back[number] += 1

    def back_answered(self, number: int, reply: Command) -> None:
        if reply.code == ResponseCode.SUCCESS:
            self._sent_back[number] += 1

    def popped(self, number: int, is_ordered: bool, asked_s: float) -> None:
        """Note a message that a pop gave out; `asked_s`: when the pop was asked for."""
        acknowledged_s = self._acknowledged_s.get(number, asked_s)
        if not is_ordered and acknowledged_s < asked_s:
            self._given_again.append(
                f"message {number} was acknowledged at {acknowledged_s}, and given to a pop that "
                f"was asked for at {asked_s}"
            )

    def pop_acknowledged(self, number: int, is_ordered: bool, now_s: float) -> None:
        """Note that the acknowledgement of a popped message was answered."""
        if not is_ordered:
            self._acknowledged_s.setdefault(number, now_s)

    def check(self, model: LogModel) -> None:
        """Compare with the whole log. Raises InvariantViolated."""
        for number, told in self.stored.items():
            found = model.stored.get(number)
            if found is None or found[:4] != told:
                raise InvariantViolated(
                    "acknowledged messages are in their queues",
                    f"message {number} was acknowledged as {told}, the log has {found}",
                )
        for number in sorted(self._delayed):
            if number not in model.delayed:
                raise InvariantViolated(
                    "acknowledged messages are in their queues",
                    f"delayed message {number} was acknowledged, the log does not have it",
                )
        self._check_transactions(model)
        self._check_copies(model)
        for given in self._given_again:
            raise InvariantViolated("what was popped and acknowledged never comes again", given)
        for number in sorted(self._recalled):
            if number not in model.dropped or number in model.stored:
                raise InvariantViolated(
                    "recalled messages never come",
                    f"message {number} was recalled, and is {model.stored.get(number)}",
                )
        for number in sorted(self._never):
            if number in model.stored or number in model.delayed:
                raise InvariantViolated(
                    "refused messages are in no queue",
                    f"message {number} was refused, and is {model.stored.get(number)}",
                )

    def _check_copies(self, model: LogModel) -> None:
        """Check that each message that was sent back comes again once for it, or will."""
        waiting = Counter(waiting.number for waiting in model.waiting.values())
        copies = model.copies + waiting
        for number, asked in self._asked_back.items():
            if not self._sent_back[number] <= copies[number] <= asked:
                raise InvariantViolated(
                    "what is sent back comes again once",
                    f"message {number} was sent back {asked} times, acknowledged "
                    f"{self._sent_back[number]} times, and has {copies[number]} copies",
                )

    def _check_transactions(self, model: LogModel) -> None:
        known = {half.number for half in model.halves.values()} | model.ended.keys()
        for number in sorted(self._begun - known):
            raise InvariantViolated(
                "acknowledged messages are in their queues",
                f"half message {number} was acknowledged, the log does not have it",
            )
        for number, how in sorted(self._ended.items()):
            if model.ended.get(number) != how:
                raise InvariantViolated(
                    "a transaction ends as its producer was told",
                    f"message {number} ended by kind {how}, the log has {model.ended.get(number)}",
                )
        for number in sorted(self._halves):
            end, asked = model.ended.get(number), self._asked.get(number, set())
            # A commit rolls back when the message's topic was deleted.
            if (end == COMMIT and COMMIT not in asked) or (end == ROLLBACK and not asked):
                raise InvariantViolated(
                    "a transaction ends as its producer says",
                    f"message {number} ended by kind {end}, which no client has asked for",
                )
            if end != COMMIT and (number in model.stored or number in model.delayed):
                raise InvariantViolated(
                    "nobody sees a message before its time",
                    f"message {number} of a transaction that is not committed is "
                    f"{model.stored.get(number)}",
                )
