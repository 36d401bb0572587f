"""Tables of many logs on a standalone cluster of this machine: time, processors, memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.one_run import RunFailed
from bench.process_figures import tree_processor_s
from bench.spark.message_log import write_message_log
from bench.spark.peak_memory import resident
from dledger.free_ports import free_addresses
from dledger.store.hard_state_file import FILE_NAME as RECORD_FILE
from dledger.store.hard_state_file import (
    SLOT_BYTES,
    SLOT_DISTANCE_BYTES,
    decode_record,
    encode_record,
)
from dledger_spark.java import find_java, make_java_home

# A message of the log takes about this many bytes in it.
MESSAGE_BYTES: Final = 500
STARTED_MAX_S: Final = 120
# Looking at the processes of all workers takes 20 ms of a processor.
LOOK_EVERY_S: Final = 1.0
_MIB: Final = 1 << 20
_JOB: Final = "job"
# Of each worker and of the driver's Java.
_WORKER_MEMORY: Final = "2g"
_DRIVER_MEMORY: Final = "1g"
# Runs in an executor of one core; the standalone cluster starts one on each worker.
_EXECUTOR_MEMORY: Final = "1g"


class ClusterRow(NamedTuple):
    """A step with a number of workers.

    Attributes:
        processor_s: of the driver and all workers.
        rows: rows of the table of messages.
        mib: the largest process of each kind while all steps ran, by kind.
    """

    what: str
    workers: int
    clock_s: float
    processor_s: float
    rows: int
    mib: dict[str, int]


def write_group_logs(
    folder: Path, groups: int, group_mb: int, on_progress: Callable[[str], None]
) -> None:
    """Write the logs of groups that are not there yet; each has about so many MB.

    The others are copies of the first one's, under their own names: writing one takes a processor
    20 s for 200 MB.
    """
    first = folder / _group(0)
    if not first.exists():
        on_progress(f"writing the log of group 1 of {groups}")
        messages = group_mb * 1_000_000 // MESSAGE_BYTES
        write_message_log(first, messages, lambda _done: None, _group(0))
    for at in range(1, groups):
        if not (of_group := folder / _group(at)).exists():
            on_progress(f"copying the log for group {at + 1} of {groups}")
            copied = folder / "copied"
            shutil.rmtree(copied, ignore_errors=True)
            shutil.copytree(first, copied)
            for record in copied.glob(f"*/{RECORD_FILE}"):
                record.write_bytes(_of_group(record.read_bytes(), _group(at)))
            copied.rename(of_group)


def _group(at: int) -> str:
    return f"bench{at:03}"


def _of_group(content: bytes, group: str) -> bytes:
    """Return the content of a record file for another group."""
    made = bytearray(content)
    for begin in (0, SLOT_DISTANCE_BYTES):
        slot = slice(begin, begin + SLOT_BYTES)
        if (found := decode_record(content[slot])) is not None:
            record, sequence = found
            made[slot] = encode_record(record._replace(group=group), sequence)
    return bytes(made)


def cluster_rows(
    logs: Path, home: Path, workers: int, on_progress: Callable[[str], None]
) -> list[ClusterRow]:
    """Make tables of all logs, and bring them up to date without new facts.

    `on_progress` is called with what begins, and when: in seconds since the job was started.
    Raises RunFailed if that fails.
    """
    out = home / f"cluster-tables-{os.getpid()}-{workers}"
    said = home / "cluster-job.log"
    with _cluster(home, workers) as (master, processes), said.open("wb") as errors:
        command = [sys.executable, "-m", __name__, _JOB, master, str(logs), str(out)]
        job = subprocess.Popen(
            command, env=_environment(home), stdout=subprocess.PIPE, stderr=errors
        )
        most: Counter[str] = Counter()
        pids = [process.pid for process in processes]
        marks = [0.0]
        told = []
        assert job.stdout is not None
        os.set_blocking(job.stdout.fileno(), False)
        begun, begun_s = time.monotonic(), sum(map(tree_processor_s, pids))
        while job.poll() is None:
            most |= Counter({f"driver {name}": n for name, n in resident(job.pid).items()})
            for pid in pids:
                most |= Counter({f"worker {name}": n for name, n in resident(pid).items()})
            used_s = tree_processor_s(job.pid) + sum(map(tree_processor_s, pids)) - begun_s
            for line in job.stdout:
                if isinstance(one := json.loads(line), str):
                    on_progress(f"{time.monotonic() - begun:.0f} s: {one}")
                    continue
                told.append(one)
                marks.append(used_s)
            time.sleep(LOOK_EVERY_S)
        told += [one for line in job.stdout if isinstance(one := json.loads(line), dict)]
        marks += [marks[-1]] * (len(told) + 1 - len(marks))
    shutil.rmtree(out, ignore_errors=True)
    if job.returncode:
        raise RunFailed(f"the job has ended with {job.returncode}: {said}")
    mib = {name: size // _MIB for name, size in most.items()}
    return [
        ClusterRow(one["what"], workers, one["clock_s"], used - before, one["rows"], mib)
        for one, before, used in zip(told, marks, marks[1:], strict=False)
    ]


@contextmanager
def _cluster(home: Path, workers: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """Yield the address of a master, and the processes of its workers, of one core each."""
    import pyspark  # noqa: PLC0415

    spark_class = f"{pyspark.__path__[0]}/bin/spark-class"
    host, _, port = free_addresses(1)[0].rpartition(":")
    master = f"spark://{host}:{port}"
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack, (home / "cluster.log").open("wb") as log:

        def start(*words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [spark_class, *words, "--webui-port", "0"],
                env=_environment(home),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        start(f"{deploy}.master.Master", "--host", host, "--port", port)
        started = [
            start(
                *(f"{deploy}.worker.Worker", "--host", host, "--cores", "1"),
                *("--memory", _WORKER_MEMORY, "--work-dir", f"{home}/cluster-work", master),
            )
            for _ in range(workers)
        ]
        give_up_at = time.monotonic() + STARTED_MAX_S
        said = home / "cluster.log"
        while said.read_text(errors="replace").count("Registering worker") < workers:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"no cluster after {STARTED_MAX_S} s: {said}")
            time.sleep(LOOK_EVERY_S)
        yield master, started


def _environment(home: Path) -> dict[str, str]:
    import pyspark  # noqa: PLC0415

    return {
        **os.environ,
        "JAVA_HOME": make_java_home(find_java(os.environ), str(home / "java")),
        "SPARK_HOME": str(pyspark.__path__[0]),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }


def _job(master: str, logs: str, out: str) -> None:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    from dledger_spark.log.folder_log import open_folders  # noqa: PLC0415
    from dledger_spark.tables.refresh import refresh  # noqa: PLC0415
    from dledger_spark.tables.spark_engine import SparkEngine  # noqa: PLC0415
    from dledger_spark.tables.spark_update import update_on_spark  # noqa: PLC0415
    from dledger_spark.tables.table_home import TableHome  # noqa: PLC0415

    builder: Any = SparkSession.builder
    for name, value in {
        "spark.driver.memory": _DRIVER_MEMORY,
        "spark.executor.memory": _EXECUTOR_MEMORY,
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
    }.items():
        builder = builder.config(name, value)
    session = builder.master(master).getOrCreate()
    session.sparkContext.parallelize([0], 1).collect()  # the executors are up
    home = TableHome(out)
    rows = 0

    def begins(what: str) -> None:
        print(json.dumps(what), flush=True)

    def told(what: str, run: Callable[[], Any]) -> Any:
        begins(what)
        began = time.perf_counter()
        found = run()
        clock_s = time.perf_counter() - began
        print(json.dumps({"what": what, "clock_s": clock_s, "rows": rows}), flush=True)
        return found

    def opens(tables: Any) -> Any:
        return nullcontext(SparkEngine(session, tables, home.spill_path))

    def facts() -> None:
        nonlocal rows
        updated = update_on_spark(session, home, open_folders(logs))
        rows = sum(one.rows["messages"] for one in updated)

    with home.held():
        told("facts", facts)
        told("derived tables", lambda: refresh(home, opens, {}, begins))
        told("derived tables, nothing new", lambda: refresh(home, opens, {}, begins))
    session.stop()


if __name__ == "__main__" and sys.argv[1:2] == [_JOB]:
    _job(*sys.argv[2:5])
