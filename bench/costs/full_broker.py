"""Fills a running broker: by commands of the log, by requests, and by clients that come."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import trio

from bench.costs.asker import Asker
from bench.costs.fullness import Fullness
from bench.log_costs.full_log import parts, user_rules
from broker.access.commands import PutRules, PutUser, SealedSecret
from broker.consumers.members import CONSUMERS, Member
from broker.filters.commands import PutFilter
from broker.filters.condition import MAX_CONDITION_CHARACTERS
from broker.groups.commands import PutGroup
from broker.groups.config import ConsumerGroup
from broker.lite.limits import MAX_NAMED
from broker.lite.popping import SUBSCRIPTIONS
from broker.locks.commands import LockQueues
from broker.log.command_layout import LogCommand
from broker.log.entry import encode_log_command
from broker.offsets.commands import CommitOffsets, CommittedOffset
from broker.producers.members import PRODUCERS, Producer
from broker.server import Broker
from broker.topics.attributes import LITE_BIND_TOPIC
from broker.topics.commands import PutTopic
from broker.topics.names import dead_letter_topic
from dledger import Appended, DLedgerError
from remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from remoting.bodies.topic_config import TopicConfig
from remoting.message.properties import encode_properties
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command

# Names that requests ask for.
TOPIC: Final = "t0"  # all groups have offsets in it
GROUP: Final = "g0"  # it has offsets in all topics, and consumes in order
WIDE: Final = "wide"  # it has the most queues
LARGE: Final = "large"  # its messages are as large as may be, and have the key KEY
KEYED: Final = "keyed"  # it has the most messages with the key KEY
TEXTS: Final = "texts"  # its messages have the longest property
LITE: Final = "lite"  # it has lite topics, which LITES reads
LITES: Final = "lites"
LITE_TOPICS: Final = {"message.type": "LITE"}
FLYING: Final = "flying"  # its messages were popped by GROUP
CROWD: Final = "crowd"  # the group with the most members, of consumers and of producers
KEY: Final = "k"
CLIENT: Final = "c"

# When the large messages are due: far from now.
DUE_MS: Final = 1_702_000_000_000

# The longest property that fits, and the costliest condition that nearly matches it.
TEXT_BYTES: Final = 32_000
_TERM: Final = "a CONTAINS 'zyyyyyyy'"
DEAR_CONDITION: Final = " OR ".join([_TERM] * (MAX_CONDITION_CHARACTERS // (len(_TERM) + 4)))

NO_PROPERTIES: Final[Mapping[str, str]] = {}

_AT_ONCE: Final = 500
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024


class FullBroker:
    """A broker with as much as it may have.

    Args:
        broker: it leads its group.
        fullness: how full it is to be.

    Attributes:
        large_position: where a message of `LARGE` lies in the log.
        half_position: where the message of an open transaction lies.
        now_ms: the broker's wall clock, as it was at the begin.
        popped: the handles of popped messages.
    """

    def __init__(self, broker: Broker, fullness: Fullness) -> None:
        self.broker = broker
        self.fullness = fullness
        self.large_position = self.half_position = 0
        self.now_ms = broker.parts.wall_clock_ms()
        self.popped: dict[str, str] = {}

    async def fill(self) -> None:
        await self._put_topics_and_groups()
        await self._put_users()
        await self._put_offsets()
        await self._put_locks()
        await self._put_filters()
        await self._send_small()
        await self._send_large()
        await self._pop()
        await self._lite()
        self._register()
        await self._hold()

    async def ask(self, command: Command, asker: Asker | None = None) -> Command:
        asker = asker or Asker()
        self.broker.requests.on_commands(asker, [command])  # type: ignore[arg-type]
        await asker.until(1)
        assert asker.last is not None
        return asker.last

    # --- by commands of the log -----------------------------------------------------------------

    async def _put_topics_and_groups(self) -> None:
        full, at_ms = self.fullness, self.now_ms
        configs = [TopicConfig(f"t{number}", 1, 1) for number in range(full.topics)]
        configs += [TopicConfig(WIDE, full.queues, full.queues)]
        names = (LARGE, KEYED, TEXTS, FLYING, dead_letter_topic(GROUP))
        configs += [TopicConfig(name, 1, 1) for name in names]
        await self._fold(PutTopic(config, at_ms) for config in configs)
        groups = [f"g{number}" for number in range(full.groups)]
        await self._fold(PutGroup(ConsumerGroup(group)) for group in (*groups, CROWD))
        await self._fold([PutTopic(TopicConfig(LITE, 1, 1, attributes=LITE_TOPICS), at_ms)])
        lites = ConsumerGroup(LITES, attributes={LITE_BIND_TOPIC: LITE})
        await self._fold([PutGroup(lites, max_groups=1 << 30)])

    async def _put_users(self) -> None:
        names = [f"u{number}" for number in range(self.fullness.users)]
        secret = SealedSecret("s" * 200)
        await self._fold(PutUser(name, secret, False, True, None) for name in names)
        await self._fold(PutRules(name, "Custom", user_rules(100)) for name in names)

    async def _put_offsets(self) -> None:
        full = self.fullness
        pairs = [(GROUP, WIDE), (GROUP, LARGE)]
        pairs += [(GROUP, f"t{number}") for number in range(full.topics)]
        pairs += [(f"g{number}", TOPIC) for number in range(1, full.groups)]
        pairs += [
            (f"g{number % full.groups}", f"t{1 + number // full.groups}")
            for number in range(1, full.offset_tables - len(pairs))
        ]
        offsets = [CommittedOffset(*pair, 0, 1) for pair in pairs[: full.offset_tables]]
        offsets += [CommittedOffset(GROUP, WIDE, number, 1) for number in range(1, full.queues)]
        await self._fold(CommitOffsets(part, self.now_ms) for part in parts(offsets, _AT_ONCE))

    async def _put_locks(self) -> None:
        queues = [(f"t{number}", 0) for number in range(self.fullness.locks)]
        await self._fold(
            LockQueues("g1", CLIENT, True, 1, part) for part in parts(queues, _AT_ONCE)
        )

    async def _put_filters(self) -> None:
        count = self.fullness.filters
        await self._fold(
            PutFilter("g1", f"t{number}", f"{DEAR_CONDITION} OR b > {number}", 1, count)
            for number in range(min(count, self.fullness.topics))
        )

    async def _fold(self, commands: Iterable[LogCommand]) -> None:
        for part in parts(commands, _AT_ONCE):
            outcomes: list[list[Appended] | DLedgerError] = []
            done = trio.Event()

            def then(
                outcome: list[Appended] | DLedgerError,
                outcomes: list[list[Appended] | DLedgerError] = outcomes,
                done: trio.Event = done,
            ) -> None:
                outcomes.append(outcome)
                done.set()

            self.broker.parts.log.submit([encode_log_command(one) for one in part], then)
            await done.wait()
            if isinstance(outcomes[0], DLedgerError):
                raise outcomes[0]

    # --- by requests ----------------------------------------------------------------------------

    async def _send_small(self) -> None:
        full = self.fullness
        await self._send(send(WIDE, b"x", queue_id=number) for number in range(full.queues))
        await self._send(
            send(KEYED, b"x", {"KEYS": KEY, "UNIQ_KEY": KEY}) for _ in range(full.keyed)
        )
        await self._send(send(FLYING, b"x") for _ in range(full.flying))
        await self._send(send(TOPIC, b"x") for _ in range(2))
        await self._send(
            send(TOPIC, b"x", {"TIMER_DELIVER_MS": str(DUE_MS + 1)}) for _ in range(full.delayed)
        )
        half = {"TRAN_MSG": "true", "PGROUP": CROWD}
        last = await self._send(send(TOPIC, b"x", half) for _ in range(full.transactions))
        self.half_position = _position_of(last)

    async def _send_large(self) -> None:
        full = self.fullness
        body = bytes(full.large_bytes)
        text = {"a": "y" * TEXT_BYTES}
        await self._send(send(TEXTS, b"x", text) for _ in range(64))
        last = await self._send(send(LARGE, body, {"KEYS": KEY}) for _ in range(full.large))
        self.large_position = _position_of(last)
        due = {"TIMER_DELIVER_MS": str(DUE_MS)}
        await self._send(send(LARGE, body, due) for _ in range(full.large))
        back = {"group": GROUP, "delayLevel": "-1", "offset": str(self.large_position)}
        await self._send(
            Command(RequestCode.CONSUMER_SEND_MSG_BACK, back) for _ in range(full.large)
        )

    async def _send(self, commands: Iterable[Command]) -> Command:
        """Send all; return the last reply."""
        last = Command(0)
        for part in parts(commands, _AT_ONCE):
            room = max(1, _BYTES_AT_ONCE // (1 + max(len(one.body) for one in part)))
            for at in range(0, len(part), room):
                asker, some = Asker(), part[at : at + room]
                self.broker.requests.on_commands(asker, some)  # type: ignore[arg-type]
                await asker.until(len(some))
                assert asker.last is not None
                assert asker.last.code == ResponseCode.SUCCESS, asker.last
                last = asker.last
        return last

    async def _pop(self) -> None:
        fields = pop_fields(FLYING) | {"queueId": "0", "invisibleTime": "3600000"}
        for _ in range(-(-self.fullness.flying // 32)):
            reply = await self.ask(Command(RequestCode.POP_MESSAGE, fields))
            assert reply.code == ResponseCode.SUCCESS, reply
            self.popped = dict(reply.fields)

    async def _lite(self) -> None:
        count, subscriptions = self.fullness.lite, self.broker.parts[SUBSCRIPTIONS]
        await self._send(
            send(LITE, b"x", {"__LITE_TOPIC": f"s{number}"}) for number in range(count)
        )
        for number in range(0, count, MAX_NAMED // 10):
            client = subscriptions.heard(LITES, f"c{number}", LITE, Asker(), 0.0)
            names = [b"s%d" % at for at in range(number, min(count, number + MAX_NAMED // 10))]
            client.ready.update(dict.fromkeys(subscriptions.add(client, names)))
            client.told_s = self.broker.parts.clock()

    # --- by clients that come -------------------------------------------------------------------

    def _register(self) -> None:
        full, now = self.fullness, self.broker.parts.clock()
        consumers, producers = self.broker.parts[CONSUMERS], self.broker.parts[PRODUCERS]
        wanted = [SubscriptionData(f"t{number}") for number in range(full.subscriptions)]
        data = ConsumerData(CROWD, subscriptions=wanted)
        alone = ConsumerData(CROWD, subscriptions=wanted[:1])
        for number in range(full.clients):
            asker, client = Asker(number), f"10.0.0.1@{number}#0"
            told = data if number == full.clients - 1 else alone
            consumers.register(asker, Member(client, now, told))
            producers.register(asker, CROWD, Producer(client, now))

    async def _hold(self) -> None:
        asker, held = Asker(), self.fullness.held
        pull = pull_fields(TOPIC, 1 << 40) | {"sysFlag": "6", "suspendTimeoutMillis": "20000"}
        end = await self.ask(Command(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}))
        pull["queueOffset"] = end.fields["offset"]
        pop = pop_fields("t1") | {"pollTime": "20000", "bornTime": str(self.now_ms)}
        for command in (
            Command(RequestCode.PULL_MESSAGE, pull),
            Command(RequestCode.POP_MESSAGE, pop),
        ):
            for part in parts([command] * held, _AT_ONCE):
                self.broker.requests.on_commands(asker, part)  # type: ignore[arg-type]
                await trio.lowlevel.checkpoint()


def _position_of(sent: Command) -> int:
    """Return the position of a send's first message, from the reply."""
    message_id = bytes.fromhex(sent.fields["msgId"].partition(",")[0])
    (position,) = struct.unpack_from(">q", message_id, 8)
    return int(position)


def recall_handle(topic: str, due_ms: int, key: str) -> str:
    """Return a handle of RocketMQ's form, without the position of its message."""
    return base64.urlsafe_b64encode(f"v1 {topic} broker-a {due_ms} {key}".encode()).decode()


def send(
    topic: str, body: bytes, properties: Mapping[str, str] = NO_PROPERTIES, queue_id: int = 0
) -> Command:
    fields: dict[str, Any] = {
        **{"a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": 0, "g": 1},
        **{"h": 0, "i": encode_properties({"UNIQ_KEY": "u", **properties}).decode()},
        **{"j": 0, "k": "false", "l": 16, "m": "false"},
    }
    texts = {name: str(value) for name, value in fields.items()}
    return Command(RequestCode.SEND_MESSAGE_V2, texts, body)


def pull_fields(topic: str, offset: int = 0) -> dict[str, str]:
    return {
        **{"consumerGroup": GROUP, "topic": topic, "queueId": "0", "queueOffset": str(offset)},
        **{"maxMsgNums": "800", "sysFlag": "4", "commitOffset": "0", "subVersion": "0"},
        **{"suspendTimeoutMillis": "0", "subscription": "*", "expressionType": "TAG"},
    }


def pop_fields(topic: str) -> dict[str, str]:
    """Return the fields of a pop of any queue that does not wait."""
    return {
        **{"consumerGroup": GROUP, "topic": topic, "queueId": "-1", "maxMsgNums": "32"},
        **{"invisibleTime": "60000", "pollTime": "0", "bornTime": "1", "initMode": "0"},
        **{"exp": "*", "expType": "TAG", "order": "false", "attemptId": "a"},
    }
