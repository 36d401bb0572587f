"""How late a stream is behind a running group, and how much slower the group's sends are then."""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.one_run import RunFailed
from bench.place import Place, make_place
from bench.spark.paced_member import GROUP, LEADS, TIME_BYTES
from bench.spark.row_ages import RowAges
from bench.system import member_words, python_module

# No machine takes longer to elect a leader, or to answer behind the end of a phase.
PATIENCE_S: Final = 120.0
WARM_UP_S: Final = 5.0
# Spark's first batches take seconds, and the entries that gather then make the next ones large.
SETTLING_BATCHES: Final = 5
SETTLING_S: Final = 2.0
POLL_S: Final = 0.1
_SENT: Final = f"cast(conv(hex(substring(body, 1, {TIME_BYTES})), 16, 10) as double)"


class StreamRow(NamedTuple):
    """A stream beside a group that gets entries at a steady rate.

    Attributes:
        source: the folders of the members, or the members themselves.
        alone_per_s, with_per_s: entries acknowledged a second without and with the stream.
        alone_ms, with_ms: median time from the planned send of an entry to its acknowledgement.
        lag_s: mean time from the send of an entry to its row in a batch of the sink, of all rows
            that were sent while the stream was measured.
        oldest_s: the same for the latest of these rows.
    """

    source: str
    alone_per_s: float
    with_per_s: float
    alone_ms: float
    with_ms: float
    lag_s: float
    oldest_s: float


class _Leader:
    """The sending process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def send(self, measured_s: float) -> dict[str, float]:
        """Send for so many measured_s. Raises RunFailed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{measured_s}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RunFailed("the leader ended while it was sending")
        answer: dict[str, float] = json.loads(line)
        return answer


def stream_rows(session: Any, home: Path, rate: int, measured_s: float) -> Iterator[StreamRow]:
    """Measure streams over folders and over the network; each with a group of its own.

    Raises RunFailed if no member leads or answers, or the stream does not reach the end.
    """
    for source in ("folders", "network"):
        place = make_place(home / f"stream-{source}-{time.time_ns()}")
        with _group(place, rate) as leader:
            leader.send(WARM_UP_S)
            alone = leader.send(measured_s)
            options = {"startingOffsets": "latest", "path": str(place.folder)}
            if source == "network":
                del options["path"]
                options |= {"bootstrap": ",".join(place.peers.values()), "group": GROUP}
            with _stream(session, options, place.folder / "checkpoint") as ages:
                beside = _sends_beside(leader, ages, measured_s)
        yield StreamRow(
            source,
            alone["entries_per_s"],
            beside["entries_per_s"],
            alone["median_ms"],
            beside["median_ms"],
            ages.mean_s,
            ages.oldest_s,
        )


def _sends_beside(leader: _Leader, ages: RowAges, measured_s: float) -> dict[str, float]:
    """Send beside a stream that has settled, and wait for its last row. Raises RunFailed."""
    deadline = time.monotonic() + PATIENCE_S
    while ages.batches < SETTLING_BATCHES:
        if time.monotonic() > deadline:
            raise RunFailed(f"the stream had {ages.batches} batches in {PATIENCE_S:.0f} s")
        leader.send(SETTLING_S)
    ages.since_ns = time.time_ns()
    beside = leader.send(measured_s)
    deadline = time.monotonic() + PATIENCE_S
    while ages.rows < beside["entries"]:
        if time.monotonic() > deadline:
            lacking = beside["entries"] - ages.rows
            raise RunFailed(f"the stream lacked {lacking:.0f} rows after {PATIENCE_S:.0f} s")
        time.sleep(POLL_S)
    return beside


@contextmanager
def _stream(session: Any, options: dict[str, str], checkpoint: Path) -> Iterator[RowAges]:
    """Run a stream; yield the ages of its rows."""
    ages = RowAges()

    def take(batch: Any, _number: int) -> None:
        since_ns = ages.since_ns
        sent = batch.where("magic = 1").selectExpr(f"{_SENT} as sent")
        counted = "false" if since_ns is None else f"sent >= {since_ns}"
        found = sent.selectExpr(
            "count(*)",
            f"count_if({counted})",
            f"avg(case when {counted} then sent end)",
            f"min(case when {counted} then sent end)",
        )
        [(rows, rows_counted, mean_ns, first_ns)] = found.collect()
        ages.batches += rows > 0
        ages.add(rows_counted, mean_ns, first_ns, time.time_ns())

    frame = session.readStream.format("dledger").options(**options).schema("magic int, body binary")
    query = (
        frame.load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    try:
        yield ages
    finally:
        query.stop()


@contextmanager
def _group(place: Place, rate: int) -> Iterator[_Leader]:
    """Run a group of three during a block. Raises RunFailed."""
    processes = [
        subprocess.Popen(
            [*python_module("spark.paced_member"), *member_words(place, node_id), str(rate)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for node_id in place.peers
    ]
    try:
        with selectors.DefaultSelector() as selector:
            for process in processes:
                assert process.stdout is not None
                selector.register(process.stdout, selectors.EVENT_READ, process)
            ready = selector.select(PATIENCE_S)
        if not ready or ready[0][0].data.stdout.readline().strip() != LEADS:
            raise RunFailed("no member led")
        yield _Leader(ready[0][0].data)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
