"""A standalone cluster of Spark on this machine: a master and workers, in processes of their own.

They run in a Python environment that has all packages of this one but the project itself, so what
they know of it is what `spark-submit` ships to them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from dledger.free_ports import free_addresses
from dledger_spark.java import find_java, make_java_home
from tests.built_wheel import build_wheel

# A master is up in three seconds and a job of a dozen queries takes one minute, on an idle machine.
STARTED_MAX_S: Final = 240
JOB_MAX_S: Final = 1500


class SparkCluster:
    """A master and two workers of one core each. See `spark_cluster`.

    Attributes:
        shipped: the wheel under the name that Spark puts on the path of Python.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._environment = _environment(folder)
        self._spark = Path(self._environment["SPARK_HOME"])
        (folder / "wheel").mkdir()
        self.shipped = folder / "dledger.zip"
        shutil.copy(build_wheel(folder / "wheel"), self.shipped)
        (address,) = free_addresses(1)
        host, _, port = address.rpartition(":")
        self.url = f"spark://{address}"
        self._start("master", "--host", host, "--port", port)
        self.workers = [
            self._start(
                *(f"worker{at}", "--host", host, "--cores", "1", "--memory", "1g"),
                *("--work-dir", str(folder / f"work{at}"), self.url),
            )
            for at in range(2)
        ]
        until(lambda: self._log("master").count("Registering worker") == 2, STARTED_MAX_S)

    def submit(self, job: Path, argument: str) -> subprocess.Popen[bytes]:
        """Start a job; its output goes to the file `job.log`."""
        return self._run(
            "job",
            [
                *(str(self._spark / "bin" / "spark-submit"), "--master", self.url),
                *("--py-files", str(self.shipped), "--conf", "spark.executor.memory=512m"),
                *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
                *("--conf", "spark.sql.session.timeZone=UTC"),
                *(str(job), argument),
            ],
            # Spark (4.3) does not look into --py-files where it plans a stream.
            PYTHONPATH=str(self.shipped),
        )

    def finish(self, job: subprocess.Popen[bytes]) -> None:
        """Wait for a job to succeed."""
        job.wait(JOB_MAX_S)
        assert job.returncode == 0, self._log("job")[-4000:]

    def kill_worker(self) -> None:
        """Kill a worker with its executors."""
        worker = self.workers.pop()
        for process in (worker.pid, *_children(worker.pid)):
            os.kill(process, signal.SIGKILL)
        worker.wait()

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        kind = "Master" if name == "master" else "Worker"
        program = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        spark_class = str(self._spark / "bin" / "spark-class")
        return self._run(name, [spark_class, program, "--webui-port", "0", *arguments])

    def _run(self, name: str, command: list[str], **more: str) -> subprocess.Popen[bytes]:
        with open(self._folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**self._environment, **more},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._stack.callback(_end, process)
        return process

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")


@contextmanager
def spark_cluster(folder: Path) -> Iterator[SparkCluster]:
    """A cluster that runs during the block; its files are in an empty folder."""
    with ExitStack() as stack:
        yield SparkCluster(folder, stack)


def until(is_so: Callable[[], bool], seconds_max: float) -> None:
    """Wait for something that other processes do."""
    give_up_at = time.monotonic() + seconds_max
    while not is_so():
        assert time.monotonic() < give_up_at, f"it did not happen in {seconds_max} s"
        time.sleep(0.2)


def _environment(folder: Path) -> Mapping[str, str]:
    """The variables of all processes; nothing in them leads to this checkout."""
    home = folder / "python"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(home)
    paths = sysconfig.get_paths(vars={"base": str(home), "platbase": str(home)})
    # The environment of the tests may be a thin one over that of another checkout.
    folders = [Path(path) for path in sys.path if path.endswith("site-packages")]
    packages = {package.name: package for of in reversed(folders) for package in of.iterdir()}
    for name, package in packages.items():
        # Files of this kind lead to other folders, such as an editable install's.
        if package.suffix != ".pth" and not name.startswith("dledger"):
            (Path(paths["purelib"]) / name).symlink_to(package)
    python = str(home / "bin" / "python")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "JAVA_HOME": make_java_home(find_java(os.environ), str(folder / "java")),
        "SPARK_HOME": f"{paths['purelib']}/pyspark",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": python,
    }
    probe = [python, "-c", "import trio, dledger_spark"]
    said = subprocess.run(probe, cwd=folder, env=environment, capture_output=True, check=False)
    assert b"No module named 'dledger_spark'" in said.stderr
    return environment


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # it has just ended
        if int(rest.split()[1]) == parent:
            found.append(int(stat.parent.name))
    return found


def descendants(parent: int) -> list[int]:
    """The processes that a process has started, and those that they have."""
    found = _children(parent)
    return found + [one for child in found for one in descendants(child)]


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for one in (*_children(process.pid), process.pid):
            os.kill(one, signal.SIGKILL)
    process.wait()
