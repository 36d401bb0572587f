"""Answers sends (10, 310, 320)."""

from typing import Final

from broker.errors import RequestRefused
from broker.groups.config import max_times
from broker.groups.state import GROUPS
from broker.locks.clock import LOCK_CLOCK
from broker.locks.state import LOCKS
from broker.retention.full_disk import FULL_DISK
from broker.sends.awaited_topics import AWAITED_TOPICS
from broker.sends.entry_room import ENTRY_ROOM
from broker.sends.pending_messages import PendingSend
from broker.sends.request import SendRequest, read_send_request
from broker.sends.sends import SENDS
from broker.sends.special_sends import SPECIAL_SENDS
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.settings import SETTINGS
from broker.settings.user_shares import USER_SHARES
from broker.topics.names import created_for_group, dead_letter_topic
from broker.topics.state import TOPICS
from remoting.bodies.pieces import pieces
from remoting.bodies.topic_config import PERMISSION_WRITE, TopicConfig
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import message_id
from remoting.message.properties import DELAY_TIME_LEVEL, edit_properties
from remoting.message.record_batch import RecordBatch
from remoting.message.topic_names import RETRY_PREFIX
from remoting.net.answering import Steps
from remoting.wire.command import Command

# Messages of a batch that one step handles.
_AT_ONCE: Final = 1024


class SendProcessor:
    """Turns requests into messages for the log. The replies leave when they are applied."""

    def __init__(self, parts: Parts) -> None:
        self._mended = parts[SENDS].mended
        self._shares = parts[USER_SHARES]
        self._topics = parts.state[TOPICS]
        self._groups = parts.state[GROUPS]
        self._locks = parts.state[LOCKS]
        self._lock_clock = parts[LOCK_CLOCK]
        self._awaited = parts[AWAITED_TOPICS]
        self._special = parts[SPECIAL_SENDS]
        self._room = parts[ENTRY_ROOM]
        self._disk = parts[FULL_DISK]
        self._settings = parts[SETTINGS]
        self._broker_name = parts.config.group
        self._id_prefix = message_id(parts.config.address.host, parts.config.address.port, 0)[:-16]
        self._turn = 0

    def send(self, origin: Origin, command: Command) -> Steps | None:
        """Accept a send, a long batch in steps. The next flush of `Sends` appends it.

        Raises RequestRefused: see `read_send_request`, `AwaitedTopics.topic_for` and `Sends.add`;
        (13) too large, or a message is not of its topic's type, (14) the disk is too full, (16) the
        broker or the topic is not writable, (26) no such consumer group, (29) no such queue.
        """
        self._disk.check()
        most = self._settings.check_writable().max_message_bytes
        if (size := len(command.body)) > most:
            raise RequestRefused.illegal(f"a body of {size} bytes: at most {most}")
        try:
            request = read_send_request(command)
        except MessageMalformed as error:
            # Not 1, which would leave it open whether the message was stored.
            raise RequestRefused.illegal(error.reason) from None
        self._room.check(request.longest_bytes)
        if isinstance(request.records, RecordBatch) and len(request.records) > _AT_ONCE:
            return self._take_in_steps(origin, command, request, request.records)
        self._take(origin, command, request)
        return None

    def _take_in_steps(
        self, origin: Origin, command: Command, request: SendRequest, batch: RecordBatch
    ) -> Steps:
        """Accept a batch that takes some milliseconds to read, and to encode."""
        runs: list[bytes] = []
        for piece in pieces(batch.properties, _AT_ONCE):
            yield
            runs += self._mended(piece)
        batch.properties = runs
        yield
        self._take(origin, command, request)
        return None

    def _take(self, origin: Origin, command: Command, request: SendRequest) -> None:
        terms = request.terms
        topic, queue_id = terms.topic, terms.queue_id
        if topic.startswith(RETRY_PREFIX):
            config, queue_id = self._retry_target(command, request)
        else:
            config = self._awaited.topic_for(topic, request.default_topic, terms.default_queues)
        if not config.permission & PERMISSION_WRITE:
            raise RequestRefused.forbidden(
                f"the broker[{self._broker_name}] sending message to topic {config.topic} is "
                "forbidden: it is read-only"
            )
        if queue_id < 0:
            self._turn += 1
            queue_id = self._turn % config.write_queue_count
        elif queue_id >= max(config.write_queue_count, config.read_queue_count):
            raise RequestRefused.invalid(
                f"topic {config.topic} has no queue {queue_id}: refresh its route"
            )
        send = PendingSend(
            origin, command, config.topic, queue_id, request.records, self._id_prefix
        )
        self._special.prepare(send)
        needed = send.needs
        if needed is not None and needed.topic not in self._topics.configs:
            if config.topic in self._topics.configs:
                config = needed
            else:
                self._awaited.make(needed)  # created before, and announced together
        user = self._shares.user_of(origin, command)
        send.answered = self._shares.begin_waiting(user)
        try:
            self._awaited.send_when_created(config, send, user)
        except BaseException:
            if send.answered is not None:
                send.answered()
            raise

    def _retry_target(self, command: Command, request: SendRequest) -> tuple[TopicConfig, int]:
        """Return the topic and queue of a consumer's send to a retry topic, which may be a dead
        letter.
        """
        terms = request.terms
        name = terms.topic.removeprefix(RETRY_PREFIX)
        group = self._groups.configs.get(name)
        if group is None:
            raise RequestRefused.no_group(
                f"subscription group not exist, {name}: send a heartbeat first"
            )
        said = max_times(command, terms.max_reconsume_times)
        allowed = group.retry_max_times if said is None else said
        # A consumer counts the failure that it reports, except Java's of version 4 when it gives up
        # in order. RocketMQ, too, knows such a group by its locks.
        if terms.reconsume_times > allowed or (
            terms.reconsume_times == allowed
            and self._locks.holds_any(name, self._lock_clock.now_ms())
        ):
            config = created_for_group(dead_letter_topic(name))
            for record in request.records:  # it is not retried, so it is not delayed
                record.properties = edit_properties(record.properties, {}, (DELAY_TIME_LEVEL,))
            return self._topics.configs.get(config.topic, config), 0
        config = created_for_group(terms.topic, max(1, group.retry_queue_count))
        return self._topics.configs.get(config.topic, config), terms.queue_id
