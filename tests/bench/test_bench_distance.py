"""Links that take time, and what is made of the figures of a group behind them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from trio.testing import MockClock, memory_stream_pair

from bench import delayed_links, disk_limit, distance
from bench.delayed_links import DelayLine
from bench.distance import Distance, main, tables_of, window_rate
from bench.distant_group import DistantGroup, election_timeout_ms
from bench.distant_group import delayed_links as links_process
from bench.distant_member import RESUME
from bench.place import make_place
from bench.workload import Measured, Workload

# Half a millisecond of rounding either way.
CLOSE_S = 0.001


# --- delayed links ----------------------------------------------------------------------------


async def test_each_piece_arrives_so_long_after_it_was_sent(autojump_clock: MockClock) -> None:
    sender, source = memory_stream_pair()
    sink, receiver = memory_stream_pair()
    arrived: list[tuple[float, bytes]] = []

    async def receive() -> None:
        async for piece in receiver:
            arrived.append((trio.current_time() - began, bytes(piece)))

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(DelayLine(0.15).carry, source, sink, nursery.cancel_scope)
        nursery.start_soon(receive)
        # The second is sent while the first is on its way: it does not wait for it.
        await sender.send_all(b"first")
        await trio.sleep(0.1)
        await sender.send_all(b"second")
        await trio.sleep(1.0)
        nursery.cancel_scope.cancel()
    assert [piece for _, piece in arrived] == [b"first", b"second"]
    assert [at for at, _ in arrived] == [
        pytest.approx(0.15, abs=CLOSE_S),
        pytest.approx(0.25, abs=CLOSE_S),
    ]


async def test_the_end_of_a_connection_arrives_late_as_well(autojump_clock: MockClock) -> None:
    sender, source = memory_stream_pair()
    sink, receiver = memory_stream_pair()
    began = trio.current_time()
    with trio.CancelScope() as ended:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(DelayLine(0.15).carry, source, sink, ended)
            await sender.send_all(b"last")
            await sender.aclose()
            assert await receiver.receive_some() == b"last"
            await trio.sleep_forever()
    assert trio.current_time() - began == pytest.approx(0.15, abs=CLOSE_S)


async def test_bytes_arrive_in_order_and_at_any_rate(autojump_clock: MockClock) -> None:
    sender, source = memory_stream_pair()
    sink, receiver = memory_stream_pair()
    sent = b"".join(number.to_bytes(4, "big") for number in range(10_000))
    got = bytearray()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(DelayLine(0.15).carry, source, sink, nursery.cancel_scope)
        for at in range(0, len(sent), 1_000):
            await sender.send_all(sent[at : at + 1_000])
        while len(got) < len(sent):
            got += await receiver.receive_some()
        nursery.cancel_scope.cancel()
    assert got == sent
    assert trio.current_time() - began == pytest.approx(0.15, abs=CLOSE_S)


async def test_a_link_whose_receiver_does_not_read_holds_no_more_than_its_bound(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_links, "MOST_HELD_BYTES", 1_000)
    taken = 0

    class Endless(trio.abc.ReceiveStream):
        async def receive_some(self, max_bytes: int | None = None) -> bytes:
            nonlocal taken
            await trio.lowlevel.checkpoint()
            taken += 100
            assert taken < 10_000, "nothing holds the source back"
            return bytes(100)

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    class Full(trio.abc.SendStream):
        async def send_all(self, data: bytes | bytearray | memoryview) -> None:
            await trio.sleep_forever()

        async def wait_send_all_might_not_block(self) -> None:
            await trio.sleep_forever()

        async def aclose(self) -> None:
            await trio.lowlevel.checkpoint()

    line = DelayLine(0.15)
    with trio.move_on_after(60.0) as minute:
        await line.carry(Endless(), Full(), minute)
    assert 0 < taken <= line.held_bytes < 1_000 + 100 + 128


# --- figures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("round_trip_ms", "timeout_ms"),
    [(0, 500), (60, 500), (166, 500), (167, 1000), (300, 1000), (400, 1500)],
)
def test_members_stand_no_sooner_than_after_three_round_trips(
    round_trip_ms: int, timeout_ms: int
) -> None:
    assert election_timeout_ms(round_trip_ms) == timeout_ms


def test_the_window_allows_what_is_in_flight_once_a_round_trip_and_sync() -> None:
    assert window_rate(1000, 249.5, 0.5) == pytest.approx(4000.0)


def test_a_rate_stands_with_its_share_of_the_window() -> None:
    near, far, broken = Distance(0), Distance(300), Distance(400)
    near.measured = Measured(50_000.0, 17.0, 25.0)
    far.measured = Measured(3_300.0, 301.25, 302.0, failed=2)
    (rates,) = tables_of([near, far, broken], in_flight=1000, sync_ms=0.25)
    assert rates.cells == [
        ["0", "50,000", "17.0", "25.0", "0", ""],
        ["300", "3,300", "301.2", "302.0", "2", "99 %"],
        ["400", "failed", "", "", "", ""],
    ]


def test_outages_stand_with_the_share_of_long_ones() -> None:
    far = Distance(300)
    far.outages_ms = [1_000.0, 1_600.0, 1_200.0, 1_400.0]
    _, outages = tables_of([far], in_flight=1000, sync_ms=0.25)
    assert outages.cells == [["300", "1000", "4", "1,200", "1,600", "1,600", "25 %"]]


# --- real processes ---------------------------------------------------------------------------


@pytest.mark.forked_programs
def test_a_group_is_measured_over_links_that_take_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_limit, "FILE_BYTES", 1024 * 1024)
    monkeypatch.setattr(distance, "SYNC_S", 0.01)
    monkeypatch.setattr(distance, "WARM_UP_S", 0.1)
    kept, page = tmp_path / "runs.json", tmp_path / "page.md"
    words = ["--round-trips", "20", "--in-flight", "4", "--bodies", "16", "--seconds", "0.5"]
    files = ["--dir", str(tmp_path / "data"), "--json", str(kept), "--markdown", str(page)]
    result = CliRunner().invoke(main, [*words, *files])
    assert result.exit_code == 0, result.output
    found = json.loads(kept.read_text())
    (run,) = found["runs"]
    assert found["notes"] == []
    # An append takes the round trip; without the links it takes a millisecond.
    assert run["rate"]["median_ms"] >= 19.0
    assert 0 < run["rate"]["entries_per_s"] < window_rate(4, 19.0, 0.0)
    assert run["rate"]["failed"] == 0
    assert "| round trip ms | entries/s |" in page.read_text()
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.long
@pytest.mark.slow
def test_the_outage_of_a_distant_group_is_measured(tmp_path: Path) -> None:
    place, work = make_place(tmp_path / "group"), Workload(in_flight=2, body_bytes=16)
    with links_process(place, 20), DistantGroup(place, 20, work, RESUME) as group:
        took_ms = group.lose_leader()
    # The news that the leader ended needs half a round trip, an append a whole one.
    assert took_ms is None or took_ms > 29.0


@pytest.mark.parametrize(
    "words",
    [
        ["--round-trips", "x"],
        ["--round-trips", "-1"],
        ["--round-trips", "2001"],
        ["--in-flight", "0"],
        ["--in-flight", "10001"],
        ["--elections", "-1"],
    ],
)
def test_options_that_make_no_sense_are_refused(words: list[str]) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "Error: " in result.output
