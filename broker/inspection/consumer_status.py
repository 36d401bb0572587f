"""Asks the members of a group for their offsets (223, through 221).

Source: RocketMQ's Broker2Client.getConsumeStatus, which asks one member after the other.
"""

from functools import partial
from typing import Final

from broker.consumers.members import Consumers
from broker.errors import RequestRefused
from broker.serving.origin import Origin
from remoting.bodies.message_queue import decode_queue_keyed, queue_keyed_json
from remoting.bodies.pieces import pieces
from remoting.net.answering import Steps
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import Command, server_request
from remoting.wire.errors import RemotingError
from remoting.wire.loose_json import compact_json

# RocketMQ's value.
ASK_S: Final = 5.0

# Members that are asked for one answer; operators ask larger groups member by member (307).
MAX_MEMBERS: Final = 500


class ConsumerStatus:
    """Gathers the answers of consumers."""

    def __init__(self, consumers: Consumers) -> None:
        self._consumers = consumers

    def gather(self, origin: Origin, command: Command) -> Steps:
        """Return the offset of each member of a group in each of its queues of a topic.

        Members whose answer is late or cannot be read are omitted.

        Raises RequestRefused: (1) the group has no such member, (2) it has too many.
        """
        topic, group = command.name("topic"), command.name("group")
        wanted = command.fields.get("clientAddr", "")
        found = self._consumers.group(group)
        members: dict[str, Origin] = {}
        for piece in pieces(found.members.items() if found is not None else ()):
            for (peer, _client_id), one in piece:
                if not peer.is_closed and wanted in ("", str(peer.peer), one.client_id):
                    members[one.client_id] = peer
            yield
        if not members:
            raise RequestRefused.failed(
                f"No Any Consumer online in the consumer group: [{group:.120}]"
            )
        if len(members) > MAX_MEMBERS:
            raise RequestRefused.busy(
                f"{len(members)} members: at most {MAX_MEMBERS} are asked at once; name one"
            )
        tables: dict[str, str] = {}
        waiting = set(members)

        def answered(client_id: str, outcome: Command | RemotingError) -> None:
            waiting.discard(client_id)
            table = _table(outcome)
            if table is not None:
                tables[client_id] = table
            if not waiting:
                rows = [f"{compact_json(one)}:{tables[one]}" for one in sorted(tables)]
                body = f'{{"consumerTable":{{{",".join(rows)}}}}}'
                origin.send(command.reply(body=body.encode()))

        fields = {"group": group, "topic": topic}
        for client_id, member in members.items():
            member.request(
                server_request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, fields),
                partial(answered, client_id),
                ASK_S,
            )
        return None


def _table(outcome: Command | RemotingError) -> str | None:
    """Return the offsets in a consumer's answer as Java's tools read them; None without any."""
    if isinstance(outcome, RemotingError) or outcome.code != ResponseCode.SUCCESS:
        return None
    try:
        offsets = decode_queue_keyed("consumer status", "messageQueueTable", outcome.body)
    except RemotingError:
        return None
    return queue_keyed_json(offsets.items())
