"""A real group of three brokers and a name server, started by the project's own command."""

import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from dledger.free_ports import free_addresses
from remoting.net.access_file import read_credentials
from remoting.wire.signature import Credentials
from tests.clients.client_script import Failed

READY_S = 30
END_S = 15

# {python}, {dir} and {names} are replaced by this interpreter, an empty folder, and the name
# server's address. Scenarios with clients of gRPC start proxies by themselves, to end them.
UP = "{python} -m dledger_mq up --dir {dir} --nameserver {names} --restart-after 3 --grpc off"


class Leader(NamedTuple):
    """The member that leads: its name, and its process."""

    node: str
    pid: int


class LocalCluster:
    """`dledger-mq up` in a folder, from the first line to the last.

    Args:
        folder: for its files.
        up: the command that starts it, as `UP`.

    Raises:
        Failed: on entering, if no leader serves in time.
    """

    def __init__(self, folder: Path, up: str = UP) -> None:
        self._command = up
        self._folder = folder / "group"
        [self.names] = free_addresses(1)
        self.access_file = self._folder / "access.toml"
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._log = (folder / "up.log").open("w")
        self._up: subprocess.Popen[str] | None = None

    def __enter__(self) -> "LocalCluster":
        self._up = subprocess.Popen(
            [
                word.format(python=sys.executable, dir=self._folder, names=self.names)
                for word in shlex.split(self._command)
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        try:
            self._wait_until_ready()
        except Failed:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._up is not None:
            self._up.send_signal(signal.SIGTERM)
            self._up.wait(END_S)
        self._log.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                line = self._lines.get(timeout=max(deadline - time.monotonic(), 0))
            except queue.Empty:
                line = None
            if line is None:
                raise Failed(f"the group did not start; see {self._log.name}")
            if line.startswith("ready"):
                return

    @property
    def admin(self) -> Credentials | None:
        """The administrator, if there is access control."""
        return read_credentials(self.access_file) if self.access_file.exists() else None

    def command(self, *arguments: str) -> str:
        """Run `dledger-mq` with this name server, as the administrator; what it prints.

        Raises:
            Failed: it failed.
        """
        environment = {**os.environ, "NAMESRV_ADDR": self.names}
        if self.access_file.exists():
            environment["DLEDGER_MQ_CREDENTIALS"] = str(self.access_file)
        ran = subprocess.run(
            [sys.executable, "-m", "dledger_mq", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=READY_S,
        )
        if ran.returncode:
            raise Failed(f"dledger-mq {' '.join(arguments)}: {ran.stderr.strip()}")
        return ran.stdout

    def leader(self) -> Leader:
        """The member that leads now; of several groups, the first member that leads one."""
        nodes = json.loads(self.command("status", "--dir", str(self._folder), "--json"))
        return next(Leader(str(one["node"]), int(one["pid"])) for one in nodes if one["leads"])

    def kill_leader(self) -> str:
        """Kill the leader's process as if the power went; its name. It is started again later."""
        leader = self.leader()
        os.kill(leader.pid, signal.SIGKILL)
        return leader.node

    def _read(self) -> None:
        if self._up is not None and self._up.stdout is not None:
            with self._up.stdout:
                for line in self._up.stdout:
                    self._log.write(line)
                    self._log.flush()
                    self._lines.put(line)
        self._lines.put(None)
