"""Connections that come and go with the members, over real loopback sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio
import trio.testing

from dledger.codec import PROTOCOL_VERSION, encode_message
from dledger.config import Address
from dledger.errors import AddressInUse, ConfigInvalid
from dledger.frame import Frame, FrameDecoder, encode_frame
from dledger.handshake import Caller, Hello, encode_hello, encode_refused
from dledger.links import MAX_STRANGERS, Identity, Links
from dledger.listener import Conversation, Listener
from dledger.messages import Heartbeat, HeartbeatResponse, Message
from dledger.push_check import PushCheck

ANY_PORT = Address("127.0.0.1", 0)
BEAT = Heartbeat(1, -1, 1)


class NoPushes(PushCheck):
    def __init__(self) -> None:
        """Nothing is remembered: no push comes."""


async def no_client(_: Conversation) -> None:
    raise AssertionError("no client calls here")


class Member:
    """What a node has of connections: a listener, and links to the others."""

    def __init__(self, node_id: str, stranger_idle_s: float = 60.0) -> None:
        self.node_id = node_id
        self.stranger_idle_s = stranger_idle_s
        self.changes: list[tuple[str, bool]] = []
        self.received: list[tuple[str, Message]] = []
        self._news = trio.lowlevel.ParkingLot()

    async def start(self, nursery: trio.Nursery, listen: Address = ANY_PORT) -> None:
        probe = await trio.open_tcp_listeners(listen.port, host=listen.host)
        port = probe[0].socket.getsockname()[1]
        for each in probe:
            await each.aclose()
        self.address = Address(listen.host, port)
        identity = Identity("g", self.node_id, self.address)
        self.links = Links(identity, self._changed, self.stranger_idle_s)
        self.listener = Listener(identity, self.links, self._received, NoPushes, no_client)
        listeners = await self.listener.open(self.address)
        nursery.start_soon(self.listener.serve, listeners)
        nursery.start_soon(self.links.run)

    def _changed(self, peer: str, connected: bool) -> None:
        self.changes.append((peer, connected))
        self._news.unpark_all()

    def _received(self, sender: str, messages: Sequence[Message]) -> None:
        self.received += [(sender, message) for message in messages]
        self._news.unpark_all()

    async def until(self, happened: Callable[[], bool]) -> None:
        with trio.fail_after(10):
            while not happened():
                await self._news.park()

    async def connected_to(self, peer: str) -> None:
        await self.until(lambda: self.links.link_to(peer) is not None)

    def send(self, peer: str, message: Message) -> bool:
        link = self.links.link_to(peer)
        if link is None:
            return False
        link.send(encode_message(message))
        return True


@asynccontextmanager
async def members(*members: Member, listen: Address = ANY_PORT) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for member in members:
            await member.start(nursery, listen)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


async def test_a_member_that_is_added_is_dialled_and_one_that_is_gone_is_not_any_more() -> None:
    n0, n1, n2 = Member("n0"), Member("n1"), Member("n2")
    async with members(n0, n1, n2):
        n0.links.set_members({"n0": n0.address, "n1": n1.address})
        await n0.connected_to("n1")
        assert set(n0.links.members) == {"n1"}
        n0.links.set_members({"n0": n0.address, "n2": n2.address})
        assert n0.changes == [("n1", True), ("n1", False)]
        await n0.connected_to("n2")
        assert n0.send("n2", BEAT)
        await n2.until(lambda: n2.received == [("n0", BEAT)])
        assert not n0.send("n1", BEAT)
        assert n0.links.dropped == 1
        assert n0.changes == [("n1", True), ("n1", False), ("n2", True)]


async def test_the_same_members_again_leave_a_connection_as_it_is() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1):
        addresses = {"n0": n0.address, "n1": n1.address}
        n0.links.set_members(addresses)
        await n0.connected_to("n1")
        link = n0.links.link_to("n1")
        n0.links.set_members(dict(addresses))
        assert n0.links.link_to("n1") is link
        assert n0.changes == [("n1", True)]


async def test_a_member_that_moved_is_dialled_at_its_new_address() -> None:
    n0, old, new = Member("n0"), Member("n1"), Member("n1")
    async with members(n0, old, new):
        n0.links.set_members({"n1": old.address})
        await n0.connected_to("n1")
        n0.links.set_members({"n1": new.address})
        assert n0.links.link_to("n1") is None
        await n0.connected_to("n1")
        assert n0.send("n1", BEAT)
        await new.until(lambda: new.received == [("n0", BEAT)])
        assert old.received == []
        assert n0.changes == [("n1", True), ("n1", False), ("n1", True)]


async def test_a_message_to_nobody_known_is_dropped_and_counted() -> None:
    n0 = Member("n0")
    async with members(n0):
        assert not n0.send("n7", BEAT)
        assert not n0.send("n7", BEAT)
        assert n0.links.dropped == 2
        assert not n0.links.strangers


async def test_a_node_that_knows_no_member_hears_its_leader_and_answers_it() -> None:
    leader, joining = Member("n0"), Member("n9")
    async with members(leader, joining):
        leader.links.set_members({"n0": leader.address, "n9": joining.address})
        await leader.connected_to("n9")
        assert leader.send("n9", BEAT)
        await joining.until(lambda: joining.received == [("n0", BEAT)])
        answer = HeartbeatResponse(1, 1)
        assert not joining.send("n0", answer)  # it opens the link for those that follow
        await joining.connected_to("n0")
        assert joining.send("n0", answer)
        await leader.until(lambda: leader.received == [("n9", answer)])
        assert set(joining.links.strangers) == {"n0"}
        joining.links.set_members({"n0": leader.address, "n9": joining.address})
        assert joining.links.link_to("n0") is not None
        assert joining.changes == [("n0", True)]
        assert not joining.links.strangers


async def test_a_link_to_a_stranger_ends_when_it_carries_nothing_any_more() -> None:
    caller, callee = Member("n0"), Member("n9", stranger_idle_s=0.05)
    async with members(caller, callee):
        caller.links.set_members({"n9": callee.address})
        await caller.connected_to("n9")
        assert not callee.send("n0", BEAT)
        await callee.until(lambda: callee.changes == [("n0", True), ("n0", False)])
        assert not callee.links.strangers


async def test_strangers_have_room_for_so_many_and_members_always() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1), AsyncExitStack() as stack:
        for number in range(MAX_STRANGERS):
            assert (await introduced(stack, n0, f"s{number}")).header[0] == "welcome"
        refused = await introduced(stack, n0, "s-one-more")
        assert refused.header[0] == "refused"
        assert "not a member" in str(refused.header[1])
        n0.links.set_members({"n1": n1.address})
        assert (await introduced(stack, n0, "n1")).header[0] == "welcome"


async def introduced(stack: AsyncExitStack, member: Member, caller: str) -> Frame:
    stream = await stack.enter_async_context(await trio.open_tcp_stream(*member.address))
    hello = Hello(Caller.PEER, "g", caller, member.node_id, Address("127.0.0.1", 1))
    await stream.send_all(encode_hello(hello))
    return await first_frame(stream)


async def first_frame(stream: trio.SocketStream) -> Frame:
    decoder = FrameDecoder()
    with trio.fail_after(5):
        while not (frames := decoder.feed(bytes(await stream.receive_some(65536)))):
            pass
    return frames[0]


async def test_answers_to_strangers_open_so_many_links_at_a_time() -> None:
    n0 = Member("n0")
    async with members(n0):
        for number in range(MAX_STRANGERS + 1):
            n0.links.heard_of(f"s{number}", Address("127.0.0.1", 1))
            assert not n0.send(f"s{number}", BEAT)
        assert len(n0.links.strangers) == MAX_STRANGERS


async def test_a_caller_of_an_older_version_is_told_so() -> None:
    n0 = Member("n0")
    async with members(n0), await trio.open_tcp_stream(*n0.address) as stream:
        await stream.send_all(encode_frame(["hello", 1, "peer", "g", "n1", "n0"]))
        refused = await first_frame(stream)
        assert refused.header[0] == "refused"
        assert f"version 1; this node speaks {PROTOCOL_VERSION}" in str(refused.header[1])


async def ends_at_once(stream: trio.SocketStream) -> None:
    await stream.receive_some(65536)


async def refuses(stream: trio.SocketStream) -> None:
    await stream.receive_some(65536)
    await stream.send_all(encode_refused("protocol version 2; this node speaks 3"))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [(ends_at_once, "older protocol version than 2"), (refuses, "this node speaks 3")],
)
async def test_a_callee_of_another_version_shows_in_the_links_problem(
    answer: Callable[[trio.SocketStream], Awaitable[None]], problem: str
) -> None:
    answered = trio.Event()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await answer(stream)
        answered.set()

    n0 = Member("n0")
    async with members(n0), trio.open_nursery() as nursery:
        [other] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [other])
        n0.links.set_members({"n1": Address("127.0.0.1", other.socket.getsockname()[1])})
        with trio.fail_after(5):
            await answered.wait()
            while (found := n0.links.members["n1"].last_problem) is None:
                await trio.lowlevel.checkpoint()
        assert problem in found
        nursery.cancel_scope.cancel()


async def test_a_host_may_be_a_name() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1, listen=Address("localhost", 0)):
        assert n1.address.host == "localhost"
        n0.links.set_members({"n1": n1.address})
        await n0.connected_to("n1")


async def test_an_address_that_is_taken_or_nowhere_is_refused_with_its_name() -> None:
    n0 = Member("n0")
    async with members(n0):
        with pytest.raises(AddressInUse):
            await n0.listener.open(n0.address)
        with pytest.raises(ConfigInvalid, match=r"no\.such\.host\.invalid"):
            await n0.listener.open(Address("no.such.host.invalid", 1))
