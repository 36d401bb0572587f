"""TLS and plain connections on one port: who is served, who is refused, and why."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
import trio
import trio.lowlevel
import trio.testing

from dledger.errors import ConfigInvalid
from dledger.network.plain_socket import NO_DESCRIPTOR
from remoting.net import handshakes
from remoting.net.client import ClientLimits, RemotingClient
from remoting.net.errors import ConnectFailed, ConnectionClosed
from remoting.net.tls import ClientTls, ServerTls, client_names
from remoting.net.tls_config import (
    ClientAuth,
    ServerTlsConfig,
    Tls,
    TlsMode,
    read_server_tls,
)
from remoting.wire.command import Command
from tests.remoting.net.certificates import (
    HERE,
    Authority,
    authority,
    client_tls,
    server_config,
    server_tls,
    signed,
)
from tests.remoting.net.recording_server import (
    ECHO,
    Recorder,
    raw_stream,
    read_until_closed,
    start,
    until,
    wait_for,
)

CLOSED = (ConnectFailed, ConnectionClosed)

# A hundred handshakes take long on a busy machine.
PATIENT = ClientLimits(connect_s=20)


async def echoed(nursery: trio.Nursery, address: str, tls: ClientTls | None, body: bytes) -> bytes:
    client = RemotingClient(nursery, tls=tls, limits=PATIENT)
    return (await client.request(address, Command(ECHO, {}, body), 20)).body


async def refused(nursery: trio.Nursery, address: str, tls: ClientTls | None) -> str:
    with pytest.raises(CLOSED) as caught:
        await echoed(nursery, address, tls, b"x")
    return str(caught.value)


async def warned(caplog: pytest.LogCaptureFixture, text: str) -> None:
    await wait_for(lambda: text in caplog.text)


@pytest.mark.feature("F19")
async def test_tls_and_plain_clients_share_one_port(nursery: trio.Nursery) -> None:
    address = await start(nursery, Recorder(), tls=server_tls())
    body = bytes(300_000)
    for tls in (client_tls(), None):
        assert await echoed(nursery, address, tls, body) == body


async def test_plain_connections_are_read_by_system_calls_beside_tls_as_well(
    nursery: trio.Nursery,
) -> None:
    handler = Recorder()
    address = await start(nursery, handler, tls=server_tls())
    client = RemotingClient(nursery)
    await client.request(address, Command(ECHO))
    assert handler.opened[0]._descriptor != NO_DESCRIPTOR


@pytest.mark.feature("F19")
async def test_a_server_that_requires_tls_closes_plain_connections(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    address = await start(nursery, Recorder(), tls=server_tls(required=True))
    await refused(nursery, address, None)
    await warned(caplog, "only TLS is taken here")
    assert await echoed(nursery, address, client_tls(), b"x") == b"x"


@pytest.mark.feature("F19")
async def test_a_tls_client_of_a_plain_server_fails_to_connect(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Recorder()
    address = await start(nursery, handler)
    assert "does it speak TLS there" in await refused(nursery, address, client_tls())
    await wait_for(lambda: len(handler.closed) == 1)
    assert "the peer speaks TLS" in caplog.text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_clients_of_both_versions_of_tls_are_served(
    nursery: trio.Nursery, version: ssl.TLSVersion
) -> None:
    address = await start(nursery, Recorder(), tls=server_tls())
    tls = client_tls()
    tls._context.minimum_version = tls._context.maximum_version = version
    assert await echoed(nursery, address, tls, b"x") == b"x"


async def test_a_tls_handshake_that_is_never_finished_is_given_up(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with trio.open_nursery() as nursery:
        handler = Recorder()
        address = await start(nursery, handler, tls=server_tls())
        stream = await raw_stream(address)
        await stream.send_all(b"\x16\x03")
        await until(lambda: len(handler.opened) == 1)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(10.1)
        await until(lambda: len(handler.closed) == 1)
        assert "no whole handshake within 10 s" in caplog.text
        await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_bytes_that_only_begin_like_tls_end_the_connection(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    address = await start(nursery, Recorder(), tls=server_tls())
    async with await raw_stream(address) as stream:
        await stream.send_all(b"\x16" + b"no handshake at all" * 9)
        with trio.fail_after(5):
            await read_until_closed(stream)
    assert "failed: its first byte was that of TLS, and no more" in caplog.text
    assert await echoed(nursery, address, client_tls(), b"x") == b"x"


@pytest.mark.parametrize(
    ("believed", "name", "reason"),
    [
        ("other", None, "certificate is not believed: self-signed certificate"),
        ("authority", "elsewhere", "certificate is not believed: Hostname mismatch"),
    ],
)
async def test_a_client_refuses_another_authority_and_another_name(
    nursery: trio.Nursery,
    caplog: pytest.LogCaptureFixture,
    believed: str,
    name: str | None,
    reason: str,
) -> None:
    address = await start(nursery, Recorder(), tls=server_tls())
    tls = client_tls(believed=believed, server_name=name)
    assert reason in await refused(nursery, address, tls)
    await warned(caplog, "failed: it")


async def test_the_name_that_servers_must_have_can_be_given(nursery: trio.Nursery) -> None:
    files = signed("brokers.example")  # which names no address
    address = await start(nursery, Recorder(), tls=ServerTls(server_config(files=files)))
    assert "IP address mismatch" in await refused(nursery, address, client_tls())
    tls = client_tls(server_name="brokers.example")
    assert await echoed(nursery, address, tls, b"x") == b"x"


async def test_a_server_whose_certificate_has_expired_is_refused(nursery: trio.Nursery) -> None:
    files = signed("server", HERE, days=-1)
    address = await start(nursery, Recorder(), tls=ServerTls(server_config(files=files)))
    assert "certificate has expired" in await refused(nursery, address, client_tls())


@pytest.mark.parametrize("client_auth", list(ClientAuth))
async def test_a_client_is_known_by_the_names_of_its_certificate(
    nursery: trio.Nursery, client_auth: ClientAuth
) -> None:
    handler = Recorder()
    tls = ServerTls(server_config(client_auth=client_auth))
    address = await start(nursery, handler, tls=tls)
    assert await echoed(nursery, address, client_tls(signed("orders", "billing")), b"x") == b"x"
    asked = client_auth is not ClientAuth.NONE
    assert handler.opened[-1].names == (frozenset({"orders", "billing"}) if asked else frozenset())
    assert await echoed(nursery, address, None, b"x") == b"x"
    assert handler.opened[-1].names == frozenset()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_client_without_a_certificate_is_refused_where_one_is_required(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, version: ssl.TLSVersion
) -> None:
    tls = ServerTls(server_config(client_auth=ClientAuth.REQUIRE))
    address = await start(nursery, Recorder(), tls=tls)
    client = client_tls()
    client._context.minimum_version = client._context.maximum_version = version
    assert "certificate" in await refused(nursery, address, client)
    await warned(caplog, "failed: it showed no certificate")


@pytest.mark.parametrize(
    ("by", "days", "reason"),
    [("other", 10, "unable to get local issuer"), ("authority", -1, "has expired")],
)
async def test_a_client_whose_certificate_is_not_believed_is_refused_and_told(
    nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, by: str, days: int, reason: str
) -> None:
    tls = ServerTls(server_config(client_auth=ClientAuth.OPTIONAL))
    address = await start(nursery, Recorder(), tls=tls)
    shown = signed("orders", by=by, days=days)
    assert "does not believe our certificate" in await refused(nursery, address, client_tls(shown))
    await warned(caplog, reason)


async def test_new_connections_use_reloaded_certificates_and_open_ones_go_on(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    first, second = Authority(tmp_path / "first"), Authority(tmp_path / "second")
    files = first.sign("server", HERE)
    tls = ServerTls(
        ServerTlsConfig(certificate=files.certificate, key=files.key, mode=TlsMode.ENFORCING)
    )
    address = await start(nursery, Recorder(), tls=tls)
    old, new = (ClientTls(Tls(authorities=one.path)) for one in (first, second))
    client = RemotingClient(nursery, tls=old)
    await client.request(address, Command(ECHO, {}, b"before"))

    renewed = second.sign("server", HERE)
    files.certificate.write_bytes(renewed.certificate.read_bytes())
    with pytest.raises(ConfigInvalid, match="cannot be used"):
        tls.reload()  # the key is still the old one
    assert await echoed(nursery, address, old, b"x") == b"x"

    files.key.write_bytes(renewed.key.read_bytes())
    tls.reload()
    assert (await client.request(address, Command(ECHO, {}, b"after"))).body == b"after"
    assert await echoed(nursery, address, new, b"x") == b"x"
    assert "not believed" in await refused(nursery, address, old)


async def test_a_hundred_handshakes_at_once_are_all_served(nursery: trio.Nursery) -> None:
    handler = Recorder()
    address = await start(nursery, handler, tls=server_tls(required=True))
    tls = client_tls()
    served: list[bytes] = []

    async def ask(number: int) -> None:
        served.append(await echoed(nursery, address, tls, b"%d" % number))

    with trio.fail_after(30):
        async with trio.open_nursery() as asking:
            for number in range(100):
                asking.start_soon(ask, number)
    assert sorted(map(int, served)) == [*range(100)]


async def test_unfinished_handshakes_of_one_host_leave_places_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES", 3)
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES_OF_A_HOST", 2)
    places, held = handshakes.HandshakePlaces(), list[str]()
    async with trio.open_nursery() as nursery:

        async def hold(host: str) -> None:
            async with places.place(host):
                held.append(host)
                await trio.sleep_forever()

        for host in ("slow", "quick"):
            for _ in range(4):
                nursery.start_soon(hold, host)
            await trio.testing.wait_all_tasks_blocked()
        assert sorted(held) == ["quick", "slow", "slow"]
        nursery.cancel_scope.cancel()
    assert not places._hosts


async def test_a_client_that_finds_no_place_for_its_handshake_is_refused_and_told(
    mock_clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(handshakes, "MAX_HANDSHAKES_OF_A_HOST", 1)
    async with trio.open_nursery() as nursery:
        handler = Recorder()
        address = await start(nursery, handler, tls=server_tls())
        streams = [await raw_stream(address) for _ in range(2)]
        for stream in streams:
            await stream.send_all(b"\x16\x03")
        await until(lambda: len(handler.opened) == 2)
        for _ in range(3):
            await trio.lowlevel.checkpoint()
            await trio.testing.wait_all_tasks_blocked(0.01)
        mock_clock.jump(10.1)
        await until(lambda: len(handler.closed) == 2)
        assert "no place among the other handshakes within 10 s" in caplog.text
        for stream in streams:
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def test_the_common_name_counts_where_a_certificate_has_no_other_names(
    nursery: trio.Nursery,
) -> None:
    handler = Recorder()
    tls = ServerTls(server_config(client_auth=ClientAuth.OPTIONAL))
    address = await start(nursery, handler, tls=tls)
    shown = authority().sign("by subject", names=False)
    assert await echoed(nursery, address, client_tls(shown), b"x") == b"x"
    assert handler.opened[-1].names == frozenset({"by subject"})


def test_only_short_printable_names_of_a_certificate_count() -> None:
    shown = [("DNS", name) for name in ("a", "b\nc", "d" * 254, "")]
    assert client_names({"subjectAltName": tuple(shown)}) == frozenset({"a"})
    many = tuple(("DNS", f"n{number:03}") for number in range(99))
    assert client_names({"subjectAltName": many}) == {f"n{number:03}" for number in range(32)}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((None, None, None, "enforcing", None), "enforcing needs --tls-cert and --tls-key"),
        ((None, None, None, None, "require"), "require needs certificates"),
        ((Path("c"), None, None, None, None), "--tls-key: is missing"),
        ((None, Path("k"), None, None, None), "--tls-cert: is missing"),
        ((None, None, Path("a"), None, None), "--tls-cert: is missing"),
        ((Path("c"), Path("k"), None, None, "optional"), "optional needs --tls-ca"),
    ],
)
def test_a_server_with_a_part_of_the_options_is_refused(
    given: tuple[Path | None, Path | None, Path | None, str | None, str | None], problem: str
) -> None:
    with pytest.raises(ConfigInvalid, match=problem):
        read_server_tls(*given)


def test_certificates_alone_let_a_server_take_both_kinds_of_connections() -> None:
    config = read_server_tls(Path("c"), Path("k"), None, None, None)
    assert config is not None
    assert (config.mode, config.client_auth) == (TlsMode.PERMISSIVE, ClientAuth.NONE)
    config = read_server_tls(Path("c"), Path("k"), Path("a"), None, None)
    assert config is not None
    assert config.client_auth is ClientAuth.OPTIONAL
    assert read_server_tls(None, None, None, "disabled", None) is None


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(ConfigInvalid, match="missing"):
        ClientTls(Tls(authorities=missing))
    with pytest.raises(ConfigInvalid, match="is missing"):
        ClientTls(Tls(certificate=missing))
    with pytest.raises(ConfigInvalid, match="missing"):
        ServerTls(ServerTlsConfig(certificate=missing, key=missing))
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    with pytest.raises(ConfigInvalid, match=r"text.pem cannot be used"):
        ClientTls(Tls(authorities=text))


async def test_a_client_reads_changed_files_for_new_connections(
    nursery: trio.Nursery, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = await start(nursery, Recorder(), tls=server_tls())
    authorities = tmp_path / "authorities.pem"
    authorities.write_bytes(authority("other").path.read_bytes())
    tls = ClientTls(Tls(authorities=authorities))
    assert "not believed" in await refused(nursery, address, tls)
    authorities.write_bytes(authority().path.read_bytes())
    assert await echoed(nursery, address, tls, b"x") == b"x"
    authorities.write_bytes(b"half a file")
    assert await echoed(nursery, address, tls, b"x") == b"x"
    assert "the old certificates stay in use: tls.authorities" in caplog.text


@pytest.fixture(autouse=True)
def _warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "remoting")
