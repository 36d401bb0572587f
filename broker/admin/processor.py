"""Answers administrators: settings, run-time figures, single messages.

Source: RocketMQ's AdminBrokerProcessor and QueryMessageProcessor.
"""

from collections.abc import Callable, Mapping

from broker.errors import RequestRefused
from broker.serving.origin import Origin
from broker.store.message_reader import MessageReader
from remoting.bodies.table import encode_properties_text, encode_table
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command


class AdminProcessor:
    """What `mqadmin` and `dledger-mq` ask of a broker itself.

    Args:
        reader: reads messages.
        settings: what the broker was started with, by name.
        figures: run-time figures by name.
    """

    def __init__(
        self,
        reader: MessageReader,
        settings: Mapping[str, str],
        figures: Callable[[], Mapping[str, str]],
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._figures = figures

    def runtime_info(self, _origin: Origin, command: Command) -> Command:
        """Run-time figures (28), all as text."""
        return command.reply(body=encode_table(self._figures()))

    def settings(self, _origin: Origin, command: Command) -> Command:
        """What the broker was started with (26)."""
        return command.reply(body=encode_properties_text(self._settings))

    def refuse_settings(self, _origin: Origin, command: Command) -> Command:
        """A change of settings (25): this broker has none that change while it runs.

        RocketMQ's let anyone write them, which made remote execution possible.

        Raises:
            RequestRefused (16): always.
        """
        raise RequestRefused(
            ResponseCode.NO_PERMISSION, "settings cannot be changed here: restart the broker"
        )

    def view_message(self, _origin: Origin, command: Command) -> Command:
        """The message at a position of the log (33), as it is stored.

        Raises:
            RequestRefused (1): there is none.
        """
        position = command.integer("offset")
        record = self._reader.record_at(position)
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {position}"
            )
        return command.reply(body=record)
