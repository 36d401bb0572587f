"""The one `async with` block of a producer, consumer or client."""

from dledger_mq.errors import ClientClosed, OpenedTwice


class Lifetime:
    """Whether an object is open; it can be opened once.

    Args:
        what: the object, for errors: "producer".
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._was_opened = False
        self._is_open = False

    def open(self) -> None:
        """The block begins.

        Raises:
            OpenedTwice: there was a block before.
        """
        if self._was_opened:
            raise OpenedTwice(self._what)
        self._was_opened = self._is_open = True

    def close(self) -> None:
        """The block has ended, or could not begin."""
        self._is_open = False

    def check(self) -> None:
        """Check that the block is running.

        Raises:
            ClientClosed: it has not begun, or has ended.
        """
        if not self._is_open:
            raise ClientClosed(self._what)
