"""A member that answers clients as a test tells it to, behind a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from dledger.errors import DLedgerError
from dledger.network.conversation import Conversation
from dledger.network.tls import GroupTls, Stream
from dledger.waits.pending_appends import Appended
from dledger.wire.client_protocol import (
    Leadership,
    Operation,
    Request,
    decode_request,
    encode_answer,
    encode_appended,
    encode_error,
    encode_leadership,
)
from dledger.wire.handshake import decode_hello, encode_refused, encode_welcome

GROUP = "g"

Answer = bytes | DLedgerError | None
Script = Callable[[Request], Answer]


class FakeMember:
    """Says who leads as `leadership` tells it; `script` answers the rest, None not at all.

    Attributes:
        asked: every request that was not about who leads.
        asked_who_leads: how many were.
        connections: how many are open, and how many were ever opened.
    """

    def __init__(self, node_id: str, address: str) -> None:
        self.node_id = node_id
        self.address = address
        self.leader: str | None = None
        self.term = 0
        self.ready = False
        self.configuration = (-1, dict[str, str]())
        self.script: Script = appended
        self.frozen = False
        self.asked: list[Request] = []
        self.asked_who_leads = 0
        self.open: list[Stream] = []
        self.opened = 0
        self._told = trio.lowlevel.ParkingLot()

    def lead(self, term: int) -> None:
        self.hear(self.node_id, term)
        self.ready = True

    def hear(self, leader: str | None, term: int) -> None:
        self.leader, self.term, self.ready = leader, term, False
        self._told.unpark_all()

    async def send(self, frame: bytes) -> None:
        """Say something of its own accord, on the oldest connection."""
        await self.open[0].send_all(frame)

    async def cut(self) -> None:
        for stream in list(self.open):
            await trio.aclose_forcefully(stream)

    async def serve(self, plain: trio.abc.Stream, tls: GroupTls | None = None) -> None:
        self.opened += 1
        async with plain:
            try:
                stream: Stream = plain if tls is None else await tls.accepted(plain)
            except trio.BrokenResourceError:
                return  # a client that found the leader elsewhere leaves in its handshake
            self.open.append(stream)
            try:
                async with trio.open_nursery() as nursery:
                    await self._converse(stream, nursery)
                    nursery.cancel_scope.cancel()
            except* (trio.BrokenResourceError, trio.ClosedResourceError):
                pass  # cut by the test, or left by the client
            finally:
                self.open.remove(stream)

    async def _converse(self, stream: Stream, nursery: trio.Nursery) -> None:
        conversation = Conversation(stream)
        sending = trio.Lock()  # a large answer may take several pieces
        hello = await conversation.next_frame()
        conversation.welcomed()
        if self.frozen:
            await trio.sleep_forever()
        if hello is None:
            return
        if decode_hello(hello).group != GROUP:
            await stream.send_all(
                encode_refused(f"there is no group {decode_hello(hello).group}", True, [GROUP])
            )
            return
        if decode_hello(hello).receiver not in ("", self.node_id):
            await stream.send_all(encode_refused(f"this is node {self.node_id}", lasting=True))
            return
        await stream.send_all(encode_welcome(self.node_id))
        while await conversation.wait():
            for request in map(decode_request, conversation.cut()):
                if request.operation is Operation.LEADER:
                    self.asked_who_leads += 1
                    nursery.start_soon(self._tell, request, stream, sending)
                    continue
                self.asked.append(request)
                answer = self._answer(request)
                if isinstance(answer, DLedgerError):
                    answer = encode_error(request.request_id, answer)
                if answer is not None:
                    async with sending:
                        await stream.send_all(answer)

    def _answer(self, request: Request) -> Answer:
        return None if self.frozen else self.script(request)

    async def _tell(self, request: Request, stream: Stream, sending: trio.Lock) -> None:
        least_term, wait_ms = request.numbers
        with trio.move_on_after(wait_ms / 1000):
            while not self._knows(least_term):
                await self._told.park()
        if self.frozen:
            return
        answer = Leadership(self.node_id, self.leader, self.term, self.ready, *self.configuration)
        async with sending:
            await stream.send_all(encode_leadership(request.request_id, answer))

    def _knows(self, least_term: int) -> bool:
        leads = self.ready if self.leader == self.node_id else self.leader is not None
        return leads and self.term >= least_term and not self.frozen


def appended(request: Request) -> bytes:
    """What a leader answers to an append, or to anything else."""
    if request.operation is not Operation.APPEND:
        return encode_answer(request.request_id, {})
    entries = [Appended(at, 1, 48 * at, None) for at in range(len(request.numbers))]
    return encode_appended(request.request_id, entries)


def silent(_: Request) -> None:
    """Never answers."""


class FakeGroup:
    """So many of them."""

    def __init__(self, members: Sequence[FakeMember]) -> None:
        self.members = members

    def __getitem__(self, number: int) -> FakeMember:
        return self.members[number]

    @property
    def peers(self) -> dict[str, str]:
        return {member.node_id: member.address for member in self.members}

    def elect(self, number: int, term: int) -> FakeMember:
        """Let one lead, and all others but the frozen ones know it."""
        for at, member in enumerate(self.members):
            if at == number:
                member.lead(term)
            elif not member.frozen:
                member.hear(self.members[number].node_id, term)
        return self.members[number]


@asynccontextmanager
async def fake_group(count: int, tls: GroupTls | None = None) -> AsyncIterator[FakeGroup]:
    async with trio.open_nursery() as nursery:
        members = []
        for number in range(count):
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            member = FakeMember(f"n{number}", f"127.0.0.1:{port}")
            members.append(member)

            async def serve(stream: trio.SocketStream, member: FakeMember = member) -> None:
                await member.serve(stream, tls)

            nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield FakeGroup(members)
        nursery.cancel_scope.cancel()
