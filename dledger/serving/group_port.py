"""Where a process takes in what is meant for its member of one group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from dledger.core.messages import Message
from dledger.network.channel import Identity
from dledger.network.conversation import Conversation
from dledger.network.links import MAX_STRANGERS, Links
from dledger.store.push_check import PushCheck
from dledger.wire.group_identity import UNKNOWN_GROUP, GroupIdentity

ServeClient = Callable[[Conversation], Awaitable[None]]
# Judges a sender and the group that it belongs to.
IdentityRefusal = Callable[[str, GroupIdentity], str | None]


def _any_group(_sender: str, _identity: GroupIdentity) -> str | None:
    return None


class TakesMessages(Protocol):
    """The driver of a member."""

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        """Messages of one peer arrived."""
        ...

    def fail(self, error: Exception) -> None:
        """The member's work in a task of the process raised that: end the member alone."""
        ...


class _Deaf:
    """In the place of a driver that certain callers reach no more."""

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        """Nobody hears it."""

    def fail(self, error: Exception) -> None:
        """There is nothing to end any more."""


class GroupPort:
    """One member's side towards its callers.

    Attributes:
        identity: the member.
        driver: takes the messages of peers.
        new_check: makes what checks the pushes of one channel.
        serve_client: talks to a client.
        identity_refusal: why a member of that group is not heard, if so.
        closed: whether the member is gone.
    """

    def __init__(
        self,
        identity: Identity,
        links: Links,
        driver: TakesMessages,
        new_check: Callable[[], PushCheck],
        serve_client: ServeClient,
        identity_refusal: IdentityRefusal = _any_group,
    ) -> None:
        self.identity = identity
        self.links = links
        self.driver = driver
        self.new_check = new_check
        self.serve_client = serve_client
        self.identity_refusal = identity_refusal
        self.closed = False
        self._callers: list[tuple[str, GroupIdentity]] = []  # one for each channel that is open

    def refusal(
        self, sender: str, receiver: str, of_group: GroupIdentity = UNKNOWN_GROUP
    ) -> str | None:
        """Why no channel is opened from `sender` to `receiver`, or None if it is.

        Whether the sender is a member is not asked: a node that joins hears its leader before it
        knows any member, and a leader may not know all members itself. The protocol judges what
        is said. But a member always has room, and of strangers there may be a few.
        """
        group, node_id = self.identity.group, self.identity.node_id
        if self.closed:
            return f"{node_id} of group {group} is stopping"
        if receiver != node_id:
            return f"this is node {node_id}, not {receiver}"
        if sender in ("", node_id):
            return f"{sender or 'a nameless caller'} is not another member of group {group}"
        if (reason := self.identity_refusal(sender, of_group)) is not None:
            return reason
        members = self.links.members
        if sender in members:
            return None
        strangers = sum(other not in members for other, _ in self._callers)
        if strangers < MAX_STRANGERS:
            return None
        return f"{sender} is not a member, and {strangers} who are not are connected already"

    def renewed(self) -> GroupPort:
        """Another port of the same member; what comes in by this one is not heard any more."""
        new = GroupPort(
            self.identity,
            self.links,
            self.driver,
            self.new_check,
            self.serve_client,
            self.identity_refusal,
        )
        self.close()
        return new

    def close(self) -> None:
        """Take in nothing more: what still comes over open channels is dropped."""
        self.closed = True
        self.driver = _Deaf()

    @property
    def hears_another_group(self) -> bool:
        """Whether a channel is open that would be refused now."""
        return any(self.identity_refusal(*caller) is not None for caller in self._callers)

    def births(self, sender: str | None = None) -> set[str]:
        """The births that callers named (that one, or all members); empty while none did."""
        return {
            identity.birth
            for caller, identity in self._callers
            if identity.birth
            and (caller in self.links.members if sender is None else caller == sender)
        }

    def caller_came(self, sender: str, of_group: GroupIdentity = UNKNOWN_GROUP) -> None:
        """A channel from it was opened."""
        self._callers.append((sender, of_group))

    def is_called_by(self, sender: str) -> bool:
        """Whether a channel from it is open."""
        return any(caller == sender for caller, _ in self._callers)

    def caller_left(self, sender: str, of_group: GroupIdentity = UNKNOWN_GROUP) -> None:
        """One was closed."""
        self._callers.remove((sender, of_group))
