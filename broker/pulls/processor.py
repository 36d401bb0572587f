"""Answers pulls (11, 361), at once or when a message arrives.

Source: RocketMQ's PullMessageProcessor and PullRequestHoldService.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from broker.access.guard import ACCESS_GUARD
from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.filters.changes import SQL92
from broker.filters.state import FILTERS
from broker.formats.state import FORMATS
from broker.groups.state import GROUPS
from broker.limits import MAX_HOLD_S
from broker.log.entry import INCARNATIONS_VERSION
from broker.log.folded import Arrivals, Folded
from broker.log.one_by_one import failure
from broker.log.submissions import submit_commands
from broker.offsets.commands import CommittedOffset
from broker.offsets.commits import OFFSET_COMMITS
from broker.offsets.generations import GENERATIONS
from broker.offsets.room import OFFSET_ROOM
from broker.offsets.state import OFFSETS
from broker.pulls.held_pulls import HELD_PULLS, HeldPull
from broker.pulls.message_filter import MessageFilter, sql_filter
from broker.pulls.pulled_offsets import PULLED_OFFSETS
from broker.pulls.readable import READABLE
from broker.pulls.request import PullRequest, filter_of, read_pull_request
from broker.resets.commands import EndReset
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.serving.waiting_requests import Waiting
from broker.settings.user_shares import USER_SHARES
from broker.store.message_reader import MESSAGE_READER, Found, ReadResult
from broker.traffic.traffic import TRAFFIC
from remoting.bodies.heartbeat import SubscriptionData
from remoting.net.answering import answer_each
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command

# The broker id that clients pull from next: always the leader.
_ASK_LEADER: Final = "0"

_CODES: Final = {
    Found.MESSAGES: (ResponseCode.SUCCESS, "FOUND"),
    Found.NOTHING_NEW: (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"),
    Found.FILTERED: (ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"),
    Found.TOO_SMALL: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"),
    Found.TOO_LARGE: (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"),
}


# A pull that waits no longer, and new messages of its queue, if they are the reason.
_Woken: TypeAlias = tuple[HeldPull, Arrivals | None]


class PullProcessor:
    """Reads messages for consumers, and lets pulls wait."""

    def __init__(self, parts: Parts) -> None:
        self._groups = parts.state[GROUPS]
        self._offsets = parts.state[OFFSETS]
        self._filters = parts.state[FILTERS]
        self._formats = parts.state[FORMATS]
        self._log = parts.log
        self._reader = parts[MESSAGE_READER]
        self._consumers = parts[CONSUMERS]
        self._commits = parts[OFFSET_COMMITS]
        self._generations = parts[GENERATIONS]
        self._shares = parts[USER_SHARES]
        self._held = parts[HELD_PULLS]
        self._pulled = parts[PULLED_OFFSETS]
        self._traffic = parts[TRAFFIC]
        self._readable = parts[READABLE]
        self._access = parts[ACCESS_GUARD]
        self._clock = parts.clock
        self._wall_clock_ms = parts.wall_clock_ms
        self._room = parts[OFFSET_ROOM]
        self._work = parts.work
        self._commits_offsets = True
        self._resets_seen = 0
        # Resets whose end is in flight, with the offset that the group was reset to.
        self._ending: dict[tuple[str, str, int], int] = {}

    def pull(self, origin: Origin, command: Command) -> Command | None:
        """Answer a pull, or let it wait for a message.

        Raises RequestRefused: (1) a filter of an unknown kind, (2) too many wait, (16) not
        readable, (17) no such topic, (23) tags or a condition cannot be read, (25) a condition that
        is not known yet, (29) no such queue.
        """
        request = read_pull_request(command, MAX_HOLD_S)
        self._check(request)
        if (moved_to := self._moved_to(origin, request)) is not None:
            return self._moved(command, request, moved_to)
        if not request.has_subscription:
            self._subscribe(request)
        self._pulled.note(request)
        self._commit(origin, command, request)
        end = self._reader.end(request.topic, request.queue_id)
        if request.offset != end or not request.hold_s:
            if not origin.is_behind:
                return self._answer(origin, command, request)
            self._answer_when_taken(origin, command, request)
            return None
        user = self._shares.user_of(origin, command)
        self._shares.check_hold(user)
        deadline = self._clock() + request.hold_s
        held = Waiting(origin, command.without_content(), request, deadline, user)
        if not self._held.has_room(held):
            raise RequestRefused.busy(f"{len(self._held)} pulls wait already: pull again later")
        self._held.add(held)
        return None

    def wake(self, folded: Folded) -> None:
        """Answer pulls that want one of the new messages, or whose group was reset, or whose topic
        was deleted.
        """
        if self._resets_seen != self._offsets.resets_made:
            self._resets_seen = self._offsets.resets_made
            self._generations.moved()
            self._answer_held(self._held.all(), self._is_reset)
        if not len(self._held):
            return
        for (topic, queue_id), arrivals in folded.arrivals.items():
            if waiting := self._held.of(topic, queue_id):
                self._work.begin("waking pulls", self._waking(waiting, arrivals))
        if folded.deleted_topics:
            gone = frozenset(folded.deleted_topics)
            self._answer_held(self._held.all(), lambda held: held.request.topic in gone)

    def _is_reset(self, held: HeldPull) -> bool:
        return (held.request.group, held.request.topic) in self._offsets.resets

    def _answer_held(self, waiting: Sequence[HeldPull], wanted: Callable[[HeldPull], bool]) -> None:
        def steps() -> Iterator[None]:
            for taken in self._held.take(waiting, wanted):
                self._answer_all([(held, None) for held in taken])
                yield

        self._work.begin("answering pulls that wait", steps())

    def _waking(self, waiting: Sequence[HeldPull], arrivals: Arrivals) -> Iterator[None]:
        codes = set(arrivals.codes)
        for taken in self._held.take(waiting, lambda held: held.request.wanted.wants_any(codes)):
            woken: list[_Woken] = []
            for held in taken:
                if held.request.wanted.condition is not None:
                    yield  # reading messages for a condition is a step of its own
                if not self._still_waits(held):
                    woken.append((held, arrivals))
            self._answer_all(woken)
            yield

    def expire(self) -> None:
        self._work.begin("answering pulls whose time is over", self._expiring())

    def _expiring(self) -> Iterator[None]:
        while expired := self._held.take_expired(self._clock()):
            self._answer_all([(held, None) for held in expired])
            yield

    def commit_no_more(self) -> None:
        """Stop committing offsets of pulls: this member is about to end."""
        self._commits_offsets = False

    def end_term(self, _refusal: RequestRefused) -> None:
        """Have clients repeat all waiting pulls: another member leads, or soon will.

        After 14, the answer to other requests, a client pauses for up to three seconds.
        """
        self.ask_again()

    def ask_again(self) -> None:
        self._work.each("pulls that are asked again", self._held.take_all(), _ask_again)

    def drop(self, origin: Origin) -> None:
        self._work.begin("dropping pulls of a client that is gone", self._held.drop(origin))

    def _answer_all(self, pulls: Sequence[_Woken]) -> None:
        """Answer with the messages there are now. Answers to one client are sent together."""
        by_origin: dict[Origin, list[_Woken]] = {}
        for woken in pulls:
            by_origin.setdefault(woken[0].origin, []).append(woken)
        for origin, of_origin in by_origin.items():
            if len(of_origin) > 1:
                origin.gather()
            try:
                for held, arrivals in of_origin:
                    self._answer_when_taken(origin, held.command, held.request, arrivals)
            finally:
                origin.write_gathered()

    def _still_waits(self, held: HeldPull) -> bool:
        """Return whether a pull should keep waiting as `_waits_on`; if that raises, the pull is
        answered.
        """
        try:
            return self._waits_on(held)
        except Exception as error:
            failure("looking whether a pull waits on", error)
            return False

    def _waits_on(self, held: HeldPull) -> bool:
        """Return whether the pull should keep waiting: its condition matches none of the new
        messages.
        """
        request = held.request
        if request.wanted.condition is None:
            return False
        found = self._read(request)
        if found.found is not Found.FILTERED or found.next_offset != found.end:
            return False
        request = replace(request, offset=found.next_offset)
        self._held.add(Waiting(held.origin, held.command, request, held.deadline, held.user))
        return True

    def _answer_when_taken(
        self,
        origin: Origin,
        command: Command,
        request: PullRequest,
        arrivals: Arrivals | None = None,
    ) -> None:
        """Answer as fast as the client reads: an answer has 256 KiB, and a client may send many
        pulls.
        """
        if origin.is_behind:
            arrivals = None  # they would take memory until the client has read
        changes = self._access.changes

        def answer(_origin: Origin, command: Command) -> Command:
            if self._access.changes != changes:
                return _again(command, request)  # to be judged by the present rules
            try:
                self._check(request)  # again, after waiting
                if (moved_to := self._moved_to(origin, request)) is not None:
                    return self._moved(command, request, moved_to)
                return self._answer(origin, command, request, arrivals)
            except RequestRefused as error:
                return error.reply_to(command)

        def answer_now() -> None:
            answer_each(origin, [command], answer)

        origin.when_taken(answer_now)

    def _answer(
        self,
        origin: Origin,
        command: Command,
        request: PullRequest,
        arrivals: Arrivals | None = None,
    ) -> Command:
        began = self._clock()
        found = None
        if arrivals is not None and arrivals.first_offset == request.offset:
            found = self._arrived(request, arrivals)
        if found is None:
            found = self._read(request)
        self._traffic.given(
            request.group,
            request.topic,
            request.queue_id,
            found.message_count,
            len(found.messages),
            self._clock() - began,
        )
        self._generations.gives(origin, request.key, found.next_offset)
        return _reply(command, found)

    def _moved_to(self, origin: Origin, request: PullRequest) -> int | None:
        """Return the offset that the group was reset to, if the client does not know it yet."""
        key = request.key
        if not self._generations.is_open(key):
            return None
        moved_to = self._offsets.reset(*key)
        has_joined = self._generations.pulls(origin, key, request.offset)
        if moved_to is None or self._ending.get(key) == moved_to:
            if has_joined or not self._may_commit(origin, request):
                return None
            moved_to = self._offsets.committed(*key)  # other members have joined already
        elif has_joined:
            self._end_reset(key, moved_to)
            return None
        if moved_to is not None:
            self._generations.send(origin, key, moved_to)
        return moved_to

    def _moved(self, command: Command, request: PullRequest, offset: int) -> Command:
        """Reply to a pull of a group that was reset: continue at `offset`."""
        topic, queue_id = request.topic, request.queue_id
        begin, end = self._reader.begin(topic, queue_id), self._reader.end(topic, queue_id)
        return command.reply(
            ResponseCode.PULL_OFFSET_MOVED,
            _fields(str(offset), str(begin), str(end)),
            remark="the offset was reset",
        )

    def _may_commit(self, origin: Origin, request: PullRequest) -> bool:
        """Return whether the reads of a client are the progress of its group."""
        group = self._consumers.group(request.group)
        if group is None or origin not in group.connections:
            return request.commit_offset is not None
        return not self._consumers.is_broadcasting(request.group)

    def _end_reset(self, key: tuple[str, str, int], moved_to: int) -> None:
        """Propose the end of a reset: a client reads at its offset."""
        self._ending[key] = moved_to
        self._commits.forget(*key)
        is_kept = self._formats.format_version >= INCARNATIONS_VERSION
        end = EndReset(*key, moved_to, self._wall_clock_ms() if is_kept else None)

        def then(_refusal: RequestRefused | None) -> None:
            if self._ending.get(key) == moved_to:
                del self._ending[key]

        submit_commands(self._log, [end], then)

    def _arrived(self, request: PullRequest, arrivals: Arrivals) -> ReadResult | None:
        """Return the new messages of the queue, if the pull wants all of them."""
        wanted = request.wanted
        if wanted.condition is not None:
            return None
        return self._reader.arrived(
            request.topic, request.queue_id, arrivals, request.max_messages, wanted.codes
        )

    def _read(self, request: PullRequest) -> ReadResult:
        return self._reader.read(
            request.topic,
            request.queue_id,
            request.offset,
            request.max_messages,
            request.wanted.codes,
            request.wanted.condition,
        )

    def _commit(self, origin: Origin, command: Command, request: PullRequest) -> None:
        """Commit the offset that a pull carries; no client waits for it.

        A pull does not create its group.
        """
        offset, offsets = request.commit_offset, self._offsets
        if (
            offset is None
            or not self._commits_offsets
            or request.group not in self._groups.configs
            or self._commits.is_full
        ):
            return
        key = request.key
        if not self._generations.counts(origin, key, offset):
            return
        if offsets.committed(*key) == offset:
            return
        if (pair := (request.group, request.topic)) not in offsets.tables:
            try:
                self._room.take(origin, command, [pair])
            except RequestRefused:
                return
        self._commits.bring(CommittedOffset(*key, offset))

    def _check(self, request: PullRequest) -> None:
        self._readable.check(request.group, request.topic, request.queue_id)

    def _subscribe(self, request: PullRequest) -> None:
        """Give a pull without a subscription that of its group's heartbeats.

        A leader that has not received it yet, or has an older one, sends all messages: the client
        checks their tags anyway. RocketMQ answers 24 or 25, so after a change of leader Java
        clients would wait up to 30 seconds, until their next heartbeat.

        Raises RequestRefused (25): the group filters by a condition that is not known yet.
        """
        subscription = self._consumers.subscription(request.group, request.topic)
        if request.is_sql:
            request.wanted = self._condition_of(request, subscription)
        elif subscription is not None and subscription.version >= request.subscription_version:
            request.wanted = filter_of(subscription)

    def _condition_of(
        self, request: PullRequest, subscription: SubscriptionData | None
    ) -> MessageFilter:
        kept = self._filters.found(request.group, request.topic)
        version = request.subscription_version
        if (
            subscription is not None
            and subscription.expression_type == SQL92
            and subscription.version >= version
        ):
            return sql_filter(subscription.expression)
        if kept is not None and kept.version >= version:
            return sql_filter(kept.condition)
        raise RequestRefused(
            ResponseCode.SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest: the broker waits for its heartbeat",
        )


def _ask_again(held: HeldPull) -> None:
    held.origin.send(_again(held.command, held.request))


def _again(command: Command, request: PullRequest) -> Command:
    """Reply to a pull that the client is to repeat."""
    offset = str(request.offset)  # only the next leader knows the queue's end
    fields = _fields(offset, "0", offset)
    code = ResponseCode.PULL_RETRY_IMMEDIATELY
    return command.reply(code, fields, remark="leadership moves, or rules have changed")


def _fields(offset: str, begin: str, end: str) -> dict[str, str]:
    """Return the four fields that every reply to a pull must have."""
    return {
        "suggestWhichBrokerId": _ASK_LEADER,
        "nextBeginOffset": offset,
        "minOffset": begin,
        "maxOffset": end,
    }


def _reply(command: Command, result: ReadResult) -> Command:
    code, remark = _CODES[result.found]
    return command.reply(
        code,
        _fields(str(result.next_offset), str(result.begin), str(result.end)),
        result.messages,
        remark,
    )
