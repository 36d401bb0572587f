"""Hostile clients of a name server: each request gets an answer, and others are served."""

import resource

import pytest
import trio

from nameserver.processors import Processors
from nameserver.routes import RouteTable
from nameserver.server import serve_nameserver
from nameserver.settings import SettingTable
from remoting.net.address import Address, parse_address
from remoting.net.client import RemotingClient
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from remoting.wire.frame import FrameDecoder
from tests.nameserver.hostile_values import (
    REQUESTS,
    register_command,
    requests_with_one_wrong_field,
)

# All that one code's requests may add to the memory of the process; the longest is 3 MB.
MAX_GROWTH_KIB = 300 * 1024


def test_the_table_names_every_code_that_a_name_server_answers() -> None:
    codes = Processors(RouteTable(), SettingTable()).table.codes()
    assert sorted(REQUESTS) == codes


async def start(nursery: trio.Nursery) -> str:
    async def run(*, task_status: trio.TaskStatus[Address]) -> None:
        await serve_nameserver("127.0.0.1", 0, task_status=task_status)

    return str(await nursery.start(run))


async def answers_to(address: str, frames: list[bytes]) -> dict[int, Command]:
    """Send each request on one connection, and return the replies by their numbers."""
    host, port = parse_address(address)
    stream = await trio.open_tcp_stream(host, port)
    decoder = FrameDecoder()
    replies: dict[int, Command] = {}

    async def send() -> None:
        for frame in frames:
            await stream.send_all(frame)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while len(replies) < len(frames):
            data = await stream.receive_some(1 << 16)
            assert data, f"closed after {len(replies)} of {len(frames)} answers"
            for reply in decoder.feed(bytes(data)):
                assert reply.is_response
                replies[reply.opaque] = reply
    await stream.aclose()
    return replies


@pytest.mark.parametrize("code", sorted(REQUESTS), ids=lambda code: code.name)
async def test_every_hostile_value_of_every_field_is_answered(
    nursery: trio.Nursery, code: RequestCode, caplog: pytest.LogCaptureFixture
) -> None:
    address = await start(nursery)
    client = RemotingClient(nursery)
    assert (await client.request(address, register_command())).code == 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    frames = requests_with_one_wrong_field(code)
    with trio.fail_after(60):
        replies = await answers_to(address, frames)
        assert sorted(replies) == list(range(len(frames)))
        # The others go on: a broker registers and a client finds it.
        assert (await client.request(address, register_command(("T", "U")))).code == 0
        assert (await client.request(address, Command(105, {"topic": "U"}))).code == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB
    # What a client sends is its own fault: it is told in a line, and is never an error of ours.
    assert [r.message for r in caplog.records if r.exc_info] == []


async def test_a_header_that_is_none_ends_the_connection_and_no_other(
    nursery: trio.Nursery,
) -> None:
    address = await start(nursery)
    client = RemotingClient(nursery)
    host, port = parse_address(address)
    for header in (b"", b"[]", b"{", b'{"code":"x"}', b'{"code":1e9}', b'{"code":105,"flag":4e9}'):
        stream = await trio.open_tcp_stream(host, port)
        await stream.send_all((4 + len(header)).to_bytes(4) + len(header).to_bytes(4) + header)
        with trio.fail_after(10):
            assert await stream.receive_some(1) == b""
        await stream.aclose()
        assert (await client.request(address, Command(106))).code == 0
