"""What one group's code raises in the tasks that all groups of a process share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest
import trio
from trio.testing import MockClock

from dledger.config import Address
from dledger.core.ledger_view import TermRun
from dledger.core.messages import Heartbeat, HeartbeatResponse, Message, Phase, PushRequest
from dledger.errors import BatchInvalid, LogCorrupt
from dledger.network.channel import Identity
from dledger.network.connections import Connections
from dledger.network.conversation import Conversation
from dledger.network.links import Links
from dledger.serving.group_port import GroupPort
from dledger.serving.peer_conversation import PeerConversation
from dledger.serving.permit import EVERYTHING, Permit
from dledger.store.push_check import PushCheck
from dledger.wire.channel_protocol import Opening, decode_channel_answer, encode_opening
from dledger.wire.codec import (
    SHARED_HEARTBEATS,
    SHARED_RESPONSES,
    encode_message,
    encode_shared,
)
from dledger.wire.frame import Frame, FrameDecoder
from dledger.wire.group_identity import GroupIdentity

HERE, THERE = Address("127.0.0.1", 1), Address("127.0.0.1", 2)
BEAT = Heartbeat(term=3, committed=2, round=1)
ANSWER = HeartbeatResponse(term=3, round=1)
PUSH = PushRequest(3, Phase.APPEND, -1, -1, 0, 0, runs=(TermRun(3, 0),), payload=b"x" * 60)
CORRUPT = LogCorrupt("index/0", 32, "the index unit of entry 1 is broken")


class Member:
    """A group's member that notes what it is told, and raises where it is to."""

    def __init__(self, group: str, connections: Connections) -> None:
        self.heard: list[str] = []
        self.failures: list[Exception] = []
        self.raises: dict[str, Exception] = {}
        identity = Identity(group, "n0", HERE)
        links = Links(identity, connections, lambda peer, connected: None)
        self.port = GroupPort(identity, links, self, self._check, self._client, self._refusal)

    def _note(self, what: str) -> None:
        if what in self.raises:
            raise self.raises[what]
        self.heard.append(what)

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        """As in TakesMessages."""
        self._note("received")

    def fail(self, error: Exception) -> None:
        """As in TakesMessages."""
        self.failures.append(error)

    def _check(self) -> PushCheck:
        self._note("check made")
        return Checks(self._note)

    async def _client(self, conversation: Conversation, permit: Permit) -> None:
        self._note("client")

    def _refusal(self, sender: str, of_group: GroupIdentity) -> str | None:
        self._note("refusal")
        return None


class Checks(PushCheck):
    """Lets every push pass, or raises."""

    __slots__ = ("_note",)

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def check(self, push: PushRequest) -> PushRequest:
        """As in PushCheck."""
        self._note("checked")
        return push


class Called:
    """A process with two groups, and a peer with a channel to each."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.connections = Connections(nursery, HERE)
        self.members = {group: Member(group, self.connections) for group in ("a", "b")}
        ports = {group: member.port for group, member in self.members.items()}
        self.conversation = PeerConversation(ports, self.connections, THERE, EVERYTHING)

    def open(self) -> list[tuple[int, str | None]]:
        openings = [Opening(number, group, "n1", "n0") for number, group in enumerate("ab")]
        return self.take(*map(encode_opening, openings))

    def take(self, *encoded: bytes) -> list[tuple[int, str | None]]:
        return [
            decode_channel_answer(*frames(each))
            for each in self.conversation.take(
                [frame for each in encoded for frame in frames(each)]
            )
        ]


def frames(encoded: bytes) -> list[Frame]:
    return FrameDecoder().feed(encoded)


@pytest.fixture
async def called(nursery: trio.Nursery) -> Called:
    """Nothing is open yet."""
    return Called(nursery)


def push(channel: int) -> bytes:
    return encode_message(PUSH, PUSH.payload, channel)


def beats() -> bytes:
    return encode_shared(SHARED_HEARTBEATS, [0, *BEAT, 1, *BEAT])


def answers() -> bytes:
    return encode_shared(SHARED_RESPONSES, [0, *ANSWER, 1, *ANSWER])


@pytest.mark.parametrize("error", [CORRUPT, KeyError("n1")])
@pytest.mark.parametrize(
    ("where", "sent", "other_hears"),
    [
        ("checked", [push(0), push(1)], "checked"),
        ("received", [push(0), push(1)], "received"),
        ("received", [beats()], "received"),
        ("received", [answers()], "received"),
    ],
)
async def test_what_one_group_raises_over_a_message_ends_its_member_alone(
    called: Called, where: str, sent: list[bytes], other_hears: str, error: Exception
) -> None:
    assert called.open() == [(0, None), (1, None)]
    called.members["a"].raises[where] = error
    called.take(*sent)
    assert called.members["a"].failures == [error]
    assert not called.members["b"].failures
    assert other_hears in called.members["b"].heard
    assert not called.connections.collecting


@pytest.mark.parametrize("where", ["check made", "refusal"])
async def test_what_one_group_raises_over_a_new_channel_ends_its_member_alone(
    called: Called, where: str
) -> None:
    if where == "refusal":
        called.members["a"].port.identity_refusal = called.members["a"]._refusal
    called.members["a"].raises[where] = CORRUPT
    (refused, reason), opened = called.open()
    assert (refused, reason) == (0, "the member has stopped")
    assert opened == (1, None)
    assert called.members["a"].failures == [CORRUPT]
    assert not called.members["b"].failures


@pytest.mark.parametrize("sent", [beats(), answers(), push(0)])
async def test_a_member_that_was_closed_says_so_and_hoards_nothing(
    called: Called, sent: bytes
) -> None:
    called.open()
    closed = called.members["a"]
    closed.port.close()
    heard = list(closed.heard)
    assert called.take(sent) == [(0, "the member has stopped")]
    assert called.take(sent) == []  # the channel is gone
    assert closed.heard == heard


async def test_bytes_that_do_not_follow_are_told_once_a_minute_with_what_to_do(
    called: Called, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    broken = BatchInvalid("entry 0: the chain CRC does not follow the entry before")
    called.members["a"].raises["checked"] = broken
    with caplog.at_level(logging.WARNING):
        for _ in range(60):
            called.open()
            ((_, reason),) = called.take(push(0))
            await trio.sleep(0.5)
    assert reason is not None
    assert "dledger verify" in reason
    assert "dledger repair" in reason
    (line,) = caplog.messages
    assert "messages of n1 in group a: entry 0: the chain CRC" in line
    assert not called.members["a"].failures
