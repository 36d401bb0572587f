"""Reads a connection that another process dialled, and passes its messages on by channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dledger.config import Address
from dledger.core.messages import Message, PushRequest
from dledger.core.orphans import Orphans
from dledger.errors import BatchInvalid, LogsDiverge, MessageMalformed
from dledger.machine_kind import UNKNOWN_MACHINE, MachineKind
from dledger.network.connections import Connections
from dledger.serving.group_port import GroupPort
from dledger.serving.permit import Permit
from dledger.store.push_check import PushCheck
from dledger.wire.channel_protocol import (
    ABOUT_ITSELF,
    MACHINE_KIND,
    Closing,
    Opening,
    decode_about_itself,
    decode_call,
    decode_machine_kind,
    encode_channel_refused,
    encode_opened,
)
from dledger.wire.codec import (
    CHANNEL_SHIFT,
    NEWER,
    SHARED_HEARTBEATS,
    SHARED_RESPONSES,
    behind_newer,
    decode_message,
    decode_shared_heartbeats,
    decode_shared_responses,
)
from dledger.wire.frame import Frame
from dledger.wire.group_identity import GroupIdentity

# Channels on one connection. Another process has one for each group that it shares with this one,
# at most a thousand, and a few more while members move between processes or change their names.
MAX_CHANNELS = 2_000

_STOPPED = "the member has stopped"

# Frames of many channels at once.
_SHARED = (SHARED_HEARTBEATS, SHARED_RESPONSES)


@dataclass(frozen=True, slots=True)
class _Channel:
    number: int
    port: GroupPort
    sender: str
    of_group: GroupIdentity
    check: PushCheck


class PeerConversation:
    """The open channels of one accepted connection.

    Args:
        ports: the members of this process, by group.
        connections: the outgoing connections of this process, which carry the answers.
        address: where the caller listens.
        permit: of the caller.
        names: the members that the caller has proven to be; None without TLS, where any name is
            accepted.
    """

    def __init__(
        self,
        ports: Mapping[str, GroupPort],
        connections: Connections,
        address: Address,
        permit: Permit,
        names: frozenset[str] | None = None,
    ) -> None:
        self._permit = permit
        self._names = names
        self._ports = ports
        self._connections = connections
        self._address = address
        self._channels: dict[int, _Channel] = {}
        # Received for channels that are about to be opened.
        self._machines: dict[int, MachineKind] = {}
        self._selves: dict[int, tuple[int, Orphans | None]] = {}
        self._answers: list[bytes] = []
        connections.hurry(address)

    def take(self, frames: Sequence[Frame]) -> list[bytes]:
        """Pass on the messages in `frames`; return the answering frames.

        Successive messages of one channel are passed on in one call, and so share a turn. Raises
        MessageMalformed.
        """
        last: _Channel | None = None
        messages: list[Message] = []
        for arrived in frames:
            frame = behind_newer(arrived) if arrived.header[0] == NEWER else arrived
            number = frame.header[0]
            channel = None
            if type(number) is int and number not in _SHARED:
                channel = self._channels.get(number >> CHANNEL_SHIFT)
            if messages and last is not None and channel is not last:
                self._pass_on(last, messages)
                messages = []
            last = channel
            if channel is None:
                self._take_other(frame)
            elif (message := self._message(channel, frame)) is not None:
                messages.append(message)
        if messages and last is not None:
            self._pass_on(last, messages)
        answers, self._answers = self._answers, []
        return answers

    def end(self) -> None:
        """Close all channels: the connection is gone."""
        for channel in self._channels.values():
            channel.port.caller_left(channel.sender, channel.of_group)
        self._channels.clear()
        self._connections.hurry(self._address)

    def _message(self, channel: _Channel, frame: Frame) -> Message | None:
        """Return the checked message in a frame. A malformed one closes only its channel."""
        if channel.port.closed:
            self._refuse(channel.number, _STOPPED)
            return None
        try:
            message = decode_message(frame)
            return channel.check.check(message) if isinstance(message, PushRequest) else message
        except LogsDiverge as error:
            assert isinstance(message, PushRequest)
            contradiction = message._replace(payload=b"", contradicts=error.index)
            self._pass_on(channel, (contradiction,))
            self._refuse_message(channel, error)
            return None
        except MessageMalformed as error:
            self._refuse_message(channel, error)
            return None
        except Exception as error:  # such as an unreadable log of this member
            channel.port.driver.fail(error)
            self._refuse(channel.number, _STOPPED)
            return None

    def _refuse_message(self, channel: _Channel, error: MessageMalformed) -> None:
        """Close the channel, and log why: once a minute at most, since the peer opens it again."""
        identity, problem = channel.port.identity, error.problem
        if isinstance(error, BatchInvalid):
            problem = (
                f"{problem}: the log of {channel.sender} or of {identity.node_id} is damaged; run "
                "`dledger verify` on both folders, then `dledger repair` on the damaged one"
            )
        self._connections.refusals.add(
            f"messages in group {identity.group}",
            f"messages of {channel.sender} in group {identity.group}: {problem}",
        )
        self._refuse(channel.number, problem)

    def _pass_on(self, channel: _Channel, messages: Sequence[Message]) -> None:
        try:
            channel.port.driver.received(channel.sender, messages)
        except Exception as error:
            channel.port.driver.fail(error)

    def _open_channel(self, number: int) -> _Channel | None:
        """Return the channel if it is open. If its member has stopped, refuse the channel
        instead.
        """
        channel = self._channels.get(number)
        if channel is not None and channel.port.closed:
            self._refuse(number, _STOPPED)
            return None
        return channel

    def _refuse(self, number: int, reason: str) -> None:
        self._close(number)
        self._answers.append(encode_channel_refused(number, reason))

    def _take_other(self, frame: Frame) -> None:
        kind = frame.header[0]
        if kind == SHARED_HEARTBEATS:
            self._take_shared(decode_shared_heartbeats(frame))
        elif kind == SHARED_RESPONSES:
            self._take_shared(decode_shared_responses(frame))
        elif kind == MACHINE_KIND:
            self._take_machine_kind(frame)
        elif kind == ABOUT_ITSELF:
            self._take_about_itself(frame)
        elif type(kind) is not int:
            # Numbers are messages of channels that were refused while the message was on its way.
            self._take_call(decode_call(frame))

    def _take_shared(self, messages: Iterable[tuple[int, Message]]) -> None:
        """Pass on messages of many channels, and collect the answers of all groups."""
        self._connections.collecting = True
        for number, message in messages:
            if (channel := self._open_channel(number)) is not None:
                self._pass_on(channel, (message,))
        self._connections.flush()

    def _take_machine_kind(self, frame: Frame) -> None:
        number, machine = decode_machine_kind(frame)
        if len(self._machines) < MAX_CHANNELS:
            self._machines[number] = machine

    def _take_about_itself(self, frame: Frame) -> None:
        number, process, orphans = decode_about_itself(frame)
        if len(self._selves) < MAX_CHANNELS:
            self._selves[number] = (process, orphans)

    def _take_call(self, call: Opening | Closing) -> None:
        machine = self._machines.pop(call.channel, UNKNOWN_MACHINE)
        process, orphans = self._selves.pop(call.channel, (0, None))
        if isinstance(call, Closing):
            self._close(call.channel)
            return
        identity = call.identity._replace(machine=machine, process=process, orphans=orphans)
        call = call._replace(identity=identity)
        before = self._channels.get(call.channel)
        self._close(call.channel)
        port = self._ports.get(call.group)
        if port is None:
            self._refuse(call.channel, f"there is no member of group {call.group} here")
            return
        try:
            refusal = self._refusal(port, call)
            if refusal is None:
                self._open(port, call, before)
        except Exception as error:
            port.driver.fail(error)
            refusal = _STOPPED
        if refusal is not None:
            self._refuse(call.channel, refusal)

    def _refusal(self, port: GroupPort, call: Opening) -> str | None:
        if self._names is not None and call.sender not in self._names:
            shown = ", ".join(sorted(self._names)[:3]) or "no member"
            refusal = f"the certificate is that of {shown}, not of {call.sender}"
            self._connections.refusals.add("name", f"the peer at {self._address}: {refusal}")
            return refusal
        if call.sender not in port.links.members and self._permit.names_a_user:
            refusal = f"the certificate of {call.sender} is that of a user, and not of a member"
            self._connections.refusals.add("users", f"the peer at {self._address}: {refusal}")
            return refusal
        if len(self._channels) >= MAX_CHANNELS:
            return f"{MAX_CHANNELS} channels are open on this connection"
        return port.refusal(call.sender, call.receiver, call.identity)

    def _open(self, port: GroupPort, call: Opening, before: _Channel | None) -> None:
        if before is not None and (before.port, before.sender) == (port, call.sender):
            check = before.check  # the next pushes follow those that were checked before
        else:
            check = port.new_check()
        self._channels[call.channel] = _Channel(
            call.channel, port, call.sender, call.identity, check
        )
        port.caller_came(call.sender, call.identity)
        port.links.heard_of(call.sender, self._address)
        self._answers.append(encode_opened(call.channel))

    def _close(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.port.caller_left(channel.sender, channel.of_group)
