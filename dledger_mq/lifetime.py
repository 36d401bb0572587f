"""The one `async with` block of a producer, consumer or client."""

from collections.abc import Iterator
from contextlib import contextmanager

import trio

from dledger.home_loop import HomeLoop
from dledger.trio_only import require_trio
from dledger_mq.errors import ClientClosed, OpenedTwice, OtherLoop


class Lifetime:
    """Whether an object is open; it can be opened once.

    Args:
        what: the object, for errors: "producer".
        name: of its class.
        form: what opens it in `dledger_mq.blocking` and `for_asyncio`, or what to do instead.
    """

    def __init__(self, what: str, name: str, form: str) -> None:
        self._what = what
        self._name = name
        self._form = form
        self._was_opened = False
        self._is_open = False
        self._home: HomeLoop | None = None
        self._waits: set[trio.CancelScope] = set()

    def open(self) -> None:
        """The block begins.

        Raises:
            NotInTrio: no trio loop runs here.
            OpenedTwice: there was a block before.
        """
        require_trio(self._name, "dledger_mq", self._form)
        if self._was_opened:
            raise OpenedTwice(self._what)
        self._was_opened = self._is_open = True
        self._home = HomeLoop(lambda: OtherLoop(self._what))

    def close(self) -> None:
        """The block has ended, or could not begin."""
        self._is_open = False
        for scope in self._waits:
            scope.cancel()

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """What is waited for in a block of it comes while the object is open, or never.

        Raises:
            ClientClosed: the object's block has not begun, or ends meanwhile.
            OtherLoop: it runs in another trio loop.
        """
        self.check()
        with trio.CancelScope() as scope:
            self._waits.add(scope)
            try:
                yield
            finally:
                self._waits.discard(scope)
        if scope.cancelled_caught:
            self.check_open()

    def check(self) -> None:
        """Check that the block is running, in this loop.

        Raises:
            ClientClosed: it has not begun, or has ended.
            OtherLoop: it runs in another trio loop.
        """
        self.check_open()
        self.check_loop()

    def check_open(self) -> None:
        """Check that the block is running, in any loop. Raises ClientClosed."""
        if not self._is_open:
            raise ClientClosed(self._what)

    def check_loop(self) -> None:
        """Check that this is the loop of the block, if there was one. Raises OtherLoop."""
        if self._home is not None:
            self._home.check()
