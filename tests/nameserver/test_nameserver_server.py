"""The name server over real loopback sockets, and its answers to each request."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from dledger.free_ports import free_ports
from nameserver.brokers import Speaker
from nameserver.errors import SettingFileUnreadable, SettingNotKept
from nameserver.processors import Asker, Processors
from nameserver.routes import RouteTable
from nameserver.server import serve_nameserver
from nameserver.setting_file import SettingFile
from nameserver.settings import SettingTable
from remoting.bodies.pieces import last_of
from remoting.bodies.registration import BrokerRegistration, encode_registration, registration_crc
from remoting.bodies.route import (
    BrokerData,
    QueueData,
    TopicRoute,
    decode_cluster_info,
    decode_route,
    encode_route,
)
from remoting.bodies.table import decode_properties_text, decode_table, decode_topic_list
from remoting.bodies.topic_config import DataVersion, TopicConfig
from remoting.net.address import Address, parse_address
from remoting.net.client import RemotingClient
from remoting.net.errors import PortInUse
from remoting.wire.codes import RequestCode, ResponseCode
from remoting.wire.command import ONEWAY_FLAG, Command
from remoting.wire.errors import BodyMalformed, FieldMissing, RemotingError
from remoting.wire.frame import encode_command
from remoting.wire.loose_json import compact_json, parse_json
from remoting.wire.signature import Credentials, Signer
from tests.remoting.net.recording_server import until

BROKER = "10.0.0.1:10911"


def register_command(
    address: str = BROKER,
    broker_id: int = 0,
    *,
    term: int = 0,
    topics: tuple[str, ...] = ("T", "TBW102"),
    queues: int = 4,
    flag: int = 0,
    **fields: str,
) -> Command:
    body = encode_registration(
        BrokerRegistration(
            {topic: TopicConfig(topic, queues, queues) for topic in topics},
            DataVersion(1, 5, term),
        )
    )
    identity = {
        "brokerName": "b",
        "brokerAddr": address,
        "clusterName": "cl",
        "brokerId": str(broker_id),
        "haServerAddr": "10.0.0.1:10912",
        "bodyCrc32": str(registration_crc(body)),
        "compressed": "false",
    }
    return Command(RequestCode.REGISTER_BROKER, identity | fields, body, flag=flag)


class Direct:
    """Asks the processors without a network."""

    def __init__(
        self,
        may_change: Callable[[str], bool] = lambda _host: True,
        admin: Credentials | None = None,
    ) -> None:
        self.credentials: Credentials | None = None
        self.routes = RouteTable()
        self.settings = SettingTable()
        self.processors = Processors(self.routes, self.settings, may_change, lambda: admin)
        self.now = 0.0
        self.host = ""

    def state(self) -> object:
        """What clients are told of topics, and the settings."""
        routes = [self.routes.route(topic) for topic in ("T", "gone")]
        return [route and encode_route(route) for route in routes], self.settings.all_of("n")

    def ask(self, command: Command) -> Command:
        if self.credentials is not None:
            self.credentials.sign(command)
        asker = Asker(Speaker("connection", self.host), self.now)
        reply = self.processors.table.handle(asker, command)
        if not isinstance(reply, Command):
            assert reply is not None
            reply = last_of(reply)
        assert isinstance(reply, Command)
        assert reply.is_response
        return reply

    def __call__(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        return self.ask(Command(code, fields or {}, body, opaque=3))


@pytest.fixture
def direct() -> Direct:
    direct = Direct()
    assert direct.ask(register_command()).code == 0
    return direct


def test_where_it_is_said_who_may_change_things_all_others_may_only_ask() -> None:
    here, kept = Direct(lambda host: host == "10.0.0.1"), Direct()
    for code in kept.processors.table.codes():
        prepare(kept)
        before = kept.state()
        ask_anything(kept, code)
        changes = kept.state() != before or code in (*UNSEEN, *REFUSED)
        prepare(here)
        here.host = "stranger"
        reply = ask_anything(here, code)
        assert (reply.code == ResponseCode.NO_PERMISSION) == changes, code
        if changes and code not in REFUSED:
            assert "--changes-from" in (reply.remark or "")
            here.host = "10.0.0.1"
            assert ask_anything(here, code).code != ResponseCode.NO_PERMISSION, code


def test_with_access_control_only_the_administrator_changes_what_is_told() -> None:
    admin = Credentials("admin", "admin-secret")
    others = (None, Credentials("admin", "guessed"), Credentials("other", "admin-secret"))
    here, kept = Direct(admin=admin), Direct()
    for code in kept.processors.table.codes():
        prepare(kept)
        before = kept.state()
        ask_anything(kept, code)
        changes = kept.state() != before or code in (*UNSEEN, *REFUSED)
        for here.credentials in others:
            reply = ask_anything(here, code)
            assert (reply.code == ResponseCode.NO_PERMISSION) == changes, code
            assert "admin-secret" not in (reply.remark or "")
        here.credentials = admin
        prepare(here)
        if code not in REFUSED:
            assert ask_anything(here, code).code != ResponseCode.NO_PERMISSION, code


def test_the_signature_of_a_wrong_name_is_checked_like_that_of_the_administrator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time for a long body would tell the administrator's name."""
    checked: list[str] = []

    def none(_signer: Signer, command: Command) -> bool:
        checked.append(command.fields["AccessKey"])
        return False

    monkeypatch.setattr(Signer, "has_signed", none)
    here = Direct(admin=Credentials("admin", "admin-secret"))
    for name in ("admin", "other"):
        here.credentials = Credentials(name, "guessed")
        reply = ask_anything(here, RequestCode.WIPE_WRITE_PERM_OF_BROKER)
        assert reply.code == ResponseCode.NO_PERMISSION
    assert checked == ["admin", "other"]


UNSEEN = (  # signs of life, and taking away once more what is taken away
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
)
REFUSED = (RequestCode.UPDATE_NAMESRV_CONFIG,)


def prepare(direct: Direct) -> None:
    """Let a broker register, and operators set what they can."""
    direct.host = "10.0.0.1"
    direct.ask(register_command(topics=("T", "gone")))
    direct(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"})
    direct(RequestCode.PUT_KV_CONFIG, {"namespace": "n", "key": "gone", "value": "v"})


def ask_anything(direct: Direct, code: int) -> Command:
    """A request of any code that concerns that broker."""
    if code == RequestCode.REGISTER_BROKER:
        return direct.ask(register_command(topics=("gone",), queues=9))
    given = {"topic": "gone", "namespace": "n", "key": "gone", "cluster": "cl", "value": "w"}
    body = b""
    if code == RequestCode.QUERY_DATA_VERSION:
        body = b'{"counter":1,"timestamp":5,"stateVersion":0}'
    if code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
        queues = [QueueData("b", 9, 9, 6, 0)]
        body = encode_route(TopicRoute(queues, []))
    return direct(code, register_command().fields | given, body)


@pytest.mark.feature("F4")
def test_a_route_is_answered_as_clients_want_it(direct: Direct) -> None:
    reply = direct(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert decode_route(reply.body) == TopicRoute(
        [QueueData("b", 4, 4, 6)], [BrokerData("cl", "b", {0: BROKER})]
    )


@pytest.mark.feature("F4")
def test_an_unknown_topic_is_answered_17(direct: Direct) -> None:
    reply = direct(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "N"})
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert reply.remark == "No topic route info in name server for the topic: N"


def test_a_route_request_without_a_topic_is_refused_by_name(direct: Direct) -> None:
    with pytest.raises(FieldMissing, match="topic"):
        direct(RequestCode.GET_ROUTEINFO_BY_TOPIC)


def test_an_unknown_code_is_answered_3(direct: Direct) -> None:
    reply = direct(RequestCode.SEND_MESSAGE)
    assert reply.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert reply.remark == " request type 10 not supported"


def test_the_cluster_and_the_topics_are_listed(direct: Direct) -> None:
    info = decode_cluster_info(direct(RequestCode.GET_BROKER_CLUSTER_INFO).body)
    assert info.clusters == {"cl": ["b"]}
    assert info.brokers["b"].master == BROKER
    topics = direct(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert decode_topic_list(topics.body) == ["T", "TBW102"]
    of_cluster = direct(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "cl"})
    assert decode_topic_list(of_cluster.body) == ["T", "TBW102"]


def test_the_names_of_clusters_and_brokers_are_system_topics_where_they_have_routes(
    direct: Direct,
) -> None:
    def listed() -> list[str]:
        return decode_topic_list(direct(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)

    assert listed() == [], "a tool would take them for topics, and 105 answers 17"
    direct.ask(register_command(topics=("cl", "b", "T")))
    assert listed() == ["cl", "b"]
    for topic in listed():
        assert direct(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code == 0


def test_a_lone_master_is_answered_bare_and_a_slave_is_told_its_master(direct: Direct) -> None:
    reply = direct.ask(register_command())
    assert (reply.code, reply.fields, reply.body) == (0, {}, b"")
    reply = direct.ask(register_command("10.0.0.2:10911", 1))
    assert reply.fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": BROKER}


@pytest.mark.feature("F2")
def test_a_damaged_registration_is_refused(direct: Direct) -> None:
    with pytest.raises(RemotingError, match="crc32 not match"):
        direct.ask(register_command(bodyCrc32="7"))
    with pytest.raises(BodyMalformed):
        direct.ask(Command(103, register_command().fields | {"bodyCrc32": "0"}, b"{"))


def test_a_complete_registration_is_marked_by_our_own_field(direct: Direct) -> None:
    direct.ask(register_command(topics=("T",)))
    assert direct.routes.topics() == ["T", "TBW102"]
    direct.ask(register_command(topics=("T",), completeTopics="true"))
    assert direct.routes.topics() == ["T"]


def test_a_broker_leaves_when_it_says_so(direct: Direct) -> None:
    fields = register_command().fields
    assert direct(RequestCode.UNREGISTER_BROKER, fields).code == 0
    assert direct.routes.topics() == []


def test_a_broker_asks_whether_it_must_register_again(direct: Direct) -> None:
    fields = register_command().fields

    def changed(version: DataVersion, other: dict[str, str] | None = None) -> str:
        body = compact_json(version.to_json()).encode()
        reply = direct(RequestCode.QUERY_DATA_VERSION, fields | (other or {}), body)
        return reply.fields["changed"]

    direct.now = 100.0
    assert changed(DataVersion(1, 5)) == "false"
    assert direct.routes.next_expiry() == 220.0
    assert changed(DataVersion(2, 5)) == "true"
    assert changed(DataVersion(1, 5), {"brokerId": "1"}) == "true"
    assert changed(DataVersion(1, 5), {"brokerAddr": "10.0.0.9:1"}) == "true"


def test_a_heartbeat_is_a_sign_of_life(direct: Direct) -> None:
    direct.now = 60.0
    assert direct(RequestCode.BROKER_HEARTBEAT, {"brokerAddr": BROKER}).code == 0
    assert direct.routes.next_expiry() == 180.0


def test_a_broker_may_ask_for_its_own_timeout(direct: Direct) -> None:
    direct.ask(register_command(heartbeatTimeoutMillis="15000"))
    assert direct.routes.next_expiry() == 15.0


def test_the_members_of_a_name_are_listed(direct: Direct) -> None:
    reply = direct(RequestCode.GET_BROKER_MEMBER_GROUP, {"brokerName": "b", "clusterName": "cl"})
    group = parse_json("x", reply.body)
    assert isinstance(group, dict)
    members = group["brokerMemberGroup"]
    assert isinstance(members, dict)
    assert members["brokerAddrs"] == {"0": BROKER}


def test_write_permission_is_taken_and_given_with_a_count(direct: Direct) -> None:
    wiped = direct(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"})
    assert wiped.fields == {"wipeTopicCount": "2"}
    route = direct.routes.route("T")
    assert route is not None
    assert route.queues[0].permission == 4
    added = direct(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b"})
    assert added.fields == {"addTopicCount": "2"}


def test_topics_are_deleted_and_registered(direct: Direct) -> None:
    assert direct(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"}).code == 0
    assert direct.routes.topics() == ["TBW102"]
    body = encode_route(TopicRoute([QueueData("b", 1, 1, 6, 1)]))
    assert direct(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": "N"}, body).code == 0
    assert direct.routes.topics() == ["N", "TBW102"]
    units = direct(RequestCode.GET_UNIT_TOPIC_LIST)
    assert decode_topic_list(units.body) == ["N"]
    assert decode_topic_list(direct(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST).body) == []


@pytest.mark.feature("F7")
def test_an_order_configuration_goes_into_routes_and_to_brokers(direct: Direct) -> None:
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    assert direct(RequestCode.GET_KV_CONFIG, key).code == ResponseCode.QUERY_NOT_FOUND
    assert direct(RequestCode.PUT_KV_CONFIG, key | {"value": "b:4"}).code == 0
    assert direct(RequestCode.GET_KV_CONFIG, key).fields == {"value": "b:4"}
    route = decode_route(direct(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}).body)
    assert route.order_topic_conf == "b:4"
    assert decode_table(direct.ask(register_command()).body) == {"T": "b:4"}
    listed = direct(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
    assert decode_table(listed.body) == {"T": "b:4"}
    assert direct(RequestCode.DELETE_KV_CONFIG, key).code == 0
    listed = direct(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"})
    assert listed.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    "value",
    ["", ";", "b", "b:", ":4", "b:0", "b:-1", "b:4x", "b:4;;c:2", "b:4;b:2", "b:99999999999",
     "b:4:4", "b:9000;c:9000", "b:\u0664", "b\n:4", "x" * 300 + ":1"],
)  # fmt: skip
def test_an_order_configuration_that_clients_would_fail_at_is_refused(
    direct: Direct, value: str
) -> None:
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}
    direct(RequestCode.PUT_KV_CONFIG, key | {"value": "b:4;c:2;"})
    with pytest.raises(RemotingError):
        direct(RequestCode.PUT_KV_CONFIG, key | {"value": value})
    assert direct(RequestCode.GET_KV_CONFIG, key).fields == {"value": "b:4;c:2;"}
    with pytest.raises(RemotingError):
        direct(RequestCode.PUT_KV_CONFIG, key | {"key": "T" * 300, "value": "b:4"})
    assert direct(RequestCode.PUT_KV_CONFIG, {**key, "namespace": "N", "value": value}).code == 0


def test_settings_are_kept_in_a_file_of_rocketmqs_format(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    settings = SettingTable()
    settings.keep = lambda: SettingFile(path).save(settings)
    settings.put("ORDER_TOPIC_CONFIG", "T", "b:4")
    settings.put("N", "\u00e4", '\x00\n"')
    settings.put("N", "gone", "1")
    assert settings.delete("N", "gone")
    assert not settings.delete("N", "gone")
    assert json.loads(path.read_bytes())["configTable"]["ORDER_TOPIC_CONFIG"] == {"T": "b:4"}
    again = SettingTable()
    SettingFile(path).load(again)
    assert again.everything() == settings.everything()
    SettingFile(tmp_path / "none").load(again)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"configTable":1}', b'{"configTable":{"N":{"k":{}}}}', b"\xff",
     b'{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"b"}}}'],
)  # fmt: skip
def test_a_file_that_holds_no_settings_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_bytes(content)
    with pytest.raises(SettingFileUnreadable, match=r"kvConfig.json: .*move it away"):
        SettingFile(path).load(SettingTable())


def test_a_setting_that_cannot_be_kept_is_not_in_force() -> None:
    settings = SettingTable()
    settings.put("N", "k", "1")

    def fail() -> None:
        raise SettingNotKept("file", "No space left on device")

    settings.keep = fail
    for change in (
        lambda: settings.put("N", "k", "2"),
        lambda: settings.put("N", "l", "2"),
        lambda: settings.put("M", "l", "2"),
        lambda: settings.delete("N", "k"),
    ):
        with pytest.raises(SettingNotKept):
            change()
        assert settings.everything() == {"N": {"k": "1"}}
    settings.put("N", "k", "1")  # nothing to keep


@pytest.mark.feature("F7")
async def test_a_name_server_that_starts_again_has_its_settings(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    key = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T"}

    async def ask(*commands: Command) -> list[Command]:
        async with trio.open_nursery() as nursery:
            serve = partial(serve_nameserver, "127.0.0.1", 0, settings_file=path)
            address = str(await nursery.start(serve))
            client = RemotingClient(nursery)
            replies = [await client.request(address, command, 5) for command in commands]
            nursery.cancel_scope.cancel()
        return replies

    (put,) = await ask(Command(RequestCode.PUT_KV_CONFIG, {**key, "value": "broker-a:4"}))
    assert put.code == 0
    registered, found = await ask(
        register_command(), Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    )
    assert decode_table(registered.body) == {"T": "broker-a:4"}
    assert decode_route(found.body).order_topic_conf == "broker-a:4"
    path.unlink()
    path.mkdir()
    with pytest.raises(SettingFileUnreadable, match="Is a directory"):
        await serve_nameserver("127.0.0.1", 0, settings_file=path)


def test_its_own_configuration_is_shown_and_cannot_be_changed(direct: Direct) -> None:
    shown = direct(RequestCode.GET_NAMESRV_CONFIG)
    assert decode_properties_text(shown.body) == {"brokerTimeoutSeconds": "120"}
    assert direct(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"a=b").code == ResponseCode.NO_PERMISSION


async def start(nursery: trio.Nursery) -> str:
    async def run(*, task_status: trio.TaskStatus[Address]) -> None:
        await serve_nameserver("127.0.0.1", 0, task_status=task_status)

    return str(await nursery.start(run))


async def test_scrapers_see_connections_brokers_topics_and_requests(nursery: trio.Nursery) -> None:
    (port,) = free_ports(1)
    serve = partial(serve_nameserver, "127.0.0.1", 0, metrics=Address("127.0.0.1", port))
    address = str(await nursery.start(serve))
    client = RemotingClient(nursery)
    assert (await client.request(address, register_command())).code == 0
    for code in (105, 105, 7777, 8888):
        await client.request(address, Command(code, {"topic": "T"}))
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while not answer.endswith(b"\r\n\r\nok\n"):
            answer += await stream.receive_some()
        assert answer.startswith(b"HTTP/1.1 200")
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        text = b"".join([part async for part in stream]).decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("dledger"))
    name = "dledger_nameserver"
    assert {key: float(value) for key, value in found.items() if "created" not in key} == {
        f"{name}_connections": 1,
        f"{name}_brokers": 1,
        f"{name}_broker_names": 1,
        f"{name}_topics": 2,
        f'{name}_requests_total{{code="103"}}': 1,
        f'{name}_requests_total{{code="105"}}': 2,
        f'{name}_requests_total{{code="other"}}': 2,
    }


async def master(client: RemotingClient, address: str, topic: str = "T") -> str | None:
    reply = await client.request(address, Command(105, {"topic": topic}))
    return decode_route(reply.body).brokers[0].master if reply.code == 0 else None


@pytest.mark.feature("F1")
async def test_a_session_of_two_brokers_and_a_client(nursery: trio.Nursery) -> None:
    address = await start(nursery)
    client, first, second = (RemotingClient(nursery) for _ in range(3))
    assert await master(client, address) is None
    assert (await first.request(address, register_command(BROKER, 0, term=1))).code == 0
    reply = await second.request(address, register_command("10.0.0.2:10911", 2, term=1))
    assert reply.fields["masterAddr"] == BROKER
    assert await master(client, address) == BROKER

    await second.request(address, register_command("10.0.0.2:10911", 0, term=2))
    assert await master(client, address) == "10.0.0.2:10911"
    stale = await first.request(address, register_command(BROKER, 0, term=1))
    assert stale.code == ResponseCode.SYSTEM_ERROR
    assert "older than 2" in str(stale.remark)
    assert await master(client, address) == "10.0.0.2:10911"
    assert (await first.request(address, register_command(BROKER, 1, term=2))).code == 0

    second.close()
    while await master(client, address) is not None:
        await trio.lowlevel.checkpoint()
    route = decode_route((await client.request(address, Command(105, {"topic": "T"}))).body)
    assert route.brokers[0].addresses == {1: BROKER}


async def test_a_oneway_registration_counts_and_is_not_answered(nursery: trio.Nursery) -> None:
    address = await start(nursery)
    host, port = parse_address(address)
    stream = await trio.open_tcp_stream(host, port)
    await stream.send_all(encode_command(register_command(flag=ONEWAY_FLAG)))
    client = RemotingClient(nursery)
    with trio.fail_after(5):
        while await master(client, address) != BROKER:
            await trio.lowlevel.checkpoint()
    with trio.move_on_after(0.02) as scope:
        await stream.receive_some(1)
    assert scope.cancelled_caught
    await stream.aclose()


@pytest.mark.feature("F3")
async def test_a_broker_silent_for_120_seconds_is_dropped(
    mock_clock: trio.testing.MockClock,
) -> None:
    async with trio.open_nursery() as nursery:
        address = await start(nursery)
        client, broker = RemotingClient(nursery), RemotingClient(nursery)
        assert (await broker.request(address, register_command())).code == 0
        for _ in range(119):
            mock_clock.jump(1)
            await trio.testing.wait_all_tasks_blocked()
            # Keeps the connection: what is to be dropped is the broker, not its connection.
            await broker.request(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO))
        assert await master(client, address) == BROKER
        mock_clock.jump(1)
        await trio.testing.wait_all_tasks_blocked()
        assert await master(client, address) is None
        nursery.cancel_scope.cancel()


async def test_a_name_server_on_a_taken_port_says_so(nursery: trio.Nursery) -> None:
    address = parse_address(await start(nursery))
    with pytest.raises(PortInUse):
        await serve_nameserver("127.0.0.1", address.port)


async def test_cancelling_a_name_server_closes_its_connections() -> None:
    async with trio.open_nursery() as outside:
        async with trio.open_nursery() as inside:
            address = await start(inside)
            client = RemotingClient(outside)
            await client.request(address, Command(106))
            inside.cancel_scope.cancel()
        await until(lambda: not client.is_connected(address))
        outside.cancel_scope.cancel()
