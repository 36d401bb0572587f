"""The port of a broker's log has the users of the brokers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import dledger
from broker.access.log_authority import LogAuthority
from broker.server import Broker
from dledger import Right
from remoting.wire.signature import Credentials
from tests.broker.access.guarded_broker import ADMIN, CODE, FILE, allow, guarded

OPERATED = {Right.MEMBERS, Right.LEAD}
READ = {Right.READ, Right.QUERY, Right.WATCH}


def client(broker: Broker, user: str | None, secret: str = "") -> dledger.GroupClient:
    given = None
    if user is not None:
        given = dledger.Credentials(user, secret or f"{user}-secret")
    peers = dict(broker.config.peers)
    return dledger.GroupClient(broker.config.group, peers, None, given)


async def test_rules_of_the_cluster_say_what_a_user_may_do_with_the_log(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        authority = here.broker.authority
        assert authority is not None
        await here.user("looks", allow("Cluster:DefaultCluster", "Get"))
        await here.user("operates", allow("Cluster:DefaultCluster", "Update"))
        await here.user("spark", allow("Cluster:DefaultCluster", "Sub"))
        await here.user("near", allow("Cluster:*", "Get", sourceIps=["127.0.0.0/8"]))
        await here.user("all", allow("*", "All"))
        await here.user("topics", allow("Topic:*", "All"), allow("Group:*", "All"))
        await here.user("super", userType="Super")
        await here.user("gone", allow("*", "All"), userStatus="disable")

        def granted(user: str, host: str = "127.0.0.1") -> set[Right]:
            return {right for right in Right if authority.allows(user, right, host)}

        everything = set(Right) - {Right.APPEND}
        assert granted("looks") == {Right.STATUS}
        assert granted("operates") == OPERATED
        assert granted("spark") == READ
        assert granted("near") == {Right.STATUS}
        assert granted("near", "10.0.0.1") == granted("near", "") == set()
        assert granted("all") == granted("super") == granted("admin") == everything
        assert granted("topics") == granted("gone") == granted("nobody") == set()
        assert not authority.knows("gone")
        assert authority.secret_of("gone") is None


async def test_the_log_is_open_to_its_users_alone_and_nobody_appends(tmp_path: Path) -> None:
    async with guarded(tmp_path) as here:
        broker = here.broker
        await here.user("spark", allow("Cluster:DefaultCluster", "Sub"))
        await here.user("looks", allow("Cluster:DefaultCluster", "Get"))
        admin = client(broker, "admin", ADMIN.secret_key)
        assert (await admin.leader_status(10))["node_id"] == broker.config.node_id
        assert (await admin.entries(0))[0].index == 0
        assert (await client(broker, "spark").entries(0))[0].index == 0
        with pytest.raises(dledger.NotPermitted, match="user looks may not ask for entries"):
            await client(broker, "looks").entries(0)
        with pytest.raises(dledger.NotPermitted):
            await client(broker, "spark").transfer(None, 10)
        for who in (admin, client(broker, "spark")):
            with pytest.raises(dledger.ClientAppendsOff):
                await who.append([b"raw"], 10)
        for user, secret in ((None, ""), ("nobody", ""), ("admin", "wrong-secret")):
            with pytest.raises(dledger.CredentialsRefused):
                await client(broker, user, secret).entries(0)
        # A rule that is taken away counts on a connection that is open.
        peers = dict(broker.config.peers)
        given = dledger.Credentials("spark", "spark-secret")
        async with dledger.connect(
            peers, group=broker.config.group, credentials=given, timeout_s=10
        ) as log:
            await log.read(0)
            await here.rules("spark", allow("Cluster:DefaultCluster", "Get"))
            with pytest.raises(dledger.NotPermitted):
                await log.read(0)
            assert await here.ask(CODE.AUTH_DELETE_USER, username="spark") == 0
            with pytest.raises(dledger.CredentialsRefused):
                await log.status()


async def test_another_secret_of_the_administrator_counts_at_the_port_of_the_log(
    tmp_path: Path,
) -> None:
    async with guarded(tmp_path) as here:
        broker = here.broker
        peers = dict(broker.config.peers)
        given = dledger.Credentials("admin", ADMIN.secret_key)
        async with dledger.connect(
            peers, group=broker.config.group, credentials=given, timeout_s=10
        ) as log:
            await log.read(0)
            broker.take_access(replace(FILE, admin=Credentials("chief", "chief-secret")))
            with pytest.raises(dledger.CredentialsRefused):
                await log.read(0)
        with pytest.raises(dledger.CredentialsRefused):
            await client(broker, "admin", ADMIN.secret_key).entries(0)
        chief = client(broker, "chief", "chief-secret")
        assert (await chief.entries(0))[0].index == 0


async def test_permissive_leaves_the_port_as_it_was_and_may_change(tmp_path: Path) -> None:
    async with guarded(tmp_path, log_asks=False) as here:
        broker = here.broker
        assert (await client(broker, None).entries(0))[0].index == 0
        broker.reconfigure(replace(broker.config, log_asks=True))
        with pytest.raises(dledger.CredentialsRefused):
            await client(broker, None).entries(0)


def test_before_the_log_is_read_the_administrator_alone_is_known() -> None:
    authority = LogAuthority(FILE, speaks_tls=False, asks=True)
    assert authority.knows("admin")
    assert authority.secret_of("admin") == ADMIN.secret_key.encode()
    assert not authority.knows("spark")
    assert not any(authority.allows("spark", right, "127.0.0.1") for right in Right)
    assert not authority.allows("admin", Right.APPEND, "127.0.0.1")


def test_members_prove_themselves_by_certificates_or_else_by_the_seal_key() -> None:
    (secret,) = LogAuthority(FILE, speaks_tls=False, asks=True).member_secrets
    assert len(secret) == 32
    assert FILE.seal_key not in secret
    assert LogAuthority(FILE, speaks_tls=True, asks=True).member_secrets == ()
