"""Groups of one name that began differently: real nodes that must never mix."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import dledger
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import encode_configuration
from dledger.errors import FirstVotersDiffer
from dledger.store.birth_file import BirthFile
from dledger.store.disk import OsDisk
from dledger.store.noop_body import BEFORE_BIRTHS, decode_noop_body
from dledger.store.open_store import open_store
from dledger.store.store_config import StoreConfig
from tests.dledger.node.test_node import Group, Register
from tests.dledger.node.test_node_members import changing
from tests.dledger.running_members import until
from tests.dledger.snapshots.test_install_nodes import caught_up
from tests.dledger.snapshots.test_snapshots import Trio, Words, append_until_compacted


@asynccontextmanager
async def some(
    group: Group, *names: str, peers: dict[str, str] | None = None
) -> AsyncIterator[Group]:
    """Run these members of a group, started with that list of peers."""
    async with AsyncExitStack() as stack:
        for name in names:
            config = replace(group.config(name), peers=peers or group.peers)
            machine = group.machines[name] = Register()
            group.nodes[name] = await stack.enter_async_context(dledger.open_node(config, machine))
        yield group
    for name in names:
        del group.nodes[name]


def beside(group: Group, folder: Path) -> Group:
    """A group of the same name and list, in other folders."""
    other = Group(folder, 0)
    other.peers = group.peers
    return other


async def born(*nodes: dledger.Node) -> str:
    """The birth that all of these know."""
    await until(lambda: all(node.status().birth for node in nodes))
    (birth,) = {node.status().birth for node in nodes}
    return birth


async def test_all_members_know_one_birth_now_and_after_a_restart(tmp_path: Path) -> None:
    group = Group(tmp_path, 3)
    async with some(group, "n0", "n1", "n2"):
        birth = await born(*group.nodes.values())
        first = group.nodes["n0"].entries(0, 1)[0]
        body = decode_noop_body(first.body)
        assert body is not None
        assert body.birth.hex() == birth != BEFORE_BIRTHS.hex()
    async with some(group, "n0", "n1", "n2"):
        assert {node.status().birth for node in group.nodes.values()} == {birth}
        await group.leader()


async def test_a_leaders_no_op_names_leader_and_time_and_no_state_machine_sees_it(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path, 1)
    before_ms = time.time_ns() // 1_000_000
    for _ in range(2):
        async with some(group, "n0"):
            leader = await group.leader()
            await leader.append(b"one")
            assert set(group.machines["n0"].bodies) == {b"one"}
            entries = leader.entries(0, 1 << 20)
    noops = [decode_noop_body(e.body) for e in entries if e.magic == dledger.Magic.NOOP]
    assert [body and body.leader for body in noops] == ["n0", "n0"]
    times = [body.time_ms for body in noops if body is not None]
    assert before_ms <= times[0] <= times[1] <= time.time_ns() // 1_000_000
    assert [bool(body and body.birth) for body in noops] == [True, False]


@pytest.mark.parametrize("later", ["n0", "n0 n1 n2"])
async def test_a_member_is_not_started_with_another_list(tmp_path: Path, later: str) -> None:
    group = Group(tmp_path, 3)
    lists = {"n0", "n0 n1 n2"}
    (first,) = lists - {later}
    peers = {names: {name: group.peers[name] for name in names.split()} for names in lists}
    async with some(group, *first.split(), peers=peers[first]):
        leader = await group.leader()
        await leader.append(b"money")
    config = replace(group.config("n0"), peers=peers[later])
    with pytest.raises(FirstVotersDiffer):
        async with dledger.open_node(config, Register()):
            pytest.fail("a second group lives")


async def test_a_member_that_began_alone_and_a_group_of_three_refuse_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group(tmp_path, 3)
    alone = {"n0": group.peers["n0"]}
    with caplog.at_level(logging.WARNING):
        async with some(group, "n0", peers=alone):
            leader = await group.leader()
            await leader.append(b"money")
            pair = beside(group, tmp_path)
            async with some(pair, "n1", "n2"):
                await (await pair.leader()).append(b"other")
                # The caller tells its log when it is refused, the called one when it refuses.
                await until(lambda: _told(caplog, "refuses this member") == 2)
                assert leader.status().role == "leader"
                await leader.append(b"more")
                assert group.machines["n0"].bodies == [b"money", b"more"]
                await until(lambda: pair.machines["n1"].bodies == [b"other"])
                peer = pair.nodes["n1"].status().peers["n0"]
                assert not peer.connected
                assert peer.problem is not None
                assert "began with the voters n0 at n0" in peer.problem
    assert _told(caplog, "refused peer n1") == _told(caplog, "refused peer n2") == 1
    assert all("\n" not in record.getMessage() for record in caplog.records)


def _told(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in record.getMessage() for record in caplog.records)


async def test_members_of_groups_that_began_separately_refuse_each_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = Group(tmp_path / "old", 3)
    async with some(old, "n0", "n1", "n2"):
        await (await old.leader()).append(b"old")
        old_birth = await born(*old.nodes.values())
    new = beside(old, tmp_path / "new")
    async with some(new, "n0", "n1"):
        await (await new.leader()).append(b"new")
        assert await born(*new.nodes.values()) != old_birth
        async with some(old, "n2"):
            stray = old.nodes["n2"]
            with caplog.at_level(logging.WARNING):
                await until(lambda: _told(caplog, "refused peer n2") == 2)
            with pytest.raises(dledger.ReadUnavailable):
                await stray.read()
            await (await new.leader()).append(b"newer")
            assert old.machines["n2"].bodies in ([], [b"old"])
            assert stray.status().birth == old_birth
            assert not any(peer.connected for peer in stray.status().peers.values())
        await until(lambda: new.machines["n0"].bodies == [b"new", b"newer"])


async def test_a_member_that_joins_learns_the_birth(tmp_path: Path) -> None:
    async with changing(tmp_path, 1, 1) as group:
        await group.append(b"one")
        joining = await group.start("n1")
        assert joining.status().birth == ""
        leader = await group.leader()
        await leader.change([group.voter("n1")])
        assert await born(leader, joining)


async def test_a_member_that_joins_by_a_snapshot_learns_the_birth_from_its_leader(
    tmp_path: Path,
) -> None:
    group = Trio(tmp_path)
    async with group.running({name: Words() for name in ("n0", "n1")}) as nodes:
        await append_until_compacted(nodes)
        birth = await born(*nodes)
        async with dledger.open_node(group.config("n2"), Words()) as behind:
            await caught_up([*nodes, behind])
            assert behind.status().first_index > 0
            assert await born(behind) == birth
    folder = str(group.config("n2").data_dir / "dledger-n2")
    record = BirthFile(OsDisk(), folder).record
    assert record is not None
    assert record.birth.hex() == birth


async def test_a_group_of_an_earlier_version_goes_on_and_takes_members(tmp_path: Path) -> None:
    async with changing(tmp_path, 1, 1) as group:
        await group.append(b"one")
        await group.stop("n0")
        folder = tmp_path / "n0" / "dledger-n0"
        (folder / "birth").unlink()
        await group.start("n0")
        leader = await group.leader()
        joining = await group.start("n1")
        await leader.change([group.voter("n1")])
        assert await born(leader, joining)
        await group.append(b"two")
        await group.agreed("n0", "n1")


async def test_the_list_of_a_start_elects_nobody_beside_a_change_in_the_log(
    tmp_path: Path,
) -> None:
    group = Group(tmp_path, 4)
    peers = {name: group.peers[name] for name in ("n0", "n1", "n2")}
    folder = str(tmp_path / "n0" / "dledger-n0")
    async with some(group, "n0", "n1", "n2", peers=peers):
        await (await group.leader()).append(b"one")
        await born(*group.nodes.values())
    store = open_store(OsDisk(), str(tmp_path / "n0"), StoreConfig(), "g", "n0")
    added = Configuration(voters=frozenset(group.peers), addresses=group.peers)
    term = store.last_term
    store.append(term, dledger.Magic.CONFIGURATION, [encode_configuration(-1, added)])
    store.begin_sync(store.hard_state._replace(term=term, committed=0)).run()
    store.close()
    assert BirthFile(OsDisk(), folder).record is not None
    async with some(group, "n0", peers={"n0": group.peers["n0"]}):
        node = group.nodes["n0"]
        assert node.configuration.configuration.voters == set(peers)
        with pytest.raises(dledger.ReadUnavailable):
            await node.read()
        assert node.status().role != "leader"


async def test_members_of_an_earlier_version_without_entry_0_agree_that_they_began_before_births(
    tmp_path: Path,
) -> None:
    group = Trio(tmp_path)
    async with group.running({name: Words() for name in group.peers}) as nodes:
        await append_until_compacted(nodes)
        assert min(node.status().first_index for node in nodes) > 0
    for name in group.peers:
        (group.config(name).data_dir / f"dledger-{name}" / "birth").unlink()
    async with group.running({name: Words() for name in group.peers}) as nodes:
        assert await born(*nodes) == BEFORE_BIRTHS.hex()


@pytest.mark.parametrize("without", [("n0",), ("n1",), ("n0", "n2")])
async def test_a_member_that_lost_the_record_learns_the_birth_from_the_others(
    tmp_path: Path, without: tuple[str, ...]
) -> None:
    group = Trio(tmp_path)
    async with group.running({name: Words() for name in group.peers}) as nodes:
        await append_until_compacted(nodes)
        birth = await born(*nodes)
        assert min(node.status().first_index for node in nodes) > 0
    for name in without:
        (group.config(name).data_dir / f"dledger-{name}" / "birth").unlink()
    async with group.running({name: Words() for name in group.peers}) as nodes:
        assert await born(*nodes) == birth
