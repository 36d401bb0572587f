"""A name server and three brokers as processes: started, watched, killed, ended."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.brokers.asking import (
    NotAnswered,
    is_listening,
    leader_address,
    make_topics,
    route,
    send_one,
)
from bench.one_run import RunFailed, end, last_complaint
from bench.process_figures import memory, ran_s
from remoting.wire.signature import Credentials

NAMESERVER = "nameserver"
PROXY = "proxy"

# RocketMQ's brokers need about ten seconds.
READY_TIMEOUT_S = 90.0
_PAUSE_S = 0.005
# RocketMQ's gives up if brokers and name servers take three seconds for an answer, at its start.
_PROXY_STARTS = 4


class Addresses(NamedTuple):
    """A folder, the addresses of a name server and of a proxy, and two for each member."""

    folder: Path
    nameserver: str
    members: dict[str, str]
    inner: dict[str, str]
    proxy: str = ""


class Program(NamedTuple):
    """A command, and additional variables of its environment."""

    command: list[str]
    environment: dict[str, str]


class Brokers(NamedTuple):
    """One kind of brokers.

    `addresses` chooses addresses for a group in a folder; `programs` returns the name server, the
    members and, where there is one, the proxy by name. `credentials`: of the administrator, with
    access control. `is_behind_proxy`: only rows with gRPC's clients are measured. `proxy_topics`:
    that its proxy needs.
    """

    key: str
    name: str
    version: str
    addresses: Callable[[Path], Addresses]
    programs: Callable[[Addresses], dict[str, Program]]
    credentials: Credentials | None = None
    is_behind_proxy: bool = False
    proxy_topics: tuple[str, ...] = ()


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
        self._proxy_topics = brokers.proxy_topics
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

    def proxy(self) -> str:
        """Return the address of the proxy, which is started when it is needed. Raises RunFailed."""
        address = self._addresses.proxy
        if PROXY in self._running:
            return address
        try:
            make_topics(self.leader_address(), self._proxy_topics, 1)
        except NotAnswered as error:
            raise RunFailed(str(error)) from None
        for topic in self._proxy_topics:
            self._until(partial(self._routed, topic), f"topic {topic} has no route")
        for left in reversed(range(_PROXY_STARTS)):
            self.start(PROXY)
            try:
                return self._until(lambda: address if is_listening(address) else None, "no proxy")
            except RunFailed:
                if not left or self._running[PROXY].poll() is None:
                    raise
        raise AssertionError(_PROXY_STARTS)

    def _routed(self, topic: str) -> str | None:
        return None if route(self.nameserver, topic) is None else topic

    def proxy_pid(self) -> int:
        return self._running[PROXY].pid

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

    def ran_s(self) -> float:
        """Return the processor time of all members since their start."""
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
