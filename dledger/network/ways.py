"""The interface by which a member sends to its peers."""

from __future__ import annotations

from typing import Protocol

from dledger.core.messages import Message


class Way(Protocol):
    """Carries messages to one peer, or drops them; the protocol repeats what matters."""

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send a message. `payload` holds the entries of a push."""
        ...


class Ways(Protocol):
    def link_to(self, peer: str) -> Way | None: ...
