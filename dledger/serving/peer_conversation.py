"""What another process says on the connection it dialled, sorted by channel."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import trio

from dledger.config import Address
from dledger.core.messages import Message, PushRequest
from dledger.errors import MessageMalformed
from dledger.network.connections import Connections
from dledger.serving.group_port import GroupPort
from dledger.store.push_check import PushCheck
from dledger.wire.channel_protocol import (
    Closing,
    Opening,
    decode_call,
    encode_channel_refused,
    encode_opened,
)
from dledger.wire.codec import (
    CHANNEL_SHIFT,
    SHARED_HEARTBEATS,
    SHARED_RESPONSES,
    decode_message,
    decode_shared_heartbeats,
    decode_shared_responses,
)
from dledger.wire.frame import Frame
from dledger.wire.group_identity import GroupIdentity

logger = logging.getLogger(__name__)

# Channels on one connection. A process has one to each group it shares with this one, at most a
# thousand; while members move between processes, or their names change, a few more.
MAX_CHANNELS = 2_000


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
        connections: those that this process dialled, on which answers leave.
        address: where the caller listens.
        names: the members that the caller has proven to be; None without TLS, where all are
            believed.
    """

    def __init__(
        self,
        ports: Mapping[str, GroupPort],
        connections: Connections,
        address: Address,
        names: frozenset[str] | None = None,
    ) -> None:
        self._names = names
        self._ports = ports
        self._connections = connections
        self._address = address
        self._channels: dict[int, _Channel] = {}
        self._answers: list[bytes] = []
        connections.hurry(address)

    def take(self, frames: Sequence[Frame]) -> list[bytes]:
        """Pass on what arrived; frames to answer with. Raises MessageMalformed.

        What follows one another on a channel is passed on in one go: it shares a turn.
        """
        last: _Channel | None = None
        messages: list[Message] = []
        for frame in frames:
            number = frame.header[0]
            channel = None
            if type(number) is int and number not in _SHARED:
                channel = self._channels.get(number >> CHANNEL_SHIFT)
            if messages and last is not None and channel is not last:
                last.port.driver.received(last.sender, messages)
                messages = []
            last = channel
            if channel is None:
                self._take_other(frame)
            elif (message := self._message(channel, frame)) is not None:
                messages.append(message)
        if messages and last is not None:
            last.port.driver.received(last.sender, messages)
        answers, self._answers = self._answers, []
        return answers

    def end(self) -> None:
        """The connection is gone."""
        for channel in self._channels.values():
            channel.port.caller_left(channel.sender, channel.of_group)
        self._channels.clear()
        self._connections.hurry(self._address)

    def _message(self, channel: _Channel, frame: Frame) -> Message | None:
        """The message in a frame, checked; what is wrong with one ends its channel alone."""
        if channel.port.closed:
            self._refuse(channel.number, "the member has stopped")
            return None
        try:
            message = decode_message(frame)
            return channel.check.check(message) if isinstance(message, PushRequest) else message
        except MessageMalformed as error:
            logger.warning(
                "closed the channel of %s in group %s: %s",
                *(channel.sender, channel.port.identity.group, error.problem),
            )
            self._refuse(channel.number, error.problem)
            return None

    def _refuse(self, number: int, reason: str) -> None:
        self._close(number)
        self._answers.append(encode_channel_refused(number, reason))

    def _take_other(self, frame: Frame) -> None:
        kind, now = frame.header[0], trio.current_time()
        if kind == SHARED_HEARTBEATS:
            beats = decode_shared_heartbeats(frame)
            self._connections.collecting = True
            for number, beat in beats:
                if (channel := self._channels.get(number)) is not None:
                    channel.port.driver.heartbeat(channel.sender, beat, now)
            self._connections.flush()
        elif kind == SHARED_RESPONSES:
            answers = decode_shared_responses(frame)
            self._connections.collecting = True
            for number, answer in answers:
                if (channel := self._channels.get(number)) is not None:
                    channel.port.driver.heartbeat_answered(channel.sender, answer, now)
            self._connections.flush()
        elif type(kind) is not int:
            # A number belongs to a channel that was refused while the message was on its way.
            self._take_call(decode_call(frame))

    def _take_call(self, call: Opening | Closing) -> None:
        if isinstance(call, Closing):
            self._close(call.channel)
            return
        before = self._channels.get(call.channel)
        self._close(call.channel)
        port = self._ports.get(call.group)
        if port is None:
            refusal: str | None = f"there is no member of group {call.group} here"
        elif self._names is not None and call.sender not in self._names:
            shown = ", ".join(sorted(self._names)[:3]) or "nobody"
            refusal = f"the certificate is that of {shown}, not of {call.sender}"
            self._connections.refusals.add("name", f"the peer at {self._address}: {refusal}")
        elif len(self._channels) >= MAX_CHANNELS:
            refusal = f"{MAX_CHANNELS} channels are open on this connection"
        else:
            refusal = port.refusal(call.sender, call.receiver, call.identity)
        if port is None or refusal is not None:
            self._refuse(call.channel, refusal or "")
            return
        if before is not None and (before.port, before.sender) == (port, call.sender):
            check = before.check  # pushes that are on their way rest on those that it has seen
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
