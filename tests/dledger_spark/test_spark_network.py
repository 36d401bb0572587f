"""The data source over the network, from a group that runs in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

pytest.importorskip("pyspark", reason="pyspark is not installed: run make setup-spark")

from pyspark.sql.streaming.datasource import ReadAllAvailable

import dledger
from dledger import blocking
from dledger.free_ports import free_addresses
from dledger_spark import session
from dledger_spark.commands.spark_commands import dledger_spark
from dledger_spark.errors import (
    DataLost,
    GroupUnavailable,
    LogReplaced,
    OptionInvalid,
    RangeUnavailable,
)
from dledger_spark.log import network_log
from dledger_spark.log.folder_log import FolderLog
from dledger_spark.log.log_folder import open_log
from dledger_spark.log.network_log import NetworkLog, NetworkOrigin, ReadPace, open_group
from dledger_spark.replay.replay import plan_replay, write_piece
from dledger_spark.replay.table_folder import replay_run
from dledger_spark.scan import arrow_batches
from dledger_spark.schema import ENTRY_SCHEMA
from dledger_spark.source import DledgerDataSource
from remoting.message.record import MessageRecord
from tests.dledger_spark.batch_query import source_of, table_of
from tests.dledger_spark.broker_bodies import BrokerBodies

GROUP = "orders"
# Three members, an election and a test on a busy machine.
TIMEOUT_S = 60
# Long enough for one process with three members on a busy machine to keep its leader.
ELECTION_MS = 1500
COUNT = 300
DATA = Path(__file__).parents[1] / "dledger" / "data"


def bodies() -> BrokerBodies:
    """Messages, the last of which comes too late for its topic."""
    found = BrokerBodies()
    found.put_topic("t")
    for at in range(COUNT):
        found.message(MessageRecord(topic="t", body=b"%d" % at, store_timestamp=10**12 + at))
    found.delete_topic("t")
    found.record(MessageRecord(topic="t", body=b"late", queue_offset=COUNT))
    return found


class Group:
    """Three members.

    Attributes:
        addresses: theirs, with commas between them.
        folder: the one of the first member.
        last: the last committed entry.
    """

    def __init__(self, base: Path, stack: ExitStack) -> None:
        peers = {f"n{at}": address for at, address in enumerate(free_addresses(3))}
        nodes = [
            stack.enter_context(
                blocking.open_node(
                    dledger.NodeConfig(
                        group=GROUP,
                        node_id=node,
                        peers=peers,
                        data_dir=base,
                        election_timeout_ms=ELECTION_MS,
                    ),
                    dledger.LogOnly(),
                )
            )
            for node in peers
        ]
        self.addresses = ",".join(peers.values())
        self.folder = base / "dledger-n0"
        log = stack.enter_context(blocking.connect(self.addresses, group=GROUP))
        log.append(b"the group has a leader", timeout_s=TIMEOUT_S)
        leader = str(log.status()["leader"])
        self.leader = peers[leader]
        self._node = nodes[list(peers).index(leader)]
        self.last = self.append(bodies().bodies)

    def append(self, more: list[Any]) -> int:
        return self._node.append_many(more, timeout_s=TIMEOUT_S)[-1].index


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    with ExitStack() as stack:
        yield Group(tmp_path_factory.mktemp("members"), stack)


def source(group: Group, **options: object) -> DledgerDataSource:
    return source_of(bootstrap=group.addresses, group=GROUP, **options)


def read(group: Group, **options: object) -> pa.Table:
    return table_of(source(group, **options))


def test_entries_over_the_network_are_those_of_the_files_without_sums(group: Group) -> None:
    found = read(group, to=group.last, partitionBytes=10_000)
    # The members' own record of what is committed is a second behind.
    expected = pa.Table.from_batches(arrow_batches(str(group.folder), 0, "end"))
    expected = expected.slice(0, group.last + 1)
    names = [name for name in ENTRY_SCHEMA.names if not name.endswith("_crc")]
    assert found.select(names).equals(expected.select(names))
    assert set(found["chain_crc"].to_pylist() + found["body_crc"].to_pylist()) == {0}


def test_messages_over_the_network_are_those_that_the_brokers_took(group: Group) -> None:
    found = read(group, table="messages", to=group.last)
    assert found["body"].to_pylist() == [b"%d" % at for at in range(COUNT)]
    later = read(group, table="messages", to=group.last, startingTimestamp=10**12 + 250)
    assert later["body"].to_pylist() == [b"%d" % at for at in range(250, COUNT)]


def test_tasks_ask_members_that_do_not_lead(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    members = group.addresses.split(",")
    leaders = list[str]()
    status_of = network_log._status

    async def status(origin: NetworkOrigin) -> Mapping[str, Any]:
        found = await status_of(origin)
        leaders.append(found["members"]["addresses"][found["leader"]])
        return found

    monkeypatch.setattr(network_log, "_status", status)
    log = open_group(members, GROUP)
    assert len(log.origin.readers) == 2
    assert log.origin.readers == tuple(at for at in members if at != leaders[0])
    asked = list[NetworkOrigin]()
    original = network_log._entries

    async def ask(origin: NetworkOrigin, **options: Any) -> list[dledger.Entry]:
        asked.append(origin)
        return await original(origin, **options)

    monkeypatch.setattr(network_log, "_entries", ask)
    found = pa.Table.from_batches(log.batches(range(100), batch_bytes=2000, checksums=True))
    assert found["index"].to_pylist() == list(range(100))
    assert len(asked) > 1  # in pieces of the wanted size
    assert {one for origin in asked for one in origin.addresses} <= set(log.origin.readers)


def test_a_member_that_is_down_is_passed_over(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_log, "READER_S", 0.2)
    addresses = tuple(group.addresses.split(","))
    log = NetworkOrigin(GROUP, addresses, readers=tuple(free_addresses(1))).open()
    [batch] = log.batches(range(5, 9), batch_bytes=10**6, checksums=True)
    assert batch.column("index").to_pylist() == [5, 6, 7, 8]


def test_a_stream_follows_a_group(group: Group) -> None:
    found = source(group, maxBytesPerTrigger=20_000)
    reader = found.streamReader(found.schema())
    start = reader.initialOffset()
    rows, batches = list[int](), 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        for piece in reader.partitions(start, end):
            for batch in reader.read(piece):
                rows += batch.column("index").to_pylist()
        start, batches = end, batches + 1
    assert rows == list(range(end["groups"][GROUP]["next"]))
    assert batches > 2
    assert reader.reportLatestOffset()["groups"][GROUP]["next"] == len(rows)
    more = group.append([b"x", b"y"])
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end["groups"][GROUP]["next"] == more + 1
    other = {"next": end["groups"][GROUP]["next"], "term": 99, "chain": 0}
    with pytest.raises(LogReplaced):
        reader.latestOffset({"v": 1, "groups": {GROUP: other}}, ReadAllAvailable())


def test_a_replay_over_the_network_goes_on_from_one_of_a_folder(
    group: Group, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    folder = FolderLog(open_log(str(group.folder)))
    network = open_group(group.addresses.split(","), GROUP)
    for log, entries in ((folder, range(100)), (network, range(group.last + 1))):
        with replay_run(out) as run:
            plan = plan_replay(log, entries, out, 1 << 20)
            for piece in plan.pieces:
                write_piece(piece.origin.open(), out, run, piece)
    assert plan.pieces[0].entries.start == 100
    rows = pa.parquet.read_table(tmp_path / "out" / "messages").sort_by("index")
    assert rows["body"].to_pylist() == [b"%d" % at for at in range(COUNT)]


def test_show_goes_over_the_network(group: Group) -> None:
    words = ["show", "--bootstrap", group.addresses, "--group", GROUP, "--topic", "t"]
    done = CliRunner().invoke(dledger_spark, [*words, "--limit", "2", "--json"])
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["body"] for line in done.output.splitlines()] == ["MA==", "MQ=="]
    done = CliRunner().invoke(dledger_spark, [*words, "--to", "end"])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert "committed entries only" in done.output


@pytest.mark.spark
def test_count_goes_over_the_network(
    spark: Any, group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "local_session", lambda **_options: nullcontext(spark))
    words = ["count", "--bootstrap", group.addresses, "--group", GROUP, "--json"]
    done = CliRunner().invoke(dledger_spark, words)
    assert done.exit_code == 0, done.output
    [topic] = json.loads(done.stdout)["topics"]
    assert (topic["topic"], topic["messages"]) == ("t", COUNT)


def test_several_groups_that_speak_tls_are_read_with_certificates(tmp_path: Path) -> None:
    def file(name: str) -> Path:
        return DATA / "tls" / f"{name}.pem"

    def tls_of(name: str) -> dledger.TlsConfig:
        return dledger.TlsConfig(
            certificate=file(name), key=file(f"{name}-key"), authorities=file("authority")
        )

    peers = dict(zip(("bills", "orders"), free_addresses(2), strict=True))
    with ExitStack() as stack:
        for name, address in peers.items():
            config = dledger.NodeConfig(
                group=name,
                node_id="n0",
                peers={"n0": address},
                data_dir=tmp_path / name,
                tls=tls_of("n0"),
                new=True,
            )
            stack.enter_context(blocking.open_node(config, dledger.LogOnly()))
            client = blocking.connect(f"n0={address}", group=name, tls=tls_of("tool"))
            with client as log:
                log.append_many([name.encode(), b"more"], timeout_s=TIMEOUT_S)
        options = {
            "bootstrap": json.dumps({name: f"n0={at}" for name, at in peers.items()}),
            **{"tlsCert": str(file("tool")), "tlsKey": str(file("tool-key"))},
            **{"tlsCa": str(file("authority")), "maxBytesPerSecond": "1000000"},
        }
        rows = table_of(DledgerDataSource(options)).to_pylist()
        bodies = [(row["raft_group"], row["body"]) for row in rows if row["magic"] == 1]
        assert bodies == [(name, body) for name in peers for body in (name.encode(), b"more")]
        words = [
            *("show", "--bootstrap", f"n0={peers['bills']}", "--group", "bills"),
            *("--tls-cert", str(file("tool")), "--tls-key", str(file("tool-key"))),
        ]
        done = CliRunner().invoke(dledger_spark, [*words, "--tls-ca", str(file("authority"))])
        assert (done.exit_code, "bills" in done.output) == (0, True), done.output
        done = CliRunner().invoke(dledger_spark, [*words, "--tls-ca", "nowhere.pem"])
        assert (done.exit_code, done.output.count("\n")) == (1, 1)
        assert "nowhere.pem" in done.output
        done = CliRunner().invoke(dledger_spark, words)
        assert (done.exit_code, done.output.count("\n")) == (1, 1)
        assert "give tlsCert, tlsKey, tlsCa" in done.output
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(network_log, "TIMEOUT_S", 0.5)
        with pytest.raises(GroupUnavailable, match="TLS"):
            open_group([f"n0={peers['bills']}"], "bills")


def test_a_pace_spreads_reads_over_time() -> None:
    pace = ReadPace(1000)
    assert pace.wait_s(5.0) == 0
    pace.read(500, 5.0)
    assert pace.wait_s(5.2) == pytest.approx(0.3)
    pace.read(500, 5.5)
    assert pace.wait_s(5.5) == pytest.approx(0.5)
    pace.read(100, 60.0)  # what was not read in between is not saved up
    assert pace.wait_s(60.0) == pytest.approx(0.1)


def test_a_limited_task_waits_between_its_reads(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()
    monkeypatch.setattr(network_log, "MIN_CHUNK_BYTES", 4000)
    # Not `time.sleep` itself, which other threads of the process call.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=waited.append)
    monkeypatch.setattr(network_log, "time", clock)
    log = open_group(group.addresses.split(","), GROUP, max_bytes_per_second=10)
    indexes = [
        index
        for batch in log.batches(range(100), batch_bytes=10**6, checksums=True)
        for index in batch.column("index").to_pylist()
    ]
    assert indexes == list(range(100))
    assert len(waited) > 2
    assert all(wait_s > 60 for wait_s in waited[1:])


def test_what_the_group_does_not_have_is_an_error(group: Group) -> None:
    for options, problem in (
        ({"to": 10**6}, "committed is"),
        ({"endingOffsets": 10**6}, "endingOffsets must be 0"),
    ):
        with pytest.raises(RangeUnavailable, match=problem):
            read(group, **options)
    with pytest.raises(OptionInvalid, match="committed entries only"):
        read(group, to="end")


def test_entries_that_a_group_has_dropped_are_lost() -> None:
    log = NetworkLog(NetworkOrigin(GROUP, ("127.0.0.1:1",)), 100, 199)
    assert log.parts(range(150, 160), fail_on_data_loss=True) == [range(150, 160)]
    with pytest.raises(DataLost, match=r"now begins with 100, so entries 50\.\.99 are lost"):
        log.parts(range(50, 160), fail_on_data_loss=True)
    assert log.parts(range(50, 160), fail_on_data_loss=False) == [range(100, 160)]
    assert log.parts(range(50, 60), fail_on_data_loss=False) == []
    with pytest.raises(RangeUnavailable, match="the first entry kept is 100"):
        log.resolve(50, None)
    assert log.resolve(None, None) == range(100, 200)


def test_a_group_that_does_not_answer_is_one_line(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_log, "TIMEOUT_S", 0.3)
    with pytest.raises(GroupUnavailable, match=r"group .bills. at .* does not answer"):
        open_group(group.addresses.split(","), "bills")
    with pytest.raises(GroupUnavailable, match="check the addresses"):
        open_group(free_addresses(1), GROUP)
    with pytest.raises(OptionInvalid, match="bootstrap='nowhere'"):
        open_group(["nowhere"], GROUP)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"group": "g"}, "it belongs to bootstrap"),
        ({"bootstrap": "a:1"}, "name the group as well"),
        ({"bootstrap": "a:1,,b:2", "group": "g"}, "host:port of 1 to 64 members"),
        ({"bootstrap": "a:1", "group": "g", "path": "p"}, "bootstrap is given as well"),
        ({"bootstrap": "a:1", "group": "g,g"}, "1 to 256 names of groups"),
        ({"bootstrap": "a:1", "group": "g,"}, "1 to 256 names of groups"),
        ({"bootstrap": "{}"}, "1 to 256 names of groups"),
        ({"bootstrap": '{"g": 5}'}, "JSON by group"),
        ({"bootstrap": '{"g": "a:1", '}, "JSON by group"),
        ({"bootstrap": '{"g": "a:1,"}'}, "host:port of 1 to 64 members"),
        ({"bootstrap": '{"g": "a:1"}', "group": "g"}, "names the groups already"),
        ({"path": "p", "tlsCert": "c"}, "it belongs to bootstrap"),
        ({"path": "p", "maxBytesPerSecond": "5"}, "it belongs to bootstrap"),
        ({"bootstrap": "a:1", "group": "g", "tlsCert": "c"}, "tlsKey='': TLS takes a certificate"),
        ({"bootstrap": "a:1", "group": "g", "maxBytesPerSecond": "0"}, "a number of 1 or more"),
    ],
)
def test_options_of_a_network_fit_one_another(options: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionInvalid, match=problem):
        DledgerDataSource(options).schema()
