"""Access control by way of a proxy: each client has the rights of its own user, and no others."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.transactions.policy import CheckPolicy
from dledger_mq import Admin, Client
from dledger_mq.admin.users import Users
from dledger_mq.errors import RequestRefused
from nameserver.server import serve_nameserver
from proxy.proxy_command import sign_again
from proxy.server import Proxy
from proxy.wire.messages_pb2 import (
    Code,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
    MessageType,
    NotifyClientTerminationRequest,
    QueryAssignmentRequest,
    QueryRouteRequest,
    RecallMessageRequest,
    Settings,
    SyncLiteSubscriptionRequest,
    TelemetryCommand,
    TransactionResolution,
)
from remoting.bodies.access import AclEntry
from remoting.net.access_file import new_credentials_file
from remoting.net.client import RemotingClient
from remoting.wire.codes import ResponseCode
from remoting.wire.command import Command
from remoting.wire.on_behalf import Represented
from remoting.wire.signature import Credentials
from remoting.wire.users import AccessFile
from tests.broker.one_broker import running_broker, send_fields
from tests.dledger_mq.real_group import wall_clock_ms
from tests.proxy.grpc_client import GrpcClient, signer
from tests.proxy.real_proxy import (
    Served,
    acknowledging,
    changing,
    message,
    receiving,
    send,
    sending,
)
from tests.proxy.settings_of_clients import consumer_settings, producer_settings

ADMIN = Credentials("admin", "admin-secret")
PROXY = Credentials("proxy", "proxy-secret")
TOPIC, LATER, PAYMENTS, GROUP = "Orders", "Later", "Payments", "readers"
HOST = "10.0.0.7"
# A subscription to lite topics of a topic that has none.
_NOT_LITE = Code.INTERNAL_SERVER_ERROR


class Guarded(Served):
    """A proxy on a broker with access control.

    Attributes:
        users: changes users and rules.
        address: of the broker.
        remoting: asks the broker, with a signature of the user that a test names.
    """

    def __init__(
        self, proxy: Proxy, nursery: trio.Nursery, users: Users, address: str, broker: Any
    ) -> None:
        super().__init__(proxy, nursery)
        self.users = users
        self.address = address
        self.broker = broker

    async def user(self, name: str, **rules: str) -> GrpcClient:
        """A client of a new user; rules have "__" for ":"."""
        await self.users.create(name, f"{name}-secret")
        for resource, actions in rules.items():
            await self.rule(name, resource, actions)
        return await self.of(name)

    async def rule(self, name: str, resource: str, actions: str, **more: Any) -> None:
        entry = AclEntry(resource.replace("__", ":"), tuple(actions.split(",")), **more)
        await self.users.put_rule(name, entry)

    async def of(self, name: str, **more: Any) -> GrpcClient:
        """Another client of a user."""
        more.setdefault("signs", signer(name, f"{name}-secret"))
        return await self.client(peer=f"{HOST}:5000", **more)


@asynccontextmanager
async def guarded(directory: Path, **settings: Any) -> AsyncIterator[Guarded]:
    async with trio.open_nursery() as nursery:
        serve = partial(serve_nameserver, "127.0.0.1", 0, admin=lambda: ADMIN)
        names = str(await nursery.start(serve))
        async with (
            running_broker(
                directory,
                nameservers=(names,),
                access=AccessFile(ADMIN, bytes(range(32))),
                clock=wall_clock_ms,
                **settings,
            ) as (broker, _),
            Client(names, credentials=ADMIN) as operator,
            Admin(client=operator) as admin,
        ):
            users = Users(operator)
            await users.create(PROXY.access_key, PROXY.secret_key, is_super=True)
            for topic, kind in ((TOPIC, "NORMAL"), (LATER, "DELAY"), (PAYMENTS, "TRANSACTION")):
                await admin.create_topic(topic, queues=1, message_type=kind)
            async with Client(names, credentials=PROXY) as client, trio.open_nursery() as inner:
                proxy = Proxy(client, inner, is_user=True)
                with trio.fail_after(60):
                    yield Guarded(proxy, inner, users, str(broker.config.address), broker)
                inner.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def _code(client: GrpcClient, request: Any) -> int:
    answer = await client.unary(request)
    assert "secret" not in str(answer)
    return int(answer.status.code)


async def test_the_signatures_of_all_clients_prove_their_users(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    tokyo = timezone(timedelta(hours=9))
    good: tuple[dict[str, Any], ...] = (
        {},
        {"is_upper": True},
        {"suffix": "//Rocketmq"},
        {"date": now.astimezone(tokyo).isoformat()},
        {"date": now.astimezone(tokyo).strftime("%Y%m%dT%H%M%SZ")},
        {"date": (now - timedelta(hours=23)).strftime("%Y%m%dT%H%M%SZ")},
    )
    bad: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("writer", "another secret", {}),
        ("nobody", "nobody-secret", {}),
        ("", "writer-secret", {}),
        ("disabled", "disabled-secret", {}),
        ("writer", "writer-secret", {"date": (now - timedelta(hours=25)).isoformat()}),
        ("writer", "writer-secret", {"date": (now + timedelta(hours=25)).isoformat()}),
        ("writer", "writer-secret", {"date": ""}),
        ("writer", "writer-secret", {"date": "yesterday"}),
        ("writer", "writer-secret", {"date": "2" * 70}),
        ("Writer", "writer-secret", {}),
    )
    async with guarded(tmp_path) as here:
        await here.user("writer", Topic__Orders="Pub")
        await here.user("disabled", Topic__Orders="Pub")
        await here.users.change("disabled", is_enabled=False)
        for more in good:
            client = await here.client(signs=signer("writer", "writer-secret", **more))
            assert await _code(client, sending(message(TOPIC))) == Code.OK, more
        for name, secret, more in bad:
            client = await here.client(signs=signer(name, secret, **more))
            assert await _code(client, sending(message(TOPIC))) == Code.UNAUTHORIZED, (name, more)
        proof = signer("writer", "writer-secret")()
        whole = proof["authorization"]
        for wrong in (
            *("", "MQv2-HMAC-SHA1", whole.replace("MQv2", "MQv3")),
            *(whole.replace("Signature", "signature"), whole[:-1], f"{whole}0", "x" * 8000),
            whole.replace("Credential=writer", "Credential=admin"),
        ):
            client = await here.client(
                signs=lambda w=wrong: proof | {"authorization": w}  # type: ignore[misc]
            )
            assert await _code(client, sending(message(TOPIC))) == Code.UNAUTHORIZED, wrong
        unsigned = await here.client()
        assert await _code(unsigned, sending(message(TOPIC))) == Code.UNAUTHORIZED


def _endpoints(request: Any) -> Any:
    request.topic.name = TOPIC
    request.endpoints.addresses.add(host="127.0.0.1", port=8081)
    return request


def _about(request: Any, topic: str = TOPIC, *, group: str = "") -> Any:
    request.topic.name = topic
    if group:
        request.group.name = group
    return request


async def _received(client: GrpcClient) -> int:
    return (await client.receive(receiving(TOPIC, GROUP))).code


async def _told(settings: Settings, client: GrpcClient) -> int:
    """The status of the first command, or of gRPC."""
    stream = await client.telemetry()
    await stream.send(settings)
    told = await stream.receive()
    assert told is not None
    if told.status.code == Code.UNAUTHORIZED:
        assert not told.HasField("settings")
        assert await stream.receive() is None
    return int(told.status.code)


def _asks(make: Callable[[], Any]) -> Callable[[GrpcClient], Awaitable[int]]:
    return lambda client: _code(client, make())


def _calls(handles: list[str], recall: str, transaction_id: str) -> dict[str, Any]:
    """Each call and what it needs: to change an invisible time, more than RocketMQ's proxy asks."""
    sub = {"Topic__Orders": "Sub", "Group__readers": "Sub"}
    group = {"Group__readers": "Sub"}
    assignment = _about(_endpoints(QueryAssignmentRequest()), group=GROUP)
    forwarded = _about(
        ForwardMessageToDeadLetterQueueRequest(receipt_handle=handles[0], message_id="id"),
        group=GROUP,
    )
    ended = _about(
        EndTransactionRequest(
            transaction_id=transaction_id, resolution=TransactionResolution.COMMIT
        ),
        PAYMENTS,
    )
    recalled = _about(RecallMessageRequest(recall_handle=recall), LATER)
    heartbeat, leaving = HeartbeatRequest(), NotifyClientTerminationRequest()
    heartbeat.group.name = leaving.group.name = GROUP
    route = _endpoints(QueryRouteRequest())
    lite = _about(SyncLiteSubscriptionRequest(lite_topic_set=["a"]), group=GROUP)
    return {
        "route": (_asks(lambda: route), {"Topic__Orders": "Pub"}),
        "route to read": (_asks(lambda: route), {"Topic__Orders": "Sub"}),
        "assignment": (_asks(lambda: assignment), sub),
        "send": (_asks(lambda: sending(message(TOPIC))), {"Topic__Orders": "Pub"}),
        "recall": (_asks(lambda: recalled), {"Topic__Later": "Pub"}),
        "end": (_asks(lambda: ended), {"Topic__Payments": "Pub"}),
        "receive": (_received, sub),
        "acknowledge": (_asks(lambda: acknowledging(TOPIC, handles[1])), sub),
        "forward": (_asks(lambda: forwarded), sub),
        "wish": (_asks(lambda: lite), sub),
        "heartbeat": (_asks(lambda: heartbeat), group),
        "leave": (_asks(lambda: leaving), group),
        "produce": (partial(_told, producer_settings(TOPIC)), {"Topic__Orders": "Pub"}),
        "consume": (partial(_told, consumer_settings(TOPIC)), sub),
        "change": (_asks(lambda: changing(TOPIC, handles[2], 0)), sub),
    }


async def test_another_secret_of_the_proxy_counts_once_its_file_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "proxy.toml"
    async with guarded(tmp_path / "broker") as here:
        names = here.broker.config.nameservers
        async with Client([str(one) for one in names], credentials=PROXY) as client:
            asked = Users(client)
            await asked.all()
            made = new_credentials_file(path, PROXY.access_key)
            await here.users.change(PROXY.access_key, secret=made.secret_key)
            with pytest.raises(RequestRefused):
                await asked.all()
            sign_again(client, path)
            await asked.all()
            path.chmod(0o644)
            sign_again(client, path)
            assert "the earlier credentials stay in force" in caplog.text
            await asked.all()


async def test_each_call_needs_its_rights_and_no_others(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        await here.users.create("operator", "operator-secret", is_super=True)
        operator = await here.of("operator")
        await send(operator, *(message(TOPIC) for _ in range(3)))
        found: list[str] = []
        while len(found) < 3:
            got = await operator.receive(receiving(TOPIC, GROUP, wait_s=5))
            found += [one.system_properties.receipt_handle for one in got.messages]
        later_ms = wall_clock_ms() + 3_600_000
        (delayed,) = (await send(operator, message(LATER, delivery_timestamp=later_ms))).entries
        half = message(PAYMENTS, message_type=MessageType.TRANSACTION)
        (prepared,) = (await send(operator, half)).entries
        calls = _calls(found, delayed.recall_handle, prepared.transaction_id)
        poor = await here.user("poor")
        everything = {
            "Topic__Orders": "Pub,Sub",
            "Topic__Later": "Pub",
            "Topic__Payments": "Pub",
            "Group__readers": "Sub",
        }
        for number, (name, (call, needs)) in enumerate(calls.items()):
            assert await call(poor) == Code.UNAUTHORIZED, name
            for lacking, actions in needs.items():
                rest = {
                    resource: granted
                    for resource, granted in everything.items()
                    if resource != lacking
                }
                if lacking == "Topic__Orders" and not name.startswith("route"):
                    rest[lacking] = "Sub" if actions == "Pub" else "Pub"
                other = await here.user(f"almost-{number}-{lacking[:5]}", **rest)
                assert await call(other) == Code.UNAUTHORIZED, (name, lacking)
            able = await here.user(f"able-{number}", **needs)
            granted = (Code.OK, Code.MESSAGE_NOT_FOUND, _NOT_LITE)
            assert await call(able) in granted, name
        served = {one.rpartition("/")[2] for one in here.proxy._service._answers}
        assert len(served) == len(calls) - 2, "every method is in the table"


async def test_a_client_of_another_user_cannot_end_or_replace_a_client(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", Topic__Orders="Sub", Group__readers="Sub")
        stream = await reader.telemetry()
        await stream.settle(consumer_settings(TOPIC))
        leaving = NotifyClientTerminationRequest()
        for signs in (dict, signer("poor", "poor-secret")):
            other = await here.client(reader.client_id, signs=signs)
            await other.unary(leaving)
            leaving.group.name = GROUP
            await other.unary(leaving)
            assert here.proxy.sessions.find(reader.client_id or "") is not None
            await _told(consumer_settings(TOPIC), other)
            session = here.proxy.sessions.find(reader.client_id or "")
            assert session is not None
            assert session.has_stream
        # Those who may use other groups, or the same one, may not use its id either.
        await here.user("rich", Topic__Orders="Sub", Group__readers="Sub", Group__others="Sub")
        other = await here.of("rich", client_id=reader.client_id)
        for settings in (
            consumer_settings(TOPIC, group="others"),
            consumer_settings(TOPIC),
            consumer_settings("Nowhere", group="others"),
        ):
            assert await _told(settings, other) == Code.UNAUTHORIZED
        assert await _code(other, leaving) == Code.UNAUTHORIZED
        session = here.proxy.sessions.find(reader.client_id or "")
        assert session is not None
        assert (session.user, session.group) == ("reader", GROUP)
        session.tell(TelemetryCommand())
        assert await stream.receive() is not None
        assert await _code(reader, leaving) == Code.OK
        assert here.proxy.sessions.find(reader.client_id or "") is None


async def test_settings_whose_topics_do_not_exist_need_rights(tmp_path: Path) -> None:
    """Otherwise strangers would be among the members of a group."""
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", Topic__Nowhere="Sub", Group__readers="Sub")
        poor = await here.user("poor")
        stranger = await here.client(signs=signer("reader", "another secret"))
        assert await _code(poor, HeartbeatRequest()) == Code.OK  # the proxy knows of no topic yet
        writer = await here.user("writer", Topic__Orders="Pub")
        await send(writer, message(TOPIC))
        settings = consumer_settings("Nowhere", group=GROUP)
        for client, code in (
            (poor, Code.UNAUTHORIZED),
            (stranger, Code.UNAUTHORIZED),
            (reader, Code.OK),
        ):
            assert await _told(settings, client) == code
        assert len(here.proxy.sessions.consumers_of(GROUP)) == 1


async def test_rules_look_at_the_client_and_not_at_the_proxy(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        await here.user("near")
        await here.rule("near", "Topic:Orders", "Pub", source_ips=(f"{HOST}/32",))
        signs = signer("near", "near-secret")
        for peer, code in (
            (f"{HOST}:5000", Code.OK),
            ("10.0.0.8:5000", Code.UNAUTHORIZED),
            ("127.0.0.1:5000", Code.UNAUTHORIZED),
        ):
            client = await here.client(signs=signs, peer=peer)
            assert await _code(client, sending(message(TOPIC))) == code, peer
        await here.rule("near", "Topic:Orders", "Pub", source_ips=("2001:db8::/32",))
        for peer, code in (("[2001:db8::1]:5000", Code.OK), ("[::1]:5000", Code.UNAUTHORIZED)):
            client = await here.client(signs=signs, peer=peer)
            assert await _code(client, sending(message(TOPIC))) == code, peer


async def test_a_waiting_receive_ends_with_its_rights(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", Topic__Orders="Sub", Group__readers="Sub")
        writer = await here.user("writer", Topic__Orders="Pub")
        found: list[int] = []

        async def wait() -> None:
            answer = await reader.receive(receiving(TOPIC, GROUP, wait_s=20))
            assert not answer.messages
            found.append(answer.code)

        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            while not here.proxy.figures.calls["ReceiveMessage"]:  # noqa: ASYNC110
                await trio.sleep(0.01)
            await trio.sleep(0.2)
            await here.users.delete_rule("reader", "Topic:Orders")
            await send(writer, message(TOPIC))
        assert found in ([Code.UNAUTHORIZED], [Code.MESSAGE_NOT_FOUND])
        assert trio.current_time() - began < 25


async def test_a_half_message_is_not_shown_to_who_may_not_publish(tmp_path: Path) -> None:
    checks = CheckPolicy(after_s=1, every_s=1)
    async with guarded(tmp_path, checks=checks) as here:
        payer = await here.user("payer", Topic__Payments="Pub")
        stream = await payer.telemetry()
        await stream.settle(producer_settings(PAYMENTS))
        await send(payer, message(PAYMENTS, b"secret", message_type=MessageType.TRANSACTION))
        told = await stream.receive()
        assert told is not None
        assert told.recover_orphaned_transaction_command.message.body == b"secret"
        await here.users.delete_rule("payer", "Topic:Payments")
        with trio.move_on_after(0.5):
            await stream.receive()  # a question that was asked before
        with trio.move_on_after(2.5):
            pytest.fail(f"it is shown {await stream.receive()}")


async def _asked(
    nursery: trio.Nursery, here: Guarded, who: Credentials | None, whom: Represented
) -> Command:
    """What a broker answers to a send on behalf of somebody."""
    remoting = RemotingClient(nursery, lambda _connection, _command: None, credentials=who)
    fields = {name: str(value) for name, value in send_fields(TOPIC).items()}
    whom.add_to(fields)
    with trio.fail_after(10):
        return await remoting.request(here.address, Command(310, fields, b"body"), 5)


async def test_only_super_users_speak_for_others_and_only_with_their_proof(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    proof = signer("writer", "writer-secret", date="20261128T000736Z")()["authorization"]
    right = Represented("writer", "20261128T000736Z", proof.rpartition("=")[2], HOST)
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        await here.user("writer", Topic__Orders="Pub")
        ask = partial(_asked, nursery, here)
        assert (await ask(PROXY, right)).code == 0
        assert (await ask(PROXY, right._replace(proof=right.proof.upper()))).code == 0
        hostile = (
            *(right._replace(proof=text) for text in ("", "0", "é", "0" * 40)),
            *(right._replace(date=text) for text in ("", "é", "20261128T000737Z")),
            *(right._replace(user=text) for text in ("", "nobody", "admin", "proxy", "é")),
            *(right._replace(host=text) for text in ("", "x", "10.0.0.7:1", "é", "1" * 300)),
        )
        for whom in hostile:
            reply = await ask(PROXY, whom)
            assert reply.code == ResponseCode.NO_PERMISSION, whom
            assert "secret" not in (reply.remark or "")
        for who in (
            None,
            Credentials("writer", "writer-secret"),
            Credentials("proxy", "wrong-secret"),
        ):
            reply = await ask(who, right)
            assert reply.code == ResponseCode.NO_PERMISSION
        assert not caplog.records
        nursery.cancel_scope.cancel()


async def test_a_signature_covers_whom_a_request_is_for(tmp_path: Path) -> None:
    """Nobody on the way changes the user of a proxy's request."""
    proof = signer("writer", "writer-secret", date="20261128T000736Z")()["authorization"]
    right = Represented("writer", "20261128T000736Z", proof.rpartition("=")[2], HOST)
    async with guarded(tmp_path) as here, trio.open_nursery() as nursery:
        await here.user("writer", Topic__Orders="Pub")
        signing = RemotingClient(nursery, lambda _c, _r: None, credentials=PROXY)
        bare = RemotingClient(nursery, lambda _c, _r: None)
        fields = {name: str(value) for name, value in send_fields(TOPIC).items()}
        right.add_to(fields)
        command = Command(310, fields, b"body")
        signing.sign(command)
        assert (await bare.request(here.address, command, 5)).code == 0
        for name in ("onBehalfOf", "callerDate", "callerSignature", "callerHost", "b"):
            changed = Command(310, {**command.fields, name: "other"}, b"body")
            reply = await bare.request(here.address, changed, 5)
            assert reply.code == ResponseCode.NO_PERMISSION, name
            removed = Command(310, {**command.fields}, b"body")
            del removed.fields[name]
            reply = await bare.request(here.address, removed, 5)
            assert reply.code == ResponseCode.NO_PERMISSION, name
        nursery.cancel_scope.cancel()


async def test_a_proxy_without_a_user_is_refused_by_brokers_with_access_control(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as here:
        names = here.broker.config.nameservers
        async with Client(list(names), credentials=None) as client, trio.open_nursery() as inner:
            other = Served(Proxy(client, inner, is_user=False), inner)
            signed = await other.client(signs=signer("admin", "admin-secret"))
            answer: Any = await signed.unary(sending(message(TOPIC)))
            assert answer.status.code in (Code.UNAUTHORIZED, Code.INTERNAL_SERVER_ERROR)
            inner.cancel_scope.cancel()
