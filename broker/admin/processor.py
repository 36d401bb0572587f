"""Answers administrators: run-time figures, single messages.

Source: RocketMQ's AdminBrokerProcessor and QueryMessageProcessor.
"""

from broker.errors import RequestRefused
from broker.serving.origin import Origin
from broker.serving.parts import Parts
from broker.store.message_reader import MESSAGE_READER
from remoting.bodies.table import encode_table
from remoting.wire.command import Command


class AdminProcessor:
    """What `mqadmin` and `dledger-mq` ask of a broker itself."""

    def __init__(self, parts: Parts) -> None:
        self._reader = parts[MESSAGE_READER]
        self._figures = parts.figures

    def runtime_info(self, _origin: Origin, command: Command) -> Command:
        """Run-time figures (28), all as text."""
        return command.reply(body=encode_table(self._figures()))

    def view_message(self, _origin: Origin, command: Command) -> Command:
        """The message at a position of the log (33), as it is stored.

        Raises:
            RequestRefused (1): there is none.
        """
        position = command.integer("offset")
        record = self._reader.record_at(position)
        if record is None:
            raise RequestRefused.failed(f"can not find message by the offset, {position}")
        return command.reply(body=record)
