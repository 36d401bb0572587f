"""A name server and three brokers as processes: started, watched, killed, ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.brokers.asking import NotAnswered, leader_address, send_one
from bench.one_run import RunFailed, end, last_complaint
from bench.process_figures import memory, processor_s, ran_s
from remoting.wire.signature import Credentials

NAMESERVER = "nameserver"

# RocketMQ's brokers need about ten seconds.
READY_TIMEOUT_S = 90.0
_PAUSE_S = 0.005


class Addresses(NamedTuple):
    """A folder, the address of a name server, and two addresses for each member."""

    folder: Path
    nameserver: str
    members: dict[str, str]
    inner: dict[str, str]


class Program(NamedTuple):
    """A command, and additional variables of its environment."""

    command: list[str]
    environment: dict[str, str]


class Brokers(NamedTuple):
    """One kind of brokers.

    `addresses` chooses addresses for a group in a folder; `programs` returns the name server and
    the members by name. `credentials`: of the administrator, with access control.
    """

    key: str
    name: str
    version: str
    addresses: Callable[[Path], Addresses]
    programs: Callable[[Addresses], dict[str, Program]]
    credentials: Credentials | None = None


class BrokerGroup:
    """A running group. A context manager that ends all its processes.

    Attributes:
        nameserver: its address.
        ready_s: the time from the first start to the first stored message.
    """

    def __init__(self, brokers: Brokers, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._addresses = brokers.addresses(folder)
        self._credentials = brokers.credentials
        self._programs = brokers.programs(self._addresses)
        self._complaints = folder / "complaints"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.nameserver = self._addresses.nameserver
        self.ready_s = 0.0

    def __enter__(self) -> BrokerGroup:
        self._errors = self._complaints.open("ab")
        try:
            self.start(NAMESERVER)
            began = time.monotonic()
            for name in self._addresses.members:
                self.start(name)
            self._wait_ready()
            self.ready_s = time.monotonic() - began
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def leader(self) -> str:
        """Wait for the member that name servers call the master. Raises RunFailed."""
        return self._until(self._leader, "no member leads")

    def leader_address(self) -> str:
        return self._addresses.members[self.leader()]

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        process.kill()
        process.wait()
        end([process])  # closes its pipe

    def memory_mib(self) -> float:
        """Return the resident memory of the largest member."""
        return max(memory(self._running[name].pid).resident for name in self._addresses.members)

    def leader_memory_mib(self) -> float:
        return memory(self._running[self.leader()].pid).resident

    def processor_s(self) -> float:
        """Return the processor time of all members since their start."""
        members = [self._running[name] for name in self._addresses.members]
        return sum([processor_s(process.pid) for process in members])

    def ran_s(self) -> float:
        """Return the processor time of all members since their start, to the nanosecond."""
        return sum([ran_s(self._running[name].pid) for name in self._addresses.members])

    def last_complaint(self) -> str:
        return last_complaint(self._complaints)

    def start(self, name: str) -> None:
        program = self._programs[name]
        self._running[name] = subprocess.Popen(
            program.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            env={**os.environ, **program.environment},
        )

    def _end(self) -> None:
        end(list(self._running.values()))
        self._running.clear()
        self._errors.close()

    def _leader(self) -> str | None:
        address = leader_address(self.nameserver)
        members = self._addresses.members.items()
        return next((name for name, at in members if at == address and name in self._running), None)

    def _wait_ready(self) -> None:
        def stored() -> str | None:
            name = self._leader()
            if name is None:
                return None
            address = self._addresses.members[name]
            return name if send_one(address, "BenchReady", self._credentials) else None

        self._until(stored, "no message was stored")

    def _until(self, look: Callable[[], str | None], problem: str) -> str:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                if (found := look()) is not None:
                    return found
            except NotAnswered:
                pass  # not yet
            for name, process in self._running.items():
                if process.poll() is not None:
                    raise RunFailed(f"{name} has ended{self.last_complaint()}")
            time.sleep(_PAUSE_S)
        raise RunFailed(f"{problem} within {READY_TIMEOUT_S:g} s{self.last_complaint()}")
