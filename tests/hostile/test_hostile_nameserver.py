"""Hostile clients of a name server: each request gets an answer, and others are served."""

import resource

import pytest
import trio

from nameserver.processors import Processors
from nameserver.routes import RouteTable
from nameserver.settings import SettingTable
from remoting.net.address import parse_address
from remoting.net.client import RemotingClient
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.hostile.attack import attacks, wire_to
from tests.hostile.hostile_values import names_in
from tests.hostile.names_read import NamesRead
from tests.hostile.nameserver_requests import REQUESTS, register_command
from tests.nameserver.test_nameserver_server import start

# All that one code's requests may add to the memory of the process; the longest is 3 MB.
MAX_GROWTH_KIB = 300 * 1024


def test_the_table_names_every_code_that_a_name_server_answers() -> None:
    codes = Processors(RouteTable(), SettingTable()).table.codes()
    assert sorted(REQUESTS) == codes


@pytest.mark.parametrize("code", sorted(REQUESTS), ids=lambda code: code.name)
async def test_each_hostile_request_is_answered_and_the_name_server_lives(
    nursery: trio.Nursery,
    code: RequestCode,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = await start(nursery)
    client = RemotingClient(nursery)
    assert (await client.request(address, register_command())).code == 0
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    fields, body = REQUESTS[code]
    read = NamesRead(monkeypatch)
    async with wire_to(address) as wire:
        for request in attacks(fields, body):
            await wire.ask(code, request)
    # What is read is attacked.
    assert read.fields - set(fields) == set()
    assert read.members - names_in(body) == set()
    # The others go on: a broker registers and a client finds it. An attack may have been the first
    # to prove that a group has this one's name, so it has another.
    registration = register_command(("T", "U"))
    registration.fields |= {"brokerName": "other", "brokerAddr": "10.0.0.7:10911"}
    assert (await client.request(address, registration)).code == 0
    assert (await client.request(address, Command(105, {"topic": "U"}))).code == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_GROWTH_KIB
    # What a client sends is its own fault: it is told in a line, and is never an error of ours.
    assert [record.message for record in caplog.records if record.exc_info] == []
    # No client writes lines of its own into the log, or moves the operator's cursor.
    assert [text for text in caplog.messages if not text.isprintable()] == []


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
