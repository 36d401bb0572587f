"""Gives messages that could not be consumed back to the broker (36)."""

import logging
from typing import Final

import trio

from dledger_mq.connection import requests
from dledger_mq.connection.calls import NOT_NOW_CODES, call_master
from dledger_mq.connection.client import Client
from dledger_mq.connection.pauses import pause_seconds
from dledger_mq.consuming.queue_reader import QueueReader
from dledger_mq.errors import MessagingError, RequestRefused
from dledger_mq.received_message import ReceivedMessage
from remoting.wire.errors import RemotingError

_log = logging.getLogger(__name__)

# Of a message that comes again: the broker chooses by how often it failed.
BY_FAILURES: Final = 0
# Of a message that does not come again: it goes to the dead letters.
NEVER: Final = -1


class GivingBack:
    """Gives messages of one group back.

    Args:
        client: whose connections to use.
        group: the consumer group.
        most_times: after so many repeats a message goes to the dead-letter topic.
    """

    def __init__(self, client: Client, group: str, most_times: int) -> None:
        self._client = client
        self._group = group
        self._most_times = most_times

    async def give_back(
        self, reader: QueueReader, message: ReceivedMessage, level: int = BY_FAILURES
    ) -> bool:
        """Give a message back, through elections; it is done here once the broker has taken it.

        Args:
            reader: its queue.
            message: the message.
            level: when it comes again: `BY_FAILURES` or `NEVER`.

        Returns:
            False if the broker refuses it for good, which is logged.
        """
        command = requests.send_back(
            self._group,
            message.physical_offset,
            origin_message_id=message.message_id,
            origin_topic=message.topic,
            most_times=self._most_times,
            delay_level=level,
        )
        failures = 0
        while not reader.dropped:
            try:
                await call_master(self._client, message.queue, command, "take a message back")
            except RequestRefused as error:
                if error.code not in NOT_NOW_CODES:
                    _log.warning("%s; consuming it here again", error)
                    return False
                problem: MessagingError | RemotingError = error
            except (MessagingError, RemotingError) as error:
                problem = error
            else:
                reader.cached.done([message])
                return True
            failures += 1
            _log.info("message %s not given back yet: %s", message.message_id, problem)
            await trio.sleep(pause_seconds(failures))
        return True  # another member has it by now
