"""Sends of requests: messages whose sender waits for a reply.

A request is a message like others. Its property CLUSTER tells consumers where replies go.
"""

from collections.abc import Mapping
from typing import Final

from broker.errors import RequestRefused
from broker.replies.askers import Askers
from broker.sends.pending_messages import PendingSend
from broker.settings.user_shares import UserShares
from broker.topics.names import check_topic_name
from remoting.bodies.topic_config import PERMISSION_READ_WRITE, TopicConfig
from remoting.message.properties import (
    CLUSTER,
    MESSAGE_TYPE,
    REPLY_TO_CLIENT,
    edit_properties,
)
from remoting.wire.codes import RequestCode
from remoting.wire.field_values import is_name

REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
REPLY: Final = "reply"  # the MSG_TYPE of replies


class QuestionSends:
    """Registers clients that send requests. Implements `sends.special_sends.SpecialSend`."""

    names = (REPLY_TO_CLIENT,)
    most_in_batch = 1

    def __init__(self, askers: Askers, shares: UserShares, cluster: str) -> None:
        self._askers = askers
        self._shares = shares
        self._cluster = cluster
        self._topic = TopicConfig(cluster + REPLY_TOPIC_SUFFIX, 1, 1, PERMISSION_READ_WRITE)

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        return bool(pairs.get(REPLY_TO_CLIENT)) and pairs.get(MESSAGE_TYPE) != REPLY

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Register the client, and have the topic created to which replies are addressed.

        Raises RequestRefused: (16) another user's client has this id, (29) the cluster's name is
        not allowed in a topic's.
        """
        check_topic_name(self._topic.topic)
        client_id = pairs[REPLY_TO_CLIENT]
        if is_name(client_id):  # as the ids of all clients are
            user = self._shares.user_of(send.origin, send.command)
            if not self._askers.asked(client_id, send.origin, user):
                raise RequestRefused.forbidden(
                    f"replies to {client_id:.120} go to a client of another user: send requests "
                    "with a client id of your own"
                )
        (record,) = send.records
        if pairs.get(CLUSTER) != self._cluster:
            record.properties = edit_properties(record.properties, {CLUSTER: self._cluster})
        send.needs = self._topic


class StrayReplies:
    """Refuses replies that are sent like other messages: stored, they would reach no client.

    Implements `sends.special_sends.SpecialSend`. RocketMQ stores them in a topic without consumers.
    """

    names = (MESSAGE_TYPE,)
    most_in_batch = 1

    def is_asked_for(self, pairs: Mapping[str, str]) -> bool:
        return pairs.get(MESSAGE_TYPE) == REPLY and bool(pairs.get(REPLY_TO_CLIENT))

    def prepare(self, send: PendingSend, pairs: Mapping[str, str]) -> None:
        """Raise RequestRefused (13)."""
        raise RequestRefused.illegal(
            f"a reply to {pairs[REPLY_TO_CLIENT]:.120} would be stored and not reach it: send it "
            f"with request {RequestCode.SEND_REPLY_MESSAGE} or "
            f"{RequestCode.SEND_REPLY_MESSAGE_V2}"
        )
