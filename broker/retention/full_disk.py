"""Whether the disk is too full for messages."""

from collections.abc import Callable
from typing import Final

from broker.errors import RequestRefused
from broker.serving.parts import Shared


class FullDisk:
    """Refuses messages while the disk is too full.

    Attributes:
        is_refusing: whether it is fuller than the settings allow.
        has_no_room: returns whether the log finds the disk full, whatever the settings say.
    """

    def __init__(self, broker_name: str) -> None:
        self._broker_name = broker_name
        self.is_refusing = False
        self.has_no_room: Callable[[], bool] = lambda: False

    def check(self) -> None:
        if self.is_refusing or self.has_no_room():
            raise RequestRefused.not_available(
                f"the disk of the broker[{self._broker_name}] is full: free some of it"
            )


FULL_DISK: Final = Shared("full disk", lambda parts: FullDisk(parts.config.group))
