"""The entrance of one group's member for its peers' messages and its clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from dledger.core.messages import Message
from dledger.core.orphans import Orphans
from dledger.network.channel import Identity
from dledger.network.conversation import Conversation
from dledger.network.links import MAX_STRANGERS, Links
from dledger.serving.lasting_refusals import LastingRefusals
from dledger.serving.permit import Permit
from dledger.store.push_check import PushCheck
from dledger.wire.group_identity import SECOND_PROCESS, UNKNOWN_GROUP, GroupIdentity

ServeClient = Callable[[Conversation, Permit], Awaitable[None]]
# Returns why a sender with this group identity is refused, or None.
IdentityRefusal = Callable[[str, GroupIdentity], str | None]


def _any_group(_sender: str, _identity: GroupIdentity) -> str | None:
    return None


class TakesMessages(Protocol):
    """The driver, which takes the messages of a member's peers."""

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        """Take messages of one peer."""
        ...

    def fail(self, error: Exception) -> None:
        """End this member alone: its code raised `error` in a task of the process."""
        ...


class _ClosedDriver:
    """Replaces the driver of a closed port: drops late messages and errors."""

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        pass

    def fail(self, error: Exception) -> None: ...


class GroupPort:
    """Admits the callers of one member.

    Attributes:
        identity: of the member.
        driver: takes the messages of peers.
        new_check: makes the push check of one channel.
        serve_client: serves a client.
        identity_refusal: returns why a caller of another group is refused; None for this group.
        closed: whether the member is gone, or has another port.
        rivals: the peers whose names second processes use.
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
        self.rivals = LastingRefusals()
        self._callers: list[tuple[str, GroupIdentity]] = []  # one for each channel that is open

    def refusal(
        self, sender: str, receiver: str, of_group: GroupIdentity = UNKNOWN_GROUP
    ) -> str | None:
        """Return why a channel from `sender` to `receiver` is refused, or None.

        The sender need not be a member: a node that joins hears its leader before it knows any
        member, and a leader may not know all members itself. The protocol checks each message.
        Members always get a channel; at most MAX_STRANGERS other callers do.
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
        if (reason := self._second_process(sender, of_group.process)) is not None:
            return reason
        members = self.links.members
        if sender in members:
            return None
        strangers = sum(other not in members for other, _ in self._callers)
        if strangers < MAX_STRANGERS:
            return None
        return f"{sender} is not a member, and {strangers} other non-members are connected"

    def _second_process(self, sender: str, process: int) -> str | None:
        """Return why a second process with the name `sender` is refused; None for the only one.

        The connections of a process end with it, and those of a host without power soon after, so
        a process that was restarted is admitted when it asks again.
        """
        others = {of.process for caller, of in self._callers if caller == sender} - {0}
        if not process or not others or process in others:
            return None
        node_id, group = self.identity.node_id, self.identity.group
        line = f"two processes run as {sender} of group {group}: the second one is refused"
        self.rivals.add(sender, line, "second_process")
        return f"{SECOND_PROCESS}{node_id} has an open channel to another process named {sender}"

    def renewed(self) -> GroupPort:
        new = GroupPort(
            self.identity,
            self.links,
            self.driver,
            self.new_check,
            self.serve_client,
            self.identity_refusal,
        )
        new.rivals = self.rivals
        self.close()
        return new

    def close(self) -> None:
        """Drop late messages on open channels, and refuse new channels."""
        self.closed = True
        self.driver = _ClosedDriver()

    def names_member(self, names: frozenset[str]) -> bool:
        """Return whether one of these names of a certificate is that of a member, as known here."""
        return self.identity.node_id in names or not names.isdisjoint(self.links.members)

    @property
    def hears_another_group(self) -> bool:
        """Whether a channel is open whose caller would be refused now."""
        return any(self.identity_refusal(*caller) is not None for caller in self._callers)

    def births(self, sender: str | None = None) -> set[str]:
        """Return the births named by the callers: by `sender`, or by all members for None."""
        return {
            identity.birth
            for caller, identity in self._callers
            if identity.birth
            and (caller in self.links.members if sender is None else caller == sender)
        }

    def orphans(self) -> dict[str, Orphans]:
        """Return the committed entries that members hold and their group lost, as they reported."""
        return {caller: of.orphans for caller, of in self._callers if of.orphans is not None}

    def machine_version(self, member: str) -> int | None:
        """Return the newest version of entries that the state machine of another member reads.

        None if the member is not connected, or has not reported it.
        """
        told = [of.machine.version for caller, of in self._callers if caller == member]
        return min(told, default=0) or None

    def has_able_machine(self, member: str) -> bool:
        """Return whether another member is connected and has not reported a stopped machine."""
        told = [of.machine.is_stopped for caller, of in self._callers if caller == member]
        return bool(told) and not any(told)

    def caller_came(self, sender: str, of_group: GroupIdentity = UNKNOWN_GROUP) -> None:
        self._callers.append((sender, of_group))

    def is_called_by(self, sender: str) -> bool:
        return any(caller == sender for caller, _ in self._callers)

    def caller_left(self, sender: str, of_group: GroupIdentity = UNKNOWN_GROUP) -> None:
        self._callers.remove((sender, of_group))
