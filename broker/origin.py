"""What the broker needs of its surroundings: a client's connection, the log and its index."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker.fold import Arrivals
from dledger import Appended, Body, DLedgerError
from remoting.net.address import Address
from remoting.wire.command import Command


class Origin(Protocol):
    """A client's connection. `remoting.net.connection.Connection` is one."""

    @property
    def peer(self) -> Address:
        """The client's address."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether nothing more can be sent."""
        ...

    def send(self, command: Command) -> None:
        """Queue a reply."""
        ...

    def send_oneway(self, command: Command) -> None:
        """Queue a request that wants no reply."""
        ...

    def __hash__(self) -> int: ...


class Queues(Protocol):
    """The consume queues. `broker.store.consume_queues.ConsumeQueues` is them."""

    def append(self, arrivals: Mapping[tuple[str, int], Arrivals]) -> None:
        """Write what one run of entries brought."""
        ...

    def delete_topic(self, topic: str) -> None:
        """Forget the queues of a topic."""
        ...

    def end(self, topic: str, queue_id: int) -> int:
        """The offset of the queue's next message."""
        ...

    def begin(self, topic: str, queue_id: int, kept_position: int) -> int:
        """The offset of the queue's first message at or behind a position of the log."""
        ...

    def read(self, topic: str, queue_id: int, first: int, count: int) -> bytes:
        """Up to `count` units from offset `first`."""
        ...


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
