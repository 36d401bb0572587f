"""Answers pops (200050) and notifications (200054), requests that wait for something to pop.

Source: RocketMQ's PopMessageProcessor and NotificationProcessor.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.groups.changes import GROUP_CHANGES
from broker.groups.config import DEFAULT_PRIORITY_FACTOR
from broker.groups.state import GROUPS
from broker.log.folded import Folded
from broker.log.one_by_one import call, failure
from broker.log.submissions import submit_commands
from broker.pop.choice import Choice, Chooser
from broker.pop.commands import Pop
from broker.pop.crowding import Crowding
from broker.pop.handle import check_point_queue
from broker.pop.limits import MAX_QUEUES, MAX_TURNS
from broker.pop.request import ANY_QUEUE, PopRequest, read_notice, read_peek, read_pop
from broker.pop.state import POPS, QueueKey
from broker.pop.undeliverable import UndeliverableMessages
from broker.pop.waiting_pops import WaitingPop, waiting_pops
from broker.pulls.message_filter import MessageFilter
from broker.pulls.readable import READABLE
from broker.pulls.request import filter_of
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.replying import replying
from broker.serving.waiting_requests import Waiting
from broker.settings.user_shares import USER_SHARES
from broker.store.message_reader import MESSAGE_READER
from broker.topics.attributes import MESSAGE_TYPE, PRIORITY_TYPE
from broker.topics.state import TOPICS
from broker.traffic.traffic import TRAFFIC
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.field_values import saturated_int32

# Where a stored record has the number of times it was consumed before.
_TIMES_AT: Final = 72
_TIMES_END: Final = 76

_ALL: Final = MessageFilter()

# Queues without a wanted message among the next ones that are read for one notification: reading
# one takes some milliseconds if the group has a condition.
_READ_FOR_NOTICE: Final = 4

# Names the step in log lines.
_WHAT: Final = "answering a pop"


class Popping:
    """Gives messages to consumers, by entries of the log.

    A queue has one pop in flight at a time: another pop takes another queue, or waits.
    """

    def __init__(self, parts: Parts, chooser: Chooser) -> None:
        self._state = parts.state
        self._pops = parts.state[POPS]
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._log = parts.log
        self._reader = parts[MESSAGE_READER]
        self._chooser = chooser
        self._undeliverable = UndeliverableMessages(parts)
        self._crowding = Crowding(parts)
        self._group_changes = parts[GROUP_CHANGES]
        self._consumers = parts[CONSUMERS]
        self._readable = parts[READABLE]
        self._traffic = parts[TRAFFIC]
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._led_term = parts.led_term
        self._work = parts.work
        self._shares = parts[USER_SHARES]
        self._waiting = waiting_pops(self._shares.held)
        self._busy: set[QueueKey] = set()  # a new set for each term
        self._ready: dict[tuple[str, str], None] = {}  # groups and topics with something new
        # The first queue for the next pop of a group; `_next_turn` bounds it.
        self._turns: dict[tuple[str, str], int] = {}
        self._is_ending = False
        self._is_flushing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def pop(self, origin: Origin, command: Command) -> None:
        """Give a consumer messages, now or when some arrive.

        Raises RequestRefused: (1) too many messages, (16) not readable, (17) no such topic, (23) a
        filter that cannot be read, (29) no such queue, or a bad name or time.
        """
        request = read_pop(command)
        self._check(request)

        def begin() -> None:
            self._begin(origin, command, request)

        user = self._shares.user_of(origin, command)
        self._group_changes.ensure_group(request.group, replying(origin, command, begin), user)

    def notify(self, origin: Origin, command: Command) -> None:
        """Tell a consumer when there is something to pop. Raises as `pop`."""
        request = read_notice(command)
        self._check(request)
        self._begin(origin, command, request)

    def peek(self, _origin: Origin, command: Command) -> Command:
        """Return what a pop would be given, without giving it (200052). Raises as `pop`."""
        request = read_peek(command)
        self._check(request)
        now_ms = self._wall_clock_ms()
        for key in self._keys(request):
            choice = self._chooser.choose(key, request, _ALL, now_ms)
            if choice is not None and choice.offsets:
                records = b"".join(self._records(key, choice.offsets))
                fields = _times(0, 0, 0) | {"restNum": str(choice.rest)}
                return command.reply(fields=fields, body=records)
        return command.reply(ResponseCode.PULL_NOT_FOUND, _times(0, 0, 0) | {"restNum": "0"})

    def polling_info(self, _origin: Origin, command: Command) -> Command:
        """Return how many requests of a group wait for a topic (200055)."""
        count = self._waiting.count(command.name("topic"), command.name("consumerGroup"))
        return command.reply(fields={"pollingNum": str(count)})

    def applied(self, folded: Folded) -> None:
        """Note the topics with new messages, and try pops of deleted topics again."""
        if len(self._waiting):
            for topic in dict.fromkeys(topic for topic, _queue_id in folded.arrivals):
                for group in self._waiting.parts(topic):
                    self._ready[group, topic] = None
            for topic in folded.deleted_topics:
                pops = self._waiting.take_each(self._waiting.of_name(topic))
                self._work.each("pops of a topic that was deleted", pops, self._give_or_wait)

    def make_ready(self, key: QueueKey) -> None:
        if self._waiting.count(key[1], key[0]):
            self._ready[key[0], key[1]] = None

    def freed(self, keys: Iterable[QueueKey]) -> None:
        """Give waiting pops what these queues have now."""
        for key in keys:
            self.make_ready(key)
        self.flush()

    def flush(self) -> None:
        """Give waiting pops what is there: now until the turn is over, then in steps."""
        if self._ready and not self._is_flushing:
            self._is_flushing = True
            self._work.begin("giving messages to pops that wait", self._giving())
        if self._chooser.undeliverable:
            self._undeliverable.take(self._chooser.undeliverable)

    def _giving(self) -> Iterator[None]:
        """Give until nothing is ready; more may become ready meanwhile, if the log refuses a pop at
        once.
        """
        try:
            while self._ready:
                yield from self._giving_to(*self._ready.popitem()[0])
        finally:
            self._is_flushing = False
            self._undeliverable.take(self._chooser.undeliverable)

    def _giving_to(self, group: str, topic: str) -> Iterator[None]:
        empty: set[tuple[int, bool, bool]] = set()
        for pop in self._waiting.of(topic, group):
            request = pop.request
            kind = request.queue_id, request.is_ordered, not request.invisible_ms
            if kind in empty:
                continue  # an equal request has just found nothing
            yield
            if not self._waiting.waits(pop):
                continue  # it expired meanwhile, or its client has disconnected
            if self._is_answered(pop):
                self._waiting.remove(pop)
            elif request.queue_id == ANY_QUEUE and request.invisible_ms:
                break  # the others would find nothing either
            else:
                empty.add(kind)

    def tick(self) -> None:
        """Answer expired pops, and give what is due again."""
        self._work.begin("looking at pops that wait", self._looking())
        if len(self._waiting):
            self._crowding.look()

    def _looking(self) -> Iterator[None]:
        while expired := self._waiting.take_expired(self._clock()):
            for pop in expired:
                call(_WHAT, self._answer_nothing, pop)
            yield
        while due := self._chooser.take_due(self._wall_clock_ms()):
            for key in due:
                self.make_ready(key)
            self.flush()
            yield
        self.flush()

    def give_no_more(self) -> None:
        """Let all new pops wait: this member will soon hand over leadership."""
        self._is_ending = True

    def begin_term(self) -> None:
        self._is_ending = False
        self._busy = set()
        self._ready.clear()
        self._chooser.begin_term()
        self._undeliverable.begin_term()

    def end_term(self, _refusal: RequestRefused) -> None:
        """Answer all waiting pops, so that clients ask again: another member leads, or
        soon will.
        """
        self.ask_again()

    def ask_again(self) -> None:
        self._work.each("pops that are asked again", self._waiting.take_all(), self._answer_nothing)

    def drop(self, origin: Origin) -> None:
        self._work.begin("dropping pops of a client that is gone", self._waiting.drop(origin))

    # --- one pop ------------------------------------------------------------------------------

    def _check(self, request: PopRequest) -> None:
        queue_id = None if request.queue_id == ANY_QUEUE else request.queue_id
        self._readable.check(request.group, request.topic, queue_id)

    def _begin(self, origin: Origin, command: Command, request: PopRequest) -> None:
        deadline = self._clock() + request.hold_s
        user = self._shares.user_of(origin, command)
        pop = Waiting(origin, command.without_content(), request, deadline, user)
        self._give_or_wait(pop)
        self._undeliverable.take(self._chooser.undeliverable)

    def _is_answered(self, pop: WaitingPop) -> bool:
        """Try to give as `_is_given`; a pop that fails is answered, too, and waits no longer."""
        try:
            return self._is_given(pop)
        except Exception as error:
            pop.origin.send(_failed(pop, error))
            return True

    def _give_or_wait(self, pop: WaitingPop) -> None:
        if self._is_given(pop):
            return
        if pop.deadline <= self._clock() or self._led_term() is None:
            self._answer_nothing(pop)  # only a leader looks at those that wait
        elif not (self._waiting.has_room(pop) and self._shares.may_hold(pop.user)):
            self._answer_full(pop)
        else:
            self._waiting.add(pop)
            pop.origin.set_aside(pop.command)

    def _is_given(self, pop: WaitingPop) -> bool:
        request = pop.request
        if self._is_ending:
            return False
        try:
            self._check(request)  # again, after waiting
            wanted = self._wanted(request)
        except RequestRefused as error:
            pop.origin.send(error.reply_to(pop.command))
            return True
        if request.invisible_ms and not self._group_changes.is_there(request.group):
            self._answer_nothing(pop)  # its group was deleted; a new pop creates it again
            return True
        now_ms = self._wall_clock_ms()
        is_known = is_over_share = False
        unwanted = 0
        for key in self._keys(request):
            is_known = is_known or key in self._pops.queues
            if key in self._busy:
                continue
            choice = self._chooser.choose(key, request, wanted, now_ms)
            if choice is None:
                continue
            if not request.invisible_ms:
                unwanted += not choice.offsets
                # There may be more: a pop finds out, one queue after the other.
                if choice.offsets or unwanted == _READ_FOR_NOTICE:
                    pop.origin.send(pop.command.reply(fields=_notice(True)))
                    return True
                continue
            if not self._may_begin(pop, key):
                is_over_share = True
                continue
            self._propose(pop, key, choice)
            return True
        if not is_known and (is_over_share or self._chooser.has_too_many_queues):
            queues, of = len(self._pops.queues), f", many of user {pop.user}" * is_over_share
            remark = f"groups pop from {queues} queues already{of}: delete groups, or topics"
            pop.origin.send(pop.command.reply(ResponseCode.SYSTEM_BUSY, remark=remark))
            return True
        return False

    def _may_begin(self, pop: WaitingPop, key: QueueKey) -> bool:
        """Return whether a pop's user may have its groups pop from one more queue, if it is new."""
        queues = self._pops.queues
        return key in queues or self._shares.may_take(
            pop.user, "queues", MAX_QUEUES, is_half_full=not queues.has_room(MAX_QUEUES // 2)
        )

    def _keys(self, request: PopRequest) -> Iterator[QueueKey]:
        """Yield the queues to try, beginning with another one each time."""
        group, topic = request.group, request.topic
        if request.queue_id != ANY_QUEUE:
            yield group, topic, request.queue_id
            return
        count = self._topics.configs[topic].read_queue_count
        turn = self._next_turn(group, topic)
        first, step = turn, 1
        if not request.is_ordered and self._is_by_priority(group, topic, turn):
            first, step = count - 1, -1
        for number in range(count):
            yield group, topic, (first + step * number) % count

    def _is_by_priority(self, group: str, topic: str, turn: int) -> bool:
        """Return whether a pop begins with the last queue: where the message's priority is the
        number of its queue, as many of a hundred pops as the group says.
        """
        attributes = self._topics.configs[topic].attributes
        if attributes.get(MESSAGE_TYPE) != PRIORITY_TYPE:
            return False
        config = self._groups.configs.get(group)
        factor = DEFAULT_PRIORITY_FACTOR if config is None else config.priority_factor
        return (turn + 1) * factor // 100 > turn * factor // 100

    def _next_turn(self, group: str, topic: str) -> int:
        """Return a number that grows with each pop of a group, so that every queue comes first in
        turn.
        """
        turn = self._turns.get((group, topic), 0)
        if len(self._turns) >= MAX_TURNS:
            self._turns.clear()
        self._turns[group, topic] = turn + 1
        return turn

    def _wanted(self, request: PopRequest) -> MessageFilter:
        """Return the filter of a request. Raises RequestRefused (23)."""
        if request.wanted is not None:
            return request.wanted
        subscription = self._consumers.subscription(request.group, request.topic)
        return _ALL if subscription is None else filter_of(subscription)

    def _propose(self, pop: WaitingPop, key: QueueKey, choice: Choice) -> None:
        request, busy = pop.request, self._busy
        command = Pop(
            *key,
            choice.popped_ms,
            choice.popped_ms + request.invisible_ms,
            choice.first,
            choice.next,
            choice.offsets,
            request.attempt_id if request.is_ordered else None,
            choice.begins,
            self._state.log_end,
        )
        busy.add(key)

        def then(refusal: RequestRefused | None) -> None:
            busy.discard(key)
            if refusal is not None:
                pop.origin.send(refusal.reply_to(pop.command))
            else:
                self._chooser.shown(key, command.visible_ms)
                self._answer(pop, command, choice.rest)
            self.freed([key])

        submit_commands(self._log, [command], then)

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, pop: WaitingPop, command: Pop, rest: int) -> None:
        queue = self._pops.queues.get(command.key)
        in_flight = {} if queue is None else queue.in_flight
        given = [
            offset
            for offset in command.offsets
            if offset in in_flight and in_flight[offset].popped_ms == command.popped_ms
        ]
        if not given:
            self._give_or_wait(pop)
            return
        times = [in_flight[offset].times for offset in given]

        def answer() -> None:
            try:
                reply = self._reply(pop, command, given, times, rest)
            except Exception as error:
                reply = _failed(pop, error)
            pop.origin.send(reply)

        pop.origin.when_taken(answer)

    def _reply(
        self, pop: WaitingPop, command: Pop, given: list[int], times: list[int], rest: int
    ) -> Command:
        request, queue_id = pop.request, command.queue_id
        began = self._clock()
        records: list[bytes] = []
        counts: list[str] = []
        found: list[int] = []
        for record, offset, count in zip(
            self._records(command.key, given), given, times, strict=True
        ):
            if record:  # retention may have dropped it since
                found.append(offset)
                records.append(_with_times(record, count - 1))
                counts.append(f"0 qo{queue_id}%{offset} {count - 1}")
        if not found:
            return pop.command.reply(
                ResponseCode.POLLING_TIMEOUT, _times(0, request.invisible_ms, 0) | _NO_REST
            )
        body = b"".join(records)
        fields = _times(command.popped_ms, request.invisible_ms, int(request.is_ordered))
        fields["reviveQid"] = str(check_point_queue(request.is_ordered))
        fields["restNum"] = str(max(0, rest))
        fields["startOffsetInfo"] = f"0 {queue_id} {found[0]}"
        fields["msgOffsetInfo"] = f"0 {queue_id} {','.join(map(str, found))}"
        if request.is_ordered:
            fields["orderCountInfo"] = ";".join([f"0 {queue_id} {times[0] - 1}", *counts])
        self._traffic.given(
            request.group, request.topic, queue_id, len(found), len(body), self._clock() - began
        )
        self._traffic.popped(request.group, request.topic)
        return pop.command.reply(fields=fields, body=body)

    def _records(self, key: QueueKey, offsets: "list[int] | tuple[int, ...]") -> Iterator[bytes]:
        """Read messages by their offsets; empty if retention has dropped one."""
        _group, topic, queue_id = key
        for offset in offsets:
            yield self._reader.read(topic, queue_id, offset, 1).messages

    def _answer_nothing(self, pop: WaitingPop) -> None:
        if not pop.request.invisible_ms:
            pop.origin.send(pop.command.reply(fields=_notice(False)))
            return
        self._traffic.missed()
        pop.origin.send(
            pop.command.reply(
                ResponseCode.POLLING_TIMEOUT, _times(0, pop.request.invisible_ms, 0) | _NO_REST
            )
        )

    def _answer_full(self, pop: WaitingPop) -> None:
        if not pop.request.invisible_ms:
            pop.origin.send(pop.command.reply(fields=_notice(False) | {"pollingFull": "true"}))
            return
        fields = _times(0, pop.request.invisible_ms, 0) | _NO_REST
        pop.origin.send(pop.command.reply(ResponseCode.POLLING_FULL, fields))


_NO_REST: Final = {"restNum": "0"}


def _times(popped_ms: int, invisible_ms: int, queue: int) -> dict[str, str]:
    """Return the fields that every reply to a pop must have."""
    return {
        "popTime": str(popped_ms),
        "invisibleTime": str(invisible_ms),
        "reviveQid": str(queue),
    }


def _failed(pop: WaitingPop, error: Exception) -> Command:
    refusal = failure(_WHAT, error)
    return refusal.reply_to(pop.command)


def _notice(has_message: bool) -> dict[str, str]:
    return {"hasMsg": str(has_message).lower(), "pollingFull": "false"}


def _with_times(record: bytes, times: int) -> bytes:
    """Add to the number of times that a record says it was consumed before."""
    if not times or not record:
        return record
    stored = saturated_int32(int.from_bytes(record[_TIMES_AT:_TIMES_END], "big", signed=True))
    total = saturated_int32(stored + times)
    return record[:_TIMES_AT] + total.to_bytes(4, "big") + record[_TIMES_END:]
