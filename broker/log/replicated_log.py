"""What the broker needs of the replicated log."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dledger import Appended, Body, DLedgerError


class Log(Protocol):
    """The replicated log. `dledger.Node` is one."""

    @property
    def is_ready_leader(self) -> bool:
        """Whether this member leads and has applied an entry of its own term."""
        ...

    @property
    def term(self) -> int:
        """As in `dledger.Node`."""
        ...

    @property
    def max_body_bytes(self) -> int:
        """As in `dledger.Node`."""
        ...

    @property
    def begin_position(self) -> int:
        """As in `dledger.Node`."""
        ...

    def submit(
        self, bodies: Sequence[Body], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None:
        """Append entries; `done` is called once."""
        ...

    def read_bytes(self, pos: int, size: int) -> bytes:
        """Bytes of the log."""
        ...

    def check_at(self, pos: int) -> None:
        """As in `dledger.Node`."""
        ...
