"""Users with certificates: whom they make a user, and whom a member."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

import dledger
from dledger.client.node_connection import connect_node
from dledger.config import Address
from dledger.network.tls import GroupTls
from dledger.wire.channel_protocol import Opening, decode_channel_answer, encode_opening
from dledger.wire.client_protocol import Operation
from dledger.wire.handshake import Caller, Hello, encode_hello
from tests.dledger.network.certificates import Authority
from tests.dledger.network.test_tls_members import files
from tests.dledger.serving.log_users import (
    ALL,
    Group,
    Stranger,
    credentials,
    running,
    shows,
    write_users,
)

NAMES = ("n0", "n1", "n2")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("tls") / "authority")
    for name in (*NAMES, "ann", "bob", "stranger"):
        made.sign(name)
    made.sign("two", "zoe", "eve")
    return made


@asynccontextmanager
async def secured(folder: Path, authority: Authority, users: Path) -> AsyncIterator[Group]:
    tls = {name: files(authority, name) for name in NAMES}
    async with running(folder, dict.fromkeys(NAMES, users), tls=tls) as group:
        await group.leader()
        yield group


async def test_a_certificate_that_names_a_user_is_that_user(
    tmp_path: Path, authority: Authority
) -> None:
    users = write_users(
        tmp_path / "users.toml",
        {"ann": ["append"], "zoe": ["append"], "eve": ["read"], "bob": ["read"]},
        member_secrets=(),
        by_certificate=["ann", "zoe", "eve"],
    )
    async with secured(tmp_path, authority, users) as group:

        def client(name: str, user: str | None = None) -> dledger.GroupClient:
            given = None if user is None else credentials(user)
            return dledger.GroupClient("g", group.peers, files(authority, name), given)

        await client("ann").append([b"a"], 10)
        with pytest.raises(dledger.NotPermitted, match="user ann may not ask for entries"):
            await client("ann").entries(0)
        # Of several users that it names, the first one counts.
        with pytest.raises(dledger.NotPermitted, match="user eve may not ask for append"):
            await client("two").append([b"a"], 10)
        # One that names none has to prove one by a secret; one without a secret has none.
        with pytest.raises(dledger.CredentialsRefused, match="or a certificate that names a user"):
            await client("stranger").append([b"a"], 10)
        with pytest.raises(dledger.CredentialsRefused, match="unknown, or its secret is wrong"):
            await client("stranger", "ann").append([b"a"], 10)
        assert (await client("stranger", "bob").entries(0))[0].index == 0
        # A member's certificate is that of a member.
        await client("n1").append([b"b"], 10)
        assert (await client("n1").entries(0))[0].index == 0


async def test_a_users_certificate_opens_no_channel_of_members(
    tmp_path: Path, authority: Authority
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL}, member_secrets=())
    async with secured(tmp_path, authority, users) as group:
        answers = {}
        for name in ("ann", "n1", "stranger"):
            tls = GroupTls(files(authority, name))
            async with await trio.open_tcp_stream(*group.address("n0")) as socket:
                peer = Stranger(await tls.dialled(socket, "n0"))
                hello = Hello(Caller.PEER, address=Address("127.0.0.1", 1))
                opening = encode_opening(Opening(0, "g", name, "n0"))
                welcome = await peer.answer(encode_hello(hello) + opening)
                assert welcome is not None
                assert welcome[0] == "welcome"
                frame = await peer.read()
                assert frame is not None
                answers[name] = decode_channel_answer(frame).refusal
        assert answers["ann"] == "the certificate of ann is that of a user, and not of a member"
        assert answers["n1"] is None or "second process" in answers["n1"]
        # As documented: a certificate of the authority that names no user may be a new member's.
        assert answers["stranger"] is None


async def test_with_a_secret_of_members_no_certificate_is_enough_for_a_member(
    tmp_path: Path, authority: Authority
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    async with secured(tmp_path, authority, users) as group:
        leader = await group.leader()
        await leader.append(b"a")
        for name in ("stranger", "n1"):
            tls = GroupTls(files(authority, name))
            async with await trio.open_tcp_stream(*group.address("n0")) as socket:
                peer = Stranger(await tls.dialled(socket, "n0"))
                await peer.challenge(Hello(Caller.PEER, address=Address("127.0.0.1", 1)))
                answer = await peer.answer(encode_opening(Opening(0, "g", name, "n0")))
                assert answer is not None
                assert answer[:2] == ["refused", "it did not prove who it is"]


async def test_a_user_by_certificate_that_is_removed_is_refused_at_its_next_request(
    tmp_path: Path, authority: Authority
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL}, by_certificate=["ann"])
    async with secured(tmp_path, authority, users) as group:
        tls = GroupTls(files(authority, "ann"))
        async with connect_node("g", "n0", group.address("n0"), tls, shows("bob")) as connection:
            await connection.ask(Operation.STATUS)
            write_users(users, {"bob": ALL})
            group.nodes["n0"].reload_users()
            with pytest.raises(dledger.ProofNeeded):
                await connection.ask(Operation.STATUS)
        async with connect_node("g", "n0", group.address("n0"), tls, shows("bob")) as connection:
            await connection.ask(Operation.STATUS)
