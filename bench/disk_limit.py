"""The limit of the disk: writes the same bytes to three files at once, and nothing else.

Three processes overwrite a file each that was written before, as many bytes at a time as a system
with so many entries in flight could have gathered, and sync after each. The second fastest of them
is what a quorum could be. With one entry in flight, round trips over loopback are added.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from statistics import median

from bench.workload import Measured, Workload, measured
from dledger.entry import HEADER_BYTES

WRITERS = 3
# Large enough that a sync never writes the same blocks as the one before.
FILE_BYTES = 64 * 1024 * 1024
_BLOCK_BYTES = 1024 * 1024
ROUND_TRIP_S = 1.0
_MESSAGE_BYTES = 64


def bytes_a_sync(workload: Workload) -> int:
    """Return the bytes of all entries in flight, with their headers."""
    return workload.in_flight * (workload.body_bytes + HEADER_BYTES)


def write_and_sync(path: Path, workload: Workload, started: Callable[[], object]) -> list[float]:
    """Return the seconds of each write and sync in the measured time.

    Calls `started` before the first. Writes the whole file once before, so that no sync allocates.
    """
    size = bytes_a_sync(workload)
    file_bytes = max(FILE_BYTES, 4 * size)
    block = os.urandom(_BLOCK_BYTES)
    data = (block * (size // len(block) + 1))[:size]
    latencies_s: list[float] = []
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for offset in range(0, file_bytes, len(block)):
            os.pwrite(fd, block, offset)
        os.fsync(fd)
        started()
        begin = time.perf_counter() + workload.warm_up_s
        end = begin + workload.measured_s
        offset = 0
        while (before := time.perf_counter()) < end:
            if offset + size > file_bytes:
                offset = 0
            written = os.pwrite(fd, data, offset)
            while written < size:
                written += os.pwrite(fd, data[written:], offset + written)
            os.fdatasync(fd)
            offset += size
            if before >= begin:
                latencies_s.append(time.perf_counter() - before)
    finally:
        os.close(fd)
    return latencies_s


def _writer(path: Path, workload: Workload) -> None:
    def wait_for_the_others() -> None:
        print("ready", flush=True)
        sys.stdin.readline()

    print(json.dumps(write_and_sync(path, workload, wait_for_the_others)), flush=True)


def three_at_once(folder: Path, workload: Workload) -> list[list[float]]:
    """Run three writers at the same time; return their latencies, the fastest writer first."""
    command = [sys.executable, "-m", "bench.disk_limit", "--write"]
    writers = [
        subprocess.Popen(
            [*command, str(folder / f"file-{number}"), workload.to_json()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(WRITERS)
    ]
    try:
        for writer in writers:
            writer.stdout.readline()  # type: ignore[union-attr]  # a pipe
        for writer in writers:
            writer.stdin.write("go\n")  # type: ignore[union-attr]
            writer.stdin.flush()  # type: ignore[union-attr]
        found = [json.loads(writer.communicate()[0]) for writer in writers]
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    return sorted(found, key=len, reverse=True)


def round_trip_s(measured_s: float = ROUND_TRIP_S) -> float:
    """Return the median of sending 64 bytes to another process and back, over TCP on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-m", "bench.disk_limit", "--echo", str(port)]
        with subprocess.Popen(command):
            stream, _ = listener.accept()
            with stream:
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return median(_trips(stream, measured_s))


def _trips(stream: socket.socket, measured_s: float) -> list[float]:
    message = bytes(_MESSAGE_BYTES)
    latencies_s: list[float] = []
    end = time.perf_counter() + measured_s
    while (before := time.perf_counter()) < end:
        stream.sendall(message)
        stream.recv(_MESSAGE_BYTES, socket.MSG_WAITALL)
        latencies_s.append(time.perf_counter() - before)
    return latencies_s


def _echo(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while message := stream.recv(_MESSAGE_BYTES, socket.MSG_WAITALL):
            stream.sendall(message)


def limit(folder: Path, workload: Workload, round_trips: int) -> Measured:
    """Return the rate that three disks allow a quorum, with `round_trips` for each append."""
    second = three_at_once(folder, workload)[1]
    trips_s = round_trips * round_trip_s() if round_trips else 0.0
    if not round_trips:
        return measured(second, workload.in_flight, workload.measured_s)
    together = [each + trips_s for each in second]
    return measured(together, workload.in_flight, sum(together))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["--write", file, work]:
            _writer(Path(file), Workload.from_json(work))
        case ["--echo", port]:
            _echo(int(port))
        case [folder, work, trips]:
            result = limit(Path(folder), Workload.from_json(work), int(trips))
            print(json.dumps(asdict(result)), flush=True)
        case _:
            sys.exit("usage: disk_limit FOLDER WORKLOAD ROUND_TRIPS")


if __name__ == "__main__":
    main(sys.argv[1:])
