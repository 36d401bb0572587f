"""Producers and consumers with TLS, of all three forms, on a real broker and name server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from broker.config import BrokerConfig
from broker.errors import SettingInvalid
from broker.server import Broker
from dledger_mq import (
    Admin,
    Client,
    ConsumeFrom,
    InvalidTls,
    Message,
    MessagingError,
    NameServersUnreachable,
    Producer,
    PullConsumer,
    PushConsumer,
    Tls,
    blocking,
    for_asyncio,
)
from dledger_mq.__main__ import main
from nameserver.server import serve_nameserver
from remoting.net.address import Address
from remoting.net.tls import ServerTls
from remoting.net.tls_config import ClientAuth, ServerTlsConfig, TlsMode
from tests.broker.one_broker import running_broker
from tests.remoting.net.certificates import (
    HERE,
    authority,
    client_config,
    server_config,
    signed,
)

TOPIC = "Secrets"


def broker_tls(client_auth: ClientAuth = ClientAuth.REQUIRE) -> ServerTlsConfig:
    return server_config(
        mode=TlsMode.ENFORCING, client_auth=client_auth, files=signed("n0", HERE, "localhost")
    )


@asynccontextmanager
async def enforcing(directory: Path) -> AsyncIterator[tuple[str, Broker]]:
    """A name server and a broker that want to see a certificate; the address of the former."""
    async with trio.open_nursery() as nursery:
        names = server_config(mode=TlsMode.ENFORCING, client_auth=ClientAuth.REQUIRE)
        serve = partial(serve_nameserver, "127.0.0.1", 0, tls=ServerTls(names))
        address = str(await nursery.start(serve))
        async with running_broker(directory, nameservers=(address,), tls=broker_tls()) as (
            broker,
            _,
        ):
            yield address, broker
        nursery.cancel_scope.cancel()


def own_tls() -> Tls:
    return client_config(signed("orders"))


async def test_messages_are_sent_and_consumed_over_tls(tmp_path: Path) -> None:
    async with enforcing(tmp_path) as (names, broker):
        async with Producer("writers", nameservers=names, tls=own_tls()) as producer:
            sent = await producer.send_many([Message(TOPIC, b"%d" % at) for at in range(20)])
            assert len(sent) == 20
        async with Client(names, tls=own_tls()) as client:
            async with PullConsumer("pullers", client=client) as puller:
                found = [await puller.pull(queue, 0) for queue in await puller.queues(TOPIC)]
            assert sum(len(one.messages) for one in found) == 20
            shown = {one.names for one in broker.requests.connections}
            assert shown == {frozenset({"orders"})}


async def test_a_consumer_gets_messages_over_tls(tmp_path: Path) -> None:
    async with (
        enforcing(tmp_path) as (names, _broker),
        Producer("writers", nameservers=names, tls=own_tls()) as producer,
    ):
        await producer.send(Message(TOPIC, b"hello"))
        consumer = PushConsumer(
            "readers",
            TOPIC,
            nameservers=names,
            tls=own_tls(),
            consume_from=ConsumeFrom.FIRST,
        )
        with trio.fail_after(20):
            async with consumer as messages:
                async for message in messages:
                    assert message.body == b"hello"
                    break


async def test_the_blocking_and_asyncio_forms_speak_tls(tmp_path: Path) -> None:
    async with enforcing(tmp_path) as (names, _broker):

        def plainly() -> str:
            with blocking.open_producer(
                Producer("writers", nameservers=names, tls=own_tls())
            ) as producer:
                return producer.send(Message(TOPIC, b"hello")).message_id

        async def in_asyncio() -> str:
            async with for_asyncio.open_producer(
                Producer("writers", nameservers=names, tls=own_tls())
            ) as producer:
                return (await producer.send(Message(TOPIC, b"hello"))).message_id

        def with_admin() -> list[str]:
            with blocking.open_admin(Admin(nameservers=names, tls=own_tls())) as admin:
                return list(admin.topics())

        assert await trio.to_thread.run_sync(plainly)
        assert await trio.to_thread.run_sync(lambda: asyncio.run(in_asyncio()))
        assert TOPIC in await trio.to_thread.run_sync(with_admin)


async def typed(*arguments: str, **environment: str) -> Result:
    call = partial(CliRunner(env=environment).invoke, main, arguments)
    return await trio.to_thread.run_sync(call)


async def test_commands_take_certificates_as_options_and_from_the_environment(
    tmp_path: Path,
) -> None:
    shown = signed("orders")
    files = {
        "ca": str(authority().path),
        "cert": str(shown.certificate),
        "key": str(shown.key),
    }
    async with enforcing(tmp_path) as (names, _broker):
        options = [part for name, path in files.items() for part in (f"--tls-{name}", path)]
        sent = await typed("send", TOPIC, "hello", "--nameserver", names, *options)
        assert (sent.exit_code, sent.output.count("1 messages acknowledged")) == (0, 1), sent.output
        variables = {f"DLEDGER_MQ_TLS_{name.upper()}": path for name, path in files.items()}
        topics = await typed("topic", "list", "--nameserver", names, **variables)
        assert (topics.exit_code, TOPIC in topics.output) == (0, True), topics.output
        plain = await typed("topic", "list", "--nameserver", names)
        assert plain.exit_code != 0
        unknown = await typed("topic", "list", "--nameserver", names, "--tls")
        assert "certificate is not believed" in unknown.output


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (lambda: None, "closed"),
        (
            lambda: client_config(believed="other", shown=signed("orders")),
            "certificate is not believed",
        ),
        (lambda: client_config(server_name="elsewhere"), "Hostname mismatch"),
        (client_config, "certificate"),
        (lambda: client_config(signed("orders", by="other")), "does not believe our certificate"),
    ],
    ids=["plain", "unknown authority", "another name", "no certificate", "not believed"],
)
async def test_a_client_that_is_refused_is_told_why(
    nursery: trio.Nursery, tls: Callable[[], Tls | None], reason: str
) -> None:
    names = server_config(mode=TlsMode.ENFORCING, client_auth=ClientAuth.REQUIRE)
    serve = partial(serve_nameserver, "127.0.0.1", 0, tls=ServerTls(names))
    address = str(await nursery.start(serve))
    shown = tls()
    async with Admin(nameservers=address, tls=shown) as admin:
        with pytest.raises(NameServersUnreachable) as caught:
            await admin.topics()
    assert reason in str(caught.value) or shown is None


def test_certificates_that_cannot_be_used_are_reported_where_they_are_given(tmp_path: Path) -> None:
    for tls, reason in (
        (Tls(authorities=tmp_path / "none.pem"), "tls.authorities: .*none.pem cannot be used"),
        (Tls(certificate=tmp_path / "a.pem"), "tls.key: is missing"),
        (Tls(key=tmp_path / "a-key.pem"), "tls.certificate: is missing"),
    ):
        with pytest.raises(InvalidTls, match=reason):
            Producer("writers", nameservers="127.0.0.1:9876", tls=tls)
    shared = Client("127.0.0.1:9876")
    with pytest.raises(InvalidTls, match="belongs to the shared client"):
        Producer("writers", client=shared, tls=own_tls())
    assert issubclass(InvalidTls, MessagingError)


def test_a_broker_needs_the_authority_of_its_members(tmp_path: Path) -> None:
    files = signed("n0", HERE)
    with pytest.raises(SettingInvalid, match="--tls-ca: is missing"):
        BrokerConfig(
            group="broker-a",
            node_id="n0",
            peers={"n0": "127.0.0.1:20911"},
            listen=Address("127.0.0.1", 10911),
            directory=tmp_path,
            tls=ServerTlsConfig(certificate=files.certificate, key=files.key),
        )


async def test_a_broker_without_its_own_name_in_its_certificate_does_not_start(
    tmp_path: Path,
) -> None:
    tls = server_config(files=signed("n7", HERE))
    with pytest.RaisesGroup(
        pytest.RaisesExc(Exception, match="is that of n7, not of n0"),
        allow_unwrapped=True,
        flatten_subgroups=True,
    ):
        async with running_broker(tmp_path, tls=tls):
            raise AssertionError("it started")
