"""The replicated log, as the broker uses it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dledger import Appended, Body, DLedgerError


class Log(Protocol):
    """The replicated log; see `dledger.Node`, which implements it."""

    @property
    def is_ready_leader(self) -> bool: ...

    @property
    def term(self) -> int: ...

    @property
    def max_body_bytes(self) -> int: ...

    @property
    def begin_position(self) -> int: ...

    def submit(
        self, bodies: Sequence[Body], done: Callable[[list[Appended] | DLedgerError], None]
    ) -> None: ...

    def read_bytes(self, pos: int, size: int) -> bytes: ...

    def check_at(self, pos: int) -> None: ...
