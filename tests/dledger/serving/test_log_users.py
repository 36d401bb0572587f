"""The users of the log's port: what each right opens, and that a change counts at once."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import trio

import dledger
from dledger.client.node_connection import NodeConnection, connect_node, dial
from dledger.core.membership.configuration_change import Transition
from dledger.errors import MessageMalformed
from dledger.serving import listener
from dledger.serving.permit import EVERYTHING, Permit
from dledger.wire.change_protocol import ChangeRequest, encode_change
from dledger.wire.channel_protocol import Opening, encode_opening
from dledger.wire.client_protocol import Operation, Request, encode_request
from dledger.wire.frame import Frame, FrameDecoder, encode_frame
from dledger.wire.handshake import Caller, Hello, Refused, encode_hello
from dledger.wire.proof import MEMBER, NONCE_BYTES, Shown, decode_proof, encode_proof
from dledger.wire.rights import NEEDED, Right
from tests.dledger.running_members import until
from tests.dledger.serving.log_users import (
    ALL,
    MEMBERS,
    Group,
    credentials,
    running,
    secret_of,
    shows,
    stranger,
    write_users,
)

HELLO = Hello(Caller.CLIENT, "g", "n0")
NONCE = bytes(range(NONCE_BYTES))

# What each request needs, written down once more: a new one fails here, and so does one that is
# given to others.
WANTED: dict[str, set[str]] = {
    "leader": {"append", "lead", "members", "query", "read", "status", "watch"},
    "status": {"lead", "members", "query", "read", "status", "watch"},
    "append": {"append"},
    "session_open": {"append"},
    "session_append": {"append"},
    "session_keep_alive": {"append"},
    "session_close": {"append"},
    "entries": {"read"},
    "query": {"query"},
    "watch": {"watch"},
    "change": {"members"},
    "snapshot": {"members"},
    "transfer": {"lead"},
}


def test_each_request_of_the_protocol_needs_the_rights_that_the_page_says() -> None:
    assert {str(operation): set(map(str, needed)) for operation, needed in NEEDED.items()} == WANTED
    assert set(map(str, Operation)) == set(WANTED)
    page = (Path(__file__).parents[3] / "docs" / "security.md").read_text()
    for right in Right:
        assert f"| `{right}` |" in page, f"docs/security.md does not tell of {right}"


@asynccontextmanager
async def as_user(group: Group, user: str, node_id: str = "n0") -> AsyncIterator[NodeConnection]:
    opening = connect_node("g", node_id, group.address(node_id), shows=shows(user))
    async with opening as connection:
        yield connection


async def test_a_user_with_one_right_is_refused_all_requests_that_need_another(
    tmp_path: Path,
) -> None:
    users = write_users(tmp_path / "users.toml", {f"only-{right}": [right] for right in ALL})
    problems = []
    async with running(
        tmp_path, {"n0": users}, lambda: dledger.WithSessions(dledger.LogOnly())
    ) as group:
        node = await group.leader()
        for right in ALL:
            user = f"only-{right}"
            async with as_user(group, user) as connection:
                for operation in Operation:
                    refused = None
                    try:
                        with trio.fail_after(10):
                            await connection.ask(operation)
                    except dledger.NotPermitted as error:
                        refused = error
                    except dledger.DLedgerError:
                        pass  # it was looked at, and lacks its arguments
                    if (refused is None) != (right in WANTED[operation]):
                        problems.append(f"{user} asks for {operation}: {refused!r}")
                    if refused is not None and (refused.user, refused.operation) != (
                        user,
                        operation,
                    ):
                        problems.append(f"{refused!r} names another user or request")
        assert node.status().members.voters == ["n0"]
    assert problems == []


async def test_users_do_what_their_rights_say_by_the_calls_of_the_library(tmp_path: Path) -> None:
    users = write_users(
        tmp_path / "users.toml",
        {
            "writer": ["append"],
            "reader": ["read"],
            "boss": ["status", "members", "lead"],
            "nobody": [],
        },
    )
    async with running(tmp_path, dict.fromkeys(("n0", "n1", "n2"), users)) as group:
        await group.leader()

        def client(user: str) -> dledger.GroupClient:
            return dledger.GroupClient("g", group.peers, None, credentials(user))

        await client("writer").append([b"a"], 10)
        with pytest.raises(dledger.NotPermitted, match="user writer may not ask for entries"):
            await client("writer").entries(0)
        with pytest.raises(dledger.NotPermitted, match="lacks the right append"):
            await client("reader").append([b"b"], 10)
        async with dledger.connect(
            group.peers, group="g", credentials=credentials("reader"), timeout_s=10
        ) as log:
            bodies = [entry.body async for entry in log.tail(0, follow=False)]
            assert bodies[-1:] == [b"a"]
            with pytest.raises(dledger.NotPermitted):
                await log.query("get", "a")
            with pytest.raises(dledger.NotPermitted):
                await anext(log.watch("a"))
        async with dledger.connect(
            group.peers, group="g", credentials=credentials("writer"), timeout_s=10
        ) as log:
            with pytest.raises(dledger.NotPermitted):
                await anext(log.tail(0))
        with pytest.raises(dledger.NotPermitted, match="lacks the right lead"):
            await client("writer").transfer(None, 10)
        leader = await client("boss").transfer(None, 10)
        assert leader in group.nodes
        assert (await client("boss").leader_status(10))["node_id"] == leader
        with pytest.raises(dledger.CredentialsRefused, match="user nobody may not ask for leader"):
            await client("nobody").append([b"c"], 10)
        # Others are refused when they connect, in one error of its own class.
        for given in (None, credentials("unknown"), dledger.Credentials("writer", "wrong" * 4)):
            other = dledger.GroupClient("g", group.peers, None, given)
            calls: tuple[Callable[[], Awaitable[object]], ...] = (
                partial(other.append, [b"d"], 10),
                partial(other.entries, 0),
                partial(other.status, "n0"),
                other.ask_members,
                partial(other.query, "get"),
            )
            for call in calls:
                with pytest.raises(dledger.CredentialsRefused):
                    await call()


async def test_a_session_of_a_follower_proves_that_it_is_a_members(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users.toml", {})
    async with running(
        tmp_path,
        dict.fromkeys(("n0", "n1", "n2"), users),
        lambda: dledger.WithSessions(dledger.LogOnly()),
    ) as group:
        leader = await group.leader()
        follower = next(node for node in group.nodes.values() if node is not leader)
        async with follower.session(timeout_s=10) as session:
            await session.append(b"once")


# --- challenges ---------------------------------------------------------------------------------


def proof(hello: Hello, user: str, challenge: bytes, secret: str | None = None) -> bytes:
    known = MEMBERS if user == MEMBER else secret_of(user)
    return encode_proof(hello, Shown(user, (secret or known).encode()), challenge, NONCE)


async def test_an_unknown_user_a_wrong_secret_and_no_secret_are_told_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    async with running(tmp_path, {"n0": users}) as group:
        answers = []
        for user, secret in (("ann", "wrong" * 5), ("bob", None), ("", "wrong" * 5)):
            async with stranger(group.nodes["n0"]) as caller:
                challenge = await caller.challenge(HELLO)
                answers.append(await caller.answer(proof(HELLO, user, challenge, secret)))
                assert await caller.read() is None
        words = (
            "this user is unknown, or its secret is wrong: give the credentials of a user of this "
            "group"
        )
        assert answers == [["refused", words, True, [], b""]] * 3
        assert group.nodes["n0"].status().refused_callers == 3
    assert secret_of("ann") not in caplog.text


async def test_a_proof_counts_for_one_connection_one_kind_of_caller_and_one_name(
    tmp_path: Path,
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL, "bob": ALL})
    async with running(tmp_path, {"n0": users}) as group:
        node = group.nodes["n0"]
        async with stranger(node) as caller:
            challenge = await caller.challenge(HELLO)
            heard = proof(HELLO, "ann", challenge)
            assert await caller.answer(heard) == ["welcome", "n0"]

        async def refused(hello: Hello, make: Callable[[bytes], bytes]) -> bool:
            async with stranger(node) as caller:
                challenge = await caller.challenge(hello)
                answer = await caller.answer(make(challenge))
                assert answer is not None
                return answer[0] == "refused"

        def renamed(challenge: bytes) -> bytes:
            told = decode_frame(proof(HELLO, "ann", challenge))
            return encode_frame([told[0], "bob", *told[2:]])

        peer = Hello(Caller.PEER, address=node.config.address)
        nameless = Hello(Caller.CLIENT, "g", "")
        assert not await refused(HELLO, lambda challenge: proof(HELLO, "bob", challenge))
        assert await refused(HELLO, lambda _: heard), "a proof was replayed"
        assert await refused(HELLO, renamed)
        assert await refused(HELLO, lambda challenge: proof(nameless, "ann", challenge))
        assert await refused(HELLO, lambda challenge: proof(peer, MEMBER, challenge))
        assert await refused(peer, lambda challenge: proof(HELLO, MEMBER, challenge))
        # A user is no member, and says in vain that it is one.
        assert await refused(peer, lambda challenge: proof(peer, "ann", challenge))
        assert not await refused(peer, lambda challenge: proof(peer, MEMBER, challenge))


def decode_frame(encoded: bytes) -> list[object]:
    return FrameDecoder().feed(encoded)[0].header


@pytest.mark.parametrize("place", [1, 2, 3, "more", "fewer", "long"])
async def test_hostile_values_in_a_proof_end_this_connection_alone(
    tmp_path: Path, place: int | str
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    hostile: tuple[object, ...] = (None, 7, -1, 2**63, 1.5, True, [], {}, "", b"", b"x" * 31)
    async with running(tmp_path, {"n0": users}) as group:
        node = group.nodes["n0"]
        for value in (*hostile, "x" * 254, "\udcff", "\x00", b"x" * 33):
            async with stranger(node) as caller:
                challenge = await caller.challenge(HELLO)
                fields = decode_frame(proof(HELLO, "ann", challenge))
                if place == "more":
                    fields.append(value)
                elif place == "fewer":
                    fields.pop()
                elif place == "long":
                    fields[1] = "x" * 20_000
                else:
                    assert isinstance(place, int)
                    fields[place] = value
                try:
                    frame = encode_frame(fields)
                except (ValueError, UnicodeEncodeError):
                    continue
                with suppress(trio.BrokenResourceError):
                    answer = await caller.answer(frame)
                    assert answer is None or answer[0] == "refused"
        async with as_user(group, "ann") as connection:
            await connection.ask(Operation.STATUS)


async def test_what_comes_instead_of_a_proof_is_not_looked_at(tmp_path: Path) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    async with running(tmp_path, {"n0": users}) as group:
        node = await group.leader()
        last = node.status().last_index
        peer = Hello(Caller.PEER, address=node.config.address)
        append = encode_request(Request(1, Operation.APPEND, [1], b"x"))
        for hello, frame in (
            (HELLO, append),
            (HELLO, encode_hello(HELLO)),
            (peer, encode_opening(Opening(0, "g", "n1", "n0"))),
        ):
            async with stranger(node) as caller:
                await caller.challenge(hello)
                answer = await caller.answer(frame)
                assert answer is not None
                assert answer[0] == "refused"
                assert await caller.read() is None
        # All in one piece, before the challenge.
        async with stranger(node) as caller:
            await caller.stream.send_all(encode_hello(HELLO) + append)
            answers = []
            while (answered := await caller.read()) is not None:
                answers.append(answered.header[0])
            assert set(answers) == {"refused"}
        assert node.status().last_index == last


async def test_callers_that_prove_nothing_leave_places_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAX_HANDSHAKES", 3)
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    async with running(tmp_path, {"n0": users}) as group:
        node = group.nodes["n0"]
        async with stranger(node) as first, stranger(node) as second, stranger(node) as third:
            for caller in (first, second, third):
                await caller.challenge(HELLO)
            async with stranger(node) as fourth:
                answer = await fourth.answer(encode_hello(HELLO))
                assert answer is not None
                assert "3 other callers have not proven" in str(answer[1])
                assert answer[2] is False, "a retry is not useless"
            challenge_of_first = await first.answer(encode_frame(["proof"]))
            assert challenge_of_first is not None
        async with as_user(group, "ann") as connection:
            await connection.ask(Operation.STATUS)


# --- changes while it runs ------------------------------------------------------------------------


async def test_a_removed_user_and_one_with_another_secret_are_refused_at_their_next_request(
    tmp_path: Path,
) -> None:
    path = write_users(tmp_path / "users.toml", {"ann": ALL, "bob": ALL})
    async with running(tmp_path, {"n0": path}) as group:
        node = await group.leader()
        async with as_user(group, "ann") as ann, as_user(group, "bob") as bob:
            await ann.ask(Operation.STATUS)
            await bob.ask(Operation.STATUS)
            write_users(path, {"bob": ALL})
            path.write_text(path.read_text().replace(secret_of("bob"), "another-secret-of-bob"))
            node.reload_users()
            for connection in (ann, bob):
                with pytest.raises(dledger.ProofNeeded, match="n0 does not take"):
                    await connection.ask(Operation.ENTRIES, [0, 0])
                assert connection.left
        write_users(path, {"ann": ["read"]})
        node.reload_users()
        async with as_user(group, "ann") as ann:
            await ann.ask(Operation.ENTRIES, [0, 0])
            with pytest.raises(dledger.NotPermitted):
                await ann.ask(Operation.APPEND, [1], b"x")
            write_users(path, {"ann": ["append"]})
            node.reload_users()
            await ann.ask(Operation.APPEND, [1], b"x")
            with pytest.raises(dledger.NotPermitted):
                await ann.ask(Operation.ENTRIES, [0, 0])


async def test_a_read_that_waits_while_its_right_is_taken_away_is_refused(tmp_path: Path) -> None:
    path = write_users(tmp_path / "users.toml", {"ann": ["read"]})
    async with running(tmp_path, {"n0": path}) as group:
        node = await group.leader()
        async with as_user(group, "ann") as ann, trio.open_nursery() as nursery:
            refused: list[dledger.DLedgerError] = []

            async def read() -> None:
                with pytest.raises(dledger.ProofNeeded) as caught:
                    await ann.ask(Operation.ENTRIES, [node.status().last_index + 1, 20_000])
                refused.append(caught.value)

            nursery.start_soon(read)
            await trio.sleep(0.2)
            write_users(path, {})
            node.reload_users()
            await node.append(b"not for ann")
    assert refused


async def test_a_tail_of_a_removed_user_ends_with_the_reason(tmp_path: Path) -> None:
    path = write_users(tmp_path / "users.toml", {"ann": ["read"]})
    async with running(tmp_path, {"n0": path}) as group:
        node = await group.leader()
        await node.append(b"a")
        async with dledger.connect(group.peers, group="g", credentials=credentials("ann")) as log:
            tail = log.tail(node.status().last_index)
            assert (await anext(tail)).body == b"a"
            write_users(path, {})
            node.reload_users()
            with trio.fail_after(20), pytest.raises(dledger.CredentialsRefused):
                await anext(tail)


async def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    path = write_users(tmp_path / "users.toml", {"ann": ALL})
    async with running(tmp_path, {"n0": path}) as group:
        node = await group.leader()
        async with as_user(group, "ann") as ann:
            path.write_text("rubbish")
            with pytest.raises(dledger.ConfigInvalid, match="this is not TOML"):
                node.reload_users()
            await ann.ask(Operation.STATUS)
            write_users(path, {"ann": ALL})
            os.chmod(path, 0o640)
            with pytest.raises(dledger.ConfigInvalid, match="chmod 600"):
                node.reload_users()
            await ann.ask(Operation.STATUS)


async def test_a_group_is_switched_on_member_by_member_while_it_serves(tmp_path: Path) -> None:
    """Clients with credentials go on, and clients without are refused by and by."""
    names = ("n0", "n1", "n2")
    files = {
        name: write_users(tmp_path / f"{name}.toml", {"ann": ALL}, mode="permissive")
        for name in names
    }
    async with running(tmp_path, dict(files)) as group:
        await group.leader()
        async with (
            dledger.connect(
                group.peers, group="g", credentials=credentials("ann"), timeout_s=20
            ) as log,
            dledger.connect(group.peers, group="g", timeout_s=20) as old,
        ):
            await log.append(b"before")
            await old.append(b"of an old client")
            for name in names:
                write_users(files[name], {"ann": ALL})
                group.nodes[name].reload_users()
                for number in range(5):
                    await log.append(f"{name} {number}".encode())
                last = (await group.leader()).status().last_index
                for node in group.nodes.values():
                    with trio.fail_after(10):
                        await node.wait_applied(last)
            with pytest.raises(dledger.CredentialsRefused):
                await old.append(b"late")
        # And a member that knows no secret hears and tells nothing.
        assert all(node.status().refused_callers for node in group.nodes.values())


def is_refusing(node: dledger.Node) -> bool:
    return node.status().refused_callers > 0


async def test_a_member_without_the_secret_or_with_another_is_no_member(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    other = write_users(tmp_path / "other.toml", {"ann": ALL}, member_secrets=["another" * 4])
    for name, lost in (("none", None), ("another", other)):
        caplog.clear()
        folder = tmp_path / name
        async with running(folder, {"n0": users, "n1": users, "n2": lost}) as group:
            leader = await group.leader()
            assert leader.config.node_id != "n2"
            await leader.append(b"a")
            await until(partial(is_refusing, leader))
            assert (
                "members prove themselves here"
                in (group.nodes["n2"].status().peers["n0"].problem or "")
                or lost is not None
            )


async def test_the_secret_of_members_is_changed_in_three_rounds(tmp_path: Path) -> None:
    names, old, new = ("n0", "n1", "n2"), MEMBERS, "the-next-secret-of-members"
    files = {name: write_users(tmp_path / f"{name}.toml", {}) for name in names}
    async with running(tmp_path, dict(files)) as group:
        leader = await group.leader()
        for secrets in ([old, new], [new, old], [new]):
            for name in names:
                write_users(files[name], {}, member_secrets=secrets)
                group.nodes[name].reload_users()
                await (await group.leader()).append(b"x")
            # Connections that the old secret has opened end where it counts no more.
            last = (await group.leader()).status().last_index
            for node in group.nodes.values():
                with trio.fail_after(10):
                    await node.wait_applied(last)
        assert leader.status().term == (await group.leader()).status().term


async def test_who_asks_for_a_change_is_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    users = write_users(tmp_path / "users.toml", {"ann": ALL})
    async with running(tmp_path, {"n0": users}) as group:
        await group.leader()
        async with as_user(group, "ann") as ann:
            request = encode_change(ChangeRequest((), Transition.AUTO, 99))
            with pytest.raises(dledger.DLedgerError):
                await ann.ask(*request)
    assert "user ann at 127.0.0.1 asks for change" in caplog.text


async def test_without_users_nobody_is_asked_and_credentials_are_not_used(tmp_path: Path) -> None:
    async with running(tmp_path, {"n0": None}) as group:
        await group.leader()
        connection = await dial("g", "n0", group.address("n0"), shows=shows("ann"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run)
            await connection.ask(Operation.APPEND, [1], b"x")
            connection.close()


def test_a_permit_of_a_port_without_users_checks_nothing() -> None:
    assert EVERYTHING.is_member
    assert EVERYTHING.is_proven
    for operation in Operation:
        EVERYTHING.check(operation)
    assert not EVERYTHING.names_a_user
    assert isinstance(EVERYTHING, Permit)


def test_a_proof_is_of_its_own_kind_of_frame() -> None:
    with pytest.raises(Refused, match="did not prove"):
        decode_proof(Frame(["hello"], b""))
    with pytest.raises(MessageMalformed, match="wrong fields"):
        decode_proof(Frame(["proof", "ann", b"", b""], b""))
