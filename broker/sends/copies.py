"""Stores all copies of messages: delivered after a delay, retried, given up, committed, moved for
retention, or redriven.

Accepted messages can be copied: acceptance checks that there is room (`entry_room`), and excess
properties are omitted (`messages.fitted_properties`). But a log may hold messages that were
accepted by other rules, a record may be unreadable, and no further topic may be allowed. Then the
copy would be refused forever, and everything after it would wait. So a substitute is stored in a
topic of its own: without the body, and with a reference to the original. Its entry ends the wait
for the copy, for all leaders. If not even the substitute can be stored, a command alone ends the
wait.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.errors import NeverStored, RequestRefused
from broker.log.command_layout import LogCommand
from broker.log.one_by_one import failure
from broker.log.submissions import Then, submit_commands
from broker.messages.fitted_properties import fitted
from broker.messages.state import MESSAGES
from broker.sends.awaited_topics import AWAITED_TOPICS
from broker.sends.pending_messages import Attach, MadeMessages
from broker.sends.sends import SENDS
from broker.serving.parts import Parts, Shared
from broker.topics.own_topics import OWN_TOPICS
from dledger import DLedgerError
from remoting.bodies.topic_config import TopicConfig
from remoting.message.message_id import message_id, parse_message_id
from remoting.message.properties import (
    DEAD_LETTER_ORIGIN_MESSAGE_ID,
    DEAD_LETTER_ORIGIN_TOPIC,
    KEYS,
    REAL_TOPIC,
    RETRY_TOPIC,
    UNIQUE_KEY,
    encode_properties,
)
from remoting.message.record import MessageRecord, body_crc
from remoting.message.topic_names import UNDELIVERED_TOPIC
from remoting.wire.codes import ResponseCode
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Properties of a substitute: the topic of the copy, and why the copy could not be stored.
UNDELIVERED_TO: Final = "UNDELIVERED_TO"
UNDELIVERED_REASON: Final = "UNDELIVERED_REASON"

# Of each of its properties: a substitute must always fit.
_MOST_CHARACTERS: Final = 200


class StandIn(NamedTuple):
    """Ends the wait for a copy that can never be stored.

    Attributes:
        command: follows the substitute; None if nothing in the state waits for the copy.
        alone: does the same without a message, if not even the substitute can be stored.
    """

    command: LogCommand | None = None
    alone: LogCommand | None = None


@dataclass(slots=True, eq=False)
class Copy:
    """A copy of a stored message, for one queue.

    Attributes:
        what: describes the message in the log, as "a delayed message".
        record: the message. Its position is that of the original until the copy is stored.
        done: called with None when the copy, or a substitute, is stored and applied; or with the
            refusal. Must not raise.
        attach: makes the command that follows it, as in `PendingMessages`.
        stand_in: used if it can never be stored. None: the requester is told, and the original
            stays where operators look for it.
        never: why a substitute was stored.
    """

    what: str
    topic: str
    queue_id: int
    record: MessageRecord
    done: Then
    stand_in: StandIn | None
    attach: Attach | None = None
    never: NeverStored | None = None

    @property
    def records(self) -> list[MessageRecord]:
        return [self.record]


class Copies:
    """Stores copies.

    Attributes:
        stood_in: how many substitutes this member stored.
        untold: how many copies have not even a substitute.
        shortened: how many lack some properties.
        refused: how many were refused. Most are stored later.
    """

    def __init__(self, parts: Parts) -> None:
        self._messages = parts.state[MESSAGES]
        self._log = parts.log
        self._sends = parts[SENDS]
        self._awaited = parts[AWAITED_TOPICS]
        self._own_topics = parts[OWN_TOPICS]
        self._address = parts.config.address
        self.stood_in = 0
        self.untold = 0
        self.shortened = 0
        self.refused = 0

    def store(self, copy: Copy) -> None:
        """Store a copy with the next flush of `Sends`, in an existing topic."""
        self._hand_over(copy, self._sends.add)

    def store_when_created(self, config: TopicConfig, copy: Copy) -> None:
        """Store a copy once a topic exists, usually its own, and create it if necessary."""
        self._hand_over(copy, lambda made: self._awaited.send_when_created(config, made))

    def attempt(
        self, what: str, position: int, stand_in: StandIn, done: Then, step: Callable[[], None]
    ) -> None:
        """Take a step that is to end with a copy of the message at a log position.

        Other errors of a step depend on the message and the state, which all members share: the
        step would fail for each leader, so a substitute is stored. Refusals and errors of this
        member's log go to `done`, which tries again. A message that is damaged only on this
        member's disk is such an error: the member ends, and another one leads.
        """
        try:
            step()
        except RequestRefused as refusal:
            done(refusal)
        except (DLedgerError, OSError, MemoryError) as error:
            done(failure(what, error))
        except Exception as error:
            try:
                self._log.check_at(position)
            except DLedgerError as damage:
                done(failure(what, damage))
                return
            code = failure(f"copying {what}, at {position} of the log,", error).code
            reason = f"{type(error).__name__}: {error}"
            never = NeverStored(code, f"it cannot be read or copied: {reason}")
            told = {DEAD_LETTER_ORIGIN_MESSAGE_ID: self._id_at(position)}
            self._stand_in(what, told, stand_in, never, done)

    @property
    def undelivered(self) -> int:
        """The number of substitutes in the log; retention may have dropped them."""
        return self._messages.queue_end(UNDELIVERED_TOPIC, 0)

    def _hand_over(self, copy: Copy, add: Callable[[MadeMessages], None]) -> None:
        original = copy.record.physical_offset
        # A copy has its own checksum, which would hide damage on this disk.
        if copy.record.body_crc and copy.record.body_crc != body_crc(copy.record.body):
            self._log.check_at(original)
        run, left_out = fitted(copy.record.properties)
        copy.record.properties = run
        if left_out:
            self.shortened += 1
            _log.warning(
                "%s for topic %s goes without %d of its properties: a record holds no more; the "
                "message at %d of the log has all",
                quoted(copy.what),
                quoted(copy.topic),
                left_out,
                original,
            )

        def done(refusal: RequestRefused | None) -> None:
            if refusal is None:
                copy.done(None)
                return
            self.refused += 1
            if isinstance(refusal, NeverStored):
                _log.error(
                    "%s can never be stored in topic %s: %s",
                    quoted(copy.what),
                    quoted(copy.topic),
                    quoted(refusal.remark),
                )
                if copy.stand_in is not None:
                    copy.never = refusal
                    told = self._told(copy, original)
                    self._stand_in(copy.what, told, copy.stand_in, refusal, copy.done)
                    return
            else:
                # When a leader is replaced, the next one finds the message waiting.
                is_usual = refusal.code == ResponseCode.SERVICE_NOT_AVAILABLE
                level = logging.DEBUG if is_usual else logging.WARNING
                _log.log(level, "%s waits on: %s", quoted(copy.what), quoted(refusal.remark))
            copy.done(refusal)

        made = MadeMessages(copy.topic, copy.queue_id, [copy.record], done, copy.attach)
        try:
            add(made)
        except RequestRefused as refusal:
            done(refusal)

    def _stand_in(
        self, what: str, told: dict[str, str], stand_in: StandIn, refusal: NeverStored, done: Then
    ) -> None:
        command = stand_in.command

        def then(refused: RequestRefused | None) -> None:
            if isinstance(refused, NeverStored):
                self._end_alone(what, stand_in, done, refused)
                return
            if refused is None:
                self.stood_in += 1
                _log.error(
                    "%s at %d of the log is not delivered; a message in topic %s says so",
                    quoted(what),
                    parse_message_id(told[DEAD_LETTER_ORIGIN_MESSAGE_ID]).physical_offset,
                    quoted(UNDELIVERED_TOPIC),
                )
            done(refused)

        self._own_topics.make(UNDELIVERED_TOPIC)
        told = {UNDELIVERED_REASON: refusal.remark, **told}
        properties = encode_properties(
            {name: value[:_MOST_CHARACTERS] for name, value in told.items() if value}
        )
        record = MessageRecord(UNDELIVERED_TOPIC, properties=properties)
        attach: Attach | None = None if command is None else lambda _record: command
        made = MadeMessages(UNDELIVERED_TOPIC, 0, [record], then, attach)
        try:
            self._sends.add(made)
        except RequestRefused as refused:
            done(refused)

    def _end_alone(self, what: str, stand_in: StandIn, done: Then, refused: NeverStored) -> None:
        """End the wait for a copy without a message; only the log of this process says so."""
        _log.error("%s is not delivered, and no message says so: %s", quoted(what), quoted(refused))
        if stand_in.alone is None:
            done(refused)
        else:
            self.untold += 1
            submit_commands(self._log, [stand_in.alone], done)

    def _id_at(self, position: int) -> str:
        return message_id(self._address.host, self._address.port, position)

    def _told(self, copy: Copy, original: int) -> dict[str, str]:
        """Return the properties of a substitute. They always fit an entry."""
        pairs = copy.record.property_map()
        return {
            UNIQUE_KEY: pairs.get(UNIQUE_KEY, ""),
            KEYS: pairs.get(KEYS, ""),
            UNDELIVERED_TO: pairs.get(REAL_TOPIC) or copy.topic,
            DEAD_LETTER_ORIGIN_TOPIC: pairs.get(RETRY_TOPIC) or pairs.get(REAL_TOPIC) or copy.topic,
            DEAD_LETTER_ORIGIN_MESSAGE_ID: self._id_at(original),
        }


COPIES: Final = Shared("copies", Copies)
