"""The one way in which the broker stores copies of messages: those that are delivered late, tried
again, given up, committed, moved out of retention's way, or delivered once more.

What was accepted can be copied: acceptance has seen to it that there is room (`entry_room`), and
properties that are too many are left out (`messages.fitted_properties`). But a log may hold
messages that were accepted by other rules, a record may be one that cannot be read, and no further
topic may be allowed. Then the copy would be refused for ever, and everything behind it would wait
with it. So a message stands in for it in a topic of its own: without the body, and it says where
the whole message is. Its entry ends what waited for the copy, for each leader that comes. If not
even that can be stored, a command alone ends it.
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
from broker.topics.names import UNDELIVERED_TOPIC
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
from remoting.wire.codes import ResponseCode
from remoting.wire.quoted import quoted

_log = logging.getLogger(__name__)

# Of a message that stands in for another one: where the copy belonged, and why it is not there.
UNDELIVERED_TO: Final = "UNDELIVERED_TO"
UNDELIVERED_REASON: Final = "UNDELIVERED_REASON"

# So much of each of its properties: it must always fit.
_MOST_CHARACTERS: Final = 200


class StandIn(NamedTuple):
    """What ends it that something waits for a copy which can never be stored.

    Attributes:
        command: stands behind the message that is stored in its place; None when nothing in the
            state waits for the copy.
        alone: does the same without a message, if not even that can be stored.
    """

    command: LogCommand | None = None
    alone: LogCommand | None = None


@dataclass(slots=True, eq=False)
class Copy:
    """A copy of a stored message, for one queue.

    Attributes:
        what: the message, in words for a log line, as "a delayed message".
        topic: where it goes.
        record: the message. What depends on its place is set when it is stored; until then it says
            where the original is.
        done: called with None when it is stored and applied, or something in its place; or with why
            not. Must not raise.
        attach: makes the command that stands behind it, as in `PendingMessages`.
        stand_in: what is done if it can never be stored. None: whoever asked for the copy is told,
            and the original stays where operators look for it.
        never: why it could not be stored, when something else was stored in its place.
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
        """The message, as `PendingMessages` has it."""
        return [self.record]


class Copies:
    """Stores copies.

    Attributes:
        stood_in: how many copies this member could not store, and stored something in their place.
        untold: how many it stored nothing for, and ended what waited for them.
        shortened: how many went without some properties.
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
        """Store a copy with the next flush of `Sends`, in a topic that is there."""
        self._hand_over(copy, self._sends.add)

    def store_when_created(self, config: TopicConfig, copy: Copy) -> None:
        """The same, as soon as a topic is there, mostly the copy's; makes it unless it is."""
        self._hand_over(copy, lambda made: self._awaited.send_when_created(config, made))

    def attempt(
        self, what: str, position: int, stand_in: StandIn, done: Then, step: Callable[[], None]
    ) -> None:
        """Take a step that is to end with a copy of the message at a position of the log.

        What a step raises of itself depends on the message and on the state, which all members have
        alike: it would fail for each leader, so something stands in for the copy. What this
        member's log raises, and refusals, are told to `done`, which tries again. A message that is
        damaged on this member's disk alone is one of these: the member ends, another one leads.
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
        """How many messages stand in for others, as the log says; they may be gone by now."""
        return self._messages.queue_end(UNDELIVERED_TOPIC, 0)

    def _hand_over(self, copy: Copy, add: Callable[[MadeMessages], None]) -> None:
        original = copy.record.physical_offset
        # A copy has a sum of its own, so it would make damage of this disk a message like others.
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
                # What a leader has on its way when it is replaced, the next one finds waiting.
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
        """Store something in place of a copy; `told` are properties of it."""
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
        """No message can say that a copy is missing: the log of this member alone does."""
        _log.error("%s is not delivered, and no message says so: %s", quoted(what), quoted(refused))
        if stand_in.alone is None:
            done(refused)
        else:
            self.untold += 1
            submit_commands(self._log, [stand_in.alone], done)

    def _id_at(self, position: int) -> str:
        return message_id(self._address.host, self._address.port, position)

    def _told(self, copy: Copy, original: int) -> dict[str, str]:
        """What is said of a message that cannot be copied. It always fits an entry."""
        pairs = copy.record.property_map()
        return {
            UNIQUE_KEY: pairs.get(UNIQUE_KEY, ""),
            KEYS: pairs.get(KEYS, ""),
            UNDELIVERED_TO: pairs.get(REAL_TOPIC) or copy.topic,
            DEAD_LETTER_ORIGIN_TOPIC: pairs.get(RETRY_TOPIC) or pairs.get(REAL_TOPIC) or copy.topic,
            DEAD_LETTER_ORIGIN_MESSAGE_ID: self._id_at(original),
        }


COPIES: Final = Shared("copies", Copies)
