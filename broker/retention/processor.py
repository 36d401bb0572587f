"""Answers operators who want old messages gone now (27, 306, 329).

Source: RocketMQ's AdminBrokerProcessor.
"""

from collections.abc import Callable
from typing import Protocol

from broker.serving.origin import Origin
from remoting.wire.command import Command


class LooksSoon(Protocol):
    """Looks at the log; see `LogKeeper.look_soon`."""

    def __call__(self, then: Callable[[], None], /, *, drops: bool) -> None:
        """Look now. Raises RequestRefused (2)."""
        ...


class RetentionProcessor:
    """Has the keeper of the log look now.

    Args:
        look_soon: has it look.
    """

    def __init__(self, look_soon: LooksSoon) -> None:
        self._look_soon = look_soon

    def drop_expired(self, origin: Origin, command: Command) -> None:
        """Drop what is old enough, whatever the hour (27, 329). The reply comes when that is
        decided; the files go when snapshots allow it, soon after.

        Raises:
            RequestRefused (2): too many wait for it.
        """
        self._look_soon(lambda: origin.send(command.reply()), drops=True)

    def clean_queues(self, origin: Origin, command: Command) -> None:
        """Remove files of consume queues that point to what is gone (306).

        Raises:
            RequestRefused (2): too many wait for it.
        """
        self._look_soon(lambda: origin.send(command.reply()), drops=False)
