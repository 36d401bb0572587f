"""Files of users, and groups that ask for users."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import trio

import dledger
from dledger.config import Address, parse_address
from dledger.free_ports import free_addresses
from dledger.serving import listener
from dledger.wire.frame import Frame, FrameDecoder
from dledger.wire.handshake import Hello, encode_hello
from dledger.wire.proof import MEMBER, Credentials, Shown
from tests.dledger.running_members import ready

MEMBERS = "the-secret-of-all-members"
ALL = tuple(dledger.Right)


def secret_of(user: str) -> str:
    return f"the-secret-of-{user}"


def credentials(user: str) -> Credentials:
    return Credentials(user, secret_of(user))


def shows(user: str) -> Callable[[], Shown]:
    secret = MEMBERS if user == MEMBER else secret_of(user)
    return lambda: Shown(user, secret.encode())


def write_users(
    path: Path,
    users: Mapping[str, Iterable[str]],
    *,
    mode: str = "enforcing",
    member_secrets: Sequence[str] = (MEMBERS,),
    by_certificate: Sequence[str] = (),
) -> Path:
    lines = [f'mode = "{mode}"', f"member_secrets = {list(member_secrets)!r}".replace("'", '"')]
    for user, rights in users.items():
        lines.append(f'[users."{user}"]')
        if user not in by_certificate:
            lines.append(f'secret = "{secret_of(user)}"')
        words = ", ".join(f'"{right}"' for right in rights)
        lines.append(f"rights = [{words}]")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o600)
    path.write_text("\n".join(lines))
    os.chmod(path, 0o600)
    return path


class Group:
    """Members in this process, each with a file of users of its own, or with none."""

    def __init__(
        self,
        folder: Path,
        users: Mapping[str, Path | None],
        tls: Mapping[str, dledger.TlsConfig] | None = None,
    ) -> None:
        self.folder = folder
        self.users = users
        self.tls = tls or {}
        self.peers = dict(zip(users, free_addresses(len(users)), strict=True))
        self.nodes: dict[str, dledger.Node] = {}

    def config(self, node_id: str) -> dledger.NodeConfig:
        return dledger.NodeConfig(
            group="g",
            node_id=node_id,
            peers=self.peers,
            data_dir=self.folder / node_id,
            new=True,
            users=self.users[node_id],
            tls=self.tls.get(node_id),
        )

    def address(self, node_id: str) -> Address:
        return parse_address(node_id, self.peers[node_id])

    async def leader(self) -> dledger.Node:
        return await ready(*self.nodes.values())


@asynccontextmanager
async def running(
    folder: Path,
    users: Mapping[str, Path | None],
    make: Callable[[], dledger.StateMachine] = dledger.LogOnly,
    tls: Mapping[str, dledger.TlsConfig] | None = None,
) -> AsyncIterator[Group]:
    group = Group(folder, users, tls)
    async with AsyncExitStack() as stack:
        for node_id in users:
            opening = dledger.open_node(group.config(node_id), make())
            group.nodes[node_id] = await stack.enter_async_context(opening)
        yield group


class Stranger:
    """A connection that says what the test wants."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._decoder = FrameDecoder()
        self._frames: list[Frame] = []

    async def read(self) -> Frame | None:
        """The next frame; None at the end."""
        with trio.fail_after(listener.HELLO_TIMEOUT_S + 5):
            while not self._frames:
                try:
                    data = await self.stream.receive_some(65536)
                except trio.BrokenResourceError:
                    return None
                if not data:
                    return None
                self._frames += self._decoder.feed(bytes(data))
        return self._frames.pop(0)

    async def challenge(self, hello: Hello) -> bytes:
        """Introduce oneself; return the challenge."""
        await self.stream.send_all(encode_hello(hello))
        frame = await self.read()
        assert frame is not None
        word, _, lasting, groups, challenge = frame.header
        assert (word, lasting, groups) == ("refused", True, [])
        assert isinstance(challenge, bytes)
        assert len(challenge) == 32
        return challenge

    async def answer(self, frame: bytes) -> list[object] | None:
        """What comes back: a header, or None at the end."""
        await self.stream.send_all(frame)
        answer = await self.read()
        return None if answer is None else answer.header


@asynccontextmanager
async def stranger(node: dledger.Node) -> AsyncIterator[Stranger]:
    async with await trio.open_tcp_stream(*node.config.address) as stream:
        yield Stranger(stream)
