"""Answers pops of lite topics (200070), on the leader.

A client names itself, and is given messages of the lite topics that it has subscribed to. Each of
them is in order: while a message is in flight, nothing else of the lite topic is given.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from broker.errors import RequestRefused
from broker.groups.changes import GROUP_CHANGES
from broker.groups.config import ConsumerGroup
from broker.groups.state import GROUPS
from broker.limits import MAX_PULL_BYTES
from broker.lite import rows
from broker.lite.commands import AckLite, LiteGiven, LiteMessage, PopLite
from broker.lite.limits import LOOKED_AT, MAX_LITE_IN_FLIGHT
from broker.lite.records import given
from broker.lite.request import LiteRequest, read_pop
from broker.lite.state import LITE
from broker.lite.subscriptions import ClientKey, GroupSubscriptions, Subscriber, Subscriptions
from broker.log.folded import Folded
from broker.log.one_by_one import call, failure
from broker.log.submissions import submit_commands
from broker.messages.state import MESSAGES
from broker.pop.handle import ORDERED_QUEUE
from broker.pop.limits import MAX_WAITING, MAX_WAITING_A_CLIENT
from broker.pop.state import PopQueue
from broker.pulls.readable import READABLE
from broker.serving.origin import Origin
from broker.serving.parts import Parts, Shared
from broker.serving.waiting_requests import Waiting, WaitingRequests
from broker.settings.user_shares import USER_SHARES
from broker.store.message_reader import YOUNG_QUEUE_BYTES
from broker.topics.attributes import LITE_TYPE, MESSAGE_TYPE
from broker.topics.state import TOPICS
from broker.traffic.traffic import TRAFFIC
from dledger import OutsideLog
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# Names the step in log lines.
_WHAT: Final = "answering a pop of lite topics"

_SIZE_BYTES: Final = 4

# Outdated times in the heap, besides twice the others, before it is made anew.
_STALE: Final = 1024

# Lite topics that one tick makes ready because something is due.
_DUE_A_STEP: Final = 64

# A lite topic is looked at again after this time if too many messages were in flight.
_NO_ROOM_MS: Final = 1000

_Waiting: TypeAlias = Waiting[LiteRequest]

# A group, a parent and a lite topic.
LiteKey: TypeAlias = tuple[str, str, bytes]


class _Chosen(NamedTuple):
    """What a pop is to be given of one lite topic.

    Attributes:
        size: bytes of the messages.
        after_ms: the pop must be later.
    """

    given: LiteGiven
    offsets: tuple[int, ...]
    size: int
    after_ms: int


class LitePopping:
    """Gives messages of lite topics, by entries of the log."""

    def __init__(self, parts: Parts) -> None:
        self._state = parts.state
        self._lite = parts.state[LITE]
        self._messages = parts.state[MESSAGES]
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._log = parts.log
        self._group_changes = parts[GROUP_CHANGES]
        self._readable = parts[READABLE]
        self._traffic = parts[TRAFFIC]
        self._subscriptions = parts[SUBSCRIPTIONS]
        self._wall_clock_ms = parts.wall_clock_ms
        self._clock = parts.clock
        self._led_term = parts.led_term
        self._work = parts.work
        self._shares = parts[USER_SHARES]
        self._waiting: WaitingRequests[LiteRequest, str] = WaitingRequests(
            MAX_WAITING, MAX_WAITING_A_CLIENT, self._shares.held, lambda request: request.key
        )
        self._busy: set[LiteKey] = set()  # a new set for each term
        self._woken: dict[ClientKey, None] = {}
        # When messages in flight are due: then the pops that wait for them are woken.
        self._wakes: dict[LiteKey, int] = {}
        self._times: list[tuple[int, LiteKey]] = []
        self._is_ending = False
        self._is_flushing = False

    def __len__(self) -> int:
        return len(self._waiting)

    def pop(self, origin: Origin, command: Command) -> None:
        """Give a client messages, now or when some arrive.

        Raises RequestRefused: (16) not readable, (17) no such topic, (26) no such group, (29) the
        group reads no lite topics of it, or a bad name or number.
        """
        request = read_pop(command)
        self.check(request.group, request.parent)
        deadline = self._clock() + request.hold_s
        user = self._shares.user_of(origin, command)
        pop = Waiting(origin, command.without_content(), request, deadline, user)
        self._give_or_wait(pop)

    def check(self, group: str, parent: str) -> ConsumerGroup:
        """Return a group, if it reads the lite topics of a parent. Raises as `pop`."""
        topic = self._readable.check(group, parent, None)
        if topic.attributes.get(MESSAGE_TYPE) != LITE_TYPE:
            raise RequestRefused.invalid(
                f"topic {parent:.127} has no lite topics: its {MESSAGE_TYPE} is not {LITE_TYPE}"
            )
        config = self._groups.configs.get(group)
        if config is None:
            raise RequestRefused.no_group(
                f"subscription group [{group:.120}] does not exist: create it"
            )
        if config.lite_parent != parent:
            raise RequestRefused.invalid(
                f"group {group:.120} is not bound to topic {parent:.127}: set its lite.bind.topic"
            )
        return config

    # --- what may have something to give --------------------------------------------------------

    def applied(self, folded: Folded) -> None:
        if folded.lite_arrivals:
            arrivals = dict.fromkeys(folded.lite_arrivals)
            self._work.begin("looking who wants messages of lite topics", self._arriving(arrivals))

    def _arriving(self, arrivals: Iterable[tuple[str, bytes]]) -> Iterator[None]:
        """Make lite topics ready in steps: many clients may want one."""
        for parent, name in arrivals:
            for group in list(self._subscriptions.groups(parent)):
                self.make_ready((group, parent, name))
                yield
        self.flush()

    def make_ready(self, key: LiteKey) -> None:
        """Note that a lite topic may have something for a group."""
        group, parent, name = key
        wanted = self._subscriptions.group(parent, group)
        if wanted is None:
            return
        for client in wanted.of(name):
            if not client.is_gone:
                client.ready[name] = None
                self.wake(client)
        if wanted.wild:
            wanted.ready[name] = None
            self._wake_wild(group, wanted)

    def _wake_wild(self, group: str, wanted: GroupSubscriptions) -> None:
        """Wake one of the clients that want everything, if one waits."""
        for client_id in self._waiting.parts(group):
            client = self._subscriptions.client((group, client_id))
            if client in wanted.wild:
                self._woken[group, client_id] = None
                return

    def wake(self, client: Subscriber) -> None:
        if self._waiting.count(*client.key):
            self._woken[client.key] = None

    def freed(self, keys: Iterable[LiteKey]) -> None:
        """Make lite topics ready that may have something, and give it."""
        for key in keys:
            group, parent, name = key
            row = self._lite.row(parent, name)
            done = self._lite.done(group, parent, name)
            if row is not None and (done is None or rows.end(row) > done):
                self.make_ready(key)
        self.flush()

    def wake_at(self, key: LiteKey, time_ms: int) -> None:
        """Note that a lite topic may have something at a time."""
        if time_ms >= self._wakes.get(key, 1 << 62):
            return
        self._wakes[key] = time_ms
        heapq.heappush(self._times, (time_ms, key))
        if len(self._times) > 2 * len(self._wakes) + _STALE:
            self._times = [(time, one) for one, time in self._wakes.items()]
            heapq.heapify(self._times)

    def tick(self) -> None:
        """Answer expired pops, and give what is due again."""
        self._work.begin("looking at pops of lite topics", self._looking())

    def _looking(self) -> Iterator[None]:
        while expired := self._waiting.take_expired(self._clock()):
            for pop in expired:
                call(_WHAT, self._answer_nothing, pop)
            yield
        while due := self._take_due():
            self.freed(due)
            yield
        self.flush()

    def _take_due(self) -> list[LiteKey]:
        now_ms = self._wall_clock_ms()
        due: list[LiteKey] = []
        while self._times and self._times[0][0] <= now_ms and len(due) < _DUE_A_STEP:
            time_ms, key = heapq.heappop(self._times)
            if self._wakes.get(key) == time_ms:
                del self._wakes[key]
                due.append(key)
        return due

    def flush(self) -> None:
        """Give waiting pops what is there: now until the turn is over, then in steps."""
        if self._woken and not self._is_flushing:
            self._is_flushing = True
            self._work.begin("giving messages of lite topics", self._giving())

    def _giving(self) -> Iterator[None]:
        try:
            while self._woken:
                key = next(iter(self._woken))
                del self._woken[key]
                while (pop := self._waiting.first(*key)) is not None:
                    yield
                    if not self._waiting.waits(pop):
                        continue
                    if self._is_answered(pop):
                        self._waiting.remove(pop)
                    elif not self._ready_of(key):
                        break
        finally:
            self._is_flushing = False

    def _ready_of(self, key: ClientKey) -> dict[bytes, None]:
        client = self._subscriptions.client(key)
        if client is None or self._is_ending:
            return {}
        if not client.is_wild:
            return client.ready
        wanted = self._subscriptions.group(client.parent, client.group)
        return {} if wanted is None else wanted.ready

    # --- the term -------------------------------------------------------------------------------

    def give_no_more(self) -> None:
        """Let all new pops wait: this member will soon hand over leadership."""
        self._is_ending = True

    def begin_term(self) -> None:
        self._is_ending = False
        self._busy = set()
        self._woken.clear()
        self._wakes.clear()
        self._times.clear()

    def end_term(self) -> None:
        """Answer all waiting pops, so that clients ask again, and forget subscriptions: clients
        tell them to the next leader.
        """
        self.ask_all_again()
        self._subscriptions.clear_all()

    def ask_all_again(self) -> None:
        self._work.each(_WHAT, self._waiting.take_all(), self._answer_nothing)

    def drop(self, origin: Origin) -> None:
        self._work.begin("dropping pops of a client that is gone", self._waiting.drop(origin))

    def ask_again(self, key: ClientKey) -> None:
        """Answer the waiting pops of a client that is gone."""
        for pop in self._waiting.take_each(self._waiting.of(*key)):
            self._answer_nothing(pop)

    # --- one pop --------------------------------------------------------------------------------

    def _is_answered(self, pop: _Waiting) -> bool:
        """Try to give as `_is_given`; a pop that fails is answered, too."""
        try:
            return self._is_given(pop)
        except Exception as error:
            pop.origin.send(failure(_WHAT, error).reply_to(pop.command))
            return True

    def _give_or_wait(self, pop: _Waiting) -> None:
        if self._is_given(pop):
            return
        is_more = bool(self._ready_of(pop.request.key))
        if (pop.deadline <= self._clock() and not is_more) or self._led_term() is None:
            self._answer_nothing(pop)  # only a leader looks at those that wait
        elif not (self._waiting.has_room(pop) and self._shares.may_hold(pop.user)):
            pop.origin.send(pop.command.reply(ResponseCode.POLLING_FULL, _times(pop, 0)))
        else:
            self._waiting.add(pop)
            pop.origin.set_aside(pop.command)
            if is_more:  # one step does not look at all that is ready
                self._woken[pop.request.key] = None
                self.flush()

    def _is_given(self, pop: _Waiting) -> bool:
        request = pop.request
        if self._is_ending:
            return False
        try:
            self.check(request.group, request.parent)  # again, after waiting
        except RequestRefused as error:
            pop.origin.send(error.reply_to(pop.command))
            return True
        if not self._group_changes.is_there(request.group):
            self._answer_nothing(pop)  # its group is being deleted
            return True
        client = self._subscriptions.client(request.key)
        ready = self._ready_of(request.key)
        if client is None or client.parent != request.parent or not ready:
            return False
        chosen = self._choose(request, ready)
        if not chosen:
            return False
        self._propose(pop, chosen)
        return True

    def _choose(self, request: LiteRequest, ready: dict[bytes, None]) -> list[_Chosen]:
        """Choose messages of lite topics that are ready, and take those from `ready`."""
        chosen: list[_Chosen] = []
        room, room_bytes = request.max_messages, MAX_PULL_BYTES
        now_ms = self._wall_clock_ms()
        for name in list(islice(ready, LOOKED_AT)):
            key = (request.group, request.parent, name)
            del ready[name]
            if key in self._busy:
                continue  # it becomes ready again when that pop is applied
            one = self._chosen_of(key, request.attempt_id, room, room_bytes, now_ms)
            if one is None:
                continue
            if chosen and one.size > room_bytes:
                ready[name] = None
                break
            chosen.append(one)
            room -= len(one.offsets)
            room_bytes -= one.size
            if room <= 0 or room_bytes <= 0:
                break
        return chosen

    def _chosen_of(
        self, key: LiteKey, attempt_id: str, room: int, room_bytes: int, now_ms: int
    ) -> _Chosen | None:
        group, parent, name = key
        row = self._lite.row(parent, name)
        if row is None:
            return None
        queue = self._lite.queue(group, parent, name)
        begin, end = rows.begin(row, self._kept_position), rows.end(row)
        offsets: list[int] = []
        begins, after_ms = False, 0
        if queue is not None:
            flights = queue.in_flight
            if lost := [offset for offset in flights if offset < begin]:
                self._forget(key, queue, lost)
                return None
            is_repeated = bool(attempt_id) and attempt_id == queue.attempt_id
            later = [one.visible_ms for one in flights.values() if one.visible_ms > now_ms]
            if later and not is_repeated:
                self.wake_at(key, max(later))
                return None
            offsets = list(flights)
            after_ms = 1 + max(one.popped_ms for one in flights.values())
            first = queue.next_offset
            end = first if is_repeated else end
        else:
            done = self._lite.done(group, parent, name)
            first = self._start(row, begin, end) if done is None else max(done, begin)
            begins = first != done
        if self._lite.in_flight_count >= MAX_LITE_IN_FLIGHT and end > first:
            end = first
            self.wake_at(key, now_ms + _NO_ROOM_MS)
        again = len(offsets)
        offsets += range(first, min(end, first + max(0, room - again)))
        sizes = self._sizes(row, offsets[:room], room_bytes)
        offsets = offsets[: len(sizes)]
        if not offsets:
            return None
        again = min(again, len(offsets))
        given_now = LiteGiven(name.decode(), first, first + len(offsets) - again, again, begins)
        return _Chosen(given_now, tuple(offsets), sum(sizes), after_ms)

    def _start(self, row: rows.Row, begin: int, end: int) -> int:
        """Return where a group begins that never read a lite topic: with its first message, while
        it is young, or else with the last.
        """
        if begin == 0:
            distance = self._state.log_end - rows.position(row, 0)
            if distance <= YOUNG_QUEUE_BYTES:
                return 0
        return max(begin, end - 1)

    def _sizes(self, row: rows.Row, offsets: Sequence[int], room_bytes: int) -> list[int]:
        """Return the sizes of messages, as far as they fit an answer: at least of the first."""
        sizes: list[int] = []
        for offset in offsets:
            try:
                head = self._log.read_bytes(rows.position(row, offset), _SIZE_BYTES)
            except OutsideLog:
                break  # this member lacks it
            size = int.from_bytes(head, "big")
            if sizes and sum(sizes) + size > room_bytes:
                break
            sizes.append(size)
        return sizes

    @property
    def _kept_position(self) -> int:
        return max(self._messages.kept_position, self._log.begin_position)

    def _forget(self, key: LiteKey, queue: PopQueue, lost: Sequence[int]) -> None:
        """Take messages out of flight that retention has dropped."""
        group, parent, name = key
        self._busy.add(key)
        busy = self._busy
        messages = [
            LiteMessage(group, parent, name.decode(), offset, queue.in_flight[offset].popped_ms)
            for offset in lost
        ]

        def then(_refusal: RequestRefused | None) -> None:
            busy.discard(key)
            self.freed([key])

        submit_commands(self._log, [AckLite(messages)], then)

    def _propose(self, pop: _Waiting, chosen: list[_Chosen]) -> None:
        request, busy = pop.request, self._busy
        popped_ms = max(self._wall_clock_ms(), *[one.after_ms for one in chosen])
        command = PopLite(
            request.group,
            request.parent,
            popped_ms,
            popped_ms + request.invisible_ms,
            request.attempt_id,
            [one.given for one in chosen],
            self._state.log_end,
        )
        keys = [(request.group, request.parent, one.given.lite_topic.encode()) for one in chosen]
        busy.update(keys)

        def then(refusal: RequestRefused | None) -> None:
            busy.difference_update(keys)
            if refusal is not None:
                pop.origin.send(refusal.reply_to(pop.command))
            else:
                self._answer(pop, command, chosen)
            for key in keys:
                if refusal is None:
                    self.wake_at(key, command.visible_ms)
            self.freed(keys)

        submit_commands(self._log, [command], then)

    # --- answers ----------------------------------------------------------------------------------

    def _answer(self, pop: _Waiting, command: PopLite, chosen: Sequence[_Chosen]) -> None:
        found: list[tuple[bytes, int, int]] = []  # lite topic, offset, and times before
        for one in chosen:
            name = one.given.lite_topic.encode()
            queue = self._lite.queue(command.group, command.parent, name)
            if queue is not None:
                found += [
                    (name, offset, queue.in_flight[offset].times - 1)
                    for offset in one.offsets
                    if queue.has(offset, command.popped_ms)
                ]
        if not found:
            self._give_or_wait(pop)
            return

        def answer() -> None:
            try:
                reply = self._reply(pop, command, found)
            except Exception as error:
                reply = failure(_WHAT, error).reply_to(pop.command)
            pop.origin.send(reply)

        pop.origin.when_taken(answer)

    def _reply(
        self, pop: _Waiting, command: PopLite, found: Sequence[tuple[bytes, int, int]]
    ) -> Command:
        began = self._clock()
        records: list[bytes] = []
        times: list[str] = []
        for name, offset, count in found:
            record = self._record(command.parent, name, offset)
            if record:  # retention may have dropped it since
                records.append(given(record, command.parent, name, offset, count))
                times.append(str(count))
        if not records:
            return pop.command.reply(ResponseCode.POLLING_TIMEOUT, _times(pop, 0))
        body = b"".join(records)
        fields = _times(pop, command.popped_ms) | {"orderCountInfo": ";".join(times)}
        self._traffic.given(
            command.group, command.parent, 0, len(records), len(body), self._clock() - began
        )
        self._traffic.popped(command.group, command.parent)
        return pop.command.reply(fields=fields, body=body)

    def _record(self, parent: str, name: bytes, offset: int) -> bytes:
        """Read a message; empty if it is gone."""
        row = self._lite.row(parent, name)
        if row is None or not rows.known_from(row) <= offset < rows.end(row):
            return b""
        position = rows.position(row, offset)
        try:
            size = int.from_bytes(self._log.read_bytes(position, _SIZE_BYTES), "big")
            return self._log.read_bytes(position, size)
        except OutsideLog:
            return b""

    def _answer_nothing(self, pop: _Waiting) -> None:
        self._traffic.missed()
        pop.origin.send(pop.command.reply(ResponseCode.POLLING_TIMEOUT, _times(pop, 0)))


def _times(pop: _Waiting, popped_ms: int) -> dict[str, str]:
    """Return the fields that every reply to a pop must have."""
    return {
        "popTime": str(popped_ms),
        "invisibleTime": str(pop.request.invisible_ms),
        "reviveQid": str(ORDERED_QUEUE),
    }


SUBSCRIPTIONS: Final = Shared("lite subscriptions", lambda _parts: Subscriptions())
LITE_POPPING: Final = Shared("pops of lite topics", LitePopping)
