"""Forwards requests to a consumer's process (307, 309), and its answers back.

Clients of some languages write invalid JSON, with objects for keys. So answers are not parsed.
Source: RocketMQ's AdminBrokerProcessor.callConsumer.
"""

from collections.abc import Sequence
from typing import Final

from broker.access.guard import ACCESS_GUARD
from broker.consumers.members import CONSUMERS
from broker.errors import RequestRefused
from broker.producers.proxies import PROXIES, Outcomes
from broker.serving.needs import Action, Need
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.settings.user_shares import USER_SHARES
from broker.store.message_needs import message_needs
from broker.store.message_reader import MESSAGE_READER
from broker.topics.needs import group_need
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command, server_request
from remoting.wire.errors import RemotingError
from remoting.wire.on_behalf import without_proofs

# RocketMQ's value. The consumer may run its listener.
FORWARD_S: Final = 10.0


class Forwarding:
    """Forwards requests to members of consumer groups."""

    def __init__(self, parts: Parts) -> None:
        self._consumers = parts[CONSUMERS]
        self._proxies = parts[PROXIES]
        self._reader = parts[MESSAGE_READER]
        self._access = parts[ACCESS_GUARD]
        self._shares = parts[USER_SHARES]
        self._broker_name = parts.config.group

    def running_info(self, origin: Origin, command: Command) -> None:
        """Return the state of a consumer (307). Raises RequestRefused (1): the consumer is not
        here.
        """
        self._forward(origin, command, command.body)

    def direct_needs(self, command: Command) -> Sequence[Need]:
        record = self._reader.record_named(command.text("msgId"))
        group = group_need(command.name("consumerGroup"), Action.UPDATE)
        return (group, *message_needs(record, Action.SUB, Action.GET))

    def consume_directly(self, origin: Origin, command: Command) -> None:
        """Have a consumer consume a stored message (309), and return its result.

        Raises RequestRefused (1): the consumer or the message is not here.
        """
        message_id = command.text("msgId")
        record = self._reader.record_named(message_id)
        if record is None:
            raise RequestRefused.failed(
                f"no message of this broker has the id {message_id:.80}: give its offset id"
            )
        group = group_need(command.name("consumerGroup"), Action.SUB)
        self._forward(origin, command, record, (group, *message_needs(record, Action.SUB)))

    def _forward(
        self, origin: Origin, command: Command, body: bytes, needs: Sequence[Need] = ()
    ) -> None:
        """Forward a request to a consumer whose user has what it needs.

        Raises RequestRefused (1): there is none.
        """
        group, client_id = command.name("consumerGroup"), command.name("clientId")
        fields = {**without_proofs(command.fields), "brokerName": self._broker_name}
        member = self._consumers.member(group, client_id)
        if member is None or member.is_closed:
            self._ask_proxies(origin, command, fields, body)
            return
        user = self._shares.user_at(member)
        if user is not None and not self._access.allows(user, member.peer.host, needs):
            raise RequestRefused.failed(
                f"user {user} of consumer <{client_id:.80}> may not consume this: look at its rules"
            )

        def answered(outcome: Command | RemotingError) -> None:
            if isinstance(outcome, RemotingError):
                remark = f"consumer <{group:.80}> <{client_id:.80}> does not answer: {outcome}"
                origin.send(command.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark[:300]))
            else:
                origin.send(command.reply(outcome.code, remark=outcome.remark, body=outcome.body))

        member.request(server_request(RequestCode(command.code), fields, body), answered, FORWARD_S)

    def _ask_proxies(
        self, origin: Origin, command: Command, fields: dict[str, str], body: bytes
    ) -> None:
        """Ask for a consumer that came through a proxy: that one answers, others do not know it.

        Raises RequestRefused (1): no proxy is connected.
        """
        absent = RequestRefused.failed(
            f"The Consumer <{command.name('consumerGroup'):.120}> "
            f"<{command.name('clientId'):.120}> not online"
        )
        proxies = self._proxies.connected()
        if not proxies:
            raise absent

        def answered(outcomes: Outcomes) -> None:
            told = [one for one in outcomes if not isinstance(one, RemotingError)]
            known = [one for one in told if one.code != ResponseCode.CONSUMER_NOT_ONLINE]
            if known:
                found = min(known, key=lambda one: one.code != ResponseCode.SUCCESS)
                origin.send(command.reply(found.code, remark=found.remark, body=found.body))
            elif len(told) < len(outcomes):
                remark = f"{absent}, and a proxy does not answer"
                origin.send(command.reply(ResponseCode.CONSUME_MSG_TIMEOUT, remark=remark))
            else:
                origin.send(command.reply(ResponseCode.SYSTEM_ERROR, remark=str(absent)))

        self._proxies.ask(proxies, RequestCode(command.code), fields, body, answered)
