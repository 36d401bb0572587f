"""Every connection of members and of their clients has limits for silence on both sides."""

from __future__ import annotations

import json
import logging
import os
import socket
from pathlib import Path

import pytest
import trio
import trio.testing

import dledger
from dledger.command_line.log_lines import JsonLines
from dledger.config import Address
from dledger.free_ports import free_ports
from dledger.metrics.metrics_server import serve_text
from dledger.sockets import ACCEPTED, DIALLED, SilenceLimits, dialled, listening
from tests.dledger.running_members import lone
from tests.open_connections import descriptors_limited_to, limits_of_open_connections

pytestmark = pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="only Linux has this limit"
)

# The event of a line about connections: see docs/operations.md.
REFUSED = "connection_refused"


class Nothing:
    """A state machine without a state."""

    def apply(self, entries: object) -> list[None]:
        return [None for _ in entries]  # type: ignore[attr-defined]


async def test_members_their_clients_and_scrapers_notice_that_the_other_side_is_gone(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    ports = dict(zip(("n0", "n1"), free_ports(2), strict=True))
    peers = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    before = limits_of_open_connections()

    def member(name: str) -> dledger.NodeConfig:
        return dledger.NodeConfig(group="g", node_id=name, peers=peers, data_dir=tmp_path / name)

    async with (
        dledger.open_node(member("n0"), dledger.WithSessions(Nothing())),
        dledger.open_node(member("n1"), dledger.WithSessions(Nothing())),
        dledger.connect(peers, group="g") as log,
        log.session() as session,
    ):
        index = (await session.append(b"x")).index
        async for _entry in log.tail(index):
            break
        metrics = await nursery.start(serve_text, lambda: [b""], Address("127.0.0.1", 0))
        async with await dialled("127.0.0.1", metrics) as scraper:
            await scraper.send_all(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
            assert await scraper.receive_some()
            found = limits_of_open_connections() - before
    assert found.keys() == {DIALLED, ACCEPTED}
    # A link between members, the log's connection to the leader, its reading one, the scraper's.
    assert found[ACCEPTED] == found[DIALLED] >= 4


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".b"])
async def test_a_name_that_no_machine_has_is_an_error_of_the_system(host: str) -> None:
    for attempt in (dialled, listening):
        with pytest.raises(OSError, match="no machine is named"):
            await attempt(host, 1)


async def test_a_member_that_cannot_be_found_by_its_name_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with trio.fail_after(30):
        async with (
            dledger.open_node(lone(tmp_path), Nothing()) as node,
            dledger.connect(peers := node.config.peers, group="g") as log,
        ):
            await log.append(b"x")
            await node.change([dledger.AddLearner("n1", "no..name:1")])
            async with dledger.connect({"n1": "no..name:1", **peers}, group="g") as other:
                await other.append(b"y")
                async for _ in other.tail(0):
                    break
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("limits", [DIALLED, ACCEPTED])
def test_a_silent_connection_is_given_up_after_three_lost_probes_at_least(
    limits: SilenceLimits,
) -> None:
    assert limits.probes >= 3
    assert limits.idle_s + limits.probes * limits.probe_every_s == limits.unacknowledged_ms / 1000


def test_the_side_that_dials_again_notices_before_the_side_that_forgets() -> None:
    assert DIALLED.unacknowledged_ms < ACCEPTED.unacknowledged_ms


async def test_without_descriptors_members_and_metrics_log_a_line_and_then_go_on(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with dledger.open_node(lone(tmp_path), Nothing()) as node:
        metrics = await nursery.start(serve_text, lambda: [b""], Address("127.0.0.1", 0))
        for port in (node.config.address.port, metrics):
            await trio.testing.wait_all_tasks_blocked()  # until all listeners wait
            caplog.clear()
            with socket.socket() as caller:
                used = os.dup(caller.fileno())
                os.close(used)
                with descriptors_limited_to(used):
                    caller.connect(("127.0.0.1", port))
                    with trio.fail_after(5):
                        while not caplog.records:
                            await trio.lowlevel.checkpoint()
                    await trio.testing.wait_all_tasks_blocked()
                (line,) = caplog.records
                assert (line.exc_info, "can be accepted" in line.getMessage()) == (None, True)
                assert "ulimit -n" in line.getMessage()
                assert json.loads(JsonLines("g", "n0").format(line))["event"] == REFUSED
                asked = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
                caller.sendall(asked)
                with trio.fail_after(5):
                    await trio.lowlevel.wait_readable(caller)
                assert caller.recv(4) == b"HTTP"
