"""Assigns queues to consumers (400), and sets and lists the request modes of groups (401, 402).

Source: RocketMQ's QueryAssignmentProcessor.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, NamedTuple

from broker.access.guard import ACCESS_GUARD
from broker.assignment.commands import SetMode
from broker.assignment.state import MODES, Mode
from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.log.submissions import submit_commands
from broker.serving.needs import Action
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.serving.routes import ROUTES
from broker.topics.names import check_group_name, check_topic_name
from broker.topics.needs import group_need, topic_need
from remoting.bodies.assignment import (
    POP,
    PULL,
    Assigned,
    assigned_row,
    encode_assigned,
    encode_assigned_rows,
)
from remoting.bodies.json_object import JsonObject
from remoting.bodies.message_queue import MessageQueue
from remoting.bodies.pieces import pieces
from remoting.bodies.queue_shares import average_share, circle_share
from remoting.bodies.route import TopicRoute
from remoting.bodies.topic_config import PERMISSION_READ
from remoting.message.topic_names import RETRY_PREFIX
from remoting.net.answering import Steps, answer_each
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.loose_json import compact_json

# Each takes some 300 bytes.
MAX_MODES: Final = 20_000

# Requests that wait for a name server.
MAX_WAITING: Final = 1000

_MAX_BODY_BYTES: Final = 16 * 1024

# Members that may share a queue; more than any group has.
_MAX_SHARES: Final = 1_000_000

# Queues of one topic in a route, because a name server does not check registrations.
MAX_QUEUES: Final = 16_384

# Queues that one step writes, and members whose shares it computes.
_A_STEP: Final = 256

_Share = Callable[[int, int, Sequence[int]], Sequence[int]]
_SHARES: Final[Mapping[str, _Share]] = {
    "AVG": average_share,
    "AVG_BY_CIRCLE": circle_share,
}


class _Question(NamedTuple):
    """A consumer's question for its queues."""

    group: str
    topic: str
    client_id: str
    share: _Share
    is_broadcast: bool


class _Queues:
    """The readable queues of a topic in their order, each by its place.

    There may be `MAX_QUEUES`, so they are made when they are told.
    """

    def __init__(self, topic: str, route: TopicRoute) -> None:
        counts: dict[str, int] = {}
        for one in route.queues:
            if one.permission & PERMISSION_READ and one.read_queue_count > 0:
                count = max(one.read_queue_count, counts.get(one.broker_name, 0))
                counts[one.broker_name] = count
        self._topic = topic
        self._brokers = sorted(counts)
        self._ends = list(accumulate(counts[name] for name in self._brokers))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def at(self, place: int) -> MessageQueue:
        number = bisect_right(self._ends, place)
        begin = self._ends[number - 1] if number else 0
        return MessageQueue(self._topic, self._brokers[number], place - begin)

    def any_of_each_broker(self) -> Iterator[MessageQueue]:
        """Yield a queue for each broker whose id -1 stands for any of its queues."""
        return (MessageQueue(self._topic, name, -1) for name in self._brokers)


class AssignmentProcessor:
    def __init__(self, parts: Parts) -> None:
        self._modes = parts.state[MODES]
        self._log = parts.log
        self._consumers = parts[CONSUMERS]
        self._routes = parts[ROUTES]
        self._access = parts[ACCESS_GUARD]
        self._waiting = 0

    def query(self, origin: Origin, command: Command) -> None:
        """Return the queues of one consumer; null if they are unknown now (400).

        Raises RequestRefused: (1) an unknown strategy, (2) too many wait.
        """
        asked = JsonObject.parse("question for queues", command.body, _MAX_BODY_BYTES)
        group, topic = asked.name("consumerGroup"), asked.name("topic")
        needs = (group_need(group, Action.SUB), topic_need(topic, Action.SUB))
        self._access.require(origin, command, needs)
        strategy = asked.text("strategyName", "AVG")
        is_broadcast = asked.text("messageModel", "CLUSTERING") == "BROADCASTING"
        share = _SHARES.get(strategy)
        if share is None:
            raise RequestRefused.failed(
                f"strategy {strategy:.50} is not known here: use {' or '.join(_SHARES)}"
            )
        question = _Question(group, topic, asked.name("clientId"), share, is_broadcast)
        if self._waiting >= MAX_WAITING:
            raise RequestRefused.busy(f"{self._waiting} wait for name servers: ask later")
        self._waiting += 1

        def then(route: TopicRoute | None) -> None:
            self._waiting -= 1
            answer_each(origin, [command], lambda _origin, one: self._answer(one, question, route))

        self._routes.find(topic, then)

    def _answer(self, command: Command, asked: _Question, route: TopicRoute | None) -> Steps:
        mode = self._mode(asked.topic, asked.group, asked.is_broadcast)
        members = self._consumers.client_ids(asked.group)
        if route is None or not (asked.is_broadcast or asked.client_id in members):
            # A new leader does not know all members yet, and a name server may be restarting. A
            # client without assigned queues would give up its own for 20 s. With null it keeps
            # them, and asks again.
            return command.reply(body=encode_assigned(None))
        if sum(one.read_queue_count for one in route.queues) > MAX_QUEUES:
            remark = f"topic {asked.topic:.127} has more than {MAX_QUEUES} queues: delete some"
            return command.reply(ResponseCode.SYSTEM_ERROR, remark=remark)
        queues = _Queues(asked.topic, route)
        if asked.is_broadcast:
            assigned: Iterator[MessageQueue] = map(queues.at, range(len(queues)))
        elif mode.name == POP and not 0 < mode.shares < len(members) - 1:
            assigned = queues.any_of_each_broker()
        else:
            place = bisect_left(members, asked.client_id)
            own = yield from _own(asked.share, mode, place, len(queues), len(members))
            assigned = map(queues.at, own)
        rows: list[str] = []
        while some := list(islice(assigned, _A_STEP)):
            rows += [assigned_row(Assigned(queue, mode.name)) for queue in some]
            yield
        return command.reply(body=encode_assigned_rows(rows))

    def set_mode(self, origin: Origin, command: Command) -> None:
        """Set how a group reads a topic (401).

        Raises RequestRefused: (16) a retry topic, (29) a bad name, mode or number.
        """
        asked = JsonObject.parse("request mode", command.body, _MAX_BODY_BYTES)
        group, topic = asked.name("consumerGroup"), asked.name("topic")
        if topic.startswith(RETRY_PREFIX):
            raise RequestRefused.forbidden("retry topic is not allowed to set mode")
        check_group_name(group)
        check_topic_name(topic)
        mode = Mode(asked.text("mode", PULL), asked.int32("popShareQueueNum", 0))
        if mode.name not in (PULL, POP) or abs(mode.shares) > _MAX_SHARES:
            raise RequestRefused.invalid(
                f"mode {mode.name:.20} of {mode.shares}: set PULL or POP, and how many share"
            )
        submit_commands(
            self._log, [SetMode(topic, group, *mode, MAX_MODES)], replying(origin, command)
        )

    def all_modes(self, _origin: Origin, command: Command) -> Steps:
        """List all modes that were set (402)."""
        of_topic: dict[str, list[str]] = {}
        for piece in pieces(self._modes.modes.listed()):
            for topic, group in piece:
                mode = self._modes.modes.get((topic, group))
                if mode is None:
                    continue  # its topic or its group was deleted meanwhile
                row = {
                    "consumerGroup": group,
                    "mode": mode.name,
                    "popShareQueueNum": mode.shares,
                    "topic": topic,
                }
                rows = of_topic.setdefault(topic, [])
                rows.append(f"{compact_json(group)}:{compact_json(row)}")
            yield
        topics: list[str] = []
        for some in pieces(of_topic.items()):
            topics += [f"{compact_json(topic)}:{{{','.join(rows)}}}" for topic, rows in some]
            yield
        return command.reply(body=f'{{"messageRequestModeMap":{{{",".join(topics)}}}}}'.encode())

    def _mode(self, topic: str, group: str, is_broadcast: bool) -> Mode:
        if is_broadcast:
            return Mode()  # each member pulls all messages
        return self._modes.modes.get((topic, group), Mode())


def _own(
    share: _Share, mode: Mode, place: int, queues: int, members: int
) -> Generator[None, None, Sequence[int]]:
    """Return the places of the queues of one of the sorted members."""
    if mode.name == PULL:
        return share(place, members, range(queues))
    if members > queues:
        return [place % queues] if queues else []  # several members share a queue
    # The member pops its own queues, and those of the next members.
    own: list[int] = []
    for numbers in pieces(range(mode.shares + 1), _A_STEP):
        for number in numbers:
            own += share((place + number) % members, members, range(queues))
        yield
    return sorted(own)
