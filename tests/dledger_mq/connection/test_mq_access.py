"""Clients of users with few rights, on a broker and a name server with access control."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result

from broker.server import Broker
from broker.transactions.policy import CheckPolicy
from broker.transactions.state import TRANSACTIONS, End
from dledger_mq import (
    Admin,
    Client,
    ConsumeFrom,
    Credentials,
    InvalidCredentials,
    Message,
    PopConsumer,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestRefused,
    SendFailed,
    TransactionState,
    blocking,
)
from dledger_mq.__main__ import main
from dledger_mq.admin.users import Users
from nameserver.server import serve_nameserver
from remoting.bodies.access import AclEntry
from remoting.net.access_file import new_access_file, read_access_file, read_credentials
from tests.broker.one_broker import running_broker
from tests.dledger_mq.real_group import wall_clock_ms

TOPIC = "Orders"


class Guarded:
    """A group with access control.

    Attributes:
        names: the name server's address.
        file: the file of access control.
    """

    def __init__(self, names: str, file: Path, admin: Credentials, broker: Broker) -> None:
        self.names = names
        self.file = file
        self.admin = admin
        self.broker = broker

    async def user(self, name: str, **rules: str) -> Credentials:
        """A new user that may do what is said for each resource, with ":" as "__"."""
        made = Credentials(name, f"{name}-secret")
        async with Client(self.names, credentials=self.admin) as client:
            users = Users(client)
            await users.create(name, made.secret_key)
            for resource, actions in rules.items():
                await users.put_rule(name, AclEntry(resource.replace("__", ":"), (actions,)))
        return made

    async def command(self, *arguments: str) -> Result:
        whole = [*arguments, "--nameserver", self.names]
        return await trio.to_thread.run_sync(partial(CliRunner().invoke, main, whole))


@asynccontextmanager
async def guarded(directory: Path) -> AsyncIterator[Guarded]:
    path = directory / "access.toml"
    file = new_access_file(path, "admin")
    async with trio.open_nursery() as nursery:
        serve = partial(serve_nameserver, "127.0.0.1", 0, admin=lambda: file.admin)
        names = str(await nursery.start(serve))
        async with running_broker(
            directory / "n0",
            nameservers=(names,),
            access=file,
            clock=wall_clock_ms,
            checks=CheckPolicy(after_s=1, every_s=1),
        ) as (broker, _):
            found = Guarded(names, path, file.admin, broker)
            async with Admin(nameservers=names, credentials=file.admin) as admin:
                await admin.create_topic(TOPIC)
            yield found
        nursery.cancel_scope.cancel()


async def test_each_kind_of_client_needs_its_topic_and_its_group_alone(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        writer = await here.user("writer", Topic__Orders="Pub")
        reader = await here.user("reader", Topic__Orders="Sub", Group__readers="Sub")
        popper = await here.user("popper", Topic__Orders="Sub", Group__poppers="Sub")
        async with Producer("writers", nameservers=here.names, credentials=writer) as producer:
            await producer.send_many([Message(TOPIC, b"%d" % at) for at in range(20)])
        for ordered in (False, True):
            found: list[bytes] = []
            consumer = PushConsumer(
                "readers",
                TOPIC,
                nameservers=here.names,
                credentials=reader,
                consume_from=ConsumeFrom.FIRST,
                ordered=ordered,
            )
            with trio.fail_after(20):
                async with consumer as messages:
                    async for message in messages:
                        found.append(message.body)
                        if len(found) == 10:
                            break
            assert len(set(found)) == 10
        popped = trio.Event()

        async def pop(_messages: list[ReceivedMessage]) -> None:
            popped.set()

        pops = PopConsumer("poppers", TOPIC, pop, nameservers=here.names, credentials=popper)
        with trio.fail_after(20):
            async with (
                pops,
                Producer("writers", nameservers=here.names, credentials=writer) as producer,
            ):
                await producer.send(Message(TOPIC, b"later"))
                await popped.wait()


async def test_a_producer_is_asked_about_its_transactions_and_signs_its_answer(
    tmp_path: Path,
) -> None:
    asked = trio.Event()

    async def check(_message: ReceivedMessage) -> TransactionState:
        asked.set()
        return TransactionState.COMMIT

    async with guarded(tmp_path) as here:
        writer = await here.user("writer", Topic__Orders="Pub")
        async with Producer(
            "tellers", nameservers=here.names, credentials=writer, check=check
        ) as producer:
            await producer.begin_transaction(Message(TOPIC, b"paid"))
            transactions = here.broker.machine.state[TRANSACTIONS]
            with trio.fail_after(20):
                await asked.wait()
                while not transactions.ends:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert list(transactions.ends.values()) == [End.COMMITTED]


async def test_what_is_not_permitted_is_an_error_that_names_what_lacks(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        reader = await here.user("reader", Topic__Orders="Sub")
        for credentials, words in (
            (reader, "reader lacks Pub on Topic Orders"),
            (None, "not signed"),
            (Credentials("reader", "another-secret"), "signature is wrong"),
        ):
            async with Producer("p", nameservers=here.names, credentials=credentials) as producer:
                with pytest.raises(SendFailed, match=words):
                    await producer.send(Message(TOPIC, b"x"))
        async with Admin(nameservers=here.names, credentials=reader) as admin:
            with pytest.raises(RequestRefused, match="lacks Create or Update on Topic Mine"):
                await admin.create_topic("Mine")


def test_credentials_that_no_user_can_have_are_refused_at_once() -> None:
    for credentials in (
        Credentials("", "long-enough"),
        Credentials("a b", "long-enough"),
        Credentials("a", "short"),
        Credentials("a", "é" * 10),
    ):
        with pytest.raises(InvalidCredentials) as refused:
            Producer("p", nameservers="127.0.0.1:1", credentials=credentials)
        assert credentials.secret_key not in str(refused.value)
    shared = Client("127.0.0.1:1")
    with pytest.raises(InvalidCredentials, match="shared client"):
        Admin(client=shared, credentials=Credentials("a", "long-enough"))


async def test_users_are_made_and_changed_by_commands(tmp_path: Path) -> None:
    mine, admin = str(tmp_path / "reader.toml"), "--credentials"
    async with guarded(tmp_path) as here:
        file = str(here.file)

        async def say(*arguments: str) -> Result:
            return await here.command(*arguments, admin, file)

        async def rows(*arguments: str) -> list[object]:
            return [json.loads(line) for line in (await say(*arguments)).stdout.splitlines()]

        assert (await say("user", "create", "reader", mine)).exit_code == 0
        again = await say("user", "create", "reader", str(tmp_path / "other.toml"))
        assert (again.exit_code, "there is a user reader" in again.output) == (1, True)
        assert not (tmp_path / "other.toml").exists()
        for rule in (("Topic:Orders", "Sub"), ("Group:r*", "Sub,Get", "--from", "127.0.0.0/8")):
            assert (await say("user", "allow", "reader", *rule)).exit_code == 0
        assert (await say("user", "allow", "reader", "*", "All", "--deny")).exit_code == 0
        assert await rows("user", "list", "--json") == [
            {"user": "reader", "type": "Normal", "status": "enable"}
        ]
        assert [one["decision"] for one in await rows("user", "rules", "reader", "--json")] == [  # type: ignore[index]
            *("Allow", "Allow", "Deny")
        ]
        look = ("consume", TOPIC, "--from-first", "--count", "1", "--timeout", "0.5")
        assert (await here.command(*look, admin, mine)).exit_code == 2  # nothing came
        refused = await here.command("send", TOPIC, "x", admin, mine)
        assert (refused.exit_code, "not permitted" in refused.output) == (1, True)
        wrong = await say("user", "allow", "reader", "Queue:x", "Sub")
        assert (wrong.exit_code, "resource 'Queue'" in wrong.output) == (1, True)
        for change in (
            ("user", "forget", "reader", "*"),
            ("user", "disable", "reader"),
            ("user", "enable", "reader"),
            ("user", "delete", "reader"),
        ):
            assert (await say(*change)).exit_code == 0, change
        assert await rows("user", "rules", "--json") == []
        unsigned = await here.command("user", "list")
        assert (unsigned.exit_code, "not signed" in unsigned.output) == (1, True)


async def test_a_user_gets_another_secret_while_its_connections_stay(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        old = await here.user("writer", Topic__Orders="Pub")
        path = tmp_path / "new.toml"
        admin = ("--credentials", str(here.file))
        async with Producer("writers", nameservers=here.names, credentials=old) as producer:
            await producer.send(Message(TOPIC, b"x"))
            connections = set(here.broker.requests.connections)
            ended = await here.command("user", "renew", "writer", str(path), *admin)
            assert ended.exit_code == 0, ended.output
            new = read_credentials(path)
            assert new.secret_key not in ended.output
            with pytest.raises(SendFailed, match="not permitted"):
                await producer.send(Message(TOPIC, b"x"))
            assert connections & set(here.broker.requests.connections)
        async with Producer("writers", nameservers=here.names, credentials=new) as producer:
            await producer.send(Message(TOPIC, b"x"))
        other = tmp_path / "other.toml"
        ended = await here.command("user", "renew", "nobody", str(other), *admin)
        assert (ended.exit_code, "there is no user" in ended.output) == (1, True)
        assert not other.exists()


async def test_a_user_is_limited_to_networks(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        writer = await here.user("writer")
        allow = ("user", "allow", "writer", "Topic:Orders", "Pub", "--from")
        admin = ("--credentials", str(here.file))
        async with Producer("writers", nameservers=here.names, credentials=writer) as producer:
            for network, permits in (("10.9.0.0/16", False), ("127.0.0.0/8", True)):
                assert (await here.command(*allow, network, *admin)).exit_code == 0
                if permits:
                    await producer.send(Message(TOPIC, b"x"))
                else:
                    with pytest.raises(SendFailed, match="not permitted"):
                        await producer.send(Message(TOPIC, b"x"))


PLAIN = """
globalWhiteRemoteAddresses: [10.0.0.*]
accounts:
  - accessKey: shop
    secretKey: shop-secret
    defaultTopicPerm: SUB
    topicPerms: [Orders=PUB]
    groupPerms: [readers=SUB]
  - accessKey: root
    secretKey: root-secret
    admin: true
  - accessKey: admin
    secretKey: other-secret
"""


async def test_accounts_of_version_4_are_imported_with_the_same_rights(tmp_path: Path) -> None:
    path = tmp_path / "plain_acl.yml"
    path.write_text(PLAIN, encoding="ascii")
    async with guarded(tmp_path) as here:

        async def brought(*options: str) -> tuple[Result, dict[str, str]]:
            words = ("user", "import", str(path), "--json", *options)
            ended = await here.command(*words, "--credentials", str(here.file))
            assert "-secret" not in ended.output
            rows = [json.loads(line) for line in ended.stdout.splitlines()]
            return ended, {row["user"]: row["outcome"].partition(":")[0] for row in rows}

        async with Client(here.names, credentials=here.admin) as client:
            users = Users(client)
            dry, outcomes = await brought("--dry-run")
            assert outcomes == {"shop": "made", "root": "made", "admin": "made"}
            assert (dry.exit_code, "not translated: globalWhite" in dry.stderr) == (0, True)
            assert await users.all() == {}
            ended, outcomes = await brought()
            assert outcomes == {"shop": "made", "root": "made", "admin": "refused"}
            assert ended.exit_code == 1
            assert [user.user_type for user in (await users.all()).values()] == ["Super", "Normal"]
            shop = Credentials("shop", "shop-secret")
            async with Producer("p", nameservers=here.names, credentials=shop) as producer:
                await producer.send(Message(TOPIC, b"x"))
                with pytest.raises(SendFailed, match="not permitted"):
                    await producer.send(Message("Other", b"x"))
            await users.put_rule("shop", AclEntry("Topic:Other", ("Pub",)))
            await users.change("shop", secret="changed-secret")
            _, outcomes = await brought()
            assert outcomes["shop"] == "kept"
            assert len(await users.rules()) == 1
            _, outcomes = await brought("--overwrite")
            assert outcomes["shop"] == "replaced"
            (acl,) = await users.rules()
            resources = {entry.resource for policy in acl.policies for entry in policy.entries}
            assert resources == {"Topic:Orders", "Group:readers", "Topic:*"}


def test_the_command_makes_the_file_of_the_servers(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    ended = CliRunner().invoke(main, ["access", str(path), "--admin", "root"])
    assert ended.exit_code == 0, ended.output
    made = read_access_file(path)
    assert made.admin.access_key == "root"
    assert made.admin.secret_key not in ended.output
    again = CliRunner().invoke(main, ["access", str(path)])
    assert (again.exit_code, "nothing is overwritten" in again.output) == (1, True)


async def test_the_blocking_form_takes_credentials(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        writer = await here.user("writer", Topic__Orders="Pub")

        def plainly() -> str:
            with blocking.open_producer(
                Producer("writers", nameservers=here.names, credentials=writer)
            ) as producer:
                return producer.send(Message(TOPIC, b"hello")).message_id

        assert await trio.to_thread.run_sync(plainly)
