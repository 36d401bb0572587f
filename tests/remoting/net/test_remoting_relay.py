"""Connections that are passed on: every byte arrives, nothing piles up, and they end when told."""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import pytest
import trio
import trio.testing

from remoting.net import relay
from remoting.net.address import Address
from remoting.net.connection import Connection
from remoting.net.errors import PortInUse
from remoting.net.proxy_header import MAX_HEADER_BYTES, encode_proxy_header
from remoting.net.relay import FindServer, Relays, _answer_to, _Relay
from remoting.net.server import Gate, Server, ServerLimits, TrustsProxy, listen
from remoting.wire.codes import LanguageCode, RequestCode, ResponseCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.frame import FrameDecoder, encode_command
from remoting.wire.frame_watch import FrameWatch

HERE = "127.0.0.1"


class Echo:
    """Answers each request with its own body, and keeps whose it was."""

    def __init__(self) -> None:
        self.peers: list[Address] = []
        self.closed = trio.Event()

    def on_open(self, connection: Connection) -> None:
        self.peers.append(connection.peer)

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        for command in commands:
            connection.send(command.reply(body=command.body))
        return len(commands)

    def on_close(self, connection: Connection) -> None:
        self.closed.set()


async def started(
    nursery: trio.Nursery,
    handler: Echo,
    *,
    gate: Gate | None = None,
    trusts_proxy: TrustsProxy | None = None,
    limits: ServerLimits | None = None,
) -> int:
    """A server; returns its port."""
    server = Server(handler, limits)
    nursery.start_soon(server.run)

    async def take(task_status: trio.TaskStatus[Address]) -> None:
        listeners = await listen(HERE, 0)
        await server.take(listeners, gate=gate, trusts_proxy=trusts_proxy, task_status=task_status)

    address: Address = await nursery.start(take)
    return address.port


def always(place: Address) -> FindServer:
    async def find() -> Address:
        return place

    return find


def trusts_all(_host: str) -> bool:
    return True


@asynccontextmanager
async def relayed(relays: Relays, echo: Echo) -> AsyncIterator[tuple[trio.Nursery, int]]:
    """A server, and another one that passes its connections on to it; the port of the latter."""
    async with trio.open_nursery() as nursery:
        target = await started(nursery, echo, trusts_proxy=trusts_all)

        async def gate(stream: trio.SocketStream, peer: Address) -> bool:
            await relays.relay(stream, peer, always(Address(HERE, target)))
            return True

        yield nursery, await started(nursery, Echo(), gate=gate)
        nursery.cancel_scope.cancel()


async def answers(stream: trio.SocketStream, count: int) -> list[Command]:
    decoder, found = FrameDecoder(), list[Command]()
    with trio.fail_after(20):
        while len(found) < count and (data := await stream.receive_some()):
            found += decoder.feed(bytes(data))
    return found


async def test_a_relayed_client_is_answered_and_known_by_its_own_address() -> None:
    echo = Echo()
    async with relayed(Relays(), echo) as (nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        frames = [encode_command(Command(1, body=bytes(20_000), opaque=at)) for at in range(500)]
        nursery.start_soon(stream.send_all, b"".join(frames))
        found = await answers(stream, 500)
        assert [one.opaque for one in found] == [*range(500)]
        assert all(len(one.body) == 20_000 for one in found)
        assert echo.peers == [Address(*stream.socket.getsockname())]
        await stream.aclose()
        with trio.fail_after(5):
            await echo.closed.wait()


async def test_a_client_that_has_sent_its_last_request_still_gets_its_answers() -> None:
    async with relayed(Relays(), Echo()) as (_nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(1, body=b"x", opaque=7)))
        (first,) = await answers(stream, 1)
        assert first.opaque == 7
        await stream.send_eof()
        assert await answers(stream, 1) == []  # the server closes what its client has closed
        await stream.aclose()


class Silent(Echo):
    """Answers only requests of code 1; counts heartbeats."""

    def __init__(self) -> None:
        super().__init__()
        self.heartbeats: list[Command] = []
        self.connections: list[Connection] = []
        self.commands: list[Command] = []
        self.asked = 0

    def on_open(self, connection: Connection) -> None:
        super().on_open(connection)
        self.connections.append(connection)

    def on_commands(self, connection: Connection, commands: Sequence[Command]) -> int:
        self.asked += len(commands)
        self.commands += commands
        self.heartbeats += [one for one in commands if one.code == RequestCode.HEART_BEAT]
        super().on_commands(connection, [one for one in commands if one.code == 1])
        return len(commands)


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[Relays, list[Silent], list[Address | None], int]]:
    """Relays, two servers, the place of the one that leads, and the port of the relays."""
    relays, servers = Relays(), [Silent(), Silent()]
    async with trio.open_nursery() as nursery:
        ports = [await started(nursery, one, trusts_proxy=trusts_all) for one in servers]
        places: list[Address | None] = [Address(HERE, port) for port in ports]

        async def find() -> Address | None:
            return places[0]

        async def gate(stream: trio.SocketStream, peer: Address) -> bool:
            await relays.relay(stream, peer, find)
            return True

        yield relays, servers, places, await started(nursery, Echo(), gate=gate)
        nursery.cancel_scope.cancel()


PULL = {"queueOffset": "17", "topic": "T"}


@pytest.mark.parametrize("how", ["the leader moves", "the server dies"])
async def test_a_client_keeps_its_connection_when_another_server_leads(how: str) -> None:
    async with two_servers() as (relays, servers, places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        heartbeat = Command(RequestCode.HEART_BEAT, body=b"groups", opaque=1)
        pull = Command(RequestCode.PULL_MESSAGE, PULL, opaque=2)
        send = Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}, b"body", opaque=3)
        oneway = Command(RequestCode.UPDATE_CONSUMER_OFFSET, opaque=4, flag=ONEWAY_FLAG)
        commands = (heartbeat, pull, send, oneway, Command(1, opaque=5))
        await stream.send_all(b"".join(map(encode_command, commands)))
        (answered,) = await answers(stream, 1)
        assert answered.opaque == 5
        places.pop(0)
        if how == "the leader moves":
            relays.move_all()
        else:
            servers[0].connections[0].close("it dies")
        found = {one.opaque: one for one in await answers(stream, 3)}
        assert found.keys() == {1, 2, 3}
        # The pull is asked again at once, where it was; what became of the send is not known.
        assert found[2].code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert found[2].fields["nextBeginOffset"] == "17"
        assert found[3].code == ResponseCode.SYSTEM_ERROR
        await stream.send_all(encode_command(Command(1, body=b"again", opaque=6)))
        (answered,) = await answers(stream, 1)
        assert (answered.opaque, answered.body) == (6, b"again")
        # The next server knows the client and its groups, and nobody answers for that.
        assert servers[1].peers == [Address(*stream.socket.getsockname())]
        assert [one.body for one in servers[1].heartbeats] == [b"groups"]
        assert servers[1].heartbeats[0].is_oneway
        await stream.aclose()


@pytest.mark.parametrize("how", ["the leader moves", "the server dies"])
async def test_the_question_for_an_offset_is_asked_again_of_the_next_server(how: str) -> None:
    """Java's clients of version 4 take any failure for a group that has never consumed."""
    async with two_servers() as (relays, servers, places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        fields = {"consumerGroup": "g", "topic": "T", "queueId": "3"}
        question = Command(
            RequestCode.QUERY_CONSUMER_OFFSET,
            fields,
            opaque=8,
            language=LanguageCode.JAVA,
            version=409,
        )
        long = {**fields, "topic": "T" * relay.MAX_KEPT_CHARACTERS}
        forgotten = Command(RequestCode.QUERY_CONSUMER_OFFSET, long, opaque=9)
        await stream.send_all(encode_command(question) + encode_command(forgotten))
        await until_asked(servers[0], 2)
        places.pop(0)
        if how == "the leader moves":
            relays.move_all()
        else:
            servers[0].connections[0].close("it dies")
        await until_asked(servers[1], 1)
        (asked,) = servers[1].commands
        assert (asked.code, asked.fields, asked.opaque) == (question.code, fields, 8)
        assert (asked.language, asked.version) == (LanguageCode.JAVA, 409)
        servers[1].connections[0].send(asked.reply(0, {"offset": "42"}))
        (answered,) = await answers(stream, 1)
        assert (answered.opaque, answered.fields) == (8, {"offset": "42"})
        await stream.aclose()


async def test_a_client_is_let_go_in_the_midst_of_a_frame() -> None:
    async with two_servers() as (relays, servers, places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        whole = encode_command(Command(1, opaque=1))
        await stream.send_all(whole + encode_command(Command(1, body=bytes(100)))[:-1])
        await answers(stream, 1)
        places.pop(0)
        relays.move_all()
        # A reset: at an end in order Java's clients of version 4 would go on waiting.
        with trio.fail_after(5), pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()
        assert servers[1].peers == []
        await stream.aclose()


async def test_a_client_with_more_requests_under_way_than_are_kept_is_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "MAX_WAITING_REQUESTS", 2)
    for count in (2, 3):
        async with two_servers() as (relays, _servers, places, port):
            stream = await trio.open_tcp_stream(HERE, port)
            pulls = [Command(RequestCode.PULL_MESSAGE, PULL, opaque=at) for at in range(count)]
            await stream.send_all(b"".join(map(encode_command, pulls)))
            await until_asked(_servers[0], count)
            places.pop(0)
            relays.move_all()
            if count == 2:
                assert len(await answers(stream, 2)) == 2
            else:
                with pytest.raises(trio.BrokenResourceError):
                    await answers(stream, 1)
            await stream.aclose()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_client_is_reset_when_its_relay_ends_before_it_has_its_answers(
    *, is_answered: bool
) -> None:
    async with two_servers() as (_relays, servers, _places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(RequestCode.PULL_MESSAGE, PULL, opaque=1)))
        await until_asked(servers[0], 1)
        if is_answered:
            servers[0].connections[0].send(servers[0].commands[0].reply(0))
            assert len(await answers(stream, 1)) == 1
    async with stream:
        if is_answered:
            assert await stream.receive_some() == b""
        else:
            with pytest.raises(trio.BrokenResourceError):
                await stream.receive_some()


async def test_a_client_that_is_let_go_has_its_answers_and_pauses_its_pulls() -> None:
    async with two_servers() as (relays, servers, _places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        pull = Command(RequestCode.PULL_MESSAGE, PULL, opaque=1)
        send = Command(RequestCode.SEND_MESSAGE_V2, {"b": "T"}, b"body", opaque=2)
        await stream.send_all(encode_command(pull) + encode_command(send))
        await until_asked(servers[0], 2)
        relays.let_go_all()
        await trio.testing.wait_all_tasks_blocked(0.01)
        servers[0].connections[0].send(send.reply(0))
        sent, pulled = await answers(stream, 2)
        assert (sent.opaque, sent.code) == (2, ResponseCode.SUCCESS)
        # After any other code it would be asked again at once, on the connection that ends.
        assert (pulled.opaque, pulled.code) == (1, ResponseCode.SERVICE_NOT_AVAILABLE)
        with trio.fail_after(5):
            assert await stream.receive_some() == b""
        await stream.aclose()
        assert len(servers[0].commands) == 2


async def test_a_request_that_comes_after_a_client_was_let_go_is_not_passed_on() -> None:
    async with two_servers() as (relays, servers, _places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(2, opaque=1)))
        await until_asked(servers[0], 1)
        relays.let_go_all()
        await trio.testing.wait_all_tasks_blocked(0.01)
        await stream.send_all(encode_command(Command(1, opaque=2)))
        await trio.testing.wait_all_tasks_blocked(0.01)
        servers[0].connections[0].send(servers[0].commands[0].reply(0))
        (answered,) = await answers(stream, 1)
        assert answered.opaque == 1
        with trio.fail_after(5), pytest.raises(trio.BrokenResourceError):
            await stream.receive_some()  # what was not read resets it
        await stream.aclose()
        assert len(servers[0].commands) == 1


async def until_asked(server: Silent, count: int) -> None:
    with trio.fail_after(5):
        while server.asked < count:  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_a_whole_answer_reaches_the_client_before_its_relay_leaves_the_server() -> None:
    async with two_servers() as (relays, servers, places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(RequestCode.PULL_MESSAGE, PULL, opaque=1)))
        await until_asked(servers[0], 1)
        pull = Command(RequestCode.PULL_MESSAGE, PULL, opaque=1)
        answer = encode_command(pull.reply(0, body=bytes(1_000)))
        servers[0].connections[0].send_frame(answer[:500])
        first = await stream.receive_some()
        places.pop(0)
        relays.move_all()
        await trio.testing.wait_all_tasks_blocked(0.01)
        servers[0].connections[0].send_frame(answer[500:])
        decoder = FrameDecoder()
        decoder.feed(bytes(first))
        with trio.fail_after(5):
            while not (found := decoder.feed(bytes(await stream.receive_some()))):
                pass
        assert [(one.opaque, len(one.body)) for one in found] == [(1, 1_000)]
        await stream.send_all(encode_command(Command(1, opaque=2)))
        assert len(await answers(stream, 1)) == 1
        assert len(servers[1].connections) == 1
        await stream.aclose()


async def test_a_server_that_takes_no_client_is_asked_with_pauses_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "SEARCH_S", 0.3)

    class Refusing(Silent):
        def on_open(self, connection: Connection) -> None:
            super().on_open(connection)
            connection.close("not now")

    refusing = Refusing()
    async with relayed(Relays(), refusing) as (_nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        with trio.fail_after(5):
            assert await stream.receive_some() == b""
        assert 2 <= len(refusing.connections) <= 0.3 / 0.02 + 1
        await stream.aclose()


async def test_a_group_that_a_client_has_left_is_not_told_to_the_next_server() -> None:
    async with two_servers() as (relays, servers, places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        codes = (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, 1)
        commands = [Command(code, opaque=at) for at, code in enumerate(codes)]
        await stream.send_all(b"".join(map(encode_command, commands)))
        await answers(stream, 1)
        places.pop(0)
        relays.move_all()
        assert len(await answers(stream, 2)) == 2
        await stream.send_all(encode_command(Command(1, opaque=9)))
        assert len(await answers(stream, 1)) == 1
        assert servers[1].heartbeats == []
        await stream.aclose()


async def test_a_client_that_is_gone_ends_its_relay_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    relays = Relays()
    async with relayed(relays, Echo()) as (_nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(1, body=bytes(4_000_000), opaque=1)))
        await stream.receive_some(1)
        linger = struct.pack("ii", 1, 0)  # closing resets the connection
        stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await stream.aclose()
        with trio.fail_after(5):
            while len(relays):  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert caplog.messages == []


async def test_a_client_is_let_go_when_no_server_is_found_or_it_has_ended() -> None:
    async with two_servers() as (relays, _servers, places, port):
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(1)))
        await answers(stream, 1)
        places.insert(0, None)
        relays.move_all()
        with trio.fail_after(5):
            assert await stream.receive_some() == b""
        await stream.aclose()
        places.pop(0)
        again = await trio.open_tcp_stream(HERE, port)
        await again.send_all(encode_command(Command(1)))
        await answers(again, 1)
        assert len(relays) == 1
        await again.aclose()
        with trio.fail_after(5):
            while len(relays):  # noqa: ASYNC110
                await trio.sleep(0.01)


async def test_a_client_of_a_server_that_cannot_be_reached_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "SEARCH_S", 0.1)
    relays = Relays()
    with socket.socket() as taken:
        taken.bind((HERE, 0))  # nobody listens there
        target = Address(HERE, taken.getsockname()[1])

        async def gate(stream: trio.SocketStream, peer: Address) -> bool:
            await relays.relay(stream, peer, always(target))
            return True

        async with trio.open_nursery() as nursery:
            port = await started(nursery, Echo(), gate=gate)
            stream = await trio.open_tcp_stream(HERE, port)
            with trio.fail_after(5):
                assert await stream.receive_some() == b""
            await stream.aclose()
            nursery.cancel_scope.cancel()


async def test_a_relay_holds_back_what_is_not_taken_and_ends_when_nothing_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "UNREAD_S", 0.3)
    relays = Relays()
    async with relayed(relays, Echo()) as (nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        frame = encode_command(Command(1, body=bytes(1_000_000)))
        nursery.start_soon(send_for_ever, stream, frame)
        for count in (1, 0):
            with trio.fail_after(20):
                while len(relays) != count:  # noqa: ASYNC110
                    await trio.sleep(0.01)
        await stream.aclose()


async def send_for_ever(stream: trio.SocketStream, frame: bytes) -> None:
    """Send without reading any answer, until the connection breaks."""
    try:
        while True:
            await stream.send_all(frame)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


async def test_a_relay_that_both_sides_have_forgotten_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "IDLE_S", 0.2)
    relays = Relays()
    async with relayed(relays, Echo()) as (_nursery, port):
        stream = await trio.open_tcp_stream(HERE, port)
        with trio.fail_after(5):
            assert await stream.receive_some() == b""
        await stream.aclose()


# --- the header at the server that serves ---------------------------------------------------------


async def test_a_header_counts_only_from_a_trusted_host(caplog: pytest.LogCaptureFixture) -> None:
    header = encode_proxy_header(Address("10.1.2.3", 4), Address(HERE, 5))
    for trusts, peers in ((True, [Address("10.1.2.3", 4)]), (False, None)):
        echo = Echo()
        async with trio.open_nursery() as nursery:
            port = await started(nursery, echo, trusts_proxy=trusts_all if trusts else None)
            stream = await trio.open_tcp_stream(HERE, port)
            await stream.send_all(header + encode_command(Command(1, body=b"x")))
            found = await answers(stream, 1)
            assert bool(found) is trusts  # else it is no frame, and the connection is closed
            assert peers is None or echo.peers == peers
            await stream.aclose()
            nursery.cancel_scope.cancel()


async def test_a_trusted_host_may_be_a_client_itself() -> None:
    echo = Echo()
    async with trio.open_nursery() as nursery:
        port = await started(nursery, echo, trusts_proxy=trusts_all)
        stream = await trio.open_tcp_stream(HERE, port)
        await stream.send_all(encode_command(Command(1, body=b"x")))
        assert len(await answers(stream, 1)) == 1
        assert echo.peers == [Address(*stream.socket.getsockname())]
        await stream.aclose()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c" + bytes(12),
        b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + bytes(MAX_HEADER_BYTES),
        b"\r\n\r\n\x00\r\nQUIX\n\x21\x11\x00\x0c" + bytes(12),
        b"\r\n\r\n",
    ],
)
async def test_a_malformed_header_closes_its_connection_and_no_other(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        port = await started(nursery, Echo(), trusts_proxy=trusts_all)
        with caplog.at_level(logging.WARNING):
            stream = await trio.open_tcp_stream(HERE, port)
            with trio.fail_after(5), suppress(trio.BrokenResourceError):  # what is unread resets it
                await stream.send_all(data)
                await stream.send_eof()
                assert await stream.receive_some() == b""
        assert "no PROXY header of version 2" in caplog.text
        other = await trio.open_tcp_stream(HERE, port)
        await other.send_all(encode_command(Command(1)))
        assert len(await answers(other, 1)) == 1
        await stream.aclose()
        await other.aclose()
        nursery.cancel_scope.cancel()


async def test_connections_that_are_passed_on_count_twice() -> None:
    async def gate(stream: trio.SocketStream, peer: Address) -> bool:
        assert peer.host == HERE
        await stream.receive_some()
        return True

    async with trio.open_nursery() as nursery:
        port = await started(nursery, Echo(), gate=gate, limits=ServerLimits(max_connections=4))
        kept = [await trio.open_tcp_stream(HERE, port) for _ in range(2)]
        third = await trio.open_tcp_stream(HERE, port)
        with trio.fail_after(5):
            assert await third.receive_some() == b""
        await kept[0].aclose()
        await trio.testing.wait_all_tasks_blocked(0.05)
        fourth = await trio.open_tcp_stream(HERE, port)
        await trio.testing.wait_all_tasks_blocked(0.05)
        with trio.move_on_after(0.1) as waited:
            await fourth.receive_some()
        assert waited.cancelled_caught  # it is there
        for stream in (kept[1], third, fourth):
            await stream.aclose()
        nursery.cancel_scope.cancel()


# --- a shared port --------------------------------------------------------------------------------


async def test_a_port_is_shared_only_by_those_that_say_so() -> None:
    (first,) = await listen(HERE, 0, is_shared=True)
    port = first.socket.getsockname()[1]
    (second,) = await listen(HERE, port, is_shared=True)
    with pytest.raises(PortInUse):
        await listen(HERE, port)
    await first.aclose()
    await second.aclose()


@pytest.mark.parametrize(
    "offset", ["9" * 400_000, "x" * 400_000, "1_0", "", "-1", "12", str(1 << 63)]
)
def test_of_a_pull_that_waits_a_number_is_kept_and_no_text_of_any_length(offset: str) -> None:
    relay = _Relay.__new__(_Relay)
    relay._requests, relay._waiting = FrameWatch(RequestCode.HEART_BEAT), {}
    long = {"queueOffset": offset, "topic": "x" * 50_000, "unknown": "x" * 50_000}
    for code in (RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, 10):
        relay._note_requests(encode_command(Command(code, long, b"", code, language="x" * 9000)))
    assert len(relay._waiting) == 3
    for kept in relay._waiting.values():
        assert len(str(kept)) < 500
    answer = _answer_to(relay._waiting[RequestCode.PULL_MESSAGE], is_let_go=False)
    assert answer.fields["nextBeginOffset"] == (offset if offset in ("-1", "12") else "0")
