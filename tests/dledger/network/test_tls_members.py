"""Members that speak TLS: who is let in, who is sent away, and what both sides are told."""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

import dledger
from dledger.client.group_client import GroupUnreachable, connect_node
from dledger.config import Address, parse_address
from dledger.core.messages import Phase, PushRequest
from dledger.errors import ConfigInvalid
from dledger.free_ports import free_ports
from dledger.network import refusals
from dledger.network.channel import Identity
from dledger.network.connections import Connections
from dledger.network.host_connection import MAX_OUTBOX_BYTES
from dledger.network.links import Links
from dledger.network.tls import GroupTls, Stream
from dledger.serving import listener
from dledger.wire.channel_protocol import Opening, encode_opened, encode_opening
from dledger.wire.client_protocol import Operation
from dledger.wire.frame import Frame, FrameDecoder
from dledger.wire.handshake import Caller, Hello, encode_hello, encode_welcome
from tests.dledger.network.certificates import Authority
from tests.dledger.running_members import ready, until
from tests.dledger.serving import shelf

Certificates = Mapping[str, dledger.TlsConfig | None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls") / "authority")
    for name in ("n0", "n1", "n2", "tool"):
        made.sign(name)
    return made


def files(authority: Authority, name: str) -> dledger.TlsConfig:
    folder = authority.folder
    return dledger.TlsConfig(
        certificate=folder / f"{name}.pem",
        key=folder / f"{name}-key.pem",
        authorities=folder / "authority.pem",
    )


def at_least(refused: refusals.Refusals, count: int) -> bool:
    return refused.count >= count


class Group:
    """Members in this process, each with its own certificate or with none."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder = folder
        self.certificates = certificates
        ports = free_ports(len(certificates))
        self.peers = {
            name: f"127.0.0.1:{port}" for name, port in zip(certificates, ports, strict=True)
        }
        self.nodes: dict[str, dledger.Node] = {}

    def config(self, node_id: str) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group="g",
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            tls=self.certificates[node_id],
            store=dledger.StoreConfig(
                segment_bytes=1 << 20, index_segment_bytes=1 << 16, max_body_bytes=64 * 1024
            ),
        )

    def address(self, node_id: str) -> Address:
        return parse_address(node_id, self.peers[node_id])

    async def leader(self) -> dledger.Node:
        return await ready(*self.nodes.values())

    def problem(self, node_id: str, peer: str) -> str:
        """Why there is no connection from one to the other."""
        return self.nodes[node_id].status().peers[peer].problem or ""


@asynccontextmanager
async def running(folder: Path, certificates: Certificates) -> AsyncIterator[Group]:
    group = Group(folder, certificates)
    async with AsyncExitStack() as stack:
        for node_id in certificates:
            opening = dledger.open_node(group.config(node_id), dledger.LogOnly())
            group.nodes[node_id] = await stack.enter_async_context(opening)
        yield group


async def talk(stream: Stream, sent: bytes, frames: int) -> list[Frame]:
    await stream.send_all(sent)
    decoder = FrameDecoder()
    found: list[Frame] = []
    with trio.fail_after(10):
        while len(found) < frames:
            data = await stream.receive_some(65536)
            assert data, "the connection ended"
            found += decoder.feed(bytes(data))
    return found


PEER = encode_hello(Hello(Caller.PEER, address=Address("127.0.0.1", 1)))


async def test_a_group_with_certificates_appends_and_answers_its_tools(
    tmp_path: Path, authority: Authority
) -> None:
    certificates = {name: files(authority, name) for name in ("n0", "n1", "n2")}
    async with running(tmp_path, certificates) as group:
        leader = await group.leader()
        # More than one piece of what is encrypted in one go, many of them at once.
        async with trio.open_nursery() as nursery:
            for _ in range(40):
                nursery.start_soon(leader.append, bytes(60_000))
        client = dledger.GroupClient("g", group.peers, files(authority, "tool"))
        await client.append([b"last"], 10.0)
        found = await client.entries(leader.status().last_index, wait_ms=5_000)
        bodies = [entry.body for entry in found]
        assert bodies == [b"last"]
        for node in group.nodes.values():
            with trio.fail_after(10):
                await node.wait_applied(leader.status().last_index)


async def test_a_session_of_a_follower_reaches_the_leader_over_tls(
    tmp_path: Path, authority: Authority
) -> None:
    certificates = {name: files(authority, name) for name in ("n0", "n1", "n2")}
    group = Group(tmp_path, certificates)
    async with AsyncExitStack() as stack:
        for node_id in certificates:
            machine = dledger.WithSessions(dledger.LogOnly())
            opening = dledger.open_node(group.config(node_id), machine)
            group.nodes[node_id] = await stack.enter_async_context(opening)
        leader = await group.leader()
        follower = next(node for node in group.nodes.values() if node is not leader)
        async with follower.session() as session:
            await session.append(b"once")


async def test_a_caller_of_another_group_or_for_another_member_is_refused_with_tls_as_without(
    tmp_path: Path, authority: Authority
) -> None:
    for name, tls in (("tls", files(authority, "n0")), ("plain", None)):
        async with running(tmp_path / name, {"n0": tls}) as group:
            tool = None if tls is None else GroupTls(files(authority, "tool"))
            with pytest.raises(GroupUnreachable, match="a node of g, not of group h"):
                async with connect_node("h", "n0", group.address("n0"), tool):
                    raise AssertionError("let in")
            said = "n0, not n1" if tls is None else "that of n0, not of n1"
            with pytest.raises(GroupUnreachable, match=said):
                async with connect_node("g", "n1", group.address("n0"), tool):
                    raise AssertionError("let in")


async def test_a_caller_without_tls_is_told_so_and_one_with_tls_at_a_plain_port_too(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path / "tls", {"n0": files(authority, "n0")}) as group:
        plain = dledger.GroupClient("g", group.peers)
        with pytest.raises(GroupUnreachable, match="refused: TLS is spoken here: give a cert"):
            await plain.status("n0")
        await until(lambda: "it does not speak TLS" in caplog.text)
        assert group.nodes["n0"].status().refused_callers == 1
    caplog.clear()
    async with running(tmp_path / "plain", {"n0": None}) as group:
        secure = dledger.GroupClient("g", group.peers, files(authority, "tool"))
        with pytest.raises(
            GroupUnreachable, match="it does not speak TLS: give certificates to all"
        ):
            await secure.status("n0")
        said = "the other side speaks TLS and this one does not"
        await until(lambda: said in caplog.text)


async def test_members_with_and_without_certificates_say_so_to_each_other(
    tmp_path: Path, authority: Authority
) -> None:
    async with running(tmp_path, {"n0": files(authority, "n0"), "n1": None}) as group:
        await until(lambda: "it does not speak TLS" in group.problem("n0", "n1"))
        await until(lambda: "TLS is spoken here" in group.problem("n1", "n0"))


async def test_a_tool_of_a_strange_authority_is_refused_and_one_with_an_old_certificate_too(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path / "stranger").sign("tool")
    trusting = replace(stranger, authorities=authority.certificate)
    expired = authority.sign("expired", days=-1)
    refused = "it does not believe our certificate: "
    cases = (
        (stranger, "its certificate is not believed: ", refused + "tlsv1 alert unknown ca"),
        (trusting, refused, "its certificate is not believed: unable to get local issuer"),
        (expired, refused, "its certificate is not believed: certificate has expired"),
    )
    async with running(tmp_path / "g", {"n0": files(authority, "n0")}) as group:
        refused_here = group.nodes["n0"]._host.connections.refusals
        for count, (tls, told, logged) in enumerate(cases, 1):
            with pytest.raises(GroupUnreachable, match=told):
                await dledger.GroupClient("g", group.peers, tls).status("n0")
            await until(partial(at_least, refused_here, count))
            assert logged in caplog.text
            refused_here._quiet_until.clear()
        assert await dledger.GroupClient("g", group.peers, files(authority, "tool")).status("n0")


async def test_a_member_does_not_start_with_a_certificate_that_nobody_would_believe(
    tmp_path: Path, authority: Authority
) -> None:
    expired = authority.sign("n3", days=-1)
    for tls, said in ((expired, "certificate has expired"), (files(authority, "n1"), "not of n3")):
        group = Group(tmp_path, {"n3": tls})
        with pytest.raises(ConfigInvalid, match=said):
            async with dledger.open_node(group.config("n3"), dledger.LogOnly()):
                raise AssertionError("it started")


async def test_a_peer_may_open_channels_only_as_the_members_that_its_certificate_names(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = {"n0": files(authority, "n0"), "n1": files(authority, "n1")}
    async with running(tmp_path, certificates) as group:
        n2 = GroupTls(files(authority, "n2"))
        async with await trio.open_tcp_stream(*group.address("n0")) as plain:
            stream = await n2.dialled(plain, "n0")
            false = encode_opening(Opening(0, "g", "n1", "n0"))
            true = encode_opening(Opening(1, "g", "n2", "n0"))
            welcome, refused, opened = await talk(stream, PEER + false + true, 3)
            said = "the certificate is that of n2, not of n1"
            assert welcome.header[0] == "welcome"
            assert refused.header == ["refused", 0, said]
            assert opened.header == ["opened", 1]
            again = await talk(stream, false, 1)
            assert again[0].header == ["refused", 0, said]
        assert caplog.text.count(said) == 1  # one line, though it came twice
        assert group.nodes["n0"].status().refused_callers == 2


async def test_whoever_is_dialled_must_be_the_member_that_was_meant(
    tmp_path: Path, authority: Authority
) -> None:
    group = Group(tmp_path, {"n0": files(authority, "n0"), "n1": files(authority, "n1")})
    async with running(tmp_path / "other", {"n2": files(authority, "n2")}) as other:
        group.peers = {"n0": group.peers["n0"], "n1": other.peers["n2"]}
        async with dledger.open_node(group.config("n0"), dledger.LogOnly()) as node:
            group.nodes["n0"] = node
            said = "its certificate is that of n2, not of n1"
            await until(lambda: group.problem("n0", "n1") == said)


async def test_callers_that_never_prove_who_they_are_hold_few_connections_and_not_for_long(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_HANDSHAKES", 3)
    monkeypatch.setattr(listener, "HELLO_TIMEOUT_S", 3.0)
    async with AsyncExitStack() as stack:
        group = await stack.enter_async_context(running(tmp_path, {"n0": files(authority, "n0")}))
        began = time.monotonic()
        silent = [
            await stack.enter_async_context(await trio.open_tcp_stream(*group.address("n0")))
            for _ in range(4)
        ]
        with trio.fail_after(20):
            assert await silent[3].receive_some(1) == b""
            assert time.monotonic() - began < 3.0
            for stream in silent[:3]:
                assert await stream.receive_some(1) == b""
        client = dledger.GroupClient("g", group.peers, files(authority, "tool"))
        assert await client.status("n0")
        assert group.nodes["n0"].status().refused_callers == 1


async def test_a_caller_that_is_cut_off_in_its_handshake_leaves_the_others_alone(
    tmp_path: Path, authority: Authority
) -> None:
    async with running(tmp_path, {"n0": files(authority, "n0")}) as group:
        for sent in (b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00", b"\x16" * 1000, b"\x00" * 9):
            async with await trio.open_tcp_stream(*group.address("n0")) as stream:
                await stream.send_all(sent)
                if not sent.strip(b"\x00"):
                    await stream.send_eof()
        client = dledger.GroupClient("g", group.peers, files(authority, "tool"))
        assert await client.status("n0")


def put(authority: Authority, name: str, folder: Path) -> dledger.TlsConfig:
    """Copies of a member's files, to be written over later."""
    folder.mkdir(exist_ok=True)
    tls = files(authority, name)
    shutil.copy(tls.certificate, folder / "certificate.pem")
    shutil.copy(tls.key, folder / "key.pem")
    shutil.copy(tls.authorities, folder / "authorities.pem")
    return dledger.TlsConfig(
        certificate=folder / "certificate.pem",
        key=folder / "key.pem",
        authorities=folder / "authorities.pem",
    )


async def test_certificates_are_replaced_while_connections_go_on_and_bad_ones_are_not_taken(
    tmp_path: Path, authority: Authority
) -> None:
    mine = put(authority, "n0", tmp_path / "mine")
    async with running(tmp_path, {"n0": mine}) as group:
        tool = GroupTls(files(authority, "tool"))
        async with connect_node("g", "n0", group.address("n0"), tool) as connection:
            mine.certificate.write_text("no certificate")
            with pytest.raises(ConfigInvalid, match=r"certificate\.pem"):
                group.nodes["n0"].reload_tls()
            shutil.copy(files(authority, "n1").certificate, mine.certificate)
            shutil.copy(files(authority, "n1").key, mine.key)
            with pytest.raises(ConfigInvalid, match="that of n1, not of n0"):
                group.nodes["n0"].reload_tls()
            async with connect_node("g", "n0", group.address("n0"), tool):
                pass  # what was there before is still in use
            renewed = Authority(tmp_path / "renewed")
            new = renewed.sign("n0")
            shutil.copy(new.certificate, mine.certificate)
            shutil.copy(new.key, mine.key)
            shutil.copy(renewed.certificate, mine.authorities)
            group.nodes["n0"].reload_tls()
            await connection.ask(Operation.STATUS)
            with pytest.raises(GroupUnreachable, match="is not believed"):
                async with connect_node("g", "n0", group.address("n0"), tool):
                    raise AssertionError("let in")
        async with connect_node("g", "n0", group.address("n0"), GroupTls(renewed.sign("tool"))):
            pass


async def test_an_authority_is_replaced_member_by_member_without_a_moment_when_one_is_refused(
    tmp_path: Path, authority: Authority
) -> None:
    names = ("n0", "n1", "n2")
    old = {name: put(authority, name, tmp_path / f"files-{name}") for name in names}
    new_authority = Authority(tmp_path / "new-authority")
    new = {name: new_authority.sign(name) for name in names}
    both = authority.certificate.read_text() + new_authority.certificate.read_text()
    async with running(tmp_path, old) as group:
        refused = 0

        async def append_everywhere() -> None:
            leader = await group.leader()
            last = (await leader.append(b"x")).index
            # All dial each other anew, so that only the present certificates count.
            for node in group.nodes.values():
                for connection in node._host.connections.open:
                    if connection._scope is not None:
                        connection._scope.cancel()
            for node in group.nodes.values():
                with trio.fail_after(10):
                    await node.wait_applied(last)
            await (await group.leader()).append(b"y")

        for step in ("both authorities", "new certificates", "new authority alone"):
            for name in names:
                if step == "both authorities":
                    old[name].authorities.write_text(both)
                elif step == "new certificates":
                    shutil.copy(new[name].certificate, old[name].certificate)
                    shutil.copy(new[name].key, old[name].key)
                else:
                    shutil.copy(new[name].authorities, old[name].authorities)
                group.nodes[name].reload_tls()
                await append_everywhere()
                refused += sum(node.status().refused_callers for node in group.nodes.values())
        assert refused == 0
        with pytest.raises(GroupUnreachable, match="is not believed"):
            await dledger.GroupClient("g", group.peers, files(authority, "tool")).status("n0")


async def test_a_host_whose_certificate_gains_a_name_dials_again_with_it(
    tmp_path: Path, authority: Authority
) -> None:
    mine = put(authority, "n0", tmp_path / "mine")
    ports = free_ports(2)
    addresses = [f"127.0.0.1:{port}" for port in ports]

    def config(group: str, names: tuple[str, str], at: int) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group=group,
            node_id=names[at],
            peers=dict(zip(names, addresses, strict=True)),
            data_dir=tmp_path / group / names[at],
        )

    hosts = [
        dledger.HostConfig(address=address, tls=tls)
        for address, tls in zip(addresses, (mine, files(authority, "n1")), strict=True)
    ]
    async with (
        dledger.open_host(hosts[0]) as first,
        dledger.open_host(hosts[1]) as second,
        first.open_node(config("g", ("n0", "n1"), 0), dledger.LogOnly()),
        second.open_node(config("g", ("n0", "n1"), 1), dledger.LogOnly()) as n1,
    ):
        with pytest.raises(ConfigInvalid, match="that of n0, not of n9"):
            async with first.open_node(config("h", ("n9", "n1"), 0), dledger.LogOnly()):
                raise AssertionError("it started")
        await until(lambda: n1.status().peers["n0"].connected)
        wider = authority.sign("n0-and-n9", "n0", "n9")
        shutil.copy(wider.certificate, mine.certificate)
        shutil.copy(wider.key, mine.key)
        async with second.open_node(config("h", ("n9", "n1"), 1), dledger.LogOnly()) as other:
            first.reload_tls()
            async with first.open_node(config("h", ("n9", "n1"), 0), dledger.LogOnly()) as n9:
                await until(lambda: n9.is_ready_leader or other.is_ready_leader)


async def test_the_nodes_of_a_host_have_no_certificates_of_their_own(
    tmp_path: Path, authority: Authority
) -> None:
    group = Group(tmp_path, {"n0": files(authority, "n0")})
    async with dledger.open_host(dledger.HostConfig(address=group.peers["n0"])) as host:
        with pytest.raises(ConfigInvalid, match="set it in HostConfig"):
            async with host.open_node(group.config("n0"), dledger.LogOnly()):
                raise AssertionError("it started")


async def test_what_is_refused_over_and_over_is_one_line_a_minute(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    found = refusals.Refusals()
    for _ in range(70):
        found.add("tls", "a caller")
        await trio.sleep(1.0)
    assert [record.message for record in caplog.records] == [
        "refused a caller",
        "refused a caller (59 more for such a reason before)",
    ]
    assert found.count == 70


async def test_a_peer_that_does_not_read_over_tls_is_cut_off_before_memory_is_full(
    authority: Authority,
) -> None:
    n1 = GroupTls(files(authority, "n1"))

    async def welcome_and_read_no_more(stream: trio.SocketStream) -> None:
        secure = await n1.accepted(stream)
        await secure.receive_some(1)
        await secure.send_all(encode_welcome("n1") + encode_opened(0))
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        [port] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, welcome_and_read_no_more, [port])
        home = Address("127.0.0.1", 1)
        connections = Connections(nursery, home, GroupTls(files(authority, "n0")))
        changes: list[bool] = []
        links = Links(
            Identity("g", "n0", home), connections, lambda _, connected: changes.append(connected)
        )
        links.set_members({"n1": Address("127.0.0.1", port.socket.getsockname()[1])})
        link = links.members["n1"]
        await until(lambda: link.connected)
        push = PushRequest(1, Phase.APPEND, -1, -1, 0, -1)
        payload = bytes(1024 * 1024)
        link.send(push, payload)
        await trio.testing.wait_all_tasks_blocked()  # the writer has something, and waits
        for _ in range(MAX_OUTBOX_BYTES // len(payload) + 1):
            link.send(push, payload)
        await until(lambda: changes[:2] == [True, False])
        assert "too slowly" in (link.last_problem or "")
        nursery.cancel_scope.cancel()


async def test_nothing_older_than_tls_1_3_is_spoken(tmp_path: Path, authority: Authority) -> None:
    async with running(tmp_path, {"n0": files(authority, "n0")}) as group:
        old = ssl.create_default_context(cafile=str(authority.certificate))
        old.check_hostname = False
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        tool = files(authority, "tool")
        old.load_cert_chain(tool.certificate, tool.key)
        async with await trio.open_tcp_stream(*group.address("n0")) as plain:
            with pytest.raises(trio.BrokenResourceError):
                await trio.SSLStream(plain, old).do_handshake()


async def test_a_caller_that_shows_no_certificate_is_refused(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(tmp_path, {"n0": files(authority, "n0")}) as group:
        nobody = ssl.create_default_context(cafile=str(authority.certificate))
        nobody.check_hostname = False
        async with await trio.open_tcp_stream(*group.address("n0")) as plain:
            stream = trio.SSLStream(plain, nobody, https_compatible=True)
            with trio.fail_after(10):
                await stream.do_handshake()
                with pytest.raises(trio.BrokenResourceError) as told:
                    await stream.receive_some(1)
        assert "certificate required" in str(told.value.__cause__)
        await until(lambda: "it showed no certificate" in caplog.text)


async def test_queries_and_watches_speak_tls(authority: Authority, tmp_path: Path) -> None:
    async with shelf.running(tmp_path, shelf.Shelf(), tls=files(authority, "n0")) as node:
        tls = files(authority, "tool")
        async with dledger.connect(node.config.peers, group="g", tls=tls) as log:
            index = (await log.append(b"tea=1")).index
            assert (await log.query("get", "tea")).result == "1"
            assert (await log.query("get", "tea", on="n0", stale=True)).index == index
            event = await anext(log.watch("books", after=index - 1))
            assert event == dledger.ValueSet(index, ("books", "tea"), "1")
        client = dledger.GroupClient("g", node.config.peers, tls)
        assert (await client.query("get", "tea")).result == "1"
        async with client.watch("books") as events:
            assert (await anext(aiter(events))).index == index
        plain = dledger.GroupClient("g", node.config.peers)
        with pytest.raises(GroupUnreachable):
            await plain.query("get", "tea", timeout_s=1.0)
