"""Snapshots carry who belongs to the group: the log that said so may be gone."""

from pathlib import Path

from dledger import AddLearner, UpdateAddress
from dledger.core.membership.configuration import Configuration
from dledger.core.membership.configuration_codec import decode_configuration, encode_configuration
from dledger.snapshots.restoring import configuration_problem
from tests.dledger.snapshots.test_snapshots import Member, bodies

OTHER = AddLearner("n1", "127.0.0.1:1")


async def test_a_node_knows_its_group_though_the_log_that_said_so_is_gone(tmp_path: Path) -> None:
    member = Member(tmp_path)
    async with member.running(trailing_entries=0, kept=1) as node:
        index, configuration = await node.change([OTHER])
        await node.append_many(bodies(500))
        snapshot = await node.snapshot()
        assert decode_configuration(snapshot.header.configuration) == (index, configuration)
        assert node.status().first_index > index
    async with member.running(trailing_entries=0, kept=1) as node:
        assert node.configuration == (index, configuration)
        later, _ = await node.change([UpdateAddress("n1", "127.0.0.1:2")], expected=index)
        await node.append_many(bodies(10))
    async with member.running() as node:
        assert node.configuration.index == later
        assert dict(node.configuration.configuration.addresses)["n1"] == "127.0.0.1:2"


async def test_a_snapshot_is_of_the_configuration_at_its_index_and_not_of_the_newest(
    tmp_path: Path,
) -> None:
    member = Member(tmp_path)
    async with member.running() as node:
        index, configuration = await node.change([OTHER])
        await node.append(b"one")
        first = await node.snapshot()
        await node.change([UpdateAddress("n1", "127.0.0.1:2")])
        assert decode_configuration(first.header.configuration) == (index, configuration)


def test_a_snapshot_with_a_configuration_that_is_none_cannot_be_used() -> None:
    assert configuration_problem(b"") is None
    group = Configuration(voters=frozenset("a"), addresses={"a": "a:1"})
    assert configuration_problem(encode_configuration(3, group)) is None
    assert "not msgpack" in str(configuration_problem(b"\xc1"))
