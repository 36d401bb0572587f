"""Passes replies on to the clients that asked (324, 325, 326).

The broker stores no reply: the client waits for it now. RocketMQ also stores replies, though no
client reads them. Source: RocketMQ's ReplyMessageProcessor.
"""

from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.errors import RequestRefused
from broker.producers.members import PRODUCERS
from broker.replies.askers import ASKERS
from broker.replies.question_sends import REPLY_TOPIC_SUFFIX
from broker.sends.request import SendRequest, read_send_request
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.user_shares import USER_SHARES
from remoting.message.errors import MessageMalformed
from remoting.message.message_id import message_id
from remoting.message.properties import (
    PUSH_REPLY_TIME,
    REPLY_TO_CLIENT,
    edit_properties,
    properties_text,
)
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command, server_request
from remoting.wire.errors import RemotingError

# The client's time to acknowledge the reply; RocketMQ's value for such requests.
PUSH_S: Final = 3.0


class ReplyProcessor:
    def __init__(self, parts: Parts) -> None:
        self._askers = parts[ASKERS]
        self._producers = parts[PRODUCERS]
        self._shares = parts[USER_SHARES]
        self._access = parts[ACCESS_GUARD]
        self._address = parts.config.address
        self._wall_clock_ms = parts.wall_clock_ms

    def reply(self, origin: Origin, command: Command) -> None:
        """Pass a reply on, and answer when the client that asked has it.

        Raises RequestRefused: (1) that client is not connected here, (13) it is not a single
        message, or does not name the client; see `read_send_request`.
        """
        try:
            request = read_send_request(command)
        except MessageMalformed as error:
            raise RequestRefused.illegal(error.reason) from None
        if len(request.records) != 1 or not request.terms.topic.endswith(REPLY_TOPIC_SUFFIX):
            raise RequestRefused.illegal(
                f"replies go one by one to a topic that ends in {REPLY_TOPIC_SUFFIX}"
            )
        asker_id = request.records[0].property_map().get(REPLY_TO_CLIENT, "")
        if not asker_id:
            raise RequestRefused.illegal(f"the reply has no property {REPLY_TO_CLIENT}")
        asker = self._askers.found(asker_id) or self._producers.client(asker_id)
        if asker is None or asker.is_closed:
            raise _not_there(asker_id)
        user = self._shares.user_at(asker)
        if user is not None and not self._access.allows(user, asker.peer.host, ()):
            raise _not_there(asker_id)  # the user was removed, or disabled, since it asked

        def pushed(outcome: Command | RemotingError) -> None:
            if isinstance(outcome, RemotingError) or outcome.code != ResponseCode.SUCCESS:
                refusal = _not_there(asker_id)
                origin.send(refusal.reply_to(command))
                return
            fields = {
                "msgId": message_id(self._address.host, self._address.port, 0),
                "queueId": str(request.terms.queue_id),
                "queueOffset": "0",
            }
            origin.send(command.reply(ResponseCode.SUCCESS, fields))

        asker.request(self._pushed(origin, request), pushed, PUSH_S)

    def _pushed(self, origin: Origin, request: SendRequest) -> Command:
        (record,), terms = request.records, request.terms
        now = str(self._wall_clock_ms())
        return server_request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            {
                "producerGroup": "",
                "topic": terms.topic,
                "defaultTopic": request.default_topic,
                "defaultTopicQueueNums": str(terms.default_queues),
                "queueId": str(terms.queue_id),
                "sysFlag": str(record.system_flag),
                "bornTimestamp": str(record.born_timestamp),
                "flag": str(record.flag),
                "properties": properties_text(
                    edit_properties(record.properties, {PUSH_REPLY_TIME: now})
                ),
                "reconsumeTimes": "0",
                "unitMode": "false",
                "bornHost": str(origin.peer),
                "storeHost": str(self._address),
                "storeTimestamp": now,
            },
            record.body,
        )


def _not_there(asker_id: str) -> RequestRefused:
    return RequestRefused.failed(
        f"push reply message fail, channel of <{asker_id:.120}> not found: it waits no longer, or "
        "asked another broker"
    )
