"""The ways from a member to its peers: the interface for senders."""

from __future__ import annotations

from typing import Protocol

from dledger.core.messages import Message


class Way(Protocol):
    """Carries messages to one peer, or drops them; the protocol repeats what matters."""

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send a message; `payload`: the entries of a push."""
        ...


class Ways(Protocol):
    """The ways to the peers: see Links."""

    def link_to(self, peer: str) -> Way | None:
        """The way to `peer`, if there is one now."""
        ...
