"""Who belongs to a group is the group's to say: commands with an older list of members."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from click.testing import CliRunner
from rich.console import Console

from dledger.client.group_client import GroupClient
from dledger.commands.group_alarms import group_alarms
from dledger.commands.group_commands import commands
from dledger.commands.status_command import member_notes, member_statuses
from dledger.commands.status_picture import group_picture
from dledger.free_ports import free_ports
from dledger.wire.client_protocol import Operation, Request, encode_answer
from tests.dledger.client.fake_member import GROUP, Answer, FakeGroup, fake_group


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.01)


def tell_members(group: FakeGroup, names: Sequence[str]) -> None:
    """Have all of them say that these are the members, and that the first one leads."""
    addresses = {name: address for name, address in group.peers.items() if name in names}
    for member in group.members:

        def script(request: Request, node_id: str = member.node_id) -> Answer:
            assert request.operation is Operation.STATUS
            leads = node_id == names[0]
            role = "leader" if leads else "follower"
            members = {"index": 7, "voters": list(names), "addresses": addresses}
            said: dict[str, Any] = {"role": role, "ready": leads, "term": 3, "members": members}
            return encode_answer(request.request_id, said)

        member.script = script
        member.configuration = (7, addresses)


async def look(given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    client = GroupClient(GROUP, given)
    return await member_statuses(client, given), member_notes(client, given)


async def test_a_member_that_replaced_another_is_shown_and_the_other_raises_no_alarm(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(4) as group:
        tell_members(group, ["n3", "n0", "n1"])
        await group[2].cut()
        group[2].frozen = True
        given = {name: address for name, address in group.peers.items() if name != "n3"}
        found, notes = await look(given)
        assert sorted(found) == ["n0", "n1", "n3"]
        assert group_alarms(found) == []
        assert notes == ["n2 is in the list that was given, and no member of the group"]


async def test_one_that_is_no_member_and_answers_is_shown(clock: trio.testing.MockClock) -> None:
    async with fake_group(3) as group:
        tell_members(group, ["n0", "n1"])
        found, notes = await look(group.peers)
        assert sorted(found) == ["n0", "n1", "n2"]
        assert notes == ["n2 is in the list that was given, and no member of the group"]


async def test_a_member_at_the_address_of_the_one_it_replaced_is_shown(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        tell_members(group, ["n2", "n0", "n1"])
        given = {"n0": group[0].address, "n1": group[1].address, "gone": group[2].address}
        found, _ = await look(given)
        assert sorted(found) == ["n0", "n1", "n2"]
        assert group_alarms(found) == []


async def test_one_member_that_answers_is_enough_to_name_the_others(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        tell_members(group, ["n0", "n1", "n2"])
        found, notes = await look({"n1": group[1].address})
        assert sorted(found) == ["n0", "n1", "n2"]
        assert (group_alarms(found), notes) == ([], [])


async def test_where_no_member_answers_the_list_is_shown_and_said_to_be_one(
    clock: trio.testing.MockClock,
) -> None:
    given = {f"n{i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(2))}
    found, notes = await look(given)
    assert sorted(found) == ["n0", "n1"]
    assert notes == ["no member answers: these are the members as given, the group may have others"]


def test_leadership_is_handed_only_to_a_member_of_the_group() -> None:
    peers = f"n0=127.0.0.1:{free_ports(1)[0]}"
    ended = CliRunner().invoke(commands, ["transfer", "--peers", peers, "--to", "n0"])
    assert ended.exit_code == 1
    assert "answers" in ended.output


async def test_the_members_to_choose_among_are_those_that_the_group_names(
    clock: trio.testing.MockClock,
) -> None:
    async with fake_group(3) as group:
        tell_members(group, ["n2", "n0"])
        group.elect(2, term=3)
        client = GroupClient(GROUP, {"n0": group[0].address, "n1": group[1].address})
        assert client.members == {"n0": group[0].address, "n1": group[1].address}
        assert not client.members_are_told
        assert await client.ask_members() == {"n0": group[0].address, "n2": group[2].address}
        assert client.members_are_told


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_picture_shows_ipv6_addresses_and_commands_no_terminal(is_terminal: bool) -> None:
    numbers = dict.fromkeys(("term", "last_index", "committed", "applied"), 7)
    alarms = [{"kind": "x", "text": "told\x1b[2J"}]
    said = {"role": "lost\x1b[2J", "ready": True, "proven": True, "alarms": alarms, **numbers}
    known = {"n0": "[fd00::1]:20911", "n1": "h\x1b[2J:1"}
    output = io.StringIO()
    console = Console(file=output, width=300, force_terminal=is_terminal, color_system=None)
    console.print(group_picture("g", known, {"n0": said, "n1": {"problem": "no"}}, {}, console))
    shown = output.getvalue()
    assert "[fd00::1]:20911" in shown
    assert ("\x1b[2J" in shown) is not is_terminal
    assert shown.count("\\x1b[2J") == 3 * is_terminal
