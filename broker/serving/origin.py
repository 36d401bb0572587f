"""A client's connection, as features see it."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from remoting.net.address import Address
from remoting.net.request_table import Settle
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

    def send_all(self, commands: Sequence[Command]) -> None:
        """Queue several replies, which go together."""
        ...

    def gather(self) -> None:
        """Keep replies until `write_gathered`: they go together."""
        ...

    def write_gathered(self) -> None:
        """Let the kept replies go."""
        ...

    @property
    def is_turn_over(self) -> bool:
        """Whether further requests of this client are to wait for its next turn."""
        ...

    def go_on(self, steps: Iterator[object]) -> None:
        """Take steps before further requests of this client are looked at."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether `when_taken` would wait, or nothing more can be sent."""
        ...

    def when_taken(self, then: Callable[[], None]) -> None:
        """Call `then` once the client has taken most of what waits for it; often at once."""
        ...

    def send_oneway(self, command: Command) -> None:
        """Queue a request that wants no reply."""
        ...

    def request(self, command: Command, settle: Settle, timeout_s: float) -> int | None:
        """Send a request; `settle` is called once, with the reply or with an error."""
        ...

    def __hash__(self) -> int: ...
