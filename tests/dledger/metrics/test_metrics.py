"""Metrics: the text, and the small server that hands it out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

import dledger
from dledger.config import Address
from dledger.errors import AddressInUse, ConfigInvalid
from dledger.free_ports import free_ports
from dledger.metrics import readiness
from dledger.metrics.exposition import rendered
from dledger.metrics.metrics_server import (
    MAX_CONNECTIONS,
    MAX_HEAD_BYTES,
    MetricsServer,
    serve_text,
)
from dledger.node.tally import SYNC_CLASSES_S, Tally
from dledger.status import GroupStatus, InstallStatus, PeerStatus, Status
from tests.dledger.running_members import lone


def a_status(node_id: str = "n0") -> Status:
    return Status(
        group="orders",
        node_id=node_id,
        role="leader",
        ready=True,
        proven=True,
        term=7,
        leader="n0",
        first_index=0,
        last_index=41,
        durable=40,
        committed=39,
        applied=38,
        pending_entries=3,
        pending_bytes=300,
        scrubbed_through=10,
        scrub_passes=2,
        scrub_damage=None,
        transfer_target=None,
        peers={
            "n1": PeerStatus(True, "APPEND", 39, 42, True, None),
            "n2": PeerStatus(False, None, None, None, None, "cannot be reached"),
        },
        members=GroupStatus(-1, ["n0", "n1", "n2"], [], {}, {}),
    )


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


NODE = (("group", "orders"), ("node", "n0"))


def test_the_text_says_what_the_status_says() -> None:
    found = samples(b"".join(rendered([(a_status(), Tally())])))
    assert found["dledger_term", NODE] == 7
    assert found["dledger_committed", NODE] == 39
    assert found["dledger_ready", NODE] == 1
    assert found["dledger_role", (*NODE, ("role", "leader"))] == 1
    assert found["dledger_role", (*NODE, ("role", "follower"))] == 0
    assert found["dledger_peer_connected", (*NODE, ("peer", "n2"))] == 0
    assert found["dledger_peer_match_index", (*NODE, ("peer", "n1"))] == 39
    assert ("dledger_peer_match_index", (*NODE, ("peer", "n2"))) not in found


def test_counts_and_sync_times_add_up() -> None:
    tally = Tally()
    tally.appended_entries = 5
    for sync_s in (0.000_05, SYNC_CLASSES_S[0], 0.002, 60.0):
        tally.synced(sync_s)
    found = samples(b"".join(rendered([(a_status(), tally)])))
    assert found["dledger_appended_entries_total", NODE] == 5
    assert found["dledger_sync_seconds_count", NODE] == 4
    assert found["dledger_sync_seconds_bucket", (*NODE[:1], ("le", "0.0001"), NODE[1])] == 2
    assert found["dledger_sync_seconds_bucket", (*NODE[:1], ("le", "2.5"), NODE[1])] == 3
    assert found["dledger_sync_seconds_sum", NODE] == pytest.approx(60.002, abs=0.001)


def test_several_nodes_of_one_process_stand_side_by_side() -> None:
    text = b"".join(rendered([(a_status("n0"), Tally()), (a_status("n1"), Tally())]))
    nodes = {dict(labels)["node"] for _, labels in samples(text)}
    assert nodes == {"n0", "n1"}


async def ask(port: int, request: bytes) -> bytes:
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(request)
        answer = b""
        while data := await stream.receive_some(65536):
            answer += data
        return answer


async def test_a_scraper_gets_the_text_and_others_a_hint(nursery: trio.Nursery) -> None:
    serve = partial(serve_text, lambda: [b"some text\n"], Address("127.0.0.1", 0))
    port = await nursery.start(serve)
    close = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    answer = await ask(port, b"GET /metrics" + close)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\nsome text\n")
    assert re.search(rb"content-type: text/plain; version=0.0.4", answer, re.I)
    head = await ask(port, b"HEAD /metrics" + close)
    assert head.startswith(b"HTTP/1.1 200")
    assert head.endswith(b"\r\n\r\n")
    assert (await ask(port, b"GET /" + close)).startswith(b"HTTP/1.1 404")
    assert (await ask(port, b"DELETE /metrics" + close)).startswith(b"HTTP/1.1 405")


async def test_probes_are_told_whether_the_process_runs_and_what_it_waits_for(
    nursery: trio.Nursery,
) -> None:
    waits = ["no leader is known", "a text\nwith \x1b[2J"]
    serve = partial(serve_text, lambda: [b"x\n"], Address("127.0.0.1", 0), waits=lambda: waits)
    port = await nursery.start(serve)
    close = b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    healthy = await ask(port, b"GET /healthz" + close)
    assert healthy.startswith(b"HTTP/1.1 200")
    assert healthy.endswith(b"\r\n\r\nok\n")
    answer = await ask(port, b"GET /readyz?verbose" + close)
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.partition(b"\r\n\r\n")[2] == b"no leader is known\na text\\nwith \\x1b[2J\n"
    head = await ask(port, b"HEAD /readyz" + close)
    assert head.startswith(b"HTTP/1.1 503")
    assert head.endswith(b"\r\n\r\n")
    assert (await ask(port, b"POST /readyz" + close)).startswith(b"HTTP/1.1 405")
    waits.clear()
    assert (await ask(port, b"GET /readyz" + close)).startswith(b"HTTP/1.1 200")


def test_a_member_waits_for_a_leader_its_data_and_room() -> None:
    told = partial(replace, a_status())
    assert list(readiness.reasons([a_status()])) == []
    assert list(readiness.reasons([])) == [readiness.NOT_OPEN]
    for status, words in (
        (told(leader=None, role="candidate", ready=False), "no leader is known"),
        (told(ready=False), "it leads, and has not yet applied"),
        (told(proven=False), "neither votes nor counts yet"),
        (told(installing=InstallStatus(7, 10, 100)), "it receives a snapshot: 10 of 100 bytes"),
        (told(machine_stopped="upgrade it"), "upgrade it"),
        (told(disk_short="the disk is full"), "the disk is full"),
        (told(not_begun="waits for n1"), "waits for n1"),
        (told(role="removed"), "it no longer belongs to the group"),
    ):
        (line,) = readiness.reasons([status, a_status("n1")])
        assert line.startswith("orders/n0: "), line
        assert words in line


async def test_one_connection_may_ask_again(nursery: trio.Nursery) -> None:
    serve = partial(serve_text, lambda: [b"again\n"], Address("127.0.0.1", 0))
    port = await nursery.start(serve)
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        for _ in range(3):
            await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = b""
            while not answer.endswith(b"again\n"):
                answer += await stream.receive_some(65536)


async def test_scrapers_leave_the_process_time_however_many_ask(
    autojump_clock: trio.testing.MockClock,
) -> None:
    turns: list[float] = []

    def text() -> Iterator[bytes]:
        for part in (b"a", b"b", b"c"):
            autojump_clock.jump(0.02)  # so long it holds the loop
            turns.append(trio.current_time())
            yield part

    server, made = MetricsServer(text), []

    async def scrape() -> None:
        made.append(await server.made())

    async with trio.open_nursery() as scrapers:
        for _ in range(10):
            scrapers.start_soon(scrape)
    assert made == [b"abc"] * 10
    assert len(turns) == 30
    assert min(after - before for before, after in pairwise(turns)) > 0.039


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"x" * (MAX_HEAD_BYTES + 1),
        b"GET /readyz HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /readyz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /readyz HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 10_000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["zeros", "long line", "length", "chunks", "headers", "TLS", "HTTP/2"],
)
async def test_what_is_not_http_closes_its_own_connection_alone(
    nursery: trio.Nursery, garbage: bytes
) -> None:
    serve = partial(serve_text, lambda: [b"fine\n"], Address("127.0.0.1", 0))
    port = await nursery.start(serve)
    with suppress(trio.BrokenResourceError):  # it is closed before all of it is read
        await ask(port, garbage)
    answer = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"fine\n")


async def test_connections_have_a_limit_and_silent_ones_an_end(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe gets in, so that silent connections do not have the process restarted."""
    monkeypatch.setattr("dledger.metrics.metrics_server.REQUEST_TIMEOUT_S", 1.0)
    serve = partial(serve_text, lambda: [b"fine\n"], Address("127.0.0.1", 0))
    port = await nursery.start(serve)
    silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
    await silent[0].send_all(b"GET /healthz")  # no whole request
    assert (await ask(port, b"GET /healthz HTTP/1.0\r\n\r\n")).endswith(b"ok\n")
    assert await silent[0].receive_some(1) == b""
    await silent[1].send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert b"200" in await silent[1].receive_some(65536)
    assert {await each.receive_some(1) for each in silent[2:]} == {b""}
    for each in silent:
        await each.aclose()
    assert (await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")).endswith(b"fine\n")


async def test_no_more_scrapes_are_answered_at_once_than_connections_are_allowed(
    nursery: trio.Nursery,
) -> None:
    gate = trio.Event()
    server = MetricsServer(lambda: [b"fine\n"])

    async def late() -> bytes:
        await gate.wait()
        return b"fine\n"

    server.made = late  # type: ignore[method-assign]
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    nursery.start_soon(server.serve, listeners)
    port = listeners[0].socket.getsockname()[1]
    scraping = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(MAX_CONNECTIONS)]
    for each in scraping:
        await each.send_all(b"GET /metrics HTTP/1.0\r\n\r\n")
    await trio.testing.wait_all_tasks_blocked(0.05)
    assert await ask(port, b"") == b""
    gate.set()
    for each in scraping:
        assert b"".join([part async for part in each]).endswith(b"fine\n")
        await each.aclose()


async def test_an_address_that_cannot_be_had_is_named(nursery: trio.Nursery) -> None:
    serve = partial(serve_text, lambda: [b""], Address("127.0.0.1", 0))
    port = await nursery.start(serve)
    with pytest.raises(AddressInUse, match=str(port)):
        await serve_text(lambda: [b""], Address("127.0.0.1", port))
    with pytest.raises(ConfigInvalid, match=re.escape("192.0.2.1")):
        await serve_text(lambda: [b""], Address("192.0.2.1", 9000))


async def test_a_running_node_counts_what_it_does(tmp_path: Path, nursery: trio.Nursery) -> None:
    async with dledger.open_node(lone(tmp_path, group="counted"), dledger.LogOnly()) as node:
        port = await nursery.start(
            partial(dledger.serve_metrics, lambda: [node], f"127.0.0.1:{free_ports(1)[0]}")
        )
        await node.read()
        await node.append_many([b"four", b"five."])
        with pytest.raises(dledger.EntryTooLarge):
            await node.append(bytes(5_000_000))
        answer = await ask(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        found = samples(answer.partition(b"\r\n\r\n")[2])
        labels = (("group", "counted"), ("node", "n0"))
        assert found["dledger_appended_entries_total", labels] == 2
        assert found["dledger_appended_bytes_total", labels] == 9
        assert found["dledger_rejected_appends_total", labels] == 1
        assert found["dledger_sync_seconds_count", labels] >= 2
        assert found["dledger_committed", labels] == node.status().committed
