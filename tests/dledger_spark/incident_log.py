"""The log that the recipes of docs/tables.md ask about: five minutes of a shop's broker.

One customer orders far more than all others, so a queue of the consumer group "billing" lags. One
message cannot be consumed and becomes a dead letter. The leader is lost in the third minute.
Transactions end after none, one or more checks, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.features import empty_state
from broker.formats.commands import RaiseFormat
from broker.log.command_layout import LogCommand
from broker.log.entry import RUNS_VERSION, encode_log_command
from broker.log.fold import fold
from broker.log.state import BrokerState
from broker.messages.state import MESSAGES
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.relays.commands import LeadFrom
from broker.topics.commands import PutTopic
from broker.topics.names import HALF_TOPIC
from broker.transactions.commands import Checked, Commit, Prepare, Rollback
from dledger.entry import HEADER_BYTES, Entry
from remoting.bodies.topic_config import TopicConfig
from remoting.message.properties import encode_properties
from remoting.message.record import MessageRecord, encode_record

BEGIN_MS = 1_772_442_000_000  # 2026-03-02, 09:00 in UTC
MINUTE_MS = 60_000
NOTHING: Final[Mapping[str, str]] = {}
RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


class IncidentLog:
    """The log.

    Attributes:
        entries: so far.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._state: BrokerState = empty_state()
        self._term = 1
        self._now_ms = BEGIN_MS
        self._command(RaiseFormat(RUNS_VERSION))
        self._command(LeadFrom("n0", "10.0.0.1:10911"))
        for topic in ("orders", RETRY, DEAD, HALF_TOPIC):
            self._command(PutTopic(TopicConfig(topic), self._now_ms))
        for minute in range(5):
            self._minute(minute)

    def _minute(self, minute: int) -> None:
        for at in range(10):
            self._now_ms = BEGIN_MS + minute * MINUTE_MS + at * 5000
            if minute == 2 and at == 4:
                self._fail_over()
            hot = at % 5 != 4
            customer = 7 if hot else minute * 10 + at
            self._send("orders", 0 if hot else 1, f"customer-{customer}", 120 + at)
            if at == 4:
                self._end_transactions(minute)
        consumed = 3 * (minute + 1), 2 * (minute + 1)
        offsets = [CommittedOffset("billing", "orders", at, one) for at, one in enumerate(consumed)]
        self._now_ms += 4000
        self._command(CommitOffsets(offsets, self._now_ms, self._end))
        if minute < 3:
            self._send_back(minute)

    def _fail_over(self) -> None:
        self._now_ms += 1400
        self._term = 2
        self._command(LeadFrom("n2", "10.0.0.3:10911"))

    def _send_back(self, times: int) -> None:
        """The fourth order cannot be billed: it is sent back twice, then it is dead."""
        topic = RETRY if times < 2 else DEAD
        more = {"UNIQ_KEY": "orders-0-3", "RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "m3"}
        self._send(topic, 0, "customer-7", 123, more, times + 1)

    def _end_transactions(self, minute: int) -> None:
        """One begins each minute; it is checked as often as minutes have passed."""
        position = self._end + HEADER_BYTES
        more = {"UNIQ_KEY": f"order-of-cart-{minute}"}
        real = {"REAL_TOPIC": "orders", "REAL_QID": "1"}
        half = self._record(HALF_TOPIC, 0, f"cart-{minute}", 64, {**more, **real})
        self._append(half + encode_log_command(Prepare("carts", self._now_ms + 6000)))
        for _ in range(minute):
            self._now_ms += 1000
            self._command(Checked(self._now_ms + 6000, (position, 7)))
        self._now_ms += 150
        if minute < 3:
            record = self._record("orders", 1, f"cart-{minute}", 64, more)
            self._append(record + encode_log_command(Commit(position)))
        elif minute == 3:
            self._command(Rollback(position))

    @property
    def _end(self) -> int:
        return 0 if not self.entries else self.entries[-1].body_pos + len(self.entries[-1].body)

    def _command(self, command: LogCommand) -> None:
        self._append(encode_log_command(command))

    def _append(self, body: bytes) -> None:
        entry = Entry(len(self.entries), self._term, self._end, 1, body)
        refused = [one for one in fold(self._state, [entry]).results if one is not None]
        assert not refused, refused
        self.entries.append(entry)

    def _send(
        self,
        topic: str,
        queue: int,
        keys: str,
        size: int,
        more: Mapping[str, str] = NOTHING,
        reconsume_times: int = 0,
    ) -> None:
        self._append(self._record(topic, queue, keys, size, more, reconsume_times))

    def _record(
        self,
        topic: str,
        queue: int,
        keys: str,
        size: int,
        more: Mapping[str, str],
        reconsume_times: int = 0,
    ) -> bytes:
        offset = self._state[MESSAGES].queue_end(topic, queue)
        properties = {"UNIQ_KEY": f"{topic}-{queue}-{offset}", "KEYS": keys, **more}
        return encode_record(
            MessageRecord(
                topic,
                b"x" * size,
                queue_id=queue,
                queue_offset=offset,
                physical_offset=self._end + HEADER_BYTES,
                born_timestamp=self._now_ms - 3,
                store_timestamp=self._now_ms,
                reconsume_times=reconsume_times,
                born_host="10.0.0.9",
                store_host="10.0.0.1" if self._term == 1 else "10.0.0.3",
                store_port=10911,
                properties=encode_properties(properties),
            )
        )
