"""What a node does with many requests of one client: a scripted node, and a real one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

import dledger
from dledger.client.group_client import connect_node
from dledger.client.node_connection import NodeConnection
from dledger.config import parse_address
from dledger.entry import Body
from dledger.errors import LogFull, MessageMalformed
from dledger.network.conversation import Conversation
from dledger.serving import client_server, client_turns
from dledger.serving.client_server import ClientServer, ServedNode
from dledger.serving.client_turns import TURN_S
from dledger.serving.permit import EVERYTHING
from dledger.waits.pending_appends import Appended, Done
from dledger.wire.client_protocol import (
    MAX_BODIES,
    Operation,
    Request,
    decode_appended,
    decode_entries_answer,
    decode_leadership,
    decode_request,
    encode_appended,
    encode_request,
)
from dledger.wire.frame import Frame, FrameDecoder, encode_frame
from dledger.wire.handshake import Caller, Hello, encode_hello
from tests.dledger.running_members import lone


class HoldingNode:
    """Takes appends, and ends them when told to."""

    sessions = None
    config = dledger.NodeConfig(
        group="g", node_id="n0", peers={"n0": "127.0.0.1:1"}, data_dir=Path("unused")
    )

    def __init__(self) -> None:
        self.held: list[tuple[Sequence[Body], Done]] = []
        self.full = False

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        if self.full:
            raise LogFull(1, 2)
        self.held.append((bodies, done))

    def end(self, number: int, result: object = None) -> None:
        bodies, done = self.held[number]
        done([Appended(number, 1, 64 * at, result) for at in range(len(bodies))])


class Client:
    """The other end of the conversation, byte by byte."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self.frames: list[Frame] = []

    async def ask(self, *requests: Request) -> None:
        await self.stream.send_all(b"".join(map(encode_request, requests)))

    async def answers(self, count: int) -> list[Frame]:
        with trio.fail_after(10):
            while len(self.frames) < count:
                data = await self.stream.receive_some(1 << 16)
                assert data, "the node closed the connection"
                self.frames += self._decoder.feed(bytes(data))
        return self.frames


def append(number: int, body: bytes = b"x") -> Request:
    return Request(number, Operation.APPEND, [len(body)], body)


@asynccontextmanager
async def served(node: HoldingNode) -> AsyncIterator[Client]:
    here, there = trio.socket.socketpair()
    client = Client(trio.SocketStream(here))
    stream = trio.SocketStream(there)
    server: ServedNode = node  # type: ignore[assignment]  # it has what appends need
    async with trio.open_nursery() as nursery, client.stream:
        nursery.start_soon(ClientServer(server).serve, Conversation(stream), EVERYTHING)
        yield client
        await client.stream.aclose()
        with trio.fail_after(10):
            while nursery.child_tasks:
                await trio.testing.wait_all_tasks_blocked()
    await stream.aclose()


async def test_appends_are_answered_as_they_end_whatever_their_order() -> None:
    node = HoldingNode()
    async with served(node) as client:
        await client.ask(*map(append, range(1, 6)))
        await trio.testing.wait_all_tasks_blocked()
        for number in (3, 0, 4, 1, 2):
            node.end(number)
        assert [frame.header[0] for frame in await client.answers(5)] == [4, 1, 5, 2, 3]


async def test_a_refused_append_is_answered_among_the_others() -> None:
    node = HoldingNode()
    async with served(node) as client:
        await client.ask(append(1))
        await trio.testing.wait_all_tasks_blocked()
        node.full = True
        await client.ask(append(2))
        (refused,) = await client.answers(1)
        assert refused.header[:3] == [2, "error", "LogFull"]
        node.end(0)
        assert (await client.answers(2))[1].header[:2] == [1, "ok"]


async def test_a_client_that_sends_more_than_the_bound_is_read_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_server, "MAX_OPEN_REQUESTS", 8)
    node = HoldingNode()
    async with served(node) as client:
        await client.ask(*map(append, range(1, 21)))
        for ended in range(20):
            await trio.testing.wait_all_tasks_blocked()
            assert len(node.held) == min(ended + 8, 20)
            node.end(ended)
        await client.answers(20)


async def test_a_client_that_does_not_read_its_answers_is_read_no_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_server, "MAX_OPEN_REQUESTS", 32)
    monkeypatch.setattr(client_server, "MAX_OPEN_BYTES", 1 << 20)
    node, result = HoldingNode(), b"r" * 16_000
    async with served(node) as client, trio.open_nursery() as nursery:
        nursery.start_soon(client.ask, *map(append, range(1, 3001)))
        ended = 0
        while True:
            await trio.testing.wait_all_tasks_blocked()
            if ended == len(node.held):
                break
            while ended < len(node.held):
                node.end(ended, result)
                ended += 1
        # What the kernel's buffers hold, a mebibyte, and what was taken up before it was full.
        assert ended < 500
        nursery.cancel_scope.cancel()


async def test_answers_that_come_after_the_client_has_left_are_nobodys() -> None:
    node = HoldingNode()
    async with served(node) as client:
        await client.ask(append(1), append(2))
        await trio.testing.wait_all_tasks_blocked()
        node.end(0)
    node.end(1)


async def test_nothing_is_written_to_a_connection_that_was_given_up() -> None:
    here, there = trio.socket.socketpair()
    answers = client_server.ClientAnswers(trio.SocketStream(there))
    answers.begin(1)
    answers.close()
    answers.answer(1, b"late")
    there.close()
    with here:
        assert await here.recv(10) == b""  # its number may be another file's by now


async def test_a_result_that_cannot_travel_arrives_as_none() -> None:
    node = HoldingNode()
    async with served(node) as client:
        await client.ask(append(1), append(2), append(3), append(4))
        await trio.testing.wait_all_tasks_blocked()
        for number, result in enumerate((("a", 1), object(), b"x" * 20_000, {("a", 1): 2})):
            node.end(number, result)
        frames = await client.answers(4)
        results = [decode_appended(f.header[2], f.payload)[0].result for f in frames]
        assert results == [["a", 1], None, None, None]


def test_an_answer_to_the_largest_append_fits_into_a_frame() -> None:
    high = 2**62
    rows = [Appended(high + at, high, high + at, b"x" * 15_000) for at in range(MAX_BODIES)]
    (frame,) = FrameDecoder().feed(encode_appended(1, rows))
    found = decode_appended(frame.header[2], frame.payload)
    assert [each[:3] for each in found] == [each[:3] for each in rows]
    assert found[0].result == rows[0].result


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        (None, b""),
        ([1, 1], b""),
        ([1, 1, 1], b""),
        ([1, 1, -1], b""),
        ([1, 1, MAX_BODIES + 1], b""),
        ([1, 1, 1], bytes(8) + b"\x00\x00\x00\x09" + b"x"),
        ([1, 1, 1], bytes(8) + b"\xff\xff\xff\xfe"),
        ([1, 1, 1], bytes(8) + b"\xff\xff\xff\xff" + b"x"),
        ([1, 1, 1], bytes(8) + b"\x00\x00\x00\x01" + b"\xc1"),
    ],
)
def test_an_append_s_answer_of_another_shape_is_refused(value: object, payload: bytes) -> None:
    with pytest.raises(MessageMalformed):
        decode_appended(value, payload)


@pytest.mark.parametrize(
    ("rows", "payload"),
    [
        (None, b""),
        ([[1, 1, 0, 1]], b""),
        ([[1, 1, 0, 1, 2]], b"x"),
        ([[1, 1, 0, 1, 1]], b"xy"),
        ([[1, 1, 0, 1, -1]], b""),
        ([["1", 1, 0, 1, 0]], b""),
        ([[1, 1, 0, 1, 0], [3, 1, 0, 1, 0]], b""),
    ],
)
def test_entries_of_another_shape_are_refused(rows: object, payload: bytes) -> None:
    with pytest.raises(MessageMalformed):
        decode_entries_answer(rows, payload)


@pytest.mark.parametrize(
    "header",
    [[1, "append"], ["1", "append", []], [-1, "append", []], [1, "fly", []], [1, 7, []],
     [1, ["append"], []], [1, "append", None], [1, "append", [-1]], [1, "append", [True]],
     [1, "append", [0] * (MAX_BODIES + 1)]],
)  # fmt: skip
def test_a_request_of_another_shape_is_refused(header: list[object]) -> None:
    (frame,) = FrameDecoder().feed(encode_frame(header))
    with pytest.raises(MessageMalformed):
        decode_request(frame)


PLAIN = st.none() | st.booleans() | st.integers(-2, 2**64) | st.text(max_size=5) | st.binary()
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(PLAIN, inner, max_size=4)
)


@given(
    st.sampled_from([decode_appended, decode_entries_answer, lambda v, _: decode_leadership(v)]),
    VALUES
    | st.lists(st.integers(0, 5), min_size=3, max_size=3)
    | st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5)),
    st.binary(max_size=60),
)
def test_whatever_a_hostile_member_answers_is_refused_with_one_kind_of_error(
    decode: Callable[[object, bytes], object], value: object, payload: bytes
) -> None:
    with suppress(MessageMalformed):
        decode(value, payload)


# --- turns ----------------------------------------------------------------------------------------


class SlowNode(HoldingNode, trio.abc.Instrument):
    """Takes a quarter of a turn for each request."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.now_s = 0.0
        self.done_in: dict[int, list[str]] = {}  # by round of the loop
        self.round = 0
        monkeypatch.setattr(client_turns, "now", lambda: self.now_s)

    def submit(self, bodies: Sequence[Body], done: Done) -> None:
        self._work("append")
        done([Appended(1, 1, 0, None)])

    def entries(self, first: int, max_bytes: int) -> list[dledger.Entry]:
        self._work("entries")
        return []

    async def wait_appliable(self, index: int) -> None:
        await trio.lowlevel.checkpoint()

    def _work(self, what: str) -> None:
        self.now_s += TURN_S / 4
        self.done_in.setdefault(self.round, []).append(what)

    def before_io_wait(self, timeout: float) -> None:
        """A round of the loop ends. Called by trio."""
        self.round += 1


ASKED = {
    "append": append(1),
    "entries": Request(1, Operation.ENTRIES, [1, 0], b""),
}


@pytest.mark.parametrize("what", ASKED)
@pytest.mark.parametrize("connections", [1, 20])
async def test_a_flood_of_requests_lets_the_loop_go_on_after_each_turn(
    what: str, connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SlowNode(monkeypatch)
    async with AsyncExitStack() as stack:
        trio.lowlevel.add_instrument(node)
        stack.callback(trio.lowlevel.remove_instrument, node)
        clients = [await stack.enter_async_context(served(node)) for _ in range(connections)]
        for client in clients:
            await client.ask(*[ASKED[what]] * 60)
        for client in clients:
            await client.answers(60)
    # A turn begins once in a round, but one may also end there.
    assert max(map(len, node.done_in.values())) <= 2 * 4


# --- a real node ----------------------------------------------------------------------------------


@asynccontextmanager
async def group_of_one(folder: Path) -> AsyncIterator[tuple[dledger.Node, str]]:
    async with dledger.open_node(lone(folder), dledger.LogOnly()) as node:
        await node.read()
        yield node, str(node.config.address)


@asynccontextmanager
async def client_of(address: str) -> AsyncIterator[NodeConnection]:
    async with connect_node("g", "n0", parse_address("n0", address)) as connection:
        yield connection


async def test_a_request_that_waits_holds_up_none_behind_it(tmp_path: Path) -> None:
    async with group_of_one(tmp_path) as (node, address), client_of(address) as connection:
        following = node.status().committed + 1
        bodies: list[bytes] = []

        async def wait_for_the_next() -> None:
            answer = await connection.ask(Operation.ENTRIES, [following, 30_000])
            bodies.extend(entry.body for entry in decode_entries_answer(*answer))

        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_the_next)
                await trio.testing.wait_all_tasks_blocked(0.01)
                await connection.ask(Operation.STATUS)
                await connection.ask(Operation.APPEND, [3], b"new")
        assert bodies == [b"new"]


async def test_too_many_requests_that_wait_are_refused_and_appends_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_server, "MAX_WAITING", 3)
    async with group_of_one(tmp_path) as (_, address), client_of(address) as connection:
        refused: list[dledger.Rejected] = []

        async def wait() -> None:
            try:
                await connection.ask(Operation.ENTRIES, [10_000, 30_000])
            except dledger.Rejected as error:
                refused.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(wait)
            with trio.fail_after(10):
                while len(refused) < 2:
                    await connection.ask(Operation.APPEND, [1], b"x")
            nursery.cancel_scope.cancel()
        assert "wait already" in str(refused[0])


async def test_a_member_tells_who_leads_when_somebody_does(tmp_path: Path) -> None:
    async with group_of_one(tmp_path) as (node, address), client_of(address) as connection:
        now = await connection.who_leads()
        assert now[:4] == ("n0", "n0", node.term, True)
        assert now.addresses == {"n0": address}
        with trio.fail_after(10):
            later = await connection.who_leads(now.term, 50)  # nobody leads above that term
        assert later.term == now.term


async def test_nonsense_ends_the_connection_of_its_sender_alone(tmp_path: Path) -> None:
    async with group_of_one(tmp_path) as (_, address), client_of(address) as connection:
        hostile = await trio.open_tcp_stream(*parse_address("n0", address))
        async with hostile:
            await hostile.send_all(encode_hello(Hello(Caller.CLIENT, "g", "n0")))
            await hostile.receive_some(1 << 16)
            await hostile.send_all(encode_request(append(1)) + encode_frame([2, 7, []]))
            with trio.fail_after(10):
                while await hostile.receive_some(1 << 16):
                    pass
        await connection.ask(Operation.APPEND, [1], b"x")


async def test_an_append_without_bodies_is_refused_and_the_member_goes_on() -> None:
    node = HoldingNode()
    async with served(node) as client:
        await client.ask(Request(1, Operation.APPEND, [], b""))
        (answer,) = await client.answers(1)
        assert answer.header[1:3] == ["error", "MessageMalformed"]
