"""Mutual TLS: who is believed, and what is read again."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from dledger.errors import ConfigInvalid
from dledger.network.secure_stream import SecureStream
from dledger.network.tls import GroupTls, TlsRefused, handshake_refused, names_shown
from dledger.network.tls_config import TlsConfig

DATA = Path(__file__).parent.parent / "data" / "tls"


def files(name: str, authority: str = "authority") -> TlsConfig:
    return TlsConfig(
        certificate=DATA / f"{name}.pem",
        key=DATA / f"{name}-key.pem",
        authorities=DATA / f"{authority}.pem",
    )


def only(name: str) -> frozenset[str]:
    return frozenset({name})


Greet = Callable[[trio.SocketStream], Awaitable[SecureStream]]


async def meet(dialler: Greet, accepter: Greet) -> tuple[frozenset[str], frozenset[str]]:
    """Whom each side believes the other to be. Raises what the dialler saw."""
    seen: list[frozenset[str]] = []

    async def accept(stream: trio.SocketStream) -> None:
        async with stream:
            try:
                secure = await accepter(stream)
                seen.append(names_shown(secure))
                await secure.send_all(b"x")
            except (TlsRefused, trio.BrokenResourceError):
                return

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, accept, [listener])
        async with await trio.open_tcp_stream(*listener.socket.getsockname()[:2]) as plain:
            stream = await dialler(plain)
            # In TLS 1.3 a dialler hears only now that its certificate was refused.
            try:
                assert await stream.receive_some(1) == b"x"
            except trio.BrokenResourceError as error:
                raise handshake_refused(error, "the connection ended") from error
            mine = names_shown(stream)
        nursery.cancel_scope.cancel()
    return mine, seen[0]


async def refused(meeting: Awaitable[object], problem: str) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await meeting
    assert caught.group_contains(TlsRefused, match=problem)


async def test_two_members_of_a_group_know_each_other() -> None:
    n0, n1 = GroupTls(files("n0")), GroupTls(files("n1"))
    assert await meet(lambda s: n0.dialled(s, "n1"), n1.accepted) == (only("n1"), only("n0"))


async def test_another_member_than_the_one_that_was_dialled_is_not_believed() -> None:
    n0, n2 = GroupTls(files("n0")), GroupTls(files("n2"))
    await refused(meet(lambda s: n0.dialled(s, "n1"), n2.accepted), "that of n2, not of n1")


async def test_a_certificate_of_a_strange_authority_is_refused_on_either_side() -> None:
    n0, false_n1 = GroupTls(files("n0")), GroupTls(files("n1-of-a-stranger"))
    await refused(
        meet(lambda s: n0.dialled(s, "n1"), false_n1.accepted), "is not believed: unable to get"
    )
    trusting = replace(files("n1-of-a-stranger"), authorities=DATA / "authority.pem")
    await refused(
        meet(lambda s: GroupTls(trusting).dialled(s, "n0"), n0.accepted), "alert unknown ca"
    )


async def test_a_caller_without_a_certificate_is_refused() -> None:
    n0 = GroupTls(files("n0"))
    context = ssl.create_default_context(cafile=str(DATA / "authority.pem"))

    async def nobody(stream: trio.SocketStream) -> SecureStream:
        secure = SecureStream(stream, context, server_hostname="n0")
        await secure.do_handshake()
        return secure

    await refused(meet(nobody, n0.accepted), "alert certificate required")


async def test_certificates_are_read_again_and_bad_ones_leave_the_old_ones_in_use(
    tmp_path: Path,
) -> None:
    for part in ("n1.pem", "n1-key.pem", "authority.pem"):
        shutil.copy(DATA / part, tmp_path / part)
    mine = TlsConfig(
        certificate=tmp_path / "n1.pem",
        key=tmp_path / "n1-key.pem",
        authorities=tmp_path / "authority.pem",
    )
    n0, n1 = GroupTls(files("n0")), GroupTls(mine)
    (tmp_path / "n1.pem").write_text("no certificate")
    with pytest.raises(ConfigInvalid, match=r"n1\.pem"):
        n1.reload()
    assert await meet(lambda s: n0.dialled(s, "n1"), n1.accepted) == (only("n1"), only("n0"))
    shutil.copy(DATA / "n2.pem", tmp_path / "n1.pem")
    shutil.copy(DATA / "n2-key.pem", tmp_path / "n1-key.pem")
    n1.reload()
    assert await meet(lambda s: n0.dialled(s, "n2"), n1.accepted) == (only("n2"), only("n0"))


@pytest.mark.parametrize("part", ["certificate", "key", "authorities"])
def test_a_file_that_is_missing_is_named(part: str, tmp_path: Path) -> None:
    paths = {
        "certificate": DATA / "n0.pem",
        "key": DATA / "n0-key.pem",
        "authorities": DATA / "authority.pem",
    }
    paths[part] = tmp_path / "nothing.pem"
    with pytest.raises(ConfigInvalid, match=r"nothing\.pem"):
        GroupTls(TlsConfig(**paths))


def test_a_key_of_another_certificate_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="n1-key"):
        GroupTls(
            TlsConfig(
                certificate=DATA / "n0.pem",
                key=DATA / "n1-key.pem",
                authorities=DATA / "authority.pem",
            )
        )


def test_a_member_whose_certificate_names_another_one_hears_of_it_before_it_starts() -> None:
    GroupTls(files("n0")).check_names(["n0"])
    with pytest.raises(ConfigInvalid, match=r"n0\.pem is that of n0, not of n1"):
        GroupTls(files("n0")).check_names(["n0", "n1"])


def test_a_member_whom_its_own_authority_would_refuse_hears_of_it_before_it_starts() -> None:
    with pytest.raises(ConfigInvalid, match=r"would not be believed by .*stranger\.pem"):
        GroupTls(files("n0", "stranger")).check_names(["n0"])
