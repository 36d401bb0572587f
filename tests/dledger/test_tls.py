"""Mutual TLS: who is believed, and what is read again."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from dledger.errors import ConfigInvalid
from dledger.tls import GroupTls, TlsConfig, names_shown

DATA = Path(__file__).parent / "data" / "tls"


def files(name: str, authority: str = "authority") -> TlsConfig:
    return TlsConfig(
        certificate=DATA / f"{name}.pem",
        key=DATA / f"{name}-key.pem",
        authorities=DATA / f"{authority}.pem",
    )


def only(name: str) -> frozenset[str]:
    return frozenset({name})


async def meet(
    dialler: Callable[[trio.SocketStream], trio.SSLStream[trio.SocketStream]],
    accepter: Callable[[trio.SocketStream], trio.SSLStream[trio.SocketStream]],
) -> tuple[frozenset[str], frozenset[str]]:
    """Whom each side believes the other to be. Raises what either side raised."""
    seen: list[frozenset[str]] = []

    async def accept(stream: trio.SocketStream) -> None:
        secure = accepter(stream)
        try:
            await secure.do_handshake()
            seen.append(names_shown(secure))
            await secure.send_all(b"x")
        except (ssl.SSLError, trio.BrokenResourceError) as error:
            failures.append(error)
        finally:
            await trio.aclose_forcefully(secure)

    failures: list[Exception] = []
    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, accept, [listener])
        plain = await trio.open_tcp_stream(*listener.socket.getsockname()[:2])
        stream = dialler(plain)
        try:
            await stream.do_handshake()
            mine = names_shown(stream)
            # In TLS 1.3 a dialler hears only now that its certificate was refused.
            assert await stream.receive_some(1) == b"x"
        finally:
            await trio.aclose_forcefully(stream)
            nursery.cancel_scope.cancel()
    assert not failures
    return mine, seen[0]


async def refused(meeting: Awaitable[object]) -> None:
    with pytest.raises(BaseExceptionGroup) as caught:
        await meeting
    assert caught.group_contains(trio.BrokenResourceError)


async def test_two_members_of_a_group_know_each_other() -> None:
    n0, n1 = GroupTls(files("n0")), GroupTls(files("n1"))
    assert await meet(lambda s: n0.dialled(s, "n1"), n1.accepted) == (only("n1"), only("n0"))


async def test_another_member_than_the_one_that_was_dialled_is_not_believed() -> None:
    n0, n2 = GroupTls(files("n0")), GroupTls(files("n2"))
    await refused(meet(lambda s: n0.dialled(s, "n1"), n2.accepted))


async def test_a_certificate_of_a_strange_authority_is_refused_on_either_side() -> None:
    n0, false_n1 = GroupTls(files("n0")), GroupTls(files("n1-of-a-stranger"))
    await refused(meet(lambda s: n0.dialled(s, "n1"), false_n1.accepted))
    await refused(meet(lambda s: false_n1.dialled(s, "n0"), n0.accepted))


async def test_a_caller_without_a_certificate_is_refused() -> None:
    n0 = GroupTls(files("n0"))
    nobody = ssl.create_default_context(cafile=str(DATA / "authority.pem"))
    await refused(meet(lambda s: trio.SSLStream(s, nobody, server_hostname="n0"), n0.accepted))


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
