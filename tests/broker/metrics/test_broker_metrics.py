"""What a broker tells Prometheus."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from prometheus_client.parser import text_string_to_metric_families

import dledger
from broker.broker_command import main
from broker.features import empty_state
from broker.machine import BrokerMachine
from broker.messages.state import MESSAGES
from broker.metrics.lags import MAX_LAGS, Lag, Lags, LagsLook
from broker.offsets.state import OFFSETS
from broker.retention.full_disk import FULL_DISK
from broker.topics.state import TOPICS
from dledger.free_ports import free_ports
from remoting.bodies.topic_config import TopicConfig
from remoting.net.address import Address
from tests.broker.one_broker import Client, running_broker
from tests.broker.parts_alone import parts_alone
from tests.broker.untimed import AtOnce

BROKER = {"cluster": "DefaultCluster", "node_id": "broker-a"}


async def scraped(port: int) -> dict[str, float]:
    """The samples, as `name{label=value,...}` without the broker's own labels."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b"".join([part async for part in stream])
    head, _, text = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            labels = {
                name: value for name, value in sample.labels.items() if BROKER.get(name) != value
            }
            words = ",".join(f"{name}={labels[name]}" for name in sorted(labels))
            found[f"{sample.name}{{{words}}}"] = sample.value
    return found


@pytest.mark.feature("F55")
async def test_prometheus_reads_what_comes_and_goes_and_how_far_groups_are(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1)
    async with running_broker(tmp_path, metrics=Address("127.0.0.1", port)) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.heartbeat("c", "g", "T")
        for queue_id in (0, 0, 1):
            await client.send("T", b"x", queue_id)
        await client.pull("T", 0)
        fields: dict[str, Any] = {"consumerGroup": "g", "topic": "T"}
        assert (await client.ask(15, queueId=0, commitOffset=1, **fields)).code == 0
        await client.send("T", b"x", i="UNIQ_KEY\x01A\x02DELAY\x0118\x02")
        found = await scraped(port)
        of_group = "{consumer_group=g,is_retry=false,topic=T}"
        expected = {
            "rocketmq_messages_in_total{is_system=false,topic=T}": 3,
            "rocketmq_messages_in_total{is_system=true,topic=SCHEDULE_TOPIC_XXXX}": 1,
            f"rocketmq_messages_out_total{of_group}": 2,
            f"rocketmq_consumer_lag_messages{of_group}": 2,
            "rocketmq_consumer_connections{}": 1,
            "rocketmq_producer_connections{}": 0,
            "rocketmq_consumer_group_number{}": 1,
            "rocketmq_timing_messages{}": 1,
            "rocketmq_half_messages{}": 0,
            "dledger_ready{group=broker-a,node=n0}": 1,
        }
        assert {name: found.get(name) for name in expected} == expected
        assert found["rocketmq_throughput_in_total{is_system=false,topic=T}"] > 300


async def test_rows_and_queues_of_a_scrape_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("broker.metrics.exposition.MAX_ROWS", 2)
    monkeypatch.setattr("broker.metrics.lags.MAX_LAGS", 1)
    (port,) = free_ports(1)
    async with running_broker(tmp_path, metrics=Address("127.0.0.1", port)) as (broker, nursery):
        client = Client(nursery, str(broker.config.address))
        await client.heartbeat("c", "g", "T")
        fields: dict[str, Any] = {"consumerGroup": "g", "queueId": 0, "commitOffset": 1}
        for topic, sent in (("A", 1), ("B", 3), ("C", 2)):
            for _ in range(sent):
                await client.send(topic, b"x")
            assert (await client.ask(15, topic=topic, **fields)).code == 0
        await scraped(port)
        found = await scraped(port)
        # The largest lag stays, and what is left out is counted; the log says so once.
        of_largest = "{consumer_group=g,is_retry=false,topic=B}"
        assert found[f"rocketmq_consumer_lag_messages{of_largest}"] == 2
        (said,) = [one for one in caplog.messages if "leave out the lags" in one]
        assert "of 2 groups and topics" in said
        assert "rocketmq_metric_rows_left_out" in said
        for name, rows in (("messages_in_total", 2), ("consumer_lag_messages", 1)):
            assert len([one for one in found if one.startswith(f"rocketmq_{name}{{")]) == rows
        left_out = {
            name.split("=")[1].rstrip("}"): rows
            for name, rows in found.items()
            if name.startswith("rocketmq_metric_rows_left_out")
        }
        assert left_out["rocketmq_messages_in"] == left_out["rocketmq_throughput_in"] == 1
        assert left_out["rocketmq_consumer_lag_messages"] == 2
        bounded = {one.split("{")[0].removesuffix("_total") for one in found if "{topic=" in one}
        assert bounded <= set(left_out), (
            "a metric with rows by topic does not say what it leaves out"
        )


def test_many_lags_are_found_beside_other_work() -> None:
    now_s, work = 0.0, AtOnce()
    later: list[Iterator[object]] = []
    work.later = lambda _what, steps: later.append(steps)  # type: ignore[method-assign]
    state = empty_state()
    look = LagsLook(parts_alone(state, work=work, clock=lambda: now_s))
    for number in range(20_000):
        topic, group = f"T{number % 10}", f"g{number}"
        state[TOPICS].configs[topic] = TopicConfig(topic)
        state[MESSAGES].queue_ends[topic] = {0: 20_000}
        state[OFFSETS].tables[group, topic] = {0: number}
    assert look.now() == Lags([], 0)
    (steps,) = later
    assert sum(1 for _ in steps) > 16
    largest = [Lag(20_000 - number, f"g{number}", f"T{number % 10}") for number in range(MAX_LAGS)]
    assert look.now() == Lags(largest, 15_000)
    for _ in range(2):  # while the last ones are looked for
        look.look_over()
    assert len(later) == 2
    state[OFFSETS].tables["g0", "T0"] = {0: 20_000}
    deque(later.pop(), 0)
    assert look.now().largest[0] == largest[1]
    now_s = 301.0  # the last scrape is so long ago that these lags do not count
    look.look_over()
    assert (look.now(), len(later)) == (Lags([], 0), 2)
    for number in range(19_999):
        del state[OFFSETS].tables[f"g{number}", f"T{number % 10}"]
    deque(later.pop(), 0)
    state[OFFSETS].tables["g19999", "T9"] = {0: 20_000}
    assert look.now() == Lags([Lag(0, "g19999", "T9")], 0)  # few again: as of now


async def asked(port: int, page: str) -> tuple[int, list[str]]:
    """The status and the lines of the answer."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    async with stream:
        await stream.send_all(
            f"GET /{page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join([part async for part in stream])
    head, _, text = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), text.splitlines()


async def test_a_broker_says_whether_clients_may_come_and_why_not(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings: dict[str, Any] = {"metrics": Address("127.0.0.1", port)}
    async with running_broker(tmp_path, **settings) as (broker, nursery):
        assert await asked(port, "readyz") == (200, ["ok"])
        broker.parts[FULL_DISK].is_refusing = True
        status, lines = await asked(port, "readyz")
        assert (status, len(lines)) == (503, 1)
        assert "no message is taken" in lines[0]
        broker.parts[FULL_DISK].is_refusing = False
        nursery.start_soon(broker.end)
        await trio.testing.wait_all_tasks_blocked()
        status, lines = await asked(port, "readyz")
        assert status == 503
        assert any("this member ends" in line for line in lines), lines
        assert await asked(port, "healthz") == (200, ["ok"])


async def test_a_broker_answers_probes_while_its_log_is_read_and_its_queues_are_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, tuple[int, list[str]]] = {}
    (port,) = free_ports(1)

    @asynccontextmanager
    async def open_node(*arguments: Any, **more: Any) -> AsyncIterator[dledger.Node]:
        found["log"] = await asked(port, "readyz")
        async with dledger.open_node(*arguments, **more) as node:
            yield node

    async def rebuild(node: dledger.Node, machine: BrokerMachine) -> None:
        async for change in node.role_changes():
            if change.ready:
                break
        found["queues"] = await asked(port, "readyz")
        found["health"] = await asked(port, "healthz")
        assert "dledger_term{group=broker-a,node=n0}" in await scraped(port)

    monkeypatch.setattr("broker.server.open_node", open_node)
    monkeypatch.setattr("broker.server.rebuild_queues", rebuild)
    settings: dict[str, Any] = {"metrics": Address("127.0.0.1", port)}
    async with running_broker(tmp_path, **settings):
        pass
    assert found == {
        "log": (503, ["no member is open: its log is being read"]),
        "queues": (503, ["the consume queues are being rebuilt"]),
        "health": (200, ["ok"]),
    }


def test_a_port_of_metrics_that_is_in_use_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.broker_command.set_up_logging", lambda *_: None)
    clients, log = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        arguments = ["--group", "g", "--node", "n0", "--peers", f"n0=127.0.0.1:{log}"]
        arguments += ["--listen", f"127.0.0.1:{clients}", "--dir", str(tmp_path)]
        assert main([*arguments, "--metrics", f"127.0.0.1:{port}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(port) in line
