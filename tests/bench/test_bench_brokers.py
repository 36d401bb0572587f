"""The benchmark of brokers: its tables, its load program, and a real group."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import click
import pytest
import trio
from click.testing import CliRunner

from bench.__main__ import main
from bench.brokers import rows
from bench.brokers.asking import Asking, make_topics, route
from bench.brokers.bench import Bench, Figure, Row, Scale
from bench.brokers.command import (
    Results,
    _is_measured,
    in_words,
    measure,
    ratio,
    share,
)
from bench.brokers.frames import connected
from bench.brokers.group import BrokerGroup, Brokers
from bench.brokers.null import PULLED_MESSAGES, null_broker
from bench.brokers.ours import OURS
from bench.brokers.puller import pull_all
from bench.brokers.rocketmq import Load
from bench.brokers.rows import ROWS
from bench.brokers.send_costs import calls_of_a_send
from bench.brokers.sender import Senders, fill
from bench.brokers.traveller import travel
from bench.counted_calls import regular
from bench.one_run import RunFailed
from bench.options import chosen_keys
from bench.report import Report
from bench.toolchain import Toolchain
from broker.offsets.state import OFFSETS
from broker.server import Broker
from remoting.bodies.table import decode_table
from remoting.message.batch import BatchMessage, encode_batch_body
from remoting.message.record import decode_records
from remoting.wire.codes import RequestCode
from remoting.wire.command import Command
from tests.broker.one_broker import Client, running_broker, send_fields, until


def test_values_are_shown_with_their_units() -> None:
    assert in_words(Figure("sends", "a second", 14_500.4)) == "14,500 a second"
    assert in_words(Figure("median", "ms", 4.2)) == "4.20 ms"
    assert in_words(Figure("memory", "MiB", 41.26)) == "41.3 MiB"


def test_a_ratio_says_how_many_times_better_ours_is() -> None:
    assert ratio(Figure("", "", 30.0, True), Figure("", "", 10.0, True)) == "3 x"
    assert ratio(Figure("", "", 2.0), Figure("", "", 5.0)) == "2.5 x"
    assert ratio(Figure("", "", 2.0), None) == ""


def test_the_share_is_of_what_the_load_can_do_and_only_of_rates() -> None:
    assert share(Figure("", "", 30.0, True), Figure("", "", 40.0, True)) == "75%"
    assert share(Figure("", "", 2.0), Figure("", "", 1.0)) == ""
    assert share(Figure("", "", 30.0, True), None) == ""


def test_what_is_measured_is_chosen_by_key_and_stays_in_its_order() -> None:
    assert chosen_keys("--peers", "none", ["java", "null"], "none") == []
    assert chosen_keys("--rows", "all", ["ready", "memory"], "all") == ["ready", "memory"]
    assert chosen_keys("--peers", "null,java", ["java", "null"], "none") == ["java", "null"]
    with pytest.raises(click.UsageError, match="--peers 'kafka': give none, or of java, null"):
        chosen_keys("--peers", "kafka", ["java", "null"], "none")
    with pytest.raises(click.UsageError, match="--rows 'speed': give all, or of ready"):
        chosen_keys("--rows", "ready,speed", ["ready"], "all")


def test_the_table_has_the_median_of_all_rounds() -> None:
    results = Results()
    for value in (1.0, 9.0, 2.0):
        results.add(OURS, [Figure("ready", "s", value)])
    assert results.table([OURS]).cells == [["ready", "2.00 s"]]


def program(folder: Path, does: str) -> Load:
    path = folder / "load"
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Load([str(path)])


def test_the_load_program_is_told_what_to_do_and_its_last_line_is_read(tmp_path: Path) -> None:
    load = program(tmp_path, 'echo "$@" >&2; echo started; echo \'{"a_second": 3.5, "failed": 0}\'')
    found = load.run("send", "127.0.0.1:1", tmp_path, 10, threads=64)
    assert found["a_second"] == 3.5
    said = (tmp_path / "load-complaints").read_text()
    assert said == "send nameserver=127.0.0.1:1 threads=64\n"


def test_a_load_that_fails_or_hangs_fails_its_row(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="measured nothing; the last complaint: no route"):
        program(tmp_path, "echo no route >&2; exit 1").run("send", "", tmp_path, 10)
    with pytest.raises(RunFailed, match="send: 2 have failed"):
        program(tmp_path, "echo '{\"failed\": 2}'").run("send", "", tmp_path, 10)
    with pytest.raises(RunFailed, match=r"took more than 0\.2 s"):
        program(tmp_path, "exec sleep 30").run("send", "", tmp_path, 0.2)


def all_count(group: BrokerGroup) -> str | None:
    """Once no member is in doubt, "yes": before, two of three may be no quorum."""
    for address in group._addresses.members.values():
        with Asking(address) as connection:
            reply = connection.ask(Command(RequestCode.GET_BROKER_RUNTIME_INFO))
        if decode_table(reply.body)["dledgerProven"] == "false":
            return None
    return "yes"


@pytest.mark.forked_programs
def test_a_group_is_started_loses_its_leader_and_ends(tmp_path: Path) -> None:
    with BrokerGroup(OURS, tmp_path / "group") as group:
        assert group.ready_s > 0
        first = group.leader()
        make_topics(group.leader_address(), [f"T{number}" for number in range(5)], 2)
        assert route(group.nameserver, "T4") is not None
        assert 10 < group.memory_mib() < 500
        group._until(partial(all_count, group), "a member is in doubt")
        group.kill(first)
        assert group.leader() != first
        running = list(group._running.values())
    assert all(process.poll() is not None for process in running)


@pytest.mark.slow
@pytest.mark.forked_programs
def test_sends_are_measured_with_access_control_and_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A group has four processes: one without protection, and one with both kinds.
    monkeypatch.setattr(rows, "_KINDS", (rows._KINDS[0], rows._KINDS[-1]))
    monkeypatch.setattr(rows, "_TURNS", 2)
    (row,) = [row for row in ROWS if row.key == "protected"]
    group = cast(BrokerGroup, SimpleNamespace())
    figures = row.measure(Bench(group, None, Scale(measured_s=0.4), tmp_path, True))
    assert len(figures) == 8
    assert all(figure.value > 0 for figure in figures)
    assert "64 light senders of 1 KB, access control and TLS" in [one.name for one in figures]


def test_a_proxy_of_rocketmq_is_measured_by_rows_with_clients_of_grpc_alone() -> None:
    def measured(brokers: Brokers, **of_row: bool) -> bool:
        return _is_measured(Row("", "", lambda _bench: [], **of_row), brokers)

    java, java5, null = (
        OURS._replace(key=key, is_behind_proxy=key == "java5") for key in ("java", "java5", "null")
    )
    assert all(measured(OURS, **{kind: True}) for kind in ("by_proxy", "only_ours", "load_alone"))
    assert [measured(one) for one in (java, java5, null)] == [True, False, False]
    assert [measured(one, by_proxy=True) for one in (java, java5, null)] == [False, True, False]
    assert not any(measured(one, only_ours=True, by_proxy=True) for one in (java, java5, null))
    assert measured(null, load_alone=True)


@pytest.mark.slow
@pytest.mark.forked_programs
def test_sends_and_waiting_receives_are_measured_at_a_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wait is long enough for all receives to be begun, and no longer.
    for module in ("light_calls", "proxy_rows"):
        monkeypatch.setattr(f"bench.brokers.{module}.POLL_S", 3.0)
    monkeypatch.setattr("bench.brokers.proxy_rows._LEAST_QUIET_S", 1.0)
    monkeypatch.setattr("bench.brokers.proxy_rows._SENDS_A_SECOND", {1: 60, 64: 200})
    with BrokerGroup(OURS, tmp_path / "group") as group:
        scale = Scale(measured_s=0.2, polls=100, polled_s=1.0)
        bench = Bench(group, None, scale, tmp_path, True)
        chosen = [row for row in ROWS if row.key in ("proxy-sends", "proxy-polls")]
        sent, polled = [row.measure(bench) for row in chosen]
    assert [figure.unit for figure in sent if figure.value > 0] == [
        *("a second", "us a message", "us a message") * 2,
        *("a second", "us a message"),
    ]
    begins = [one for one in polled if "its begin" in one.name]
    assert [one.value > 0 for one in begins] == [True, True]
    (ended,) = [one for one in polled if one.name.endswith(": ended")]
    assert ended.name == "100 receives of 3 s, each asked again: ended"


@pytest.mark.slow
@pytest.mark.forked_programs
def test_messages_of_lite_topics_are_measured_from_end_to_end(tmp_path: Path) -> None:
    (row,) = [row for row in ROWS if row.key == "lite"]
    with BrokerGroup(OURS, tmp_path / "group") as group:
        scale = Scale(measured_s=1.0, lite_topics=1000)
        figures = row.measure(Bench(group, None, scale, tmp_path, True))
    found = {figure.name: figure.value for figure in figures}
    assert found["a subscription to 1,000 of them"] > 0
    assert found["500 messages a second to 1 of them, end to end: median"] > 0
    assert found["1,000 lite topics, leader killed, our client"] > 0


def test_a_row_that_fails_is_noted_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def begun(_brokers: Brokers, folder: Path) -> Iterator[object]:
        folder.mkdir()
        yield SimpleNamespace(ready_s=1.5)

    def fails(_bench: Bench) -> list[Figure]:
        raise RunFailed("no luck")

    two = [
        Row("one", "the first", fails),
        Row("two", "the second", lambda bench: [Figure("ready", "s", bench.group.ready_s)]),
    ]
    monkeypatch.setattr("bench.brokers.command.BrokerGroup", begun)
    results, report = Results(), Report(tmp_path)
    measure(OURS, two, None, Scale(), tmp_path, results, report)
    assert report.notes == ["dledger, the first: no luck"]
    assert [cells[0] for cells in results.table([OURS]).cells] == ["ready"]
    assert not (tmp_path / OURS.key).exists()


def test_without_java_what_needs_no_load_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found_nothing(folder: Path, building: Callable[[str], object]) -> Toolchain:
        return Toolchain(folder, lambda _name: None, building)

    @contextmanager
    def begun(_brokers: Brokers, folder: Path) -> Iterator[object]:
        folder.mkdir()
        yield SimpleNamespace(memory_mib=lambda: 30.0)

    monkeypatch.setattr("bench.brokers.command.Toolchain", found_nothing)
    monkeypatch.setattr("bench.brokers.command.BrokerGroup", begun)
    arguments = ["broker", "--rows", "memory,senders", "--dir", str(tmp_path), "--build"]
    done = CliRunner().invoke(main, [*arguments, str(tmp_path / "build")])
    assert done.exit_code == 0, done.output
    assert "install a JDK" in done.output
    assert "memory of a broker" in done.output
    assert "senders" not in done.output


async def test_a_light_client_pulls_all_messages_and_brings_its_offsets(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, nursery):
        address = str(broker.config.address)
        client = Client(nursery, address)
        batch = encode_batch_body([BatchMessage(b"%d" % number) for number in range(70)])
        for queue_id in range(2):
            await client.ask(320, batch, **send_fields("T", queue_id, m="true"))
        with trio.fail_after(20):
            await trio.to_thread.run_sync(pull_all, address, "T", 4, 140)
        await until(lambda: brought(broker))
        with pytest.raises(RunFailed, match="not exist"), trio.fail_after(20):
            await trio.to_thread.run_sync(pull_all, address, "NoTopic", 1, 1)


async def test_light_senders_have_each_message_and_each_batch_stored(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _):
        address = str(broker.config.address)
        batch = encode_batch_body([BatchMessage(b"x")] * 10)

        def send() -> int:
            with connected(address) as connection:
                return Senders(connection, "T", 4, b"x").send(3, requests=20).requests

        with trio.fail_after(20):
            sent = await trio.to_thread.run_sync(send)
            await trio.to_thread.run_sync(fill, address, "T", 4, batch, 20)
        assert sent >= 20
        ends = [broker.machine.queues.end("T", queue_id) for queue_id in range(4)]
        assert sum(ends) == sent + 10 * 20


def test_calls_of_most_sends_are_counted_by_package(tmp_path: Path) -> None:
    calls = regular(trio.run(calls_of_a_send, tmp_path / "group", 4))
    assert calls["broker/sends/request.py", "read_send_request"] == 1
    assert calls["remoting/wire/frame.py", "encode_command"] >= 1


async def brought(broker: Broker) -> bool:
    """Whether a group has committed what its pulls have brought."""
    tables = broker.machine.state[OFFSETS].tables.values()
    return any(table.get(0, 0) >= 64 and table.get(1, 0) >= 64 for table in tables)


async def test_light_clients_send_at_a_rate_and_time_what_they_consume(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as (broker, _):
        address = str(broker.config.address)

        def measured() -> list[float]:
            make_topics(address, ["T"], 2)
            found = travel(address, "T", 2, rate=100, measured_s=0.3, body_bytes=64, warm_up_s=0.2)
            assert found.messages == 50
            assert found.percentile_ms(50) <= found.percentile_ms(99) == found.times_ms[-1]
            return found.times_ms

        with trio.fail_after(20):
            times_ms = await trio.to_thread.run_sync(measured)
        assert len(times_ms) == 30
        assert 0 < times_ms[0] < times_ms[-1] < 10_000


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_the_null_broker_stores_nothing_and_has_a_message_at_every_offset(tmp_path: Path) -> None:
    brokers = null_broker(Toolchain(tmp_path / "build"))
    with BrokerGroup(brokers, tmp_path / "group") as group:  # it has taken a message
        address = group.leader_address()
        make_topics(address, ["T"], 8)
        found = route(group.nameserver, "T")
        assert found is not None
        assert [(each.broker_name, each.read_queue_count) for each in found.queues] == [
            ("bench", 8)
        ]
        assert pull_all(address, "T", 8, 10 * 8 * PULLED_MESSAGES) > 0
        with Asking(address) as asking:
            fields = {"consumerGroup": "g", "topic": "T", "queueId": "3", "queueOffset": "70"}
            pulled = asking.ask(Command(RequestCode.PULL_MESSAGE, fields))
        places = [(one.queue_id, one.queue_offset) for one in decode_records(pulled.body)]
        assert places == [(3, 70 + at) for at in range(PULLED_MESSAGES)]
        assert pulled.fields["nextBeginOffset"] == "102"
