"""A real proxy, for clients of RocketMQ 5."""

import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from dledger.free_ports import free_addresses
from remoting.wire.signature import Credentials
from tests.clients.client_script import Failed

READY_S = 30
END_S = 15


class LocalProxy:
    """A process of `python -m proxy`, from the first line to the last.

    Args:
        folder: for its log.
        names: the name server of its brokers.
        options: what else it is started with.

    Attributes:
        address: where it listens.
        log: its file.
    """

    def __init__(self, folder: Path, names: str, *options: str) -> None:
        [self.address] = free_addresses(1)
        self.log = folder / f"proxy-{self.address.rpartition(':')[2]}.log"
        self._command = (
            *(sys.executable, "-m", "proxy", "--exit-with-stdin"),
            *("--listen", self.address, "--nameservers", names),
            *options,
        )
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "LocalProxy":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, again if it was ended.

        Raises:
            Failed: it does not listen in time.
        """
        said = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        deadline = time.monotonic() + READY_S
        while b"proxy listening" not in self.log.read_bytes()[said:]:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"the proxy did not start; see {self.log}")
            time.sleep(0.1)

    def end(self) -> int:
        """Ask it to end (SIGTERM), and wait; its exit code."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(END_S)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


@dataclass(frozen=True)
class Reach:
    """How clients reach proxies.

    Attributes:
        title: in words.
        options: what proxies are started with.
        tls: clients speak TLS, those that can.
        authority: the certificate that made the proxies' ones.
        user: whom clients sign as.
    """

    title: str = "plain"
    options: tuple[str, ...] = ()
    tls: bool = False
    authority: Path | None = None
    user: Credentials | None = None


class SharedProxy:
    """A proxy that is started when a scenario first asks for it.

    Attributes:
        reach: how clients reach it.
    """

    def __init__(self, folder: Path, names: str, reach: Reach) -> None:
        self.reach = reach
        self._proxy = LocalProxy(folder, names, *reach.options)
        self._lock = threading.Lock()
        self._is_started = False

    def __enter__(self) -> "SharedProxy":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._proxy.kill()

    def address(self) -> str:
        """Where it listens, plain and with TLS."""
        with self._lock:
            if not self._is_started:
                self._proxy.start()
                self._is_started = True
        return self._proxy.address
