"""Every request of every client comes in here, and everything that happens on the leader's side.

One batch of requests, as it arrived in one read, becomes at most one append of messages and one of
offsets. Replies leave by the connection when what they confirm is applied.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from broker.admin_processor import AdminProcessor
from broker.append_outcome import not_leader
from broker.client_processor import ClientProcessor
from broker.errors import RequestRefused
from broker.fold import Folded
from broker.log_changes import OffsetCommits, Then
from broker.offset_processor import OffsetProcessor
from broker.origin import Log
from broker.pull_processor import PullProcessor
from broker.send_processor import SendProcessor
from broker.sends import Sends
from broker.topic_changes import TopicChanges
from remoting.net.answering import answer_each
from remoting.net.connection import Connection
from remoting.net.dispatch import unsupported
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command

_log = logging.getLogger(__name__)

Answer: TypeAlias = Callable[[Connection, Command], Command | None]

# Answered by every member; all else is the leader's.
_ANY_ROLE: Final = frozenset(
    {
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.UPDATE_BROKER_CONFIG,
    }
)


# Answered once the group has confirmed this leader: an older offset would have messages
# consumed twice, or taken for lost.
_CONFIRMED: Final = frozenset(
    {
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_EARLIEST_MSG_STORETIME,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
    }
)


class Requests:
    """Implements `remoting.net.server.ConnectionHandler`; follows the member's role.

    Args:
        broker_name: the group of brokers this one belongs to.
        log: the log; tells whether this member leads.
        sends, changes, commits: what is on its way into the log.
        send, pull, client, offset, admin: the processors.
        confirm: tells when the applied state may be looked at; see `ConfirmedReads.add`.
        announce: lets the name servers know of a new leader or of changed topics.
    """

    def __init__(
        self,
        broker_name: str,
        log: Log,
        sends: Sends,
        changes: TopicChanges,
        commits: OffsetCommits,
        send: SendProcessor,
        pull: PullProcessor,
        client: ClientProcessor,
        offset: OffsetProcessor,
        admin: AdminProcessor,
        confirm: Callable[[Then], None],
        announce: Callable[[], None],
    ) -> None:
        self._confirm = confirm
        self._broker_name = broker_name
        self._log = log
        self._sends = sends
        self._changes = changes
        self._commits = commits
        self._pull = pull
        self._client = client
        self._announce = announce
        self._table = _table(send, pull, client, offset, admin)
        self._term: int | None = None  # the term this member leads, once it may serve

    @property
    def led_term(self) -> int | None:
        """The term this member leads and serves in, or None."""
        return self._term

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that are answered."""
        return frozenset(self._table)

    # --- connections --------------------------------------------------------------------------

    def on_open(self, connection: Connection) -> None:
        """A client has connected; it joins no group before its first heartbeat."""

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> None:
        """Answer requests, or hand them to what will answer them."""
        self.follow_role()
        answer_each(connection, commands, self._answer)
        if self._term is not None:
            self._sends.flush()
            self._commits.flush()

    def on_close(self, connection: Connection) -> None:
        """A client is gone, with its waiting pulls and its memberships."""
        self._pull.drop(connection)
        self._client.drop(connection)

    def _answer(self, connection: Connection, command: Command) -> Command | None:
        answer = self._table.get(command.code)
        if answer is None:
            return unsupported(command)
        try:
            if self._term is None and command.code not in _ANY_ROLE:
                raise not_leader(self._broker_name)
            if command.code in _CONFIRMED:
                self._answer_confirmed(connection, command, answer)
                return None
            return answer(connection, command)
        except RequestRefused as refusal:
            return command.reply(refusal.code, remark=refusal.remark)

    def _answer_confirmed(self, connection: Connection, command: Command, answer: Answer) -> None:
        def answer_now(connection: Connection, command: Command) -> Command | None:
            try:
                if self._term is None:
                    raise not_leader(self._broker_name)
                return answer(connection, command)
            except RequestRefused as refused:
                return command.reply(refused.code, remark=refused.remark)

        def then(refusal: RequestRefused | None) -> None:
            if refusal is not None:
                connection.send(command.reply(refusal.code, remark=refusal.remark))
            else:
                answer_each(connection, [command], answer_now)

        self._confirm(then)

    # --- the log ------------------------------------------------------------------------------

    def applied(self, folded: Folded) -> None:
        """A run of entries was applied: wake what waited for it. Never raises."""
        if self._term is None:
            return
        try:
            self._pull.wake(folded)
            self._sends.flush()
            self._commits.flush()
            if folded.topics_changed:
                self._announce()
        except Exception:
            _log.exception("waking clients failed after an apply")

    def follow_role(self) -> None:
        """Begin to serve when this member leads and is ready; end when it does not.

        Looked at before every batch, not only when the node reports a change: offsets of one term
        must never be carried into the next.
        """
        term = self._log.term if self._log.is_ready_leader else None
        if term == self._term:
            return
        if self._term is not None:
            self._end_term()
        self._term = term
        if term is not None:
            self._sends.begin_term()
        self._announce()

    def tick(self) -> None:
        """Answer pulls whose time is over, and send the notices that are due."""
        self._pull.expire()
        self._client.tick()

    def expire_clients(self) -> None:
        """Drop consumers that have been silent for too long."""
        self._client.expire()

    def _end_term(self) -> None:
        refusal = not_leader(self._broker_name)
        self._sends.refuse_waiting(refusal)
        self._commits.refuse_waiting(refusal)
        self._changes.end_term(self._broker_name)
        self._pull.end_term(self._broker_name)
        self._client.end_term()


def _table(
    send: SendProcessor,
    pull: PullProcessor,
    client: ClientProcessor,
    offset: OffsetProcessor,
    admin: AdminProcessor,
) -> dict[int, Answer]:
    """Request code -> function. A code that is not here is answered as not supported."""
    code = RequestCode
    return {
        code.SEND_MESSAGE: send.send,
        code.SEND_MESSAGE_V2: send.send,
        code.SEND_BATCH_MESSAGE: send.send,
        code.CONSUMER_SEND_MSG_BACK: send.send_back,
        code.PULL_MESSAGE: pull.pull,
        code.LITE_PULL_MESSAGE: pull.pull,
        code.HEART_BEAT: client.heartbeat,
        code.UNREGISTER_CLIENT: client.unregister,
        code.GET_CONSUMER_LIST_BY_GROUP: client.consumer_list,
        code.LOCK_BATCH_MQ: client.lock,
        code.UNLOCK_BATCH_MQ: client.unlock,
        code.CHECK_CLIENT_CONFIG: client.check_config,
        code.QUERY_CONSUMER_OFFSET: offset.query,
        code.UPDATE_CONSUMER_OFFSET: offset.update,
        code.SEARCH_OFFSET_BY_TIMESTAMP: offset.search,
        code.GET_MAX_OFFSET: offset.maximum,
        code.GET_MIN_OFFSET: offset.minimum,
        code.GET_EARLIEST_MSG_STORETIME: offset.earliest_time,
        code.GET_ALL_CONSUMER_OFFSET: offset.all_offsets,
        code.UPDATE_AND_CREATE_TOPIC: admin.put_topic,
        code.DELETE_TOPIC_IN_BROKER: admin.delete_topic,
        code.GET_TOPIC_CONFIG: admin.topic_config,
        code.GET_ALL_TOPIC_CONFIG: admin.all_topics,
        code.GET_TOPIC_STATS_INFO: admin.topic_stats,
        code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: admin.put_group,
        code.DELETE_SUBSCRIPTIONGROUP: admin.delete_group,
        code.GET_SUBSCRIPTIONGROUP_CONFIG: admin.group_config,
        code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: admin.all_groups,
        code.GET_CONSUMER_CONNECTION_LIST: admin.consumer_connections,
        code.GET_CONSUME_STATS: admin.consume_stats,
        code.GET_BROKER_RUNTIME_INFO: admin.runtime_info,
        code.GET_BROKER_CONFIG: admin.settings,
        code.UPDATE_BROKER_CONFIG: admin.refuse_settings,
        code.VIEW_MESSAGE_BY_ID: admin.view_message,
    }
