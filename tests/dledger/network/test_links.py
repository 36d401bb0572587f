"""Connections that come and go with the members, over real loopback sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from dledger.config import Address
from dledger.core.messages import Heartbeat, HeartbeatResponse, Message, Phase, PushRequest
from dledger.errors import AddressInUse, ConfigInvalid
from dledger.free_ports import free_ports
from dledger.network.channel import Identity
from dledger.network.connections import Connections
from dledger.network.conversation import Conversation
from dledger.network.links import MAX_STRANGERS, Links
from dledger.serving.group_port import GroupPort
from dledger.serving.listener import Listener
from dledger.serving.permit import Permit
from dledger.store.push_check import PushCheck
from dledger.wire.channel_protocol import Opening, encode_opened, encode_opening
from dledger.wire.codec import PROTOCOL_VERSION, encode_message
from dledger.wire.frame import Frame, FrameDecoder, encode_frame
from dledger.wire.group_identity import GroupIdentity
from dledger.wire.handshake import Caller, Hello, encode_hello, encode_refused, encode_welcome

BIRTH = "0123456789abcdef" * 2
ANY_PORT = Address("127.0.0.1", 0)
BEAT = Heartbeat(1, -1, 1)


class NoPushes(PushCheck):
    def __init__(self) -> None:
        """Nothing is remembered: no push comes."""


async def no_client(_: Conversation, _permit: Permit) -> None:
    raise AssertionError("no client calls here")


class Member:
    """What a node has of connections: a listener, and links to the others."""

    def __init__(self, node_id: str, stranger_idle_s: float = 60.0) -> None:
        self.node_id = node_id
        self.stranger_idle_s = stranger_idle_s
        self.changes: list[tuple[str, bool]] = []
        self.heard: list[tuple[str, Message]] = []
        self._news = trio.lowlevel.ParkingLot()

    async def start(self, nursery: trio.Nursery, listen: Address = ANY_PORT) -> None:
        port = listen.port or free_ports(1)[0]
        self.address = Address(listen.host, port)
        self.connections = Connections(nursery, self.address)
        self.ports: dict[str, GroupPort] = {}
        self.links = self.join("g")
        self.listener = Listener(self.ports, self.connections)
        listeners = await self.listener.open(self.address)
        nursery.start_soon(self.listener.serve, listeners)

    def join(self, group: str) -> Links:
        """Be a member of one more group."""
        identity = Identity(group, self.node_id, self.address)
        links = Links(identity, self.connections, self._changed, self.stranger_idle_s)
        self.ports[group] = GroupPort(identity, links, self, NoPushes, no_client)
        return links

    def fail(self, error: Exception) -> None:
        raise error

    def _changed(self, peer: str, connected: bool) -> None:
        self.changes.append((peer, connected))
        self._news.unpark_all()

    def received(self, sender: str, messages: Sequence[Message]) -> None:
        self.heard += [(sender, message) for message in messages]
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
        link.send(message)
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
        await n2.until(lambda: n2.heard == [("n0", BEAT)])
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
        await new.until(lambda: new.heard == [("n0", BEAT)])
        assert old.heard == []
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
        await joining.until(lambda: joining.heard == [("n0", BEAT)])
        answer = HeartbeatResponse(1, 1)
        assert not joining.send("n0", answer)  # it opens the link for those that follow
        await joining.connected_to("n0")
        assert joining.send("n0", answer)
        await leader.until(lambda: leader.heard == [("n9", answer)])
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
    async with members(n0, n1), await trio.open_tcp_stream(*n0.address) as stream:
        frames = [encode_hello(Hello(Caller.PEER, address=n1.address))]
        for number in range(MAX_STRANGERS + 1):
            frames.append(encode_opening(Opening(number, "g", f"s{number}", "n0")))
        await stream.send_all(b"".join(frames))
        welcome, *opened, refused = await next_frames(stream, MAX_STRANGERS + 2)
        assert welcome.header[0] == "welcome"
        assert [frame.header for frame in opened] == [["opened", i] for i in range(MAX_STRANGERS)]
        assert refused.header[:2] == ["refused", MAX_STRANGERS]
        assert "not a member" in str(refused.header[2])
        n0.links.set_members({"n1": n1.address})
        await stream.send_all(encode_opening(Opening(99, "g", "n1", "n0")))
        [opened_too] = await next_frames(stream, 1)
        assert opened_too.header == ["opened", 99]


async def next_frames(stream: trio.SocketStream, count: int) -> list[Frame]:
    decoder, frames = FrameDecoder(), list[Frame]()
    with trio.fail_after(5):
        while len(frames) < count:
            frames += decoder.feed(bytes(await stream.receive_some(65536)))
    return frames


async def first_frame(stream: trio.SocketStream) -> Frame:
    return (await next_frames(stream, 1))[0]


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
    [
        (ends_at_once, f"older protocol version than {PROTOCOL_VERSION}"),
        (refuses, "this node speaks 3"),
    ],
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


class Other:
    """A process at the other end of what a member dials, as frames."""

    def __init__(self, *, welcomes: bool = True) -> None:
        self.welcomes = welcomes
        self.frames: list[Frame] = []
        self.answers: trio.MemorySendChannel[bytes]
        self._news = trio.lowlevel.ParkingLot()

    async def start(self, nursery: trio.Nursery) -> Address:
        self.answers, self._to_send = trio.open_memory_channel[bytes](10)
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, self._serve, [listener])
        return Address("127.0.0.1", listener.socket.getsockname()[1])

    async def _serve(self, stream: trio.SocketStream) -> None:
        async with stream, trio.open_nursery() as nursery:
            if self.welcomes:
                await stream.send_all(encode_welcome("other"))
            nursery.start_soon(self._answer, stream)
            decoder = FrameDecoder()
            while data := await stream.receive_some(65536):
                self.frames += decoder.feed(bytes(data))
                self._news.unpark_all()
            nursery.cancel_scope.cancel()

    async def _answer(self, stream: trio.SocketStream) -> None:
        async for answer in self._to_send:
            await stream.send_all(answer)

    async def heard(self, count: int) -> list[list[object]]:
        with trio.fail_after(10):
            while len(self.frames) < count:
                await self._news.park()
        return [frame.header for frame in self.frames]


async def test_members_of_many_groups_share_a_connection_and_the_frame_of_their_heartbeats() -> (
    None
):
    n0, other = Member("n0"), Other()
    async with members(n0), trio.open_nursery() as nursery:
        address = await other.start(nursery)
        groups = [n0.links, n0.join("h"), n0.join("i")]
        for links in groups:
            links.set_members({"n1": address})
        unknown = [0, "", "", ""]
        opened = [["open", n, group, "n0", "n1", *unknown] for n, group in enumerate("ghi")]
        assert (await other.heard(4))[1:] == opened
        assert [connection.address for connection in n0.connections.open] == [address]
        for number in range(3):
            await other.answers.send(encode_opened(number))
        await n0.until(lambda: n0.changes == [("n1", True)] * 3)
        n0.connections.collecting = True
        for number, links in enumerate(groups):
            link = links.link_to("n1")
            assert link is not None
            link.send(Heartbeat(number, 7, 9))
            link.send(HeartbeatResponse(number, 8, 500))
        n0.connections.flush()
        both = [[10, 0, 0, 7, 9, 1, 1, 7, 9, 2, 2, 7, 9], [11, 0, 0, 8, 500, 1, 1, 8, 500]]
        both[1] += [2, 2, 8, 500]
        assert (await other.heard(6))[4:] == both
        nursery.cancel_scope.cancel()


async def test_shared_heartbeats_reach_the_members_they_are_for() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1):
        to_h, _ = n0.join("h"), n1.join("h")
        for links in (n0.links, to_h):
            links.set_members({"n1": n1.address})
        await n0.until(lambda: n0.changes == [("n1", True)] * 2)
        n0.connections.collecting = True
        for term, links in enumerate((n0.links, to_h)):
            link = links.link_to("n1")
            assert link is not None
            link.send(Heartbeat(term, 1, 1))
        n0.connections.flush()
        beats = [("n0", Heartbeat(0, 1, 1)), ("n0", Heartbeat(1, 1, 1))]
        await n1.until(lambda: n1.heard == beats)


async def test_a_channel_to_a_group_that_is_not_there_yet_opens_when_it_is() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1):
        to_h = n0.join("h")
        to_h.set_members({"n1": n1.address})
        n0.links.set_members({"n1": n1.address})
        await n0.connected_to("n1")
        assert to_h.link_to("n1") is None
        assert to_h.members["n1"].last_problem == "there is no member of group h here"
        n1.join("h")
        await n0.until(lambda: to_h.link_to("n1") is not None)
        assert to_h.members["n1"].last_problem is None


async def test_a_member_that_stops_closes_its_channels_and_no_others() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1):
        to_h = n0.join("h")
        n1.join("h")
        for links in (n0.links, to_h):
            links.set_members({"n1": n1.address})
        await n0.until(lambda: len(n0.changes) == 2)
        n1.ports.pop("h").closed = True
        link = to_h.link_to("n1")
        assert link is not None
        link.send(BEAT)
        await n0.until(lambda: to_h.link_to("n1") is None)
        assert to_h.members["n1"].last_problem in (
            "the member has stopped",
            "there is no member of group h here",
        )
        assert n0.links.link_to("n1") is not None
        assert n1.heard == []


async def test_a_message_that_makes_no_sense_ends_its_channel_and_no_other() -> None:
    n0, n1 = Member("n0"), Member("n1")
    async with members(n0, n1):
        to_h = n0.join("h")
        n1.join("h")
        for links in (n0.links, to_h):
            links.set_members({"n1": n1.address})
        await n0.until(lambda: len(n0.changes) == 2)
        link = to_h.link_to("n1")
        assert link is not None
        link.send(PushRequest(1, Phase.APPEND, -1, -1, 0, -1), b"")  # without entries
        await n0.until(lambda: n0.changes[2:] == [("n1", False)])
        assert n0.links.link_to("n1") is not None
        await n0.until(lambda: to_h.link_to("n1") is not None)
        assert n0.changes[3:] == [("n1", True)]


@pytest.mark.parametrize(
    "header",
    [
        [10, 0, 1, 1],
        [10],
        [11, 0, 1, 1, "x"],
        [10, 0, 1, 1, True],
        [10, 0, 1, 1, -2],
        ["open", 1, "g", "n1"],
        ["opened", 1],
        [None],
    ],
)
async def test_a_frame_that_makes_no_sense_ends_the_connection(header: list[object]) -> None:
    n0 = Member("n0")
    async with members(n0), await trio.open_tcp_stream(*n0.address) as stream:
        hello = encode_hello(Hello(Caller.PEER, address=Address("127.0.0.1", 1)))
        opening = encode_opening(Opening(0, "g", "n1", "n0"))
        await stream.send_all(hello + opening + encode_frame(header))
        await next_frames(stream, 1)
        with trio.fail_after(5):
            while await stream.receive_some(65536):
                pass
        assert n0.heard == []
        assert not n0.connections.collecting


async def test_a_message_on_a_channel_that_is_not_open_is_ignored() -> None:
    n0 = Member("n0")
    async with members(n0), await trio.open_tcp_stream(*n0.address) as stream:
        hello = encode_hello(Hello(Caller.PEER, address=Address("127.0.0.1", 1)))
        opening = encode_opening(Opening(3, "g", "n1", "n0"))
        late = encode_message(BEAT, channel=2)
        await stream.send_all(hello + opening + late + encode_message(BEAT, channel=3))
        await n0.until(lambda: n0.heard == [("n1", BEAT)])


class Leaving(dict[str, GroupPort]):
    """Members that stop as soon as somebody asks for them."""

    def get(self, group: str, default: object = None) -> GroupPort | None:  # type: ignore[override]
        return self.pop(group, None)


async def test_a_member_that_stops_while_a_client_is_greeted_ends_nothing_else() -> None:
    n0 = Member("n0")
    async with members(n0), trio.open_nursery() as nursery:
        served = trio.Event()

        async def serve(_: Conversation, _permit: Permit) -> None:
            served.set()

        n0.ports["g"].serve_client = serve
        address = Address("127.0.0.1", free_ports(1)[0])
        listener = Listener(Leaving(n0.ports), n0.connections)
        nursery.start_soon(listener.serve, await listener.open(address))
        async with await trio.open_tcp_stream(*address) as stream:
            # An address makes no peer of a client.
            hello = Hello(Caller.CLIENT, "g", "n0", Address("127.0.0.1", 1))
            await stream.send_all(encode_hello(hello))
            with trio.fail_after(10):
                await served.wait()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("opening", "reason"),
    [
        (Opening(0, "other", "n1", "n0"), "no member of group other"),
        (Opening(0, "g", "n1", "n2"), "this is node n0, not n2"),
        (Opening(0, "g", "n0", "n0"), "not another member"),
        (Opening(0, "g", "", "n0"), "not another member"),
    ],
)
async def test_a_node_talks_only_to_its_own_group(opening: Opening, reason: str) -> None:
    n0 = Member("n0")
    async with members(n0), await trio.open_tcp_stream(*n0.address) as stream:
        hello = encode_hello(Hello(Caller.PEER, address=Address("127.0.0.1", 1)))
        await stream.send_all(hello + encode_opening(opening))
        welcome, refused = await next_frames(stream, 2)
        assert welcome.header[0] == "welcome"
        assert refused.header[:2] == ["refused", 0]
        assert reason in str(refused.header[2])


# --- a member that learns more of its group -------------------------------------------------------


class Group:
    """What a called member makes of who calls."""

    def __init__(self, refused: str = "") -> None:
        self.heard: list[str] = []
        self.refused = refused

    def refusal(self, _sender: str, of_group: GroupIdentity) -> str | None:
        self.heard.append(of_group.birth)
        return "another birth" if of_group.birth and of_group.birth == self.refused else None


def born(member: Member, birth: str) -> Identity:
    identity = Identity("g", member.node_id, member.address, GroupIdentity(birth=birth))
    member.links.say_anew(identity)
    return identity


async def test_a_member_that_learns_its_birth_tells_it_on_channels_that_stay_open() -> None:
    n0, n1, group = Member("n0"), Member("n1"), Group()
    async with members(n0, n1):
        checks: list[NoPushes] = []

        def new_check() -> NoPushes:
            checks.append(NoPushes())
            return checks[-1]

        n1.ports["g"].new_check = new_check
        n1.ports["g"].identity_refusal = group.refusal
        n0.links.set_members({"n1": n1.address})
        n1.links.set_members({"n0": n0.address})
        await n0.connected_to("n1")
        assert n1.ports["g"].births() == set()
        born(n0, BIRTH)
        for _ in range(3):
            assert n0.send("n1", BEAT)
        await n1.until(lambda: len(n1.heard) == 3)
        assert n0.changes == [("n1", True)]
        assert group.heard == ["", BIRTH]
        assert len(checks) == 1  # what it knows of pushes on their way is kept
        assert n1.ports["g"].births() == n1.ports["g"].births("n0") == {BIRTH}
        assert n1.ports["g"].births("n7") == set()
        assert n1.ports["g"]._callers == [("n0", GroupIdentity(birth=BIRTH))]


async def test_a_channel_ends_when_the_birth_that_the_caller_learns_is_another() -> None:
    n0, n1, group = Member("n0"), Member("n1"), Group(refused=BIRTH)
    async with members(n0, n1):
        n1.ports["g"].identity_refusal = group.refusal
        n0.links.set_members({"n1": n1.address})
        await n0.connected_to("n1")
        born(n0, BIRTH)
        await n0.until(lambda: n0.changes == [("n1", True), ("n1", False)])
        assert n0.links.members["n1"].last_problem == "another birth"
        assert not n1.ports["g"].is_called_by("n0")


async def test_a_port_knows_when_it_hears_a_channel_that_it_would_refuse_now() -> None:
    n0, n1, group = Member("n0"), Member("n1"), Group()
    async with members(n0, n1):
        n1.ports["g"].identity_refusal = group.refusal
        n0.links.set_members({"n1": n1.address})
        born(n0, BIRTH)
        await n0.connected_to("n1")
        assert not n1.ports["g"].hears_another_group
        group.refused = BIRTH
        assert n1.ports["g"].hears_another_group


async def test_what_a_member_learns_while_it_is_connecting_is_told_after_the_welcome() -> None:
    n0, other = Member("n0"), Other(welcomes=False)
    async with members(n0), trio.open_nursery() as nursery:
        address = await other.start(nursery)
        n0.links.set_members({"n1": address})
        await other.heard(2)
        born(n0, BIRTH)
        await other.answers.send(encode_welcome("n1"))
        opening = (await other.heard(3))[2]
        assert opening == ["open", 0, "g", "n0", "n1", 0, "", "", BIRTH]
        nursery.cancel_scope.cancel()


async def test_a_stranger_may_say_anew_who_it_is_when_no_more_strangers_have_room() -> None:
    n0 = Member("n0")
    async with members(n0):
        stream = await trio.open_tcp_stream(*n0.address)
        async with stream:
            conversation = Conversation(stream)
            hello = encode_hello(Hello(Caller.PEER, address=ANY_PORT._replace(port=1)))
            openings = [Opening(n, "g", f"s{n}", "n0") for n in range(MAX_STRANGERS)]
            again = openings[0]._replace(identity=GroupIdentity(birth=BIRTH))
            frames = [encode_opening(opening) for opening in (*openings, again)]
            await stream.send_all(b"".join((hello, *frames)))
            answers: list[list[object]] = []
            with trio.fail_after(5):
                while len(answers) < len(frames) + 1:
                    assert await conversation.wait()
                    answers += [frame.header for frame in conversation.cut()]
            assert [answer[0] for answer in answers[1:]] == ["opened"] * len(frames)
